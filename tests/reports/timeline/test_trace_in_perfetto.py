"""A trace in Perfetto's query engine. Skipped without the ``perfetto`` package or its ``trace_processor_shell``."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reports.timeline.test_trace import of_plan

from shardplan.reports.timeline.trace import MEMORY, trace_text
from shardplan.simulation.timeline import EVENT_KINDS, StepTimeline

SHELL = next(filter(None, map(shutil.which, ("trace_processor_shell", "trace_processor"))), None)
pytestmark = [
    pytest.mark.perfetto,
    pytest.mark.skipif(SHELL is None, reason="needs trace_processor_shell, which the perfetto package would download"),
]


@pytest.fixture(scope="module")
def timeline() -> StepTimeline:
    return of_plan()


@pytest.fixture(scope="module")
def engine(timeline: StepTimeline, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The query engine with the trace."""
    api = pytest.importorskip("perfetto.trace_processor")
    path: Path = tmp_path_factory.mktemp("trace") / "step.json"
    path.write_text("".join(trace_text(timeline)), encoding="utf-8")
    engine = api.TraceProcessor(trace=str(path), config=api.TraceProcessorConfig(bin_path=SHELL))
    yield engine
    engine.close()


def test_every_event_is_a_slice_of_its_kind(engine: Any, timeline: StepTimeline) -> None:
    rows = engine.query("select category, count() as number from slice group by category")
    found = {row.category: row.number for row in rows}
    assert found == Counter(EVENT_KINDS[kind] for kind in timeline.events.kind.tolist())


def test_nothing_is_lost_or_wrong(engine: Any) -> None:
    rows = engine.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert [(row.name, row.value) for row in rows] == []


def test_memory_is_a_counter_of_every_rank(engine: Any, timeline: StepTimeline) -> None:
    """All counters of a trace are of memory; the highest value of each is the peak of a rank."""
    tracks = [(row.id, row.name) for row in engine.query("select id, name from process_counter_track")]
    assert len(tracks) == timeline.num_ranks
    assert all(name.startswith(MEMORY) for _, name in tracks)
    rows = engine.query("select max(value) as peak from counter group by track_id")
    peaks = sorted(memory.peak_bytes for memory in timeline.memory)
    assert sorted(row.peak for row in rows) == pytest.approx(peaks, abs=1)
