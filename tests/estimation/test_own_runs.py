"""What a profile's own runs make of a band, which plans tie, and constants at their worse end."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from tests.examples import LLAMA_70B, cluster

import shardplan
from shardplan.estimation.band import band_of
from shardplan.estimation.gaps import FOREIGN, SAME, UNCALIBRATED, Gap, doubts_of, own_runs, told_of
from shardplan.estimation.perturbation import GROUPS, perturbed, side_by_side
from shardplan.estimation.question import Question
from shardplan.estimation.ties import UNKNOWN_SD, difference_sd, tie_factor
from shardplan.inputs.job import Job
from shardplan.inputs.profile import Profile, load_profile
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.inputs.readers.residuals import Features, Residual, read_residuals

H100 = Features(accelerator="h100-sxm-80gb", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)
OWN = tuple(
    Residual(id=f"run {place}", family="", features=H100, time=0.03 * (-1) ** place, memory=None) for place in range(12)
)


def question(profile: Profile | None) -> Question:
    return Question(
        model=shardplan.load_model("llama-3.1-8b"),
        cluster=shardplan.load_cluster("dgx-h100"),
        num_accelerators=64,
        job=shardplan.Job(sequence_length=4096, global_batch_size=64),
        given_profile=profile,
    )


def doubts(asked: Question, quantity: str = "time") -> tuple[Gap, ...]:
    return doubts_of(asked, quantity, own_runs(asked, quantity))


def factors(gaps: tuple[Gap, ...]) -> list[float]:
    return [gap.factor for gap in gaps]


def test_the_shipped_constants_under_another_name_are_the_shipped_ones() -> None:
    assert doubts(question(None)) == ()
    named = question(replace(load_profile("hopper"), name="mine"))
    assert doubts(named) == ()
    assert band_of(named) == band_of(question(None))


@pytest.mark.parametrize(
    ("profile", "factor", "words"),
    [
        (replace(load_profile("hopper"), name="mine", step_time=0.05), UNCALIBRATED, "'mine' has no errors of its own"),
        (load_profile("volta"), FOREIGN, "'volta' are those of volta, another generation than hopper"),
    ],
)
def test_constants_without_errors_of_their_own_widen_the_band(profile: Profile, factor: float, words: str) -> None:
    asked = question(profile)
    assert factors(doubts(asked)) == [factor]
    usual, found = band_of(question(None)), band_of(asked)
    assert found.low < usual.low
    assert found.high > usual.high
    assert found.note is not None
    assert words in found.note


def test_a_fit_counts_by_its_own_errors() -> None:
    asked = question(replace(load_profile("hopper"), name="mine", left_out_errors=OWN))
    assert len(own_runs(asked, "time")) == 12
    assert own_runs(asked, "memory") == ()
    assert doubts(asked) == ()
    usual, found = band_of(question(None)), band_of(asked)
    assert found.high / found.low < 0.95 * usual.high / usual.low
    assert band_of(asked, "memory") == band_of(question(None), "memory")


def test_a_fit_to_another_generation_says_nothing_of_this_one() -> None:
    asked = question(replace(load_profile("ampere"), name="mine", left_out_errors=OWN))
    assert own_runs(asked, "time") == ()
    assert factors(doubts(asked)) == [FOREIGN]


@pytest.mark.parametrize(
    ("change", "changed", "other", "what"),
    [
        ({"step_time": 0.05}, "time", "memory", "step times"),
        ({"framework_bytes": 9e9}, "memory", "time", "peak memory"),
    ],
)
def test_constants_are_doubted_where_they_count(change: dict[str, Any], changed: str, other: str, what: str) -> None:
    asked = question(replace(load_profile("hopper"), name="mine", **change))
    assert factors(doubts(asked, changed)) == [UNCALIBRATED]
    assert doubts(asked, other) == ()
    assert band_of(asked, other) == band_of(question(None), other)
    assert f"'mine' has no errors of its own for {what}" in str(band_of(asked, changed).note)


def test_errors_of_one_quantity_say_nothing_of_the_other() -> None:
    profile = replace(load_profile("hopper"), name="mine", step_time=0.05, framework_bytes=9e9, left_out_errors=OWN)
    asked = question(profile)
    assert doubts(asked) == ()
    assert factors(doubts(asked, "memory")) == [UNCALIBRATED]
    runs = tuple(run._replace(time=None, memory=run.time) for run in OWN)
    asked = question(replace(profile, left_out_errors=runs))
    assert factors(doubts(asked)) == [UNCALIBRATED]
    assert doubts(asked, "memory") == ()


def test_constants_of_no_generation_have_the_errors_of_this_one_or_a_doubt() -> None:
    profile = replace(load_profile("default"), name="mine", left_out_errors=OWN)
    assert len(own_runs(question(profile), "time")) == 12
    assert doubts(question(profile)) == ()
    elsewhere = tuple(run._replace(features=H100._replace(generation="ampere")) for run in OWN)
    asked = question(replace(profile, left_out_errors=elsewhere))
    assert own_runs(asked, "time") == ()
    assert factors(doubts(asked)) == [UNCALIBRATED]


@pytest.mark.parametrize("num_accelerators", [64, 65536])
@pytest.mark.parametrize("size", [0.01, 0.08, 0.2, 0.9])
def test_the_note_compares_the_bands_that_are_printed(size: float, num_accelerators: int) -> None:
    """Against the same constants without errors, which are doubted."""
    runs = tuple(run._replace(time=math.copysign(size, run.time or 0.0)) for run in OWN)
    profile = replace(load_profile("hopper"), name="mine", step_time=0.05, left_out_errors=runs)
    asked = replace(question(profile), num_accelerators=num_accelerators)
    found, without = band_of(asked), band_of(replace(asked, given_profile=replace(profile, left_out_errors=())))
    ratio = math.log(found.high / found.low) / math.log(without.high / without.low)
    word = "as wide as" if abs(ratio - 1) <= SAME else "wider than" if ratio > 1 else "narrower than"
    assert f"the band is {word} without them" in str(found.note)


def test_own_runs_cover_a_part_that_nobody_published() -> None:
    h20 = shardplan.load_cluster("hgx-h20")
    runs = tuple(run._replace(features=H100._replace(accelerator=h20.accelerator.name)) for run in OWN)
    fitted = replace(load_profile("hopper"), name="mine", left_out_errors=runs)
    without, found = (replace(question(profile), cluster=h20) for profile in (None, fitted))
    assert band_of(without).basis.startswith("a guess from")
    assert band_of(found).basis == "in 8 of 10 comparable runs"


def test_the_errors_that_are_told_are_a_median_and_a_90th_percentile() -> None:
    """Of errors of 1, 2, ... 11 % the sixth and the tenth, whichever way they point."""
    errors = [math.log(1 + place / 100) * (-1) ** place for place in range(1, 12)]
    runs = [run._replace(time=error) for run, error in zip(OWN, errors, strict=False)]
    assert "6.0 % in the median, 10.0 % at the 90th percentile" in told_of(runs, "time", 1.0)
    assert "is off by 3.0 % without it" in told_of(runs[2:3], "time", 1.0)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (0.948, "narrower than"),
        (0.952, "as wide as"),
        (1.0, "as wide as"),
        (1.048, "as wide as"),
        (1.052, "wider than"),
    ],
)
def test_the_width_is_told(width: float, words: str) -> None:
    assert told_of(OWN, "time", width).endswith(f"the band is {words} without them")


def test_errors_that_are_handed_over_make_the_band_that_they_make_by_themselves() -> None:
    """Whether they are read from the shipped file or passed: what a fit leaves in doubt counts the same."""
    doubted = tuple(run._replace(time=math.copysign(0.08, run.time or 0.0)) for run in OWN)  # "narrower" by the doubt
    for runs in (), OWN, doubted:
        asked = question(replace(load_profile("hopper"), name="mine", step_time=0.05, left_out_errors=runs))
        assert band_of(asked, residuals=read_residuals()) == band_of(asked)


PART = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def runs(setting: str, *errors: float) -> list[Residual]:
    return [
        Residual(id="run", family="one", features=PART, time=error, memory=None, setting=setting) for error in errors
    ]


def test_the_spread_of_pairs_is_the_quantile_within_one_standard_deviation() -> None:
    """Errors 0, 1 and 3 differ by 1, 2 and 3, whose middles are at a sixth, a half and five sixths."""
    within = math.erf(math.sqrt(0.5))
    assert difference_sd(runs("a", 0.0, 1.0, 3.0)) == pytest.approx(2 + (within - 1 / 2) * 3, rel=1e-4)


def test_a_setting_weighs_as_its_runs() -> None:
    """Two runs that differ by 1, and three by 2, 3 and 5: the first pair weighs two of five, the others one each."""
    within = math.erf(math.sqrt(0.5))
    found = difference_sd([*runs("a", 0.0, 1.0), *runs("b", 0.0, 2.0, 5.0)])
    assert found == pytest.approx(2 + (5 * within - 2.5), rel=1e-4)


def test_without_pairs_the_spread_is_that_of_the_published_runs_rounded() -> None:
    assert difference_sd([]) == UNKNOWN_SD == round(difference_sd(read_residuals()), 1)


def test_a_tie_is_within_the_90th_percentile_of_the_error() -> None:
    expected = NormalDist(sigma=difference_sd(read_residuals())).inv_cdf(0.9)
    assert math.log(tie_factor()) == pytest.approx(expected, rel=1e-4)


ASKED = Question(
    model=LLAMA_70B, cluster=cluster(), num_accelerators=64, job=Job(sequence_length=4096, global_batch_size=256)
)
P90 = NormalDist().inv_cdf(0.9)


def logit(share: float) -> float:
    return math.log(share / (1 - share))


@pytest.mark.parametrize("group", GROUPS)
def test_every_constant_of_a_group_is_known_and_no_other_moves(group: str) -> None:
    before, after = ASKED.profile, perturbed(ASKED, group).profile
    assert GROUPS[group].keys() <= {field.name for field in fields(Profile)}
    changed = {f.name for f in fields(Profile) if getattr(before, f.name) != getattr(after, f.name)}
    stated = {name for name in GROUPS[group] if before.constants[name].sd is not None}
    assert changed == stated


def test_a_worse_constant_is_at_the_90th_percentile_of_what_is_known() -> None:
    before = ASKED.profile
    launch, sd = before.collective_launch_time, before.constants["collective_launch_time"].sd
    assert math.log(perturbed(ASKED, "network").profile.collective_launch_time / launch) == pytest.approx(
        P90 * sd,  # type: ignore[operator]  # a number has one
        rel=1e-4,
    )
    hidden, sd = before.tp_window, before.constants["tp_window"].sd
    moved = logit(hidden) - logit(perturbed(ASKED, "overlap").profile.tp_window)  # type: ignore[arg-type]  # numbers
    assert moved == pytest.approx(P90 * sd, rel=1e-4)  # type: ignore[operator]  # a number has one


def test_keys_of_a_table_move_by_the_spread_that_they_share() -> None:
    before, after = ASKED.profile.network_efficiency, perturbed(ASKED, "network").profile.network_efficiency
    spread = ASKED.profile.constants["network_efficiency"].sd
    assert isinstance(spread, dict)
    for keys, sd in spread.items():
        for key in keys.split("+"):
            assert math.log(before[key] / after[key]) == pytest.approx(P90 * sd, rel=1e-4)
    assert {key for key in before if before[key] == after[key]} == before.keys() - "+".join(spread).split("+") - {""}


def test_shares_stay_shares_at_their_ends() -> None:
    asked = replace(ASKED, given_profile=replace(ASKED.profile, tp_window=0.0, cp_window=1.0))
    worse = perturbed(asked, "overlap").profile
    assert worse.tp_window == 0.0
    assert worse.cp_window == 1.0


def test_what_has_no_spread_is_taken_as_known() -> None:
    sure = {name: replace(constant, sd=None) for name, constant in ASKED.profile.constants.items()}
    asked = replace(ASKED, given_profile=replace(ASKED.profile, constants=sure))
    for group in GROUPS:
        assert perturbed(asked, group).profile == asked.profile
    assert side_by_side(asked, num_axes=2).profile == asked.profile  # numbers, not arrays of what is the same


def test_constants_without_their_origin_have_the_spread_of_their_generation() -> None:
    bare = replace(ASKED, given_profile=replace(ASKED.profile, constants={}))
    assert (
        perturbed(bare, "network").profile.network_efficiency == perturbed(ASKED, "network").profile.network_efficiency
    )


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-b200", "tpu-v5p-pod", "frontier", "gaudi3-hls3"])
def test_all_groups_at_once_are_each_by_itself(name: str) -> None:
    asked = replace(ASKED, cluster=load_cluster(name), job=replace(ASKED.job, precision="bf16"))
    together = side_by_side(asked, num_axes=2).profile
    for row, each in enumerate([asked.profile, *(perturbed(asked, group).profile for group in GROUPS)]):
        for constant in (name for group in GROUPS.values() for name in group):
            joint, alone = getattr(together, constant), getattr(each, constant)
            for key in alone if isinstance(alone, dict) else [None]:
                values = np.asarray(joint if key is None else joint[key])
                assert values.ndim in (0, 3)
                assert values.ravel()[row % values.size] == (alone if key is None else alone[key])
