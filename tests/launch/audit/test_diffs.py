"""Changes that an audit proposes, made in the file as they are printed, give the plan that is promised."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.chosen import CHOSEN
from tests.launch.scripts import ask

from shardplan import load_cluster
from shardplan.launch.audit.answer import audit_launch
from shardplan.launch.audit.improve import Improvement
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch

pytest.importorskip("tree_sitter_bash")

Document = dict[str, dict[str, object]]

MODEL = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --vocab-size 32000 --bf16"
PLAN = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64"
FULL = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
MEGATRON = f"torchrun --nproc_per_node 8 --nnodes 2 pretrain.py {MODEL} {PLAN} {FULL}"
LINES = {
    "megatron-lm": MEGATRON,
    "equals": re.sub(r"(--[a-z-]+-[a-z]+) (?!-)", r"\1=", MEGATRON),
    "megatron-lm of epfl": re.sub(r"--[a-z-]+", lambda name: name[0][:2] + name[0][2:].replace("-", "_"), MEGATRON),
    "megatron-deepspeed": (
        f"deepspeed --num_nodes 2 --num_gpus 8 pretrain.py {MODEL} {PLAN} --checkpoint-activations --zero-stage 1"
    ),
    "ms-swift": (
        "NNODES=2 NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --tensor_model_parallel_size 4 "
        "--pipeline_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 64 --max_length 2048 "
        "--recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --bf16 true"
    ),
    "torchtitan": (
        "torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train --module llama3 --config llama3_8b "
        "--parallelism.tensor_parallel_degree 8 --training.local_batch_size 1 --training.seq_len 2048 "
        "activation-checkpoint:full"
    ),
}


def without(text: str, option: str) -> str:
    """The line without an option as it is printed, and without its value where the name alone is."""
    name = option.partition(" (")[0]
    equal = re.sub(r"(--\S+) (?=\S)", r"\1=", name)
    written = name if name in text else equal
    assert written in text, option
    value = r"(?:[ =](?!-)\S+)?" if re.fullmatch(r"--\S+", name) else ""
    return re.sub(re.escape(written) + value + r"(?= |$)", "", text, count=1)


def promised(found: Improvement, path: Path) -> None:
    reading = read_launch(Ask(path=path))
    for name, (_, new) in found.change.items():
        if name not in found.unsaid and name != "schedule":
            assert reading.value(f"software.{name}" if name in CHOSEN else name) == new, name


@pytest.mark.parametrize("text", LINES.values(), ids=LINES.keys())
def test_a_line(tmp_path: Path, text: str) -> None:
    question = ask(tmp_path, "run.sh", text)
    found = audit_launch(question, cluster=load_cluster("dgx-h100")).improvements
    assert found
    for each in found:
        changed = text
        for option in each.removed:
            changed = without(changed, option)
        question.path.write_text(" ".join([changed, *each.added]), encoding="utf-8")
        promised(each, question.path)


def test_keys_of_flagscale(tmp_path: Path) -> None:
    training = {
        "system": {"tensor_model_parallel_size": 4, "precision": {"bf16": True}, "recompute_granularity": "full",
                   "recompute_method": "uniform", "recompute_num_layers": 1},
        "model": {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "seq_length": 2048,
                  "micro_batch_size": 1, "global_batch_size": 64},
        "data": {"tokenizer": {"vocab_size": 32000}},
    }  # fmt: skip
    text = (
        "defaults: [train: a, _self_]\nexperiment: {task: {backend: megatron}, runner: {nnodes: 2, nproc_per_node: 8}}"
    )
    file = tmp_path / "train" / "a.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(training), encoding="utf-8")
    question = ask(tmp_path, "run.yaml", text)
    found = audit_launch(question, cluster=load_cluster("dgx-h100")).improvements
    assert found
    for each in found:
        changed = yaml.safe_load(yaml.safe_dump(training))
        for piece in each.removed:
            section, name = piece.partition(":")[0].split(".")
            del changed[section][name]
        for piece in each.added:
            key, _, value = piece.partition(": ")
            section, name = key.split(".")
            changed[section][name] = yaml.safe_load(value)
        file.write_text(yaml.safe_dump(changed), encoding="utf-8")
        promised(each, question.path)


def test_keys_of_torchtitan(tmp_path: Path) -> None:
    """A TOML file of 0.2.2 has its own keys, not the options of a later command line."""
    written: Document = {
        "model": {"name": "llama3", "flavor": "8B"},
        "training": {"local_batch_size": 1, "seq_len": 2048},
        "parallelism": {"tensor_parallel_degree": 8},
        "activation_checkpoint": {"mode": "full"},
    }
    question = ask(tmp_path, "run.toml", _toml(written), num_accelerators=16)
    found = audit_launch(question, cluster=load_cluster("dgx-h100")).improvements
    assert any('activation_checkpoint.mode = "none"' in each.added for each in found)
    for each in found:
        changed: Document = tomllib.loads(_toml(written))
        for option in each.removed:
            section, _, name = option.partition(" ")[0].partition(".")
            changed[section].pop(name, None)
        for option in each.added:
            section, entry = next(iter(tomllib.loads(option).items()))
            changed.setdefault(section, {}).update(entry)
        question.path.write_text(_toml(changed), encoding="utf-8")
        promised(each, question.path)


def _toml(document: Document) -> str:
    lines = (
        (f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in held.items()))
        for section, held in document.items()
    )
    return "\n".join(line for section in lines for line in section)
