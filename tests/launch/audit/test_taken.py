"""What an audit takes for what a file leaves open: the answer says so, and a flag says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import run
from tests.launch.scripts import MEGATRON, ask

from shardplan.api.audits import AuditAnswer, audit
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.launch.audit.answer import audit_launch

pytest.importorskip("tree_sitter_bash")

OPEN_WORLD = MEGATRON.replace("#SBATCH --nodes=4", "").replace("${SLURM_NNODES:-4}", "$MY_NODES").replace(
    "$((NODES * 32))", "64"
)  # fmt: skip
AUTO = """
deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path Qwen/Qwen3-8B \\
    --per_device_train_batch_size 1 --model_max_length 2048 {more}
"""
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}}'


def test_as_few_whole_nodes_as_the_degrees_fill(tmp_path: Path) -> None:
    asked = ask(tmp_path, "run.sh", OPEN_WORLD.replace("${TP:-4}", "8"))
    found = audit_launch(asked, cluster=load_cluster("dgx-h100"))
    assert found.taken == {"num_accelerators": (16, "as few whole nodes as the degrees fill")}
    assert found.estimate is not None
    assert found.posed.plan is not None
    assert (found.posed.plan.tp, found.posed.plan.pp) == (8, 2)
    assert found.improvements == ()  # none rests on what was taken


def test_defaults_of_the_file_are_told_in_words(tmp_path: Path) -> None:
    notes = audit_launch(ask(tmp_path, "run.sh", MEGATRON.replace("${TP:-4}", "${1:-4}"))).reading.notes
    assert "argument 1 is not given, so the file's default is taken: 4" in notes


def test_without_a_cluster_nothing_is_taken(tmp_path: Path) -> None:
    found = audit_launch(ask(tmp_path, "run.sh", OPEN_WORLD))
    assert found.taken == {}
    assert "num_accelerators" in found.posed.missing


def test_what_is_given_is_not_taken_and_what_is_taken_is_said(tmp_path: Path) -> None:
    path = ask(tmp_path, "run.sh", OPEN_WORLD).path
    text = " ".join(run("audit", str(path), "--cluster", "dgx-h100").stdout.split())
    assert "Assumed num accelerators 8: one node of the cluster --gpus ... says otherwise." in text
    given = audit(path, cluster="dgx-h100", num_accelerators=32)
    assert isinstance(given, AuditAnswer)
    assert given.taken == {}
    assert given.document().record()["taken"] == {}


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        ("", {"recompute": "full", "precision": "bf16", "gradient_accumulation": 1}),
        ("--bf16 --gradient_checkpointing false", {"gradient_accumulation": 1}),
        ("--bf16 --selective_recomputation yes", {}),  # it may say what is computed again
    ],
)
def test_only_what_nothing_in_the_file_contradicts(tmp_path: Path, more: str, taken: dict[str, object]) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    found = audit_launch(ask(tmp_path, "run.sh", AUTO.format(more=more)), cluster=load_cluster("dgx-h100"))
    assert {key: value for key, (value, _) in found.taken.items()} == taken
    assert (found.estimate is not None) == bool(taken)
