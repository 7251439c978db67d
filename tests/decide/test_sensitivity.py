"""Elasticities: their signs, sizes and sums, and a machine on which nothing but arithmetic takes time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, run

import shardplan
from shardplan.base.errors import InputError
from shardplan.decide.sensitivity import parameters_of, scaled

SPACE: dict[str, Any] = {"limit": {"pp": [1, 2], "cp": [1]}}
JOB: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 64}


@pytest.fixture(scope="module")
def found() -> shardplan.SensitivityAnswer:
    return shardplan.sensitivity("llama-3.2-1b", "dgx-h100", 16, **SPACE, **JOB)


def test_rates_shorten_and_latencies_lengthen_the_step(found: shardplan.SensitivityAnswer) -> None:
    for point in found.points:
        assert point.elasticity is not None
        sign = 1 if point.parameter.unit == "s" else -1
        assert -1e-9 <= sign * point.elasticity <= 1


def test_rates_sum_to_minus_one_at_most(found: shardplan.SensitivityAnswer) -> None:
    assert -1.0 - 1e-6 <= found.sum_of_rates <= -0.7


def test_elasticities_are_those_of_two_searches(found: shardplan.SensitivityAnswer) -> None:
    point = next(each for each in found.points if each.parameter.name == "memory_bandwidth")
    question = found.base.question
    times = []
    for by in (1 / 1.25, 1.25):
        cluster = scaled(question, "memory_bandwidth", by).cluster
        fastest = shardplan.search("llama-3.2-1b", cluster, 16, **SPACE, **JOB).fastest
        assert fastest is not None
        times.append(fastest.step_time)
    assert point.elasticity == pytest.approx(math.log(times[1] / times[0]) / math.log(1.25**2))


def test_arithmetic_alone_where_memory_is_infinitely_fast(found: shardplan.SensitivityAnswer) -> None:
    question = scaled(found.base.question, "memory_bandwidth", 1e4)
    alone = shardplan.sensitivity("llama-3.2-1b", question.cluster, 1, fix={"recompute": "none"}, **JOB)
    best = alone.points[0]
    assert best.parameter.name == "peak_flops"
    assert best.elasticity == pytest.approx(-1.0, abs=0.05)


def test_one_accelerator_has_no_network(found: shardplan.SensitivityAnswer) -> None:
    alone = shardplan.question("llama-3.2-1b", "dgx-h100", 1, **JOB)
    assert {each.name for each in parameters_of(alone)} == {"peak_flops", "memory_bandwidth", "memory_bytes"}
    assert {each.name for each in parameters_of(found.base.question)} > {"tiers.node.bandwidth"}


def test_the_host_counts_where_states_are_kept_there() -> None:
    names = {
        each.parameter.name
        for each in shardplan.sensitivity("llama-3.2-1b", "dgx-h100", 1, fix={"offload": "optimizer"}, **JOB).points
    }
    assert "host_link_bandwidth" in names


@pytest.mark.parametrize("factor", [1.0, 0.5, 11.0, math.nan])
def test_the_factor_is_checked(factor: float) -> None:
    with pytest.raises(InputError, match="the factor is"):
        shardplan.sensitivity("llama-3.2-1b", "dgx-h100", 8, factor=factor, **JOB)


def test_the_command_orders_parameters() -> None:
    arguments = ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "8", "--limit", "pp=1", "--limit", "cp=1")
    record = answer("sensitivity", *arguments)
    sizes = [abs(each["elasticity"]) for each in record["parameters"]]
    assert sizes == sorted(sizes, reverse=True)
    assert run("sensitivity", *arguments, "--factor", "1").exit_code == 2
    shown = run("sensitivity", *arguments)
    assert "matrix peaks" in shown.stdout


def test_a_plan_file_asks_its_question(tmp_path: Path) -> None:
    file, small = tmp_path / "plan.json", ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 8, "--limit", "pp=1")
    run("estimate", *small[:-2], "--pp", 1, "--json", file)
    for command in ("sensitivity", "pareto"):
        of_file, of_flags = answer(command, file, "--limit", "pp=1"), answer(command, *small)
        assert {**of_file, "assumptions": ()} == {**of_flags, "assumptions": ()}


def test_that_nothing_fits_is_an_answer() -> None:
    assert answer("sensitivity", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", "8", status=1)["parameters"] == []
