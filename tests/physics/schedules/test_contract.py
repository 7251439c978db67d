"""What every schedule promises, against its own passes run one by one."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.physics.schedules.executor import equal, run

from shardplan.physics.schedules.base import Passes, Pipeline, PipelineSchedule, Place
from shardplan.physics.schedules.registry import SCHEDULES

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))
seconds = st.floats(0.05, 3.0)


@st.composite
def durations(draw: st.DrawFn) -> Passes:
    """Unequal forward passes, input gradients and weight gradients."""
    return Passes(forward=draw(seconds), input_gradient=draw(seconds), weight_gradient=draw(seconds))


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Ranks, chunks, micro-batches and group, of which a schedule may admit some."""
    pp = draw(st.integers(1, 8))
    m = draw(st.one_of(st.integers(1, 32), st.integers(1, 5).map(lambda n: n * pp)))
    return pp, draw(st.integers(1, 4)), m, draw(st.one_of(st.just(pp), st.integers(pp, 12)))


def pipeline(schedule: PipelineSchedule, size: tuple[int, int, int, int]) -> Pipeline:
    """A pipeline near this size that the schedule takes; leaves out what its rule does not admit."""
    pp, vp, m, g = size
    pp = max(pp, schedule.least_pp)
    vp = max(vp, schedule.least_vp) if schedule.most_vp is None else schedule.most_vp
    near = (
        Pipeline(pp=ranks, vp=vp, num_microbatches=max(count, int(schedule.least_microbatches(ranks))), group_size=g)
        for ranks in (pp, pp + 1)
        for count in (m, m + 1)
    )
    at = next((one for one in near if bool(schedule.can_run(one))), None)
    assume(at is not None)
    assert at is not None
    return at


def times(passes: Passes, factor: float) -> Passes:
    return Passes(
        forward=passes.forward * factor,
        input_gradient=passes.input_gradient * factor,
        weight_gradient=passes.weight_gradient * factor,
    )


def idle(schedule: PipelineSchedule, at: Pipeline, own: Passes) -> float:
    return float(schedule.idle_time(at, own, times(own, float(at.pp))))


@every_schedule
@given(sizes(), durations())
def test_the_closed_form_is_what_the_passes_take(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], own: Passes
) -> None:
    """Equal stages, free transfers: the executor also sees that each pass runs once and that no rank waits for ever."""
    at = pipeline(schedule, size)
    step = run(schedule, at, equal(own, int(at.vp)))
    assert idle(schedule, at, own) == pytest.approx(max(step.idle), rel=1e-12, abs=1e-11)
    kept = [float(schedule.microbatches_in_flight(at, rank)) for rank in range(int(at.pp))]
    assert kept == pytest.approx(step.in_flight, rel=1e-12)


@every_schedule
@given(sizes())
def test_split_gradients_are_those_of_schedules_that_split(
    schedule: PipelineSchedule, size: tuple[int, int, int, int]
) -> None:
    at = pipeline(schedule, size)
    order = schedule.events(int(at.pp), int(at.vp), int(at.num_microbatches), int(at.group_size))
    kinds = {one.kind for passes in order for one in passes}
    assert ("W" in kinds) == schedule.splits_backward


@every_schedule
@given(sizes())
def test_every_copy_of_the_model_is_a_path(schedule: PipelineSchedule, size: tuple[int, int, int, int]) -> None:
    """Micro-batches pass each stage once; all paths together hold as many stages as there are copies."""
    at = pipeline(schedule, size)
    m = int(at.num_microbatches)
    paths = {schedule.path(int(at.pp), int(at.vp), m, one) for one in range(m)}
    places = {place for path in paths for place in path}
    assert {len(path) for path in paths} == {at.pp * at.vp}
    assert len(places) == schedule.parameter_copies * at.pp * at.vp


@pytest.mark.parametrize(
    ("name", "vp", "first", "last"),
    [
        ("1f1b", 1, (0,), (3,)), ("interleaved", 3, (0, 4, 8), (3, 7, 11)), ("zb-v", 2, (0, 7), (3, 4)),
        ("dualpipe-v", 2, (0, 7), (3, 4)), ("dualpipe", 1, (0, 3), (3, 0)),
    ],
)  # fmt: skip
def test_where_the_chunks_of_a_model_lie(name: str, vp: int, first: tuple[int, ...], last: tuple[int, ...]) -> None:
    """In a loop, in the shape of a V, or once in either direction."""
    placement = SCHEDULES[name].placement(4, vp)
    assert (placement[0], placement[3]) == (first, last)


@every_schedule
@given(sizes(), durations(), st.integers(2, 4))
def test_no_rank_idles_less_in_a_deeper_pipeline(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], own: Passes, factor: int
) -> None:
    """With chunks as long and micro-batches per rank as many."""
    at = pipeline(schedule, size)
    deeper = Pipeline(
        pp=at.pp * factor, vp=at.vp, num_microbatches=at.num_microbatches * factor, group_size=at.group_size * factor
    )
    assert 0 <= idle(schedule, at, own) <= idle(schedule, deeper, own) + 1e-12


@every_schedule
@given(durations(), st.integers(1, 64))
def test_a_single_rank_never_idles(schedule: PipelineSchedule, own: Passes, m: int) -> None:
    at = Pipeline(pp=1, vp=schedule.least_vp, num_microbatches=m, group_size=1)
    assert idle(schedule, at, own) == 0


@every_schedule
@given(sizes(), durations())
def test_kept_micro_batches_fall_along_the_pipeline(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], own: Passes
) -> None:
    at = pipeline(schedule, size)
    kept = [float(schedule.microbatches_in_flight(at, rank)) for rank in range(int(at.pp))]
    assert all(0 < one <= at.num_microbatches for one in kept)
    assert kept == sorted(kept, reverse=True)
    assert own.total == own.forward + own.backward


@every_schedule
@given(st.lists(st.tuples(sizes(), durations()), min_size=1, max_size=6))
def test_arrays_are_answered_like_numbers(
    schedule: PipelineSchedule, plans: list[tuple[tuple[int, int, int, int], Passes]]
) -> None:
    singly = [Pipeline(pp=s[0], vp=s[1], num_microbatches=s[2], group_size=s[3]) for s, _ in plans]
    together = Pipeline(
        **{
            name: np.array([getattr(one, name) for one in singly])
            for name in ("pp", "vp", "num_microbatches", "group_size")
        }
    )
    own = Passes(
        **{
            name: np.array([getattr(one, name) for _, one in plans])
            for name in ("forward", "input_gradient", "weight_gradient")
        }
    )
    everyone = times(own, together.pp)  # type: ignore[arg-type]  # an array
    n = len(plans)
    runs = np.broadcast_to(schedule.can_run(together), n)
    assert runs.tolist() == [bool(schedule.can_run(one)) for one in singly]
    waits = np.broadcast_to(schedule.idle_time(together, own, everyone), n)
    assert waits.tolist() == pytest.approx(
        [idle(schedule, at, one) for at, (_, one) in zip(singly, plans, strict=True)]
    )
    kept = np.broadcast_to(schedule.microbatches_in_flight(together, 0), n)
    assert kept.tolist() == pytest.approx([float(schedule.microbatches_in_flight(at, 0)) for at in singly])


@every_schedule
def test_every_schedule_says_what_it_is(schedule: PipelineSchedule) -> None:
    assert schedule.title
    assert "arXiv" in schedule.source
    assert SCHEDULES[schedule.name] is schedule


@every_schedule
@given(sizes(), st.integers(1, 64))
def test_a_broken_rule_is_explained(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], sequences: int
) -> None:
    at = Pipeline(pp=size[0], vp=size[1], num_microbatches=size[2], group_size=size[3])
    assume(not schedule.can_run(at))
    assert str(at.vp) in schedule.message(at)
    assert schedule.hint(at, sequences)


@every_schedule
@given(sizes(), st.integers(1, 64))
def test_a_batch_that_a_hint_names_runs(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], sequences: int
) -> None:
    at = Pipeline(pp=size[0], vp=size[1], num_microbatches=size[2], group_size=size[3])
    assume(not schedule.can_run(at))
    named = re.search(r"global batch size to (\d+)", schedule.hint(at, sequences))
    if named:
        assert int(named[1]) % sequences == 0
        assert schedule.can_run(replace(at, num_microbatches=int(named[1]) // sequences))


@every_schedule
@given(sizes(), st.integers(1, 8))
def test_the_flags_of_a_hint_write_a_plan_that_runs(
    schedule: PipelineSchedule, size: tuple[int, int, int, int], replicas: int
) -> None:
    """On as many accelerators as 840 replicas of a rank take, and with as many sequences, so that degrees divide them.

    The batch is the same unless another is named.
    """
    pp, m, each = size[0], size[2], 840 * replicas
    at = Pipeline(pp=pp, vp=size[1], num_microbatches=m, group_size=size[3])
    assume(not schedule.can_run(at))
    words = schedule.flags(at, each // pp)
    flags = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    ranks = flags.get("--pp", pp)
    batch, group_size = flags.get("--global-batch-size", m * (each // pp)), ranks if size[3] == pp else size[3]
    assert batch % (each // ranks) == 0
    assert schedule.can_run(
        Pipeline(
            pp=ranks,
            vp=flags.get("--vp", size[1]),
            num_microbatches=batch // (each // ranks),
            group_size=flags.get("--microbatch-group-size", group_size),
        )
    )


@every_schedule
def test_uneven_stages_are_nearly_right(schedule: PipelineSchedule) -> None:
    """Chunks that differ by up to 10 %, or a longer last one: within 7 % of the passes one by one, 2 % on average."""
    generator = np.random.default_rng(0)
    errors = []
    for _ in range(20):
        pp, vp = int(generator.choice((2, 4, 8))), schedule.most_vp or int(generator.choice((2, 3)))
        at = Pipeline(pp=pp, vp=vp, num_microbatches=pp * int(generator.choice((4, 6))), group_size=pp)
        lengths = generator.uniform(0.9, 1.1, pp * vp)
        if generator.random() < 0.5:
            lengths = np.array([1.0] * (pp * vp - 1) + [1.1])
        errors.append(_error(schedule, at, lengths))
    assert max(map(abs, errors)) < 0.07
    assert abs(np.mean(errors)) < 0.02


def _error(schedule: PipelineSchedule, at: Pipeline, lengths: NDArray[np.float64]) -> float:
    """Relative error of the step time, where F, B and W are 1, 1.2 and 0.8 times a chunk's length."""
    m = int(at.num_microbatches)
    both = [schedule.path(int(at.pp), int(at.vp), m, one) for one in (0, m - 1)]
    length = {place: float(long) for path in both for place, long in zip(path, lengths, strict=True)}
    step = run(schedule, at, lambda kind, place: length[place] * {"F": 1.0, "B": 1.2, "W": 0.8}[kind])
    chunks = sorted({place.chunk for place in length})
    work = np.array([[length[Place(rank, chunk)] for rank in range(int(at.pp))] for chunk in chunks])
    rank = work.sum(axis=0) / schedule.parameter_copies
    own = Passes(forward=rank, input_gradient=1.2 * rank, weight_gradient=0.8 * rank)
    everyone = Passes(forward=rank.sum(), input_gradient=1.2 * rank.sum(), weight_gradient=0.8 * rank.sum())
    predicted = np.max(m * own.total + schedule.idle_time(at, own, everyone, schedule.pace(work)))
    return float(predicted) / step.step_time - 1
