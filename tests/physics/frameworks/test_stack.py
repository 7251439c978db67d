"""Stacks: documented defaults of frameworks, and files of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.job import PRECISIONS, Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.stack import STACKED_FIELDS, Stack, list_stacks, load_stack

NAMES = {
    "megatron-bridge", "nemo", "megatron-lm", "megatron-lm-2021", "megatron-deepspeed", "deepspeed", "torchtitan",
    "llm-foundry", "nanotron", "nemo-automodel", "maxtext", "mindspeed-llm", "internevo", "hai-llm",
    "meta-llama-3", "megascale",
}  # fmt: skip


def test_the_frameworks_of_the_published_runs_have_stacks() -> None:
    assert set(list_stacks()) >= NAMES


@pytest.mark.parametrize("name", list_stacks())
def test_every_default_is_sourced_and_makes_a_job_and_a_plan(name: str) -> None:
    stack = load_stack(name)
    assert (stack.name, bool(stack.full_name), bool(stack.frameworks)) == (name, True, True)
    for part in STACKED_FIELDS:
        assert all(len(stack.sources[f"{part}.{field}"]) > 5 for field in getattr(stack, part))
    for precision in PRECISIONS:
        Job(sequence_length=8, global_batch_size=8, **stack.job_fields(precision))
    Plan(**stack.plan_fields())
    assert stack.software
    assert stack.job


def test_a_default_may_depend_on_the_precision() -> None:
    stack = load_stack("megatron-lm")
    assert stack.job_fields("fp16")["grad_dtype"] == "fp16"
    assert stack.job_fields("bf16")["grad_dtype"] == "fp32"
    assert "grad_dtype" not in stack.job_fields("fp8")  # the default of a job
    assert load_stack("nemo").job_fields("fp8")["software"].quantised_weights
    assert not load_stack("nemo").job_fields("bf16")["software"].quantised_weights


@pytest.mark.parametrize("precision", ["fp9", "", None, ["bf16"]])
def test_an_unknown_precision_is_refused(precision: object) -> None:
    with pytest.raises(UnknownNameError, match="unknown precision"):
        load_stack("megatron-lm").job_fields(precision)  # type: ignore[arg-type]


def test_names_are_found_in_any_case_and_slips_are_named() -> None:
    assert load_stack("TorchTitan") is load_stack("torchtitan")
    with pytest.raises(UnknownNameError, match="did you mean megatron-lm"):
        load_stack("megatron-ml")


@pytest.mark.parametrize("name", ["", "\0", "x" * 10_000, "../../etc/passwd", "\x1b[31m", 7, None, b"nemo"])
def test_hostile_names(name: object) -> None:
    with pytest.raises(InputError):
        load_stack(name)  # type: ignore[arg-type]


def _file(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    text = (
        "name: own\nframeworks: [mine]\nsoftware:\n  kernels: {value: eager, source: measured}\n"
        "plan:\n  sharding: {value: zero3, source: our script}\n"
    )
    stack = load_stack(_file(tmp_path, text))
    assert isinstance(stack, Stack)
    assert stack.job_fields("bf16")["software"].kernels == "eager"
    assert stack.plan_fields() == {"sharding": "zero3"}
    assert stack.sources["plan.sharding"] == "our script"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("frameworks: [a]", "name"),
        ("name: x\ncolour: blue", "unknown field of stack file"),
        ("name: x\nsoftware: {kernel: {value: eager, source: s}}", "did you mean kernels"),
        ("name: x\nsoftware: {kernels: eager}", "software.kernels is 'eager'"),
        ("name: x\nsoftware: {kernels: {value: eager}}", "software.kernels"),
        ("name: x\nsoftware: {kernels: {value: handmade, source: s}}", "unknown kernels 'handmade'"),
        ("name: x\nsoftware: {fused_loss: {value: 3, source: s}}", "fused_loss is 3"),
        ("name: x\nsoftware: [1]", "holds named fields|software is"),
        ("name: x\njob: {attention: {value: {bf61: flash}, source: s}}", "did you mean bf16"),
        ("name: x\njob: {grad_dtype: {value: fp8, source: s}}", "unknown grad_dtype 'fp8'"),
        ("name: x\njob: {sequence_length: {value: 5, source: s}}", "unknown job field"),
        ("name: x\nplan: {tp: {value: 5, source: s}}", "unknown plan field"),
        ("name: x\nplan: {overlap_dp: {value: maybe, source: s}}", "overlap_dp"),
        ("name: x\nplan: {sharding: {value: {bf16: zero1}, source: s}}", "precision of plan.sharding"),
        ("name: x\nlayers_per_chunk: {value: -1, source: s}", "layers_per_chunk"),
        ("name: x\nsoftware: {keeps_weights: {value: sometimes, source: s}}", "sometimes"),
        ("name: x\nframeworks: mine", "frameworks"),
        ("name: x\nwhere: {precision: fp16}", "where.precision"),
        ("a: &a [1]\nb: *a", "alias"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(InputError, match=said):
        load_stack(path)
