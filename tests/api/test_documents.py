"""Answers of Python that are documents: as text, in a notebook, as a mapping and as rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardplan
from shardplan.api.saving import AsDocument

ASKED: dict[str, Any] = {
    "global_batch_size": 64, "sequence_length": 2048, "limit": {"pp": 1, "cp": 1, "sharding": "zero1"},
}  # fmt: skip
MODEL = ("llama-3.2-1b", "dgx-h100")
RL_STEP: dict[str, Any] = {
    "prompts": 32, "samples": 8, "response_tokens": "mean=256,max=1k", "placement": "colocated,in-turns",
}  # fmt: skip


@pytest.mark.parametrize(
    ("ask", "schema", "verdict"),
    [
        (lambda: shardplan.scale(*MODEL, [8, 16], **ASKED), "scale", "Pays: At every size up to 16"),
        (lambda: shardplan.pareto(*MODEL, 8, **ASKED), "pareto", "Front: "),
        (lambda: shardplan.pareto_sizes(*MODEL, [8, 16], **ASKED), "pareto-sizes", "Front: "),
        (lambda: shardplan.sensitivity(*MODEL, 8, **ASKED), "sensitivity", "Pays: "),
        (lambda: shardplan.fit(*MODEL, 8, largest="micro_batch_size", **ASKED), "fit", "Largest: "),
        (lambda: shardplan.rl(*MODEL, 16, **RL_STEP), "rl", "Step: "),
        (lambda: shardplan.budget(*MODEL, num_accelerators=8, tokens=1e10, **ASKED), "budget", "8 x dgx-h100: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_shows_itself(ask: Callable[[], AsDocument], schema: str, verdict: str) -> None:
    found = ask()
    assert repr(found).startswith(f"<{type(found).__name__}: {verdict}")
    html = found._repr_html_()
    assert html.count("<table") == html.count("</table>") > 0
    assert len(html) < 20_000
    assert found.to_dict()["schema"] == f"shardplan/{schema}/1"
    rows = found.to_rows()
    assert rows
    assert {type(value) for row in rows for value in row.values()} <= {int, float, str, bool, type(None)}
