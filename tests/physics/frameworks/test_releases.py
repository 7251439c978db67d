"""Releases: what a framework did in a month, by its own history; files of one's own; what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.job import PRECISIONS, Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.releases import in_month, month_of
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack
from shardplan.physics.frameworks.usual_stack import stack_of_label

OWN = """
name: my-trainer
frameworks: [my-trainer]
since: {value: "2022-01", source: "our first tag"}
earlier:
  - before: "2024-06"
    software:
      kernels: {value: eager, source: "no compiler before 7.0"}
  - before: "2023-03"
    software:
      kernels: {value: fused, source: "hand-written kernels before 5.0"}
    plan:
      overlap_dp: {value: false, source: "gradients were reduced last"}
software:
  kernels: {value: fused, source: "torch.compile"}
job:
  attention: {value: flash, source: "our kernels"}
"""

HISTORIES = [name for name in list_stacks() if load_stack(name).earlier]


def own(folder: Path, text: str = OWN) -> Stack:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_stack(path)


@pytest.mark.parametrize(
    ("name", "part", "field", "value"),
    [
        ("torchtitan@2024-12", "software", "attention_generation", "flash2"),  # v0.1.0: FlashAttention first
        ("torchtitan@2025-10", "software", "attention_generation", "current"),  # 6a3a9da95: cuDNN first
        ("torchtitan@2024-05", "software", "loss_kernel", "loss_parallel"),  # before e10cb9494
        ("torchtitan@2024-11", "software", "loss_kernel", "compiled"),
        ("torchtitan@2024-12", "software", "loss_kernel", "loss_parallel"),  # e8977b007: not compiled for four months
        ("torchtitan@2025-04", "software", "loss_kernel", "compiled"),  # bbb1b616e
        ("megatron-lm@2023-01", "plan", "overlap_dp", False),  # before 2d5220a424
        ("megatron-lm@2024-01", "plan", "overlap_dp", True),
        ("megatron-lm@2021-06", "job", "attention", "unfused"),  # before d693034ecf
    ],
)
def test_a_month_has_the_behaviour_of_its_commits(name: str, part: str, field: str, value: object) -> None:
    assert getattr(load_stack(name), part)[field] == value


@pytest.mark.parametrize("name", HISTORIES)
def test_every_month_of_a_history_makes_a_job_and_a_plan_and_has_sources(name: str) -> None:
    newest = load_stack(name)
    for month in (newest.since, *(change.before for change in newest.earlier)):
        stack = in_month(newest, month)
        for precision in PRECISIONS:
            Job(sequence_length=8, global_batch_size=8, **stack.job_fields(precision))
        Plan(**stack.plan_fields())
    for change in newest.earlier:
        assert change.values
        assert all(len(change.sources[field]) > 5 for field in change.values)


@pytest.mark.parametrize(
    ("month", "kernels", "overlaps"),
    [("2024-06", "fused", None), ("2024-05", "eager", None), ("2023-03", "eager", None), ("2022-06", "fused", False)],
)
def test_changes_are_undone_from_the_latest_backwards(
    tmp_path: Path, month: str, kernels: str, overlaps: object
) -> None:
    stack = own(tmp_path).at_version(month)
    assert (stack.software["kernels"], stack.plan.get("overlap_dp")) == (kernels, overlaps)
    assert stack.label == f"my-trainer {month}"


def test_a_month_has_the_limits_of_the_version_before_it() -> None:
    limits = {month: load_stack(f"torchtitan@{month}").can_run for month in ("2026-03", "2026-09")}
    versions = [each.version if each else None for each in limits.values()]
    assert versions == ["0.2.2", "main-2026-08-21"]


def test_a_label_names_the_month_again() -> None:
    stack = load_stack("torchtitan@2024-12")
    assert stack.versioned_name == "torchtitan@2024-12"
    found = stack_of_label(stack.label)
    assert found is not None
    assert found.software == stack.software


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torchtitan@2023-12", "before the first release of torchtitan"),
        ("deepspeed@2024-01", "no history of deepspeed"),
    ],
)
def test_a_month_without_a_release_is_refused(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_stack(name)


@pytest.mark.parametrize("version", ["9.9", "2024-13", "2024", "202412", "", "2024-12-1x"])
def test_a_version_that_never_was_is_refused_with_those_that_were(version: str) -> None:
    with pytest.raises(UnknownNameError) as found:
        load_stack("torchtitan").at_version(version)
    assert "0.2.2" in found.value.hint


@pytest.mark.parametrize(("text", "month"), [("2024-12", "2024-12"), ("2024-12-18", "2024-12"), ("2024-00", None)])
def test_months(text: str, month: str | None) -> None:
    assert month_of(text) == month


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ('before: "2024-06"', 'before: "June"', "before is a month"),
        ('before: "2024-06"', 'before: "2022-12"', "earlier is in order"),
        ('since: {value: "2022-01", source: "our first tag"}', "", "since is the month"),
        ("kernels: {value: eager", "kernels: {value: brisk", "kernels"),
        ("    plan:\n", "    planner:\n", "an entry of earlier is before"),
        ('"our first tag"', '"our first tag", more: 1', "since is the month"),
    ],
)
def test_bad_histories_are_refused(tmp_path: Path, old: str, new: str, rule: str) -> None:
    assert old in OWN
    with pytest.raises(InputError) as found:
        own(tmp_path, OWN.replace(old, new))
    assert rule in found.value.rule
