"""Changes that an audit proposes, made in the file as they are printed, give the same job in the promised time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.launch.audit.changed_files import changed, written
from tests.launch.audit.proposals import STYLES, Sample, exports, samples

from shardplan import load_cluster, load_model
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.software import Software
from shardplan.launch.audit.answer import Audit, audit_launch
from shardplan.launch.audit.improve import Improvement
from shardplan.launch.dialects.ask import Ask

pytest.importorskip("tree_sitter_bash")

NUMBER = max(len(STYLES), min(int(os.environ.get("SHARDPLAN_FUZZ", "0")) // 100, 2000))
"""Audits: one of every style, or a hundredth of what is asked for."""


STAGES: Final = frozenset({"pp", "vp", "schedule", "stage_layers"})
AXES: Final = STAGES | {"tp", "cp", "ep", "etp"}
CANNOT: Final = dict.fromkeys(("axolotl", "axolotl_experts", "lingua"), STAGES) | dict.fromkeys(
    ("olmo", "llama_factory", "trainer_line", "trainer_file", "accelerate", "torchtune", "llm_foundry"), AXES
)
"""Fields that a program has nothing for."""
OTHER_KEYS: Final = {"torchtitan_before": ("parallelism.tensor_parallel_degree", "training.local_batch_size")}
"""Keys of another version than the file's."""


def audited(path: Path, sample: Sample, **more: Any) -> Audit:
    given = {name: str(value) for name, value in sample.given.items()}
    model = None if sample.model is None else load_model(sample.model)
    return audit_launch(Ask(path=path, given=given), model=model, cluster=load_cluster(sample.cluster), **more)


def again(folder: Path, sample: Sample, each: Improvement) -> Audit:
    """The audit of the changed file, without a search of its own."""
    folder.mkdir()
    return audited(written(folder, changed(sample.files, each.removed, each.added)), sample)


def job_of(found: Audit) -> tuple[Job, int, str]:
    """The job without software, which a change may choose."""
    assert found.posed.question is not None
    question = found.posed.question
    return replace(question.job, software=Software()), question.num_accelerators, question.model.name


def time_of(found: Audit) -> float:
    assert isinstance(found.estimate, Estimate), found.posed.missing
    return found.estimate.step_time


@pytest.fixture(scope="module")
def counted() -> dict[str, list[int]]:
    """Proposals of every style."""
    return {style.__name__: [] for style in STYLES}


@pytest.mark.parametrize(
    ("name", "sample"), [*samples(NUMBER), *exports()], ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_proposal_keeps_the_job(
    tmp_path: Path, name: str, sample: Sample, monkeypatch: pytest.MonkeyPatch, counted: Mapping[str, list[int]]
) -> None:
    found = audited(written(tmp_path, sample.files), sample)
    assert found.posed.question is not None, found.posed.missing
    monkeypatch.setattr("shardplan.launch.audit.improve.improvements", lambda *_, **__: ())
    for number, each in enumerate(found.improvements):
        after = again(tmp_path / f"changed{number}", sample, each)
        assert job_of(after) == job_of(found)
        assert time_of(after) == pytest.approx(each.estimate.step_time, rel=0.01)
        style = name.partition(" ")[2]
        assert CANNOT.get(style, frozenset()).isdisjoint(each.change)
        assert not any(key in text for key in OTHER_KEYS.get(style, ()) for text in each.added)
        assert each.gain_band is None or each.gain_band[0] < (each.gain or 0) < each.gain_band[1]
    counted.get(name.partition(" ")[2], []).append(len(found.improvements))


def test_every_style_has_proposals(counted: Mapping[str, list[int]]) -> None:
    done = {style: numbers for style, numbers in counted.items() if len(numbers) >= 2}
    assert all(sum(numbers) for numbers in done.values()), done
