"""Bands from the errors of comparable runs: weights, quantiles by hand, and what makes a band wider."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest

import shardplan
from shardplan.estimation import band as bands
from shardplan.estimation.band import Band, band_of_run, errors_of, features_of, shipped_errors
from shardplan.estimation.band import band_among as band_among_errors
from shardplan.estimation.evidence import SPREADS
from shardplan.estimation.gaps import UNMEASURED
from shardplan.estimation.question import Question
from shardplan.estimation.ties import NORMAL_P90, UNKNOWN_SD, difference_sd, tie_factor
from shardplan.inputs.job import Precision
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator
from shardplan.inputs.readers.residuals import Features, Residual, Shares, read_residuals

H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


def band_among(asked: Features, part: str, quantity: str, residuals: Sequence[Residual], **others: Any) -> Band:
    return band_among_errors(asked, part, errors_of(residuals, quantity), **others)


def residual(time: float, *, family: str = "one", features: Features = H100, setting: str = "") -> Residual:
    """Predicted by runs of the same plan, as near as those that are asked for."""
    return Residual(
        id="run", family=family, features=features, time=time, memory=None, setting=setting, gap_factor=SPREADS[0]
    )


def test_a_weighted_quantile_is_interpolated_between_the_middles_of_the_weights() -> None:
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    assert bands.weighted_quantile(values, weights, 0.25) == 1.0  # 1 weighs 2: its middle is at 1 of 4
    assert bands.weighted_quantile(values, weights, 0.5) == pytest.approx(1 + 1 / 1.5)  # 2: middle at 2.5
    assert bands.weighted_quantile(values, weights, 0.0) == 1.0
    assert bands.weighted_quantile(values, weights, 1.0) == 3.0


def test_a_band_of_equal_runs_spans_their_middle_four_fifths() -> None:
    errors = np.linspace(-0.5, 0.5, 101)
    found = band_among(H100, "H100", "time", [residual(float(error), family=str(error)) for error in errors])
    assert math.log(found.low) == pytest.approx(-0.404)  # 10.1 of 101 weights, whose middles are at halves
    assert math.log(found.high) == pytest.approx(0.404)
    assert found.note is None


def test_a_prediction_that_was_too_slow_everywhere_lowers_the_band_and_never_leaves_it() -> None:
    found = band_among(H100, "H100", "time", [residual(0.2, family=str(index)) for index in range(20)])
    assert found.low == pytest.approx(math.exp(-0.2))
    assert found.high == 1.0
    found = band_among(H100, "H100", "time", [residual(-0.2, family=str(index)) for index in range(20)])
    assert found.low == 1.0
    assert found.high == pytest.approx(math.exp(0.2))


@pytest.mark.parametrize(
    "change",
    [
        {"accelerator": "h200"},
        {"generation": "ampere"},
        {"bits": 8},
        {"moe": True},
        {"parameters": 8e11},
    ],
)
def test_what_differs_weighs_less(change: dict[str, Any]) -> None:
    other = H100._replace(**change)
    alike, differs = bands._weights(
        errors_of([residual(0, family="a"), residual(0, family="b", features=other)], "time"), H100
    )
    assert differs < alike


def test_a_team_weighs_as_far_as_its_runs_make_its_centre_known() -> None:
    """Where teams and the runs of one differ as much, 36 runs weigh as 2 / (1 + 1 / 36) single ones."""
    spread = NORMAL_P90  # tenths of these two values are a standard deviation of one apart on either side
    many = [residual(spread * (-1) ** place, family="many") for place in range(36)]
    others = [residual(sign * math.sqrt(2), family=f"single {sign}") for sign in (-1.0, 1.0, 0.0)]
    known = errors_of([*many, *others], "time")
    size = bands._size_of_errors(many[0], "time")
    assert bands.parts_of(known.scaled * size, known.teams) == pytest.approx((1.0, 1.0))
    weights = bands._weights(known, H100)
    assert weights[:36].sum() == pytest.approx(2 / (1 + 1 / 36) * weights[-1])


def test_what_a_team_shares_is_not_its_own_part() -> None:
    """Own runs tell it: beside them a far team's published errors count from its median, those of two runs in whole."""
    far = [residual(1.0 + step, family="far") for step in (-0.1, 0.0, 0.1)]
    known = errors_of([*far, residual(0.5, family="two"), residual(0.7, family="two")], "time")
    size = bands._size_of_errors(far[0], "time")
    assert known.own_part * size == pytest.approx([0.1, 0.0, -0.1, -0.5, -0.7])
    alone = errors_of(far, "time")
    assert np.asarray(bands._quantiles(alone, H100, is_own=True)) * size == pytest.approx([-0.1, 0.1])
    assert np.asarray(bands._quantiles(alone, H100)) * size == pytest.approx([-1.1, -0.9])
    found = band_among(H100, "H100", "time", far)
    assert found.narrowed is not None
    assert found.low < found.narrowed[0] <= found.narrowed[1] <= found.high  # own runs narrow it: no end moves outwards


def test_errors_at_first_sight_take_the_place_of_those_left_out_later() -> None:
    mended = [residual(0.01 * place, family=str(place))._replace(first_time=0.3) for place in range(12)]
    found = band_among(H100, "H100", "time", mended)
    assert found.low == pytest.approx(math.exp(-0.3))


def test_where_little_is_alike_errors_of_all_runs_are_mixed_in() -> None:
    far = H100._replace(accelerator="tpu", generation="tpu", parameters=1e12)
    weights = bands._weights(
        errors_of([residual(0, family=str(index), features=far) for index in range(4)], "time"), H100
    )
    assert weights == pytest.approx(np.full(4, bands.FEW_RUNS / 4), rel=0.05)


def test_errors_of_the_same_kind_of_model_are_mixed_in_ten_times_as_much() -> None:
    """Two runs that are alike in nothing share the twelve of which a band is made at least."""
    far = H100._replace(parameters=1e40)
    runs = [residual(0, family=str(moe), features=far._replace(moe=moe)) for moe in (False, True)]
    assert bands._weights(errors_of(runs, "time"), H100) == pytest.approx([12 * 10 / 11, 12 / 11])
    assert bands._weights(errors_of(runs, "time"), H100._replace(moe=True)) == pytest.approx([12 / 11, 12 * 10 / 11])


def test_runs_of_another_part_of_a_generation_weigh_as_the_root_of_their_distance_says() -> None:
    """Errors spread evenly from -0.2 to 0.2, and as many of another part at 1, at exp(-0.5 / 2 / 3**2) each."""
    own = [residual(error, family=f"own {error}") for error in np.linspace(-0.2, 0.2, 401).tolist()]
    other = H100._replace(accelerator="h200")
    runs = [*own, *(residual(1.0, family=f"other {place}", features=other) for place in range(401))]
    found = band_among(H100, "H100", "time", runs)
    share = 0.9 - 0.1 * math.exp(-0.25 / 9)  # of the own errors a tenth of all weights lies above the end
    assert math.log(found.high) == pytest.approx(-0.2 + 0.4 * share, abs=1e-3)
    assert math.log(found.low) == pytest.approx(-1)


@pytest.mark.parametrize(("quantity", "weight"), [("time", math.exp(-1 / 18)), ("memory", math.exp(-1 / 2))])
def test_a_weight_falls_with_the_square_of_the_distance(quantity: str, weight: float) -> None:
    """One halving of the bits away, with a length of 3 or 1; where there are twelve alike, nothing is mixed in."""
    runs = [residual(0, family=str(place))._replace(memory=0.0) for place in range(12)]
    other = runs[0]._replace(family="other", features=H100._replace(bits=8))
    assert bands._weights(errors_of([*runs, other], quantity), H100).tolist() == pytest.approx([*[1.0] * 12, weight])


def test_a_part_that_has_runs_is_compared_by_itself_and_another_by_those_of_its_generation() -> None:
    parts = [("hopper", "h100"), ("hopper", "h200"), ("ampere", "a100")]
    features = [H100._replace(generation=generation, accelerator=name) for generation, name in parts]
    known = errors_of([residual(0.1 * n, family=str(n), features=each) for n, each in enumerate(features)], "time")
    assert bands._parts(known, H100) == {parts[0]}
    assert bands._parts(known, H100._replace(accelerator="h20")) == set(parts[:2])
    assert bands._parts(known, H100._replace(generation="cdna3")) == set(parts)
    own, other = (bands._quantiles(known, each) for each in features[:2])
    assert bands._ends_of_published(known, H100._replace(sequence_length=1e6, plan=Plan(tp=8))) == own
    widest = min(own[0], other[0]), max(own[1], other[1])
    assert bands._ends_of_published(known, H100._replace(accelerator="h20")) == widest


@pytest.mark.parametrize("shape", bands.SHAPE.values())
def test_an_end_is_as_before_without_errors_and_at_none_after_many_exact_ones(shape: float) -> None:
    assert bands.end_after(0.3, 0.0, 0.0, shape=shape) == pytest.approx(0.3)
    ends = [bands.end_after(0.3, float(count), 0.0, shape=shape) for count in (0, 1, 6, 100, 10_000)]
    assert all(b < a for a, b in pairwise(ends))
    assert ends[-1] < 0.001


def test_errors_of_a_size_widen_an_end_as_they_are_large_and_many_make_it_that_of_a_laplace_distribution() -> None:
    """Of a Laplace distribution with a mean size s, four in five lie within s ln 5."""
    ends = [bands.end_after(0.1, 6.0, 6 * size, shape=4.0) for size in (0.0, 0.05, 0.1, 0.5)]
    assert all(a < b for a, b in pairwise(ends))
    assert bands.end_after(0.1, 1e6, 0.2e6, shape=4.0) == pytest.approx(0.2 * math.log(5), rel=1e-3)


@pytest.mark.parametrize("shape", [1.5, 4.0])
@pytest.mark.parametrize("num_seen", [0, 1, 6, 40])
def test_four_in_five_of_the_next_errors_of_a_team_lie_inside(num_seen: int, shape: float) -> None:
    """Laplace errors of teams whose scale is drawn; before any is seen, ends of 0.3 hold 80 % of them over all."""
    random = np.random.default_rng(28)
    rate = 0.3 / (0.2 ** (-1 / shape) - 1)  # of Lomax's distribution, 20 % beyond 0.3
    scales = 1 / random.gamma(shape, 1 / rate, size=4000)
    errors = np.abs(random.laplace(scale=scales[:, None], size=(4000, num_seen + 1)))
    ends = [bands.end_after(0.3, num_seen, float(seen.sum()), shape=shape) for seen in errors[:, 1:]]
    assert np.mean(errors[:, 0] <= ends) == pytest.approx(0.8, abs=0.03)


def test_a_known_scale_is_learnt_whatever_is_known_before() -> None:
    """From 400 runs with Laplace errors of one scale, a third or ten times of what published runs let expect."""
    random = np.random.default_rng(28)
    for scale in (0.03, 1.0):
        seen, unseen = np.abs(random.laplace(scale=scale, size=(2, 100, 400)))
        ends = np.asarray([bands.end_after(0.16, 400.0, float(each.sum()), shape=4.0) for each in seen])
        assert np.mean(unseen <= ends[:, None]) == pytest.approx(0.8, abs=0.03)


def test_own_runs_that_are_like_nothing_that_is_asked_leave_the_published_band() -> None:
    """Both parts of it: what a team shares is as unknown as before, and so is the size of its errors."""
    known = errors_of([residual(1.0 + step, family="far") for step in (-0.1, 0.0, 0.1)], "time")
    own = [run._replace(features=H100._replace(parameters=1e40)) for run in _own(12, 0.0)]
    low, high = bands._ends_with(known, own, H100)
    assert (low, high) == pytest.approx((bands._ends_of_published(known, H100)[0], 0.0))
    near = bands._ends_with(known, _own(1000, 0.0), H100)
    assert near == pytest.approx((0.0, 0.0), abs=0.01)


def test_of_the_shared_part_as_much_is_left_as_own_runs_are_too_few_to_tell() -> None:
    """Between the published ends of both parts and of the own one, by variances: rho of rho + W."""
    known = errors_of([*even_spread(), *(residual(-0.4 + step, family="far") for step in (-0.1, 0.0, 0.1))], "time")
    both, alone = (bands._ends_of_published(known, H100, is_own=is_own)[1] for is_own in (False, True))
    rest = known.ratio / (known.ratio + 2)
    expected = bands.end_after(math.sqrt(both**2 * rest + alone**2 * (1 - rest)), 2.0, 0.0, shape=4.0)
    assert bands._ends_with(known, _own(2, 0.0), H100)[1] == pytest.approx(expected)
    assert both != pytest.approx(alone)


@pytest.mark.parametrize("change", [{"accelerators": 640.0}, {"moe": True}, {"plan": Plan(tp=8)}, {"bits": 8}])
def test_own_runs_weigh_less_the_less_they_are_like_the_question(change: dict[str, Any]) -> None:
    known, own = errors_of(even_spread(), "time"), _own(6, 0.0)
    alike, unlike = (bands._ends_with(known, own, asked)[1] for asked in (H100, H100._replace(**change)))
    assert 1.01 * alike < unlike < bands._ends_of_published(known, H100)[1]


def test_what_no_run_covers_is_named() -> None:
    asked = H100._replace(accelerator="h20")
    assert band_among(H100, "H100", "time", spread()).not_measured is None
    assert band_among(H100._replace(accelerators=128.0), "H100", "time", spread()).not_measured is None
    found = band_among(asked, "H20", "time", spread())
    assert found.not_measured == "no measured run covers H20, only others of its generation"
    assert found.note == f"{found.not_measured}: the band is wider"


def test_plans_that_own_runs_had_are_measured() -> None:
    """A plan at a middling distance is worth no word; one far away is, unless there are runs of one's own."""
    near, far = (H100._replace(plan=plan) for plan in (Plan(pp=2), Plan(tp=8, cp=8)))
    assert band_among(near, "H100", "time", spread()).note is None
    assert "no measured dense run has tp 8" in str(band_among(far, "H100", "time", spread()).note)
    own = [run._replace(features=far) for run in _own(12, 0.1)]
    assert "plan" not in str(band_among(far, "H100", "time", spread(), own=own).note)


def test_a_question_has_the_features_of_its_parts() -> None:
    """Shares are rounded, so that answers of steps that are almost alike are kept once."""
    job = shardplan.Job(sequence_length=8192, global_batch_size=128, precision="fp8")
    model, cluster = shardplan.load_model("mixtral-8x7b"), shardplan.load_cluster("dgx-h100")
    asked = Question(model=model, cluster=cluster, num_accelerators=32, job=job)
    plan, shares = Plan(tp=2), Shares(host=0.123, communication=0.456, attention=0.049)
    assert features_of(asked, shares, plan) == Features(
        accelerator="h100-sxm-80gb", generation="hopper", bits=8, moe=True, parameters=model.num_parameters,
        accelerators=32, sequence_length=8192, global_batch_size=128, plan=plan, shares=Shares(0.12, 0.46, 0.05),
    )  # fmt: skip


def test_formats_have_the_bits_of_their_names() -> None:
    named = {name: int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) for name in get_args(Precision)}
    assert named == bands.FORMAT_BITS


def _width(found: bands.Band) -> float:
    return math.log(found.high / found.low)


def spread() -> list[Residual]:
    return [residual(0.1 * sign, family=f"{sign}{index}") for index in range(10) for sign in (-1, 1)]


def test_where_no_run_is_comparable_the_band_says_of_what_it_is_a_guess() -> None:
    new = H100._replace(accelerator="mi300x", generation="cdna3")
    known, unknown = band_among(H100, "H100", "time", spread()), band_among(new, "MI300X", "time", spread())
    assert known.basis == "in 8 of 10 comparable runs"
    assert unknown.basis == "a guess from 20 runs of other accelerators"
    assert _width(unknown) == pytest.approx(UNMEASURED * _width(known))
    assert unknown.note == "no measured run covers MI300X or its generation: the band is wider"


def even_spread() -> list[Residual]:
    """Errors from -0.2 to 0.2, whose band is 0.16 to either side."""
    return [residual(float(error), family=str(error)) for error in np.linspace(-0.2, 0.2, 101)]


def _own(count: int, size: float) -> list[Residual]:
    """Runs of a user, half of them off by ``size`` to either side."""
    return [residual(size * (-1) ** place, family=f"own:{place}") for place in range(count)]


@pytest.mark.parametrize("size", [0.01, 0.5])
def test_own_runs_move_the_band_from_the_published_one_to_their_own(size: float) -> None:
    """The more runs of one's own, the nearer the band is to their errors."""
    counts = (0, 2, 4, 12, 400)
    found = [_width(band_among(H100, "H100", "time", even_spread(), own=_own(count, size))) for count in counts]
    assert found[0] == pytest.approx(0.32, rel=0.02)
    assert found[-1] == pytest.approx(2 * size * math.log(5), rel=0.1)  # of Laplace's errors of this mean size
    assert all((b - a) * (size - 0.16) >= 0 for a, b in pairwise(found))
    assert abs(found[2] - found[0]) > 0.02


def test_one_run_of_ones_own_narrows_little() -> None:
    found = band_among(H100, "H100", "time", even_spread(), own=_own(1, 0.001))
    assert 0.75 * 0.32 < _width(found) < 0.32


def test_own_runs_unlike_the_question_weigh_less() -> None:
    alike = band_among(H100, "H100", "time", even_spread(), own=_own(12, 0.01))
    far = H100._replace(moe=True, parameters=1e12, accelerators=8192.0)
    own = [run._replace(features=far) for run in _own(12, 0.01)]
    unlike = band_among(H100, "H100", "time", even_spread(), own=own)
    assert _width(alike) < 0.7 * _width(unlike)


def test_own_runs_of_another_scale_weigh_less() -> None:
    large = [run._replace(features=H100._replace(accelerators=8192.0)) for run in even_spread()]
    alike, unlike = (
        band_among(H100._replace(accelerators=scale), "H100", "time", large, own=_own(12, 0.01))
        for scale in (64.0, 8192.0)
    )
    assert _width(alike) < 0.8 * _width(unlike)


def test_gaps_count_on_both_sides_of_the_comparison() -> None:
    """Runs of one's own on a part that nobody published close a gap; what else widens contradicts nothing."""
    new, own = H100._replace(accelerator="h20"), _own(12, 0.1)
    on_h20 = [run._replace(features=new) for run in own]
    found = band_among(new, "H20", "time", even_spread(), own=on_h20)
    assert _width(found) < 0.95 * _width(band_among(new, "H20", "time", even_spread()))
    assert str(found.note).endswith("the band is narrower than without them")
    found = band_among(new._replace(accelerators=128.0), "H20", "time", even_spread(), own=on_h20)
    assert "narrower than without them. 128 accelerators: " in str(found.note)
    assert str(found.note).endswith("the band is wider than where runs cover this")


def test_the_errors_of_own_runs_are_told() -> None:
    found = band_among(H100, "H100", "time", even_spread(), own=_own(12, math.log(1.04)))
    assert found.note is not None
    assert "12 runs" in found.note
    assert "4.0 % in the median" in found.note
    assert found.note.endswith("narrower than without them")
    wider = band_among(H100, "H100", "time", even_spread(), own=_own(12, 6.0))
    assert wider.note is not None
    assert wider.note.endswith("wider than without them")


@pytest.mark.parametrize(
    "shares",
    [
        Shares(host=0.5),
        Shares(communication=0.3),
        Shares(attention=0.8),
        Shares(host=0.4, communication=0.2, attention=0.1),
    ],
)
def test_steps_that_wait_have_wider_bands_of_the_same_errors(shares: Shares) -> None:
    """Root of the sum of squares: 0.12 of a whole step, 0.4 of the host, 0.8 of the network, 0.3 of attention."""
    found, waiting = (band_among(H100._replace(shares=s), "H100", "time", spread()) for s in (Shares(), shares))
    expected = math.hypot(1, 0.8 / 0.12 * shares.communication, 0.4 / 0.12 * shares.host, 2.5 * shares.attention)
    assert _width(waiting) == pytest.approx(expected * _width(found))


def test_errors_of_steps_that_wait_say_less_of_one_that_computes() -> None:
    waits = H100._replace(shares=Shares(communication=0.5))
    runs = [run._replace(features=waits) for run in spread()]
    assert _width(band_among(waits, "H100", "time", runs)) == pytest.approx(0.2)
    assert _width(band_among(H100, "H100", "time", runs)) == pytest.approx(0.2 / math.hypot(1, 0.8 / 0.12 * 0.5))


@pytest.mark.parametrize(("tier", "factor"), [("A", 1.0), ("A-", 1.2), ("B", 1.5)])
def test_errors_of_runs_that_are_not_described_in_full_say_less_and_may_be_larger(tier: str, factor: float) -> None:
    runs = [run._replace(tier=tier) for run in spread()]
    assert _width(band_among(H100, "H100", "time", runs)) == pytest.approx(0.2 / factor)
    assert _width(band_of_run(runs[0], errors_of(runs, "time"))) == pytest.approx(0.2)
    metered = [run._replace(memory=run.time) for run in runs]
    assert _width(band_of_run(metered[0], errors_of(metered, "memory"))) == pytest.approx(0.2)


def test_memory_does_not_wait() -> None:
    runs = [run._replace(memory=run.time) for run in spread()]
    waits = H100._replace(shares=Shares(host=0.9))
    assert band_among(waits, "H100", "memory", runs) == band_among(H100, "H100", "memory", runs)


def test_memories_that_contradict_themselves_are_no_evidence() -> None:
    run = residual(0.1, family="internevo")._replace(memory=-0.5)
    assert run.has("time")
    assert not run.has("memory")
    assert run._replace(family="bloom").has("memory")


def test_the_shipped_errors_make_bands_for_everything() -> None:
    runs = read_residuals()
    assert len(runs) > 800
    for run in runs[::97]:
        for quantity in ("time", "memory"):
            found = band_among(run.features, "part", quantity, runs)
            assert 0.2 < found.low <= 1 <= found.high < 5


DENSE, MIXTURE = H100._replace(parameters=7e10), H100._replace(moe=True, parameters=4e11)
SCALES = [2.0**power for power in range(0, 21, 4)]


def _every_part(quantity: str) -> dict[tuple[str, str], bool]:
    """Whether it was measured, by generation and name; of every generation one of those that were not."""
    known = {run.features.accelerator for run in read_residuals() if run.has(quantity)}
    parts = [load_accelerator(name) for name in list_accelerators()]
    without: dict[str, str] = {part.generation: part.name for part in parts if part.name not in known}
    measured = {(part.generation, part.name): part.name in known for part in parts if part.name in known}
    return dict.fromkeys(list(without.items()), False) | measured


def _widths(asked: Features, part: tuple[str, str], quantity: str) -> list[float]:
    of_part = asked._replace(generation=part[0], accelerator=part[1])
    scales = [of_part._replace(accelerators=scale) for scale in SCALES]
    return [_width(band_among_errors(each, "part", shipped_errors(quantity))) for each in scales]


@pytest.mark.parametrize("quantity", ["time", "memory"])
@pytest.mark.parametrize("asked", [DENSE, MIXTURE])
def test_no_shipped_band_narrows_with_scale_or_for_want_of_runs(quantity: str, asked: Features) -> None:
    """From one accelerator to a million; a part without runs against those of its generation that have some, or all."""
    parts = _every_part(quantity)
    widths = {part: _widths(asked, part, quantity) for part in parts}
    assert all(b >= 0.99 * a for one in widths.values() for a, b in pairwise(one))
    measured = [part for part, is_measured in parts.items() if is_measured]
    for part in parts.keys() - set(measured):
        others = [other for other in measured if other[0] == part[0]] or measured
        assert all(a >= 0.99 * b for other in others for a, b in zip(widths[part], widths[other], strict=True)), part


def test_the_error_of_a_ratio_is_taken_within_settings() -> None:
    shared: Callable[[float, str], Residual] = lambda error, name: residual(error, setting=name)  # noqa: E731
    runs = [shared(1.0, "a"), shared(1.1, "a"), shared(-1.0, "b"), shared(-1.1, "b"), residual(9.0), shared(5, "c")]
    assert difference_sd(runs) == pytest.approx(0.1)
    assert difference_sd([]) == UNKNOWN_SD


def test_families_and_accelerators_are_not_compared() -> None:
    a = residual(0.0, setting="a")
    others = [a._replace(family="two", time=1.0), a._replace(features=H100._replace(accelerator="h200"), time=1.0)]
    assert difference_sd([a, *others]) == UNKNOWN_SD


def test_ties_are_nearer_than_the_error_of_the_order() -> None:
    assert tie_factor() == pytest.approx(math.exp(NORMAL_P90 * difference_sd(read_residuals())))
    assert 1.01 < tie_factor() < 1.3
