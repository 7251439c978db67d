"""Sequences longer than a model has positions for: learned ones refuse them, rotary ones are a note."""

from __future__ import annotations

import pytest
from tests.examples import cluster

from shardplan import estimate
from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.model import with_positions
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_model


def answer(name: str, sequence_length: int) -> Estimate:
    job = Job(sequence_length=sequence_length, global_batch_size=8)
    return estimate(load_model(name), cluster(), 8, Plan(), job=job)


def test_sequences_beyond_learned_positions_are_refused() -> None:
    answer("gpt2", 1024)
    with pytest.raises(InputError, match="2,048 tokens, and gpt2 has learned positions for 1,024") as caught:
        answer("gpt2", 2048)
    assert "--sequence-length to at most 1,024" in caught.value.hint


def test_an_image_has_as_many_tokens_as_patches() -> None:
    answer("vit-b-16", 197)
    with pytest.raises(InputError, match="learned positions for 197") as caught:
        answer("vit-b-16", 198)
    assert "image_size" in caught.value.hint


@pytest.mark.parametrize(("length", "notes"), [(8192, 0), (131_072, 0), (131_073, 1), (262_144, 1)])
def test_sequences_beyond_rotary_positions_are_noted(length: int, notes: int) -> None:
    said = [text for text in answer("llama-3.1-8b", length).assumptions if "max_position_embeddings" in text]
    assert len(said) == notes


def test_a_measured_run_had_the_positions_that_it_read() -> None:
    model = load_model("gpt2")
    longer = with_positions(model, 4096)
    assert (longer.max_position_embeddings, longer.num_position_embeddings) == (4096, 1024)
    assert longer.num_parameters == model.num_parameters
    assert with_positions(model, 512) is model
    rotary = load_model("llama-3.1-8b")
    assert with_positions(rotary, 10**6) is rotary
