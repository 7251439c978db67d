"""The vocabulary: words of frameworks are ours in jobs, plans and plan files, and no word means two things."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import described, in_our_words
from shardplan.base.words import Words, folded
from shardplan.inputs import words as vocabulary
from shardplan.inputs.job import Job
from shardplan.inputs.plan import RECOMPUTE_MODULES, RECOMPUTE_PRESETS, Plan
from shardplan.inputs.software import Software

TABLES = {name: table for name, table in vars(vocabulary).items() if isinstance(table, Words)}


def _job(**fields: Any) -> Job:
    return Job(sequence_length=8192, global_batch_size=512, **fields)


@pytest.mark.parametrize(
    ("field", "word", "meant"),
    [
        ("precision", "bfloat16", "bf16"), ("precision", "BFloat", "bf16"), ("precision", "half", "fp16"),
        ("precision", "float16", "fp16"), ("precision", "float8", "fp8"), ("precision", "torch.bfloat16", "bf16"),
        ("optimizer", "AdamW", "adam"), ("optimizer", "fused_adam", "adam"), ("grad_dtype", "float32", "fp32"),
        ("moment_dtype", "bfloat16", "bf16"), ("attention", "sdpa", "flash"), ("attention", "eager", "unfused"),
        ("train", "peft", "lora"), ("train", "QLoRA", "lora"),
        ("lora_targets", "q_proj, v_proj", "q,v"), ("lora_targets", "all-linear", "all"),
        ("sharding", "fsdp", "zero3"), ("sharding", "FSDP2", "zero3"), ("sharding", "zero-3", "zero3"),
        ("sharding", "FULL_SHARD", "zero3"), ("sharding", "SHARD_GRAD_OP", "zero2"), ("sharding", "HSDP", "hsdp"),
        ("sharding", "ZeRO-1", "zero1"), ("sharding", "distributed_optimizer", "zero1"), ("cp_comm", "ulysses", "a2a"),
        ("schedule", "Interleaved1F1B", "interleaved"), ("schedule", "ZBVZeroBubble", "zb-v"),
        ("schedule", "1F1B", "1f1b"), ("recompute", "Full", "full"), ("recompute", "core-attention", "core_attn"),
        ("recompute", "moe_act, norm", "activation,layernorm"), ("recompute", "op", "op_sac"),
        ("recompute", "minimal", "layernorm,activation,core_attn"), ("offload", "cpu_adam", "optimizer"),
        ("placement", "TP-CP-EP-DP-PP", "tp-cp-ep-dp-pp"),
    ],
)  # fmt: skip
def test_words_of_a_job_and_a_plan(field: str, word: str, meant: str) -> None:
    """Of PyTorch, Transformers, PEFT, DeepSpeed, Megatron-LM, torchtitan and MaxText."""
    made = Plan if field in described(Plan) else _job
    said: dict[str, Any] = {field: word}
    ours: dict[str, Any] = {field: meant}
    assert getattr(made(**said), field) == meant
    assert word == "QLoRA" or made(**said) == made(**ours)


@pytest.mark.parametrize("word", ["fsdp4", "zero 5", "float9", "yes"])
def test_words_that_mean_nothing_are_refused(word: Any) -> None:
    with pytest.raises(InputError):
        Plan(sharding=word)
    for kernel in ("fa2", "flash-attn-2"):  # the generation, which would be lost, is a field of the software
        with pytest.raises(UnknownNameError):
            _job(attention=kernel)


@pytest.mark.parametrize("record", [Job, Plan, Software])
def test_values_of_tables_are_values_of_their_fields(record: type) -> None:
    for field in described(record).values():
        assert set(field.about.words.values()) <= set(field.kind.choices), field.name
        for choice in field.kind.choices:
            assert field.meant(choice.upper()) == choice, "our own words are known in any case"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_no_name_has_two_meanings(name: str) -> None:
    table = TABLES[name]
    named = [(folded(each), value) for value, names in table.names.items() for each in names.split()]
    assert all(table[each] == value for each, value in named)


def test_policies_are_those_that_there_are() -> None:
    assert {*vocabulary.RECOMPUTE_WORDS.values()} - {"minimal"} == {*RECOMPUTE_PRESETS, *RECOMPUTE_MODULES}


@given(st.sampled_from(sorted(vocabulary.SHARDINGS.names)), st.data())
def test_case_and_separators_make_no_difference(value: str, data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(vocabulary.SHARDINGS.names[value].split()))
    spelt = "".join(data.draw(st.sampled_from((letter, letter.upper()))) for letter in word)
    assert Plan(sharding=spelt.replace("-", data.draw(st.sampled_from("-_ ")))).sharding == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("TP", "tp"), ("tensor-model-parallel-size", "tp"), ("gbs", "global_batch_size"),
        ("micro_bs", "micro_batch_size"),
        ("seq_len", "sequence_length"), ("World Size", "num_accelerators"), ("colour", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_fields(name: str, field: str | None) -> None:
    assert vocabulary.field_meant(name) == field


def test_a_plan_file_may_be_written_in_the_words_of_frameworks() -> None:
    from tests.cli.commands import SMALL, answer

    from shardplan.reports.plan_file import plan_file_from_record

    record = answer("estimate", *SMALL, "--tp", 2, "--sharding", "zero3")
    edited = copy.deepcopy(record)
    edited["job"] |= {"precision": "bfloat16", "optimizer": "AdamW"}
    edited["job"]["software"]["kernels"] = "Fused"
    edited["plans"][0]["plan"] |= {"sharding": "fsdp"}
    assert plan_file_from_record(edited) == plan_file_from_record(record)
    assert in_our_words(Plan, {"sharding": "hybrid_shard", "other": 1}) == {"sharding": "hsdp", "other": 1}
