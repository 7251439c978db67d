"""What to change is said in the words of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.scripts import MEGATRON, ask

from shardplan import load_cluster
from shardplan.launch.audit.answer import audit_launch

pytest.importorskip("tree_sitter_bash")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MEGATRON, "leave out --sequence-parallel"),
        (MEGATRON.replace(" --sequence-parallel", ""), "sequence parallel off"),
    ],
)
def test_a_hint_names_the_options_of_the_file(tmp_path: Path, text: str, expected: str) -> None:
    """8,191 tokens do not divide by two ranks of context parallelism, nor by four of tensor parallelism."""
    text = text.replace("--seq-length 8192", "--seq-length 8191 --context-parallel-size 2")
    found = audit_launch(ask(tmp_path, "run.sh", text), cluster=load_cluster("dgx-h100"))
    knobs = " ".join(each.knob for each in found.violations)
    assert expected in knobs
    assert "--no-sequence-parallel" not in knobs
