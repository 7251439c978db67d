"""Whether a checkpoint is loaded: cases read by hand in the sources of the frameworks, at the records' commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shardplan
from shardplan.launch.resume.answer import FIELDS, STATES, ResumeSide, resume
from shardplan.launch.resume.record import ALWAYS, CheckpointRecord, checkpoint_records

RUN: dict[str, Any] = {
    "tp": 8, "cp": 1, "pp": 4, "vp": 1, "ep": 1, "dp": 2, "sharding": "zero1", "micro_batch_size": 1,
    "precision": "bf16", "optimizer": "adam", "global_batch_size": 128, "sequence_length": 8192,
    "num_accelerators": 64,
}  # fmt: skip
MODEL = {"num_hidden_layers": 80, "hidden_size": 8192}


def side(framework: str | None = "megatron-lm", settings: dict[str, Any] | None = None, **fields: Any) -> ResumeSide:
    return ResumeSide(name="a file", framework=framework, fields=RUN | fields, model=MODEL, settings=settings or {})


def test_the_same_plan_keeps_weights_and_optimizer_everywhere() -> None:
    for record in checkpoint_records():
        found = resume(side(record.name), side(record.name))
        assert found.loads
        assert found.outcome("weights") == found.outcome("optimizer") == "kept"


@pytest.mark.parametrize(("key", "value", "dp"), [("tp", 4, 4), ("pp", 2, 4)])
def test_megatron_refuses_other_tp_and_pp_with_its_default_format(key: str, value: int, dp: int) -> None:
    # checkpointing.py raises RuntimeError where (tp, pp) differ and the format is not fully reshardable
    found = resume(side(), side("megatron-lm", None, **{key: value, "dp": dp}))
    assert found.verdict == "no"
    assert found.outcome("weights") == "kept"
    assert found.outcome("optimizer") == "unsupported"
    assert found.outcome("random numbers") == "reset"


def test_megatron_loads_other_tp_from_a_fully_reshardable_checkpoint() -> None:
    found = resume(side(settings={"fully_reshardable": True}), side(tp=4, dp=4))
    assert found.verdict == "partly"
    assert found.outcome("optimizer") == "kept"
    # what the new run would save does not count
    assert resume(side(), side(tp=4, dp=4, settings={"fully_reshardable": True})).verdict == "no"


def test_megatron_loads_more_replicas_with_everything() -> None:
    found = resume(side(), side(dp=4, num_accelerators=128))
    assert found.verdict == "yes"
    assert {each.outcome for each in found.states} == {"kept"}


def test_megatron_loads_weights_alone_where_it_is_asked_to() -> None:
    found = resume(side(), side(tp=4, dp=4, settings={"loads_optimizer": False}))
    assert found.verdict == "partly"
    assert found.outcome("optimizer") == "reset"


def test_the_legacy_format_is_of_one_layout() -> None:
    legacy = {"format": "torch"}
    assert resume(side(settings=legacy), side(tp=4, dp=4)).outcome("weights") == "unsupported"
    assert resume(side(settings=legacy), side(dp=4)).outcome("weights") == "kept"


def test_what_no_rule_says_is_unknown() -> None:
    found = resume(side(), side(sharding="zero3"))
    assert found.outcome("optimizer") == "unknown"
    assert found.verdict == "unknown"
    assert resume(side(settings={"format": "fsdp_dtensor"}), side(dp=4)).verdict == "unknown"


def test_deepspeed_needs_a_universal_checkpoint_for_other_ranks() -> None:
    # engine.py raises ZeRORuntimeException where the data-parallel world differs
    old = side("deepspeed", sharding="zero2")
    assert resume(old, side("deepspeed", sharding="zero2", dp=4)).verdict == "no"
    universal = side("deepspeed", sharding="zero2", dp=4, settings={"universal": True})
    found = resume(old, universal)
    assert found.verdict == "after conversion"
    assert "ds_to_universal.py" in found.why


def test_torchtitan_reshards_but_its_data_follow_one_number_of_replicas() -> None:
    # its loader ends with: cannot resume after changing the effective data-parallel degree
    found = resume(side("torchtitan", sharding="zero3"), side("torchtitan", sharding="zero3", tp=4, dp=4))
    assert found.outcome("weights") == found.outcome("optimizer") == "kept"
    assert found.outcome("data order") == "unsupported"
    same_dp = resume(side("torchtitan"), side("torchtitan", tp=4, pp=8))
    assert same_dp.verdict == "partly"
    assert same_dp.outcome("random numbers") == "reset"


def test_nanotron_names_files_after_the_number_of_replicas() -> None:
    assert resume(side("nanotron"), side("nanotron", dp=4)).outcome("optimizer") == "unsupported"
    whole = side("nanotron", sharding="ddp"), side("nanotron", sharding="ddp", dp=4)
    assert resume(*whole).outcome("optimizer") == "kept"
    assert resume(side("nanotron"), side("nanotron", pp=2)).verdict == "unknown"  # "need to be checked", it warns


def test_maxtext_counts_hosts_that_load_data() -> None:
    found = resume(side("maxtext"), side("maxtext", dp=4, num_accelerators=128))
    assert found.outcome("weights") == "kept"
    assert found.outcome("data order") == "unsupported"


def test_another_model_or_framework() -> None:
    other = ResumeSide(name="b", framework="megatron-lm", fields=RUN, model=MODEL | {"num_hidden_layers": 64})
    assert resume(side(), other).verdict == "no"
    assert resume(side(), side("torchtitan")).verdict == "unknown"
    assert resume(side(None), side(None)).verdict == "unknown"


def test_scales_of_fp8_are_not_known() -> None:
    found = resume(side(precision="fp8"), side(precision="fp8"))
    assert found.outcome("fp8 scales") == "unknown"


def test_what_a_file_leaves_open_is_named() -> None:
    found = resume(side(), ResumeSide(name="b.sh", framework="megatron-lm", fields={**RUN, "tp": None}, model=MODEL))
    assert found.verdict == "unknown"
    assert "tp of b.sh" in found.why


@pytest.mark.parametrize("record", checkpoint_records(), ids=lambda each: each.name)
def test_records_name_states_fields_and_settings_that_exist(record: CheckpointRecord) -> None:
    for rule in record.rules:
        assert rule.state in STATES
        assert set(rule.changed) <= {*STATES[rule.state], ALWAYS}
        assert set(rule.changed) <= {*FIELDS, ALWAYS}
        assert set(rule.when) <= {*record.settings, "sharding"}
        assert rule.source
    assert record.date
    assert record.commit


SCRIPT = """torchrun --nnodes ${{NODES:-2}} --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --ffn-hidden-size 14336 --seq-length 4096 --max-position-embeddings 4096 \\
  --vocab-size 32000 --swiglu --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer \\
  --tensor-model-parallel-size ${{TP:-4}} {more}
"""


def test_two_scripts_and_what_is_read(tmp_path: Path) -> None:
    plain, whole = tmp_path / "plain.sh", tmp_path / "whole.sh"
    plain.write_text(SCRIPT.format(more=""), encoding="utf-8")
    whole.write_text(SCRIPT.format(more="--dist-ckpt-optim-fully-reshardable"), encoding="utf-8")
    assert shardplan.will_resume(plain, plain, env={"new.TP": "2"}).verdict == "no"
    found = shardplan.will_resume(whole, plain, env={"new.TP": "2", "NODES": "2"}, cluster="dgx-h100")
    assert found.verdict == "partly"
    assert found.load is not None
    question = found.old.question
    assert question is not None
    # Adam in mixed precision: 2 bytes of weights, 12 of states for every parameter
    assert found.load.saved_bytes == pytest.approx(14 * question.model.num_parameters, rel=0.01)
    assert found.load.loaded_bytes == found.load.saved_bytes
    assert found.load.time == pytest.approx(found.load.loaded_bytes / (16 * 0.15e9))
    assert json.loads(json.dumps(found.to_dict()))["states"][0]["outcome"] == "kept"


def test_plans_of_python() -> None:
    plans = [
        shardplan.estimate("llama-3.1-8b", "dgx-h100", number, {"tp": 2, "sharding": "zero1"}, global_batch_size=64)
        for number in (16, 32)
    ]
    found = shardplan.will_resume(*plans, framework="megatron-lm")
    assert found.verdict == "yes"
    assert found.changed["dp"] == (8, 16)
