"""Constants at their worse end, against the definition of a percentile."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from statistics import NormalDist

import numpy as np
import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan.estimation.perturbation import GROUPS, perturbed, side_by_side
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.catalog import load_cluster

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
