"""``qlora`` is a word for adapters next to frozen weights in nf4, wherever a job is put."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.commands import SMALL, answer, run, unwrapped

import shardplan
from shardplan import InputError, Job
from shardplan.inputs.job import in_full

SHORT: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 64}
WORDS = ("qlora", "QLoRA", "QLORA")


@pytest.mark.parametrize("word", WORDS)
def test_a_job_in_full(word: Any) -> None:
    job = Job(**SHORT, train=word)
    assert job == Job(**SHORT, train="lora", base_weights="nf4")
    assert Job(**SHORT, train=word, base_weights="nf4-dq").base_weights == "nf4-dq"
    assert replace(Job(**SHORT), train=word) == job


@pytest.mark.parametrize("word", WORDS)
def test_the_same_answer_from_flags_python_and_both_words(word: str) -> None:
    long = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {}, train="lora", base_weights="nf4", **SHORT)
    short = shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {}, train=word, **SHORT)
    theirs = answer("estimate", *SMALL, "--train", word)
    assert long == short
    assert theirs["plans"][0]["step_time_s"] == short.step_time
    assert (theirs["job"]["train"], theirs["job"]["base_weights"]) == ("lora", "nf4")
    assert shardplan.question("llama-3.2-1b", "dgx-h100", 8, job={"train": word, **SHORT}).job == long.question.job


def test_a_job_of_before_keeps_its_format() -> None:
    job = Job(**SHORT, train="lora", base_weights="nf4-dq")
    assert shardplan.question("llama-3.2-1b", "dgx-h100", 8, job=job, train="qlora").job.base_weights == "nf4-dq"


def test_a_plan_file_asked_again(tmp_path: Any) -> None:
    path = tmp_path / "plan.json"
    assert run("estimate", *SMALL, "--stack", "deepspeed", "--json", path).exit_code == 0
    again = run("estimate", "--from", path, "--train", "qlora", "--json", "-")
    assert json.loads(again.stdout)["job"]["base_weights"] == "nf4"
    wrong = run("estimate", "--from", path, "--train", "qlora", "--base-weights", "same")
    assert wrong.exit_code == 2


@pytest.mark.parametrize("base", ["same", "SAME", "none", "unquantised"])
def test_words_that_contradict_each_other(base: str) -> None:
    with pytest.raises(InputError) as caught:
        shardplan.search("llama-3.2-1b", "dgx-h100", 8, train="qlora", base_weights=base, **SHORT)
    assert caught.value.rule == "qlora trains adapters next to weights in 4 bits"
    assert "nf4" in caught.value.hint
    theirs = run("plan", *SMALL, "--train", "qlora", "--base-weights", base)
    assert theirs.exit_code == 2
    assert "train is qlora with base_weights same" in unwrapped(theirs.output)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"precision": "fp8"}, "base_weights is nf4 with precision fp8"),
        ({"freeze": "head"}, "freeze is head with train lora"),
        ({"base_weights": "nf8"}, "unknown base_weights 'nf8'"),
    ],
)
def test_what_goes_with_no_such_weights(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {}, train="qlora", **fields, **SHORT)


def test_a_word_that_is_near() -> None:
    with pytest.raises(InputError, match="did you mean qlora"):
        shardplan.estimate("llama-3.2-1b", "dgx-h100", 8, {}, train="qlorra", **SHORT)


def test_other_words_stay_as_they_are() -> None:
    fields = {"train": "lora", "precision": "bf16"}
    assert in_full(fields) == fields
    assert in_full({}) == {}
