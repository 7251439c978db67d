"""Hints as Python users read them."""

from __future__ import annotations

import pytest

from shardplan import Job, load_cluster, load_model, question
from shardplan.base.errors import InputError, in_python


@pytest.mark.parametrize(
    ("typed", "argument"),
    [
        ("--limit tp=4,8", 'limit={"tp": [4, 8]}'),
        ("--limit pp=1..4", 'limit={"pp": "1..4"}'),
        ("--fix tp=VALUE or --limit tp=VALUE,VALUE", 'fix={"tp": VALUE} or limit={"tp": [VALUE, VALUE]}'),
        ("--fix recompute=layernorm,activation", 'fix={"recompute": "layernorm,activation"}'),
        ("did you mean --software kernels=eager?", 'did you mean software={"kernels": "eager"}?'),
        ("set --sequence-length to a number", "set sequence_length to a number"),
        ("use 16 accelerators: --gpus 16", "use 16 accelerators: num_accelerators=16"),
        ("another size, or --no-sequence-parallel", "another size, or sequence_parallel=False"),
        ("see `shardplan plan --help`, or set --memory", "see `shardplan plan --help`, or set memory"),
        ("tp - 1 and a--b", "tp - 1 and a--b"),
    ],
)
def test_flags_are_arguments_in_python(typed: str, argument: str) -> None:
    assert in_python(typed) == argument


def test_the_note_of_an_error_has_arguments_and_its_hint_has_flags() -> None:
    with pytest.raises(InputError) as error:
        Job(sequence_length=0, global_batch_size=1)
    assert error.value.hint.startswith("set --sequence-length")
    assert error.value.__notes__[0].startswith("hint: set sequence_length")


def test_lengths_and_counts_are_written_alike() -> None:
    typed: dict[str, object] = {"sequence_length": "8k", "tokens": "15T"}
    asked = question("llama-3.1-8b", "dgx-h100", 8, **typed)  # type: ignore[arg-type]  # by name
    assert asked.job.sequence_length == 8192
    assert asked.job.tokens == 15e12
    with pytest.raises(InputError, match="sequence_length is '8q'"):
        Job(sequence_length="8q", global_batch_size=1)  # type: ignore[arg-type]  # what is refused


def test_what_a_question_is_made_of_is_short() -> None:
    assert repr(load_model("llama-3.1-8b")) == (
        "<ModelConfig llama-3.1-8b: 8.03B parameters, 32 layers, hidden size 4,096>"
    )
    assert "dgx-h100" in repr(load_cluster("dgx-h100"))
    asked = repr(question("llama-3.1-8b", "dgx-h100", 64, global_batch_size=256))
    assert asked == "<Question: llama-3.1-8b on 64 x h100-sxm-80gb (dgx-h100), 256 x 8,192 tokens a step, bf16, adam>"
