"""In which respects a question lies outside the measured runs: what is said of each, and by how much it widens."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shardplan.estimation import gaps
from shardplan.estimation.evidence import DISTANCES, SPREADS, KnownRuns, spread
from shardplan.estimation.gaps import Gap, gap_of_plan, gaps_of, total_factor
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.residuals import Features, Residual, read_residuals

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def runs(count: int = 3, features: Features = H100, name: str = "family") -> list[Residual]:
    """Runs of as many sources."""
    return [
        Residual(id="run", family=f"{name} {place}", features=features, time=0.1, memory=0.1) for place in range(count)
    ]


def found(known: list[Residual], quantity: str = "time", **change: Any) -> tuple[Gap, ...]:
    return gaps_of(H100._replace(**change), "Part", quantity, known)


def test_what_three_sources_measured_has_no_gap() -> None:
    assert found(runs()) == ()
    assert total_factor(()) == 1


def test_layers_without_attention_that_no_run_had() -> None:
    """Models of Mamba-2 alone are another kind than dense transformers, and near to hybrids that are mostly Mamba-2."""
    (gap,) = found(runs(), recurrent=1.0)
    assert gap.factor == gaps.UNMEASURED_KIND
    assert "share of layers without attention" in gap.reason
    assert found([*runs(), *runs(features=H100._replace(recurrent=0.9), name="hybrids")], recurrent=1.0) == ()
    assert found(runs(), quantity="memory", recurrent=1.0) == ()
    apart = KnownRuns(runs(1)).squared(H100._replace(recurrent=1.0))
    assert math.sqrt(apart[0]) == pytest.approx(2.0)  # as far as a mixture of experts


def test_a_generation_that_no_run_covers_is_one_gap() -> None:
    (gap,) = found(runs(), accelerator="mi300x", generation="cdna3")
    assert gap.factor == gaps.UNMEASURED
    assert gap.others == "3 runs of other accelerators"
    assert "no measured run covers Part or its generation" in gap.reason


def test_a_generation_of_which_no_kernel_was_timed_is_a_wider_one() -> None:
    """It has the constants of all generations. Memory depends on none of them."""
    (gap,) = found(runs(), accelerator="gaudi3", generation="gaudi")
    assert gap.factor == gaps.UNTIMED > gaps.UNMEASURED
    assert gap.reason.endswith("of which no kernel was timed")
    (memory,) = found(runs(), quantity="memory", accelerator="gaudi3", generation="gaudi")
    assert memory.factor == gaps.UNMEASURED


def test_the_fewer_sources_a_part_has_the_wider() -> None:
    other = H100._replace(accelerator="h800")
    factors = [total_factor(found([*runs(), *runs(count, other, "own")], accelerator="h800")) for count in range(5)]
    assert factors[0] == pytest.approx(gaps.UNMEASURED_PART)
    assert factors[1:3] == pytest.approx([1 + 0.25 * 2 / 3, 1 + 0.25 / 3])
    assert factors[3:] == [1, 1]


def test_few_runs_of_a_part_are_counted_and_none_is_a_guess() -> None:
    other = H100._replace(accelerator="h200")
    (none,) = found(runs(), accelerator="h200")
    assert none.reason == "no measured run covers Part, only others of its generation"
    assert none.others == "3 runs of other parts of its generation"
    (one,) = found([*runs(), *runs(1, other)], accelerator="h200")
    assert (one.reason, one.others) == ("Part: 1 measured run", None)
    (three,) = found([*runs(), *runs(1, other) * 3], accelerator="h200")
    assert three.reason == "Part: 3 measured runs (all of one source)"


def test_scale_is_judged_by_generation_and_kind_of_model() -> None:
    known = [*runs(3, H100._replace(accelerators=16384.0)), *runs(3, H100._replace(moe=True, accelerators=2048.0))]
    assert found(known, accelerators=16384.0) == ()
    (gap,) = found(known, accelerators=16384.0, moe=True)
    assert gap.factor == pytest.approx(gaps.UNMEASURED_SCALE + 3 * gaps.BEYOND)
    assert "16,384 accelerators: " in gap.reason
    assert "the largest measured mixture-of-experts run of its generation was on 2,048" in gap.reason


def test_every_doubling_beyond_the_largest_run_widens() -> None:
    factors = [total_factor(found(runs(), accelerators=float(size))) for size in (64, 128, 1024, 65536)]
    least = gaps.UNMEASURED_SCALE
    assert factors == pytest.approx([1, 1 + gaps.BEYOND, least + 4 * gaps.BEYOND, least + 10 * gaps.BEYOND])
    assert all(a < b for a, b in pairwise(factors))


def test_a_scale_that_few_sources_measured_lies_between() -> None:
    known = [*runs(), *runs(1, H100._replace(accelerators=16384.0), "large")]
    assert found(known, accelerators=128.0) == ()
    (gap,) = found(known, accelerators=16384.0)
    assert gap.factor == pytest.approx(1 + (gaps.UNMEASURED_SCALE - 1) * 2 / 3)
    assert gap.reason == "16,384 accelerators: 1 measured run of its generation had half of that or more"


def test_the_scale_of_another_part_of_the_generation_counts_in_part() -> None:
    """TPU v6e was measured up to 1,024 chips, v5e up to 8,192; their networks differ."""
    known = [
        *runs(6, H100._replace(accelerators=1024.0)),
        *runs(3, H100._replace(accelerator="x", accelerators=8192.0)),
    ]
    (gap,) = found(known, accelerators=8192.0)
    assert gap.factor == pytest.approx(1 + 3 * gaps.BEYOND_PART)
    assert gap.reason == "the largest run of Part was on 1,024 accelerators"
    part, scale = found(known, accelerators=16384.0)
    assert part == gap
    assert scale.factor == pytest.approx(1 + gaps.BEYOND)


def test_what_was_measured_makes_nothing_less_certain() -> None:
    """A part with a run on 8 against one with none; a generation with a run on 8 against one with none."""
    small, large = (H100._replace(generation="volta", accelerator="v100", accelerators=size) for size in (8.0, 8192.0))
    of_part = [*runs(3, large._replace(accelerator="other")), *runs(1, small)]
    measured, unmeasured = (found(of_part, **_as(large, accelerator=name)) for name in ("v100", "none"))
    assert total_factor(measured) == total_factor(unmeasured) == gaps.UNMEASURED_PART
    of_generation = [*runs(3, H100._replace(accelerators=8192.0)), *runs(1, small)]
    measured, unmeasured = (found(of_generation, **_as(large, generation=name)) for name in ("volta", "cdna3"))
    assert total_factor(measured) == pytest.approx(total_factor(unmeasured))
    assert len(measured) == 2
    assert total_factor(unmeasured) == gaps.UNMEASURED


def _as(features: Features, **change: Any) -> dict[str, Any]:
    return {name: getattr(features, name) for name in ("generation", "accelerator", "accelerators")} | change


@pytest.mark.parametrize("quantity", ["time", "memory"])
def test_scale_widens_also_where_nothing_was_measured(quantity: str) -> None:
    new = {"accelerator": "mi300x", "generation": "cdna3"}
    first, beyond = found(runs(), quantity, accelerators=65536.0, **new)
    assert first.factor == gaps.UNMEASURED
    assert beyond.factor == pytest.approx(10 * gaps.BEYOND + (gaps.UNMEASURED_SCALE if quantity == "time" else 1))
    assert " was on 64" in beyond.reason
    assert "of its generation" not in beyond.reason


def test_a_format_that_no_run_computes_in() -> None:
    (gap,) = found(runs(), bits=32)
    assert (gap.factor, gap.others) == (gaps.UNMEASURED, "3 runs in other formats")
    elsewhere = H100._replace(generation="ampere", accelerator="a100", bits=8)
    (gap,) = found([*runs(), *runs(3, elsewhere)], bits=8)
    assert (gap.factor, gap.others) == (gaps.UNMEASURED_FORMAT, None)
    assert "of its generation multiplies in 8 bits" in gap.reason


def test_a_kind_of_model_that_no_run_of_the_generation_has() -> None:
    (gap,) = found(runs(), moe=True)
    assert gap.factor == gaps.UNMEASURED_KIND
    assert "no mixture-of-experts run of its generation" in gap.reason


def test_lengths_that_few_or_no_runs_reach() -> None:
    usual = 4096.0
    of: Callable[[float], dict[str, Any]] = lambda times: {"sequence_length": times * usual}  # noqa: E731
    known = [*runs(), *runs(1, H100._replace(**of(32)), "long")]
    assert found(known, **of(2)) == ()
    (few,) = found(known, **of(64))
    assert few.factor == pytest.approx(1 + 0.25 * 2 / 3 + gaps.BEYOND)
    (long,) = found(known, **of(32))
    assert "1 measured run" in long.reason
    (none,) = found(known, **of(128))
    assert none.factor == pytest.approx(1.25 + 2 * gaps.BEYOND)
    assert f"the most that was measured is {32 * usual:,.0f}" in none.reason


def test_causes_add_as_independent_errors_do() -> None:
    """Errors of relative size 1 and 0.75 together are 1.25: so are factors of 1.25 and one of 1."""
    both = [Gap(reason="a", factor=1.25), Gap(reason="b", factor=1.25)]
    assert total_factor(both[:1]) == pytest.approx(1.25)
    assert total_factor(both) == pytest.approx(math.sqrt(1 + 2 * 0.75**2))


def test_memory_knows_neither_part_nor_format_nor_plan() -> None:
    assert found(runs(), "memory", accelerator="h20", bits=32, moe=True, sequence_length=1e6, plan=Plan(cp=64)) == ()
    assert total_factor(found(runs(), "memory", accelerators=128.0)) == pytest.approx(1 + gaps.BEYOND)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accelerator": "h200-sxm-141gb", "accelerators": 4096.0}, "512 accelerators"),
        ({"moe": True, "accelerators": 16384.0}, "2,048"),
        ({"generation": "tpu", "accelerator": "tpu-v6e", "accelerators": 8192.0}, "1,024"),
        ({"generation": "volta", "accelerator": "v100-sxm2-32gb"}, "3 measured runs (all of one source)"),
        ({"generation": "rubin", "accelerator": "rubin-288gb"}, "no measured run covers"),
        ({"bits": 32}, "32 bits"),
        ({"sequence_length": 1048576.0}, "all of one source"),
    ],
)
def test_what_the_published_runs_lack_is_said(change: dict[str, Any], words: str) -> None:
    h100 = H100._replace(accelerator="h100-sxm-80gb")
    known = read_residuals()
    assert gaps_of(h100, "Part", "time", known) == ()
    asked = gaps_of(h100._replace(**change), "Part", "time", known)
    assert words in "; ".join(gap.reason for gap in asked)
    assert total_factor(asked) > 1


def test_a_plan_that_was_measured_is_nearer_than_any_and_has_no_reason_to_be_wider() -> None:
    measured = KnownRuns(runs())
    assert gap_of_plan(H100, measured).factor == SPREADS[0]
    factors = [gap_of_plan(H100._replace(plan=Plan(cp=cp)), measured).factor for cp in (1, 2, 4, 8, 64)]
    assert factors == sorted(factors)
    assert factors[1:] == pytest.approx([1.25, *[1.5] * 3])


def test_a_plan_that_is_far_for_many_small_reasons_is_said_to_be_far() -> None:
    other = Plan(pp=8, micro_batch_size=16, recompute="full", overlap_dp=False, offload="activations")
    gap = gap_of_plan(H100._replace(plan=other), KnownRuns(runs()))
    assert (gap.reason, gap.factor) == ("no measured dense run has a similar plan", SPREADS[-1])


def test_without_any_run_all_is_far() -> None:
    assert gap_of_plan(H100, KnownRuns(())).factor == SPREADS[-1]
    assert gap_of_plan(H100, KnownRuns(()), KnownRuns(runs())).factor == SPREADS[0]


@pytest.mark.parametrize(
    ("plan", "moe", "words"),
    [
        (Plan(tp=4, pp=16, vp=8, cp=4), False, "no measured dense run has cp 4 with sequences of 8,192 tokens"),
        (Plan(ep=8, sharding="zero3"), True, "ep 8 with sharded weights: 3 measured mixture-of-experts runs"),
        (Plan(sharding="zero3"), True, "sharded weights with sequences of 8,192 tokens: 5 measured"),
        (Plan(tp=64), False, "no measured dense run has tp 64"),
    ],
)
def test_what_the_published_runs_lack_of_a_plan_is_said(plan: Plan, moe: bool, words: str) -> None:  # noqa: FBT001
    asked = H100._replace(accelerator="h100-sxm-80gb", moe=moe, plan=plan, sequence_length=8192.0, parameters=2e11)
    gap = gap_of_plan(asked, KnownRuns([run for run in read_residuals() if run.has("time")]))
    assert words in gap.reason
    assert gap.factor > 1


@pytest.mark.parametrize(
    ("respect", "factors"),
    [
        ("no run covers the accelerator's generation", "1.4"),
        ("runs cover its generation, but not the accelerator itself; one source, two sources", "1.25; 1.17, 1.08"),
        ("no run of its generation is of that kind, mixture of experts or dense", "1.3"),
        ("no run of its generation multiplies in that number format; no run at all", "1.25; 1.4"),
        ("more accelerators than any run of the generation and kind has half of; one", "1.15; 1.10, 1.05"),
        ("beyond the largest run of the generation and kind", "+ 0.1 per doubling"),
        ("beyond the largest run of the accelerator, within those of its generation", "+ 0.05 per doubling"),
        ("sequences of which no run has half", "1.25; 1.17, 1.08"),
        ("beyond the longest", "+ 0.1 per doubling"),
        ("a plan, or a plan for such sequences, that no run of that kind is near to", "1.25; 1.17, 1.08"),
        ("[distance](../evidence.md) from the nearest measured run", "0.7 to 0.25; 1 from 0.5 to 1.75; 1.5 from 2.25"),
    ],
)
def test_factors_are_those_of_the_documentation(respect: str, factors: str) -> None:
    table = Path(__file__).parents[2] / "docs" / "formulas" / "efficiency.md"
    (row,) = [line for line in table.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {respect}")]
    assert row.split(" | ")[1].startswith(factors)


def test_factors_by_hand() -> None:
    """The numbers of the table above."""
    far: dict[str, Any] = {"accelerator": "mi300x", "generation": "cdna3"}
    large: dict[str, Any] = {"accelerators": 512.0}
    other = H100._replace(accelerator="other")
    assert total_factor(found(runs(), **far)) == pytest.approx(1.4)
    assert total_factor(found(runs(), accelerator="other")) == pytest.approx(1.25)
    two_parts = [*runs(3, H100._replace(**large)), *runs(1, other._replace(**large), "own")]
    assert total_factor(found(two_parts, accelerator="other")) == pytest.approx(1 + 0.25 * 2 / 3)
    assert total_factor(found(runs(), moe=True)) == pytest.approx(1.3)
    assert total_factor(found(runs(), bits=8)) == pytest.approx(1.4)
    assert total_factor(found([*runs(), *runs(3, H100._replace(bits=8, generation="b"))], bits=8)) == pytest.approx(
        1.25
    )
    assert total_factor(found(runs(), **large)) == pytest.approx(1.15 + 3 * 0.1, abs=1e-12)
    in_part = [*runs(), *runs(3, other._replace(accelerators=128.0), "other")]
    assert total_factor(found(in_part, accelerators=128.0)) == pytest.approx(1.05)
    assert total_factor(found(runs(), sequence_length=8 * 4096.0)) == pytest.approx(1.25 + 3 * 0.1)
    for sources, factor in ((0, 1.25), (1, 1 + 0.25 * 2 / 3), (2, 1 + 0.25 / 3), (3, 1.0)):
        split = H100._replace(plan=Plan(cp=2))
        table = KnownRuns([*runs(), *runs(sources, split, "split")])
        measured = {0: spread(math.sqrt(2)), 1: spread(0), 2: spread(0), 3: spread(0)}[sources]
        assert gap_of_plan(split, table).factor == pytest.approx(max(factor, measured) if factor > 1 else measured)
    assert (DISTANCES, SPREADS) == ((0.25, 0.5, 1.75, 2.25), (0.7, 1.0, 1.0, 1.5))


def test_what_is_near_to_measured_runs_narrows_all_of_a_band() -> None:
    gaps_and_nearness = [Gap(reason="near", factor=0.7), Gap(reason="a", factor=1.25), Gap(reason="b", factor=1.25)]
    assert total_factor(gaps_and_nearness) == pytest.approx(0.7 * math.sqrt(1 + 2 * 0.75**2))


@pytest.mark.parametrize(("share", "is_other"), [(0.15, False), (0.16, True)])
def test_models_are_of_another_kind_from_a_share_of_layers_on(share: float, *, is_other: bool) -> None:
    assert bool(found(runs(), recurrent=share)) == is_other


@pytest.mark.parametrize(
    ("change", "factor"),
    [
        ({"accelerators": 160.0}, 1.15 + 0.1 * math.log2(2.5)),
        ({"sequence_length": 2.5 * 4096}, 1.25 + 0.1 * math.log2(2.5)),
        ({"accelerators": 128.0}, 1.1),
        ({"sequence_length": 2 * 4096.0}, None),
    ],
)
def test_runs_of_half_the_size_are_near(change: dict[str, Any], factor: float | None) -> None:
    """On 64 accelerators with sequences of 4,096 tokens."""
    assert [gap.factor for gap in found(runs(), **change)] == [pytest.approx(each) for each in [factor] if each]


def test_long_sequences_of_one_source_are_within_what_was_measured() -> None:
    known = [*runs(), *runs(1, H100._replace(sequence_length=32 * 4096.0), "long")]
    (gap,) = found(known, sequence_length=16 * 4096.0)
    assert gap.factor == pytest.approx(1 + 0.25 * 2 / 3)
    assert gap.reason == "sequences of 65,536 tokens: 1 measured run had half of that or more"


NEW = {"accelerator": "mi300x", "generation": "cdna3"}


def test_a_new_generation_with_a_new_format_has_two_gaps() -> None:
    known = [*runs(), *runs(1, H100._replace(bits=8))]
    assert [gap.factor for gap in found(known, bits=4, **NEW)] == [gaps.UNMEASURED, gaps.UNMEASURED]
    assert [gap.factor for gap in found(known, bits=8, **NEW)] == [gaps.UNMEASURED]
    (memory,) = found(known, "memory", bits=4, **NEW)
    assert memory.reason == "no measured peak memory covers Part or its generation"
    assert found(known, **NEW)[0].reason == "no measured run covers Part or its generation"


@pytest.mark.parametrize(
    ("quantity", "moe", "words"),
    [
        ("time", False, "the largest measured dense run of its generation was on 64"),
        ("time", True, "the largest measured run of its generation was on 64"),
        ("memory", True, "the largest measured peak memory of its generation was on 64"),
    ],
)
def test_the_largest_run_is_said(quantity: str, moe: bool, words: str) -> None:  # noqa: FBT001  # a row of the table
    assert found(runs(), quantity, accelerators=1024.0, moe=moe)[-1].reason == f"1,024 accelerators: {words}"


SPLIT = H100._replace(plan=Plan(cp=2))


@pytest.mark.parametrize(
    ("split", "reason", "factor"),
    [
        (runs(1, SPLIT, "a"), "cp 2: 1 measured dense run", 1 + 0.25 * 2 / 3),
        (runs(1, SPLIT, "a") * 2, "cp 2: 2 measured dense runs (all of one source)", 1 + 0.25 * 2 / 3),
        (runs(2, SPLIT, "a"), "cp 2: 2 measured dense runs (of 2 sources)", 1 + 0.25 / 3),
        (runs(3, SPLIT, "a"), "", SPREADS[0]),
    ],
)
def test_runs_that_are_near_to_a_plan_are_counted(split: list[Residual], reason: str, factor: float) -> None:
    gap = gap_of_plan(SPLIT, KnownRuns([*runs(), *split]))
    assert gap.reason == reason
    assert gap.factor == pytest.approx(factor)


def test_own_runs_are_sources_beside_the_published_ones() -> None:
    """Two sources and one's own are enough; own runs that are as far as the others bring a plan no nearer."""
    published = KnownRuns([*runs(1, SPLIT, "a"), *runs(1, name="other"), *runs(1, SPLIT, "b")])
    own = KnownRuns(runs(1, SPLIT, "own"))
    assert gap_of_plan(SPLIT, published, own) == Gap(reason="", factor=SPREADS[0])
    far = H100._replace(plan=Plan(pp=8, micro_batch_size=16, recompute="full", offload="activations"))
    assert gap_of_plan(far, KnownRuns(runs()), KnownRuns(runs(1))).factor == SPREADS[-1]


def test_the_smallest_factor_of_what_is_outside_is_that_of_a_part() -> None:
    """Judgement, as the documentation states it; a scale of which half was measured is inside."""
    assert gaps.OUTSIDE == gaps.UNMEASURED_PART == gaps.UNMEASURED_PAIR == gaps.UNMEASURED_FORMAT == 1.25
    assert gaps.OUTSIDE == gaps.UNMEASURED_LENGTH == min(gaps.UNMEASURED_KIND, gaps.UNMEASURED, 1.25)
    assert (gaps.UNMEASURED, gaps.UNMEASURED_KIND, gaps.UNMEASURED_SCALE) == (1.4, 1.3, 1.15)
