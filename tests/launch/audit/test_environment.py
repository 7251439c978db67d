"""Variables that are given and not read: the audit says so, and names those that are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.audit.audits import audited

LINE = """torchrun --nnodes $NODES --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16
"""


def notices(folder: Path, head: str, env: dict[str, str]) -> list[str]:
    script = folder / "launch.sh"
    script.write_text(f"{head}\n{LINE}", encoding="utf-8")
    found = audited(script, env=env)
    return [f"{each.values}; {each.knob}" for each in found.violations if each.rule.startswith("variables")]


@pytest.mark.parametrize(
    "head", ["", "NODES=${NODES:-4}", 'if [ -z "$NODES" ]; then NODES=4; fi', "export NODES=$((NODES))"]
)
def test_a_variable_that_is_read_gives_no_notice(head: str, tmp_path: Path) -> None:
    assert notices(tmp_path, head, {"NODES": "64"}) == []


def test_a_script_that_fixes_its_nodes_says_so(tmp_path: Path) -> None:
    (text,) = notices(tmp_path, "NODES=4", {"NODES": "64"})
    assert "does not read NODES" in text
    assert "4 nodes" in text
    assert "reads no variable" in text


def test_the_variable_that_is_read_is_named(tmp_path: Path) -> None:
    (text,) = notices(tmp_path, "NODES=${NNODES:-4}", {"NODES": "64"})
    assert "reads NNODES" in text


def test_a_configuration_reads_its_own(tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    found = audited(config, env={"NODES": "2"})
    assert any("does not read NODES" in each.values for each in found.violations)
