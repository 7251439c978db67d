"""Sizes in time, accelerators and money: counted by hand, against brute force, and as ``budget`` has them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.commands import answer, run

import shardplan
from shardplan.answers.decisions.pareto_sizes import pareto_sizes_chart
from shardplan.base.errors import InputError

JOB: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 240}
ONE_STAGE = {"pp": 1, "cp": 1, "sharding": "zero1"}
SIZES = [8, 120, 128]
"""240 sequences divide among 8 and 120 replicas; 128 accelerators need tensor parallelism, and are slower."""
ARGUMENTS = (
    "llama-3.2-1b", "--cluster", "dgx-h100", "--sequence-length", "2048", "--global-batch-size", "240",
    "--fix", "pp=1", "--fix", "cp=1", "--fix", "sharding=zero1", "--gpus", "8,24,128",
)  # fmt: skip


def test_money_is_price_times_accelerators_times_time_and_the_front_is_that_of_brute_force() -> None:
    cluster = shardplan.load_cluster("dgx-h100", price=3.6)
    found = shardplan.pareto_sizes("llama-3.2-1b", cluster, SIZES, fix=ONE_STAGE, **JOB)
    values = []
    for size, number in zip(found.sizes, sorted(SIZES), strict=True):
        alone = shardplan.search("llama-3.2-1b", cluster, number, fix=ONE_STAGE, use_all=True, **JOB)
        assert alone.recommended is not None
        time = alone.recommended.step_time
        money = 3.6 * number * time / 3600 / (240 * 2048) * 1e9
        assert size.time == time
        assert size.money is None
        assert size.money_per_billion_tokens == pytest.approx(money)
        values.append((time, number, money))
    beaten = [any(all(a <= b for a, b in zip(q, p, strict=True)) and q != p for q in values) for p in values]
    assert [not size.is_on_front for size in found.sizes] == beaten
    assert any(beaten)
    assert found.fastest is not None
    assert found.fastest.time == min(time for time, _, _ in values)
    assert found.cheapest is not None
    assert found.cheapest.money_per_billion_tokens == pytest.approx(min(money for _, _, money in values))


def test_a_run_takes_the_days_and_the_money_of_budget() -> None:
    found = shardplan.pareto_sizes("llama-3.2-1b", "dgx-h100", [16, 8], fix=ONE_STAGE, tokens=1e12, **JOB)
    for size in found.sizes:
        of_budget = shardplan.budget(
            "llama-3.2-1b", "dgx-h100", num_accelerators=size.num_accelerators, tokens=1e12, fix=ONE_STAGE, **JOB
        ).options[0]
        assert size.time == pytest.approx(of_budget.wall_time)
        assert size.money == pytest.approx(of_budget.money)
        assert size.money_per_billion_tokens == pytest.approx((of_budget.money or 0) / 1000)
    panel = pareto_sizes_chart(found).panels[0]
    assert panel is not None
    drawn = [point for series in panel.series for point in series.y]
    assert sorted(drawn) == pytest.approx(sorted((each.money or 0) / 1e6 for each in found.sizes))


def test_the_command_compares_the_sizes_of_a_list() -> None:
    record = answer("pareto", *ARGUMENTS, "--tokens", "1T")
    assert [each["num_accelerators"] for each in record["sizes"]] == [8, 24, 128]
    assert record["currency"] == "USD"
    assert record["fastest"] in {each["num_accelerators"] for each in record["sizes"] if each["is_on_front"]}
    assert all(each["days_p10"] < each["days"] < each["days_p90"] for each in record["sizes"])
    shown = run("pareto", *ARGUMENTS)
    assert shown.exit_code == 0
    assert "Cheapest" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_money_needs_a_price_and_a_run_needs_a_step() -> None:
    with pytest.raises(InputError, match="no price"):
        shardplan.pareto_sizes("llama-3.2-1b", "frontier", [8, 16])
    with pytest.raises(InputError, match="fewer than one step"):
        shardplan.pareto_sizes("llama-3.2-1b", "dgx-h100", [8, 16], tokens=1000, **JOB)
    assert run("pareto", "llama-3.2-1b", "--cluster", "frontier", "--gpus", "8..16").exit_code == 2


def test_that_nothing_fits_is_an_answer() -> None:
    record = answer("pareto", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", "8,16", status=1)
    assert record["fastest"] is None
    assert all(each["reason"] for each in record["sizes"])
