"""Muon's products and states, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.examples import LLAMA_70B, cluster, ideal_profile, llama, mixtral

from shardplan import estimate
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.muon import newton_schulz_flops, orthogonalised

JOB = Job(sequence_length=2048, global_batch_size=64, optimizer="muon")


def answer(job: Job = JOB, plan: Plan | None = None, n: int = 8, **model: Any) -> Estimate:
    asked = llama(1024, 4, 8, 8, 4096, vocab_size=1024, **model)
    return estimate(asked, cluster(), n, plan or Plan(), job=job, profile=ideal_profile(), stack=None)


def test_five_iterations_of_three_products() -> None:
    """X X^T and B X take 2 m m n each, A^2 takes 2 m m m; the smaller side is m, whichever it is."""
    assert newton_schulz_flops(2, 3) == 5 * (2 * 2 * 2 * 3 + 2 * 2 * 2 * 2 + 2 * 2 * 2 * 3)
    assert newton_schulz_flops(8192, 28672) == newton_schulz_flops(28672, 8192)
    assert newton_schulz_flops(4096, 4096) == 30 * 4096**3


def test_matrices_of_a_layer() -> None:
    """Llama 70B: q and o of 8,192 x 8,192, k and v of 8,192 x 1,024, three of 8,192 x 28,672; tp shares them."""
    numbers = PlanNumbers.of(Plan(tp=8), 64, JOB)
    found = orthogonalised(LLAMA_70B, LLAMA_70B.layers[0], JOB, numbers)
    large, square, flat = ((8192, 28672), (8192, 8192), (8192, 1024))
    whole = 3 * newton_schulz_flops(*large) + 2 * newton_schulz_flops(*square) + 2 * newton_schulz_flops(*flat)
    assert float(found.dense) == pytest.approx(whole / 8)
    assert float(found.largest) == pytest.approx(newton_schulz_flops(*large) / 8)


def test_experts_are_matrices_of_their_own() -> None:
    numbers = PlanNumbers.of(Plan(ep=4), 64, JOB)
    found = orthogonalised(mixtral(), mixtral().layers[0], JOB, numbers)
    assert float(found.experts) == pytest.approx(2 * 3 * newton_schulz_flops(4096, 14336))
    assert float(found.largest) == pytest.approx(newton_schulz_flops(4096, 14336))


def test_one_moment_of_matrices_and_two_of_tables() -> None:
    """4 bytes of master copy and 4 of the moment; tables, head and norms 4 more."""
    job = Job(sequence_length=2048, global_batch_size=64, optimizer="muon")
    found, adam = answer(job, n=1), answer(Job(sequence_length=2048, global_batch_size=64), n=1)
    tables, norms = 2 * 1024 * 1024, (2 * 4 + 1) * 1024
    whole = adam.memory[0]["optimizer"] / 12
    assert found.memory[0]["optimizer"] == pytest.approx(8 * whole + 4 * (tables + norms))


def test_replicas_share_the_matrices_down_to_the_largest() -> None:
    """8 replicas take an eighth each under zero1, all under ddp; 64 wait for one of 1,024 x 4,096."""
    plain = Job(sequence_length=2048, global_batch_size=64, optimizer="sgd")

    def extra(n: int, sharding: Any) -> float:
        plan = Plan(sharding=sharding)
        return answer(JOB, plan, n).breakdown["optimizer"] - answer(plain, plan, n).breakdown["optimizer"]

    large, square = newton_schulz_flops(1024, 4096), newton_schulz_flops(1024, 1024)
    whole = 4 * (3 * large + 4 * square)
    assert extra(8, "zero1") == pytest.approx(extra(8, "ddp") / 8)
    assert extra(64, "zero1") / extra(8, "ddp") == pytest.approx(large / whole)


def test_other_optimizers_and_adapters_have_no_such_products() -> None:
    numbers = PlanNumbers.of(Plan(), 8, JOB)
    for fields in ({"optimizer": "adam"}, {"optimizer": "muon", "train": "lora"}):
        job = Job(sequence_length=2048, global_batch_size=64, **fields)  # type: ignore[arg-type]
        assert orthogonalised(LLAMA_70B, LLAMA_70B.layers[0], job, numbers).dense == 0
