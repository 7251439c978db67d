"""The largest and the smallest that fit: the answer fits, the next one does not, and the order is that of memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cli.commands import answer, run

import shardplan
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.decide.largest import LENGTH_UNIT, deepened

SPACE: dict[str, Any] = {"limit": {"pp": [1, 2], "cp": [1, 2], "recompute": ["none", "full"]}}
ARGUMENTS = ("llama-3.2-1b", "--cluster", "dgx-h100", "--limit", "pp=1,2", "--limit", "cp=1,2")


def _fits(sequence_length: int) -> bool:
    found = shardplan.search(
        "llama-3.2-1b", "dgx-h100", 2, sequence_length=sequence_length, global_batch_size=4, **SPACE
    )
    return found.recommended is not None


def test_the_longest_sequence_fits_and_the_next_does_not() -> None:
    found = shardplan.fit("llama-3.2-1b", "dgx-h100", 2, largest="sequence_length", global_batch_size=4, **SPACE)
    assert found.value is not None
    assert found.next_value == found.value + LENGTH_UNIT
    assert _fits(found.value)
    assert not _fits(found.next_value)
    assert found.answered.estimate is not None
    assert found.answered.estimate.feasible


def test_memory_grows_with_the_sequence() -> None:
    found = shardplan.fit("llama-3.2-1b", "dgx-h100", 2, largest="sequence_length", global_batch_size=4, **SPACE)
    memory = [each.least_memory_bytes or 0.0 for each in found.tried]
    assert memory == sorted(memory)


def test_more_memory_fits_longer_sequences() -> None:
    hardware = shardplan.load_cluster("dgx-h100")
    larger = replace(hardware, accelerator=replace(hardware.accelerator, memory_bytes=140e9))
    values = [
        shardplan.fit("llama-3.2-1b", each, 2, largest="sequence_length", global_batch_size=4, **SPACE).value or 0
        for each in (hardware, larger)
    ]
    assert values[0] < values[1]


def test_the_largest_micro_batch_is_that_of_a_search_of_each() -> None:
    question: dict[str, Any] = {"global_batch_size": 16, "sequence_length": 8192}
    found = shardplan.fit("llama-3.2-1b", "dgx-h100", 2, largest="micro_batch_size", **question, **SPACE)
    fitting = [
        size
        for size in (1, 2, 4, 8, 16)
        if shardplan.search(
            "llama-3.2-1b", "dgx-h100", 2, fix={"micro_batch_size": size}, **question, **SPACE
        ).recommended
    ]
    assert found.value == fitting[-1]
    assert [each.value for each in found.tried if each.fits] == fitting
    assert found.answered.estimate is not None
    assert found.answered.estimate.plan.micro_batch_size == found.value


def test_the_deepest_model_fits_and_the_next_does_not() -> None:
    found = shardplan.fit(
        "llama-3.2-1b", "dgx-h100", 2, largest="layers", global_batch_size=4, sequence_length=2048, **SPACE
    )
    assert found.value is not None
    assert found.answered.question.model.num_hidden_layers == found.value
    model = shardplan.load_model("llama-3.2-1b")
    deeper = replace(model, layers=deepened(model.layers, found.value + 1))
    assert (
        shardplan.search(deeper, "dgx-h100", 2, global_batch_size=4, sequence_length=2048, **SPACE).recommended is None
    )


def test_deeper_models_go_on_as_they_end() -> None:
    dense_first = shardplan.load_model("deepseek-v3").layers
    assert deepened(dense_first, 3) == dense_first[:3]
    assert set(deepened(dense_first, 70)[61:]) == {dense_first[-1]}
    hybrid = shardplan.load_model("jamba-v0.1").layers if "jamba-v0.1" in shardplan.list_models() else dense_first
    assert deepened(hybrid, len(hybrid)) == hybrid


def test_the_smallest_cluster_fits_and_every_smaller_one_does_not() -> None:
    found = shardplan.fit("llama-3.1-8b", "dgx-h100", smallest="gpus", sequence_length=4096)
    assert found.value is not None
    for size in (1, 2, 4, 8):
        fits = shardplan.search("llama-3.1-8b", "dgx-h100", size, sequence_length=4096).recommended is not None
        assert fits == (size >= found.value)


def test_states_alone_bound_the_smallest_cluster() -> None:
    """70.6 billion parameters with weights, master copy and two moments of Adam: 14 bytes each, without gradients."""
    found = shardplan.fit("llama-3.1-70b", "dgx-h100", smallest="gpus")
    assert found.value is not None
    assert found.value * 80e9 > 70.6e9 * 14


def test_what_is_sought_is_not_given() -> None:
    with pytest.raises(InputError, match="is sought"):
        shardplan.fit("llama-3.2-1b", "dgx-h100", 8, smallest="gpus")
    with pytest.raises(InputError, match="is sought"):
        shardplan.fit("llama-3.2-1b", "dgx-h100", 8, largest="sequence_length", sequence_length=4096)
    with pytest.raises(UnknownNameError, match="did you mean sequence_length"):
        shardplan.fit("llama-3.2-1b", "dgx-h100", 8, largest="sequence_lenth")
    with pytest.raises(InputError, match="restricted"):
        shardplan.fit("llama-3.2-1b", "dgx-h100", 8, largest="micro_batch_size", fix={"micro_batch_size": 2})


@pytest.mark.parametrize(
    "arguments",
    [
        ("--gpus", "8"),
        ("--gpus", "8", "--largest", "gpus"),
        ("--gpus", "8", "--smallest", "gpus"),
        ("--gpus", "8", "--largest", "layers", "--smallest", "gpus"),
        ("--gpus", "8", "--largest", "sequence_length", "--sequence-length", "8k"),
        ("--largest", "layers"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...]) -> None:
    assert run("fit", *ARGUMENTS, *arguments).exit_code == 2


def test_that_nothing_fits_is_an_answer() -> None:
    record = answer(
        "fit", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", "1", "--largest", "sequence_length", status=1
    )
    assert record["value"] is None
    assert "fits in memory" in record["reason"]


def test_the_terminal_answer_has_the_value_and_its_plan() -> None:
    shown = run("fit", *ARGUMENTS, "--gpus", "2", "--largest", "micro-batch-size", "--global-batch-size", "16")
    assert shown.exit_code == 0, shown.output
    assert "The largest micro-batch size that fits is" in " ".join(shown.stdout.split())
    assert "Plan" in shown.stdout
