"""Ten questions, each answered by commands, pages and the record: no figure is shown twice with different values.

A figure is a name that people read (a term of the step, a part of memory, MFU, the bubble, the error of a run) with the
value behind it, or a cell of a table under such a name. One fixture asks everything that there is to ask of a question:
its launch script is exported and audited too, and of every decision the plan of the question is looked at.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from typing import Final
from urllib.parse import parse_qsl

import pytest
from starlette.testclient import TestClient
from tests.cli.commands import run
from tests.web.conftest import HOST

from shardplan.estimation.parts.terms import MEMORY, TERMS
from shardplan.reports.texts.answer import signed_percent
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings
from shardplan.web.state import LOCK

FEW: Final = {"cp": "1", "sharding": "zero1"}
QUESTIONS: Final = (
    ("llama-3.2-1b", "dgx-h100", 8, {"pp": "2", "tp": "1"}),
    ("llama-3.2-1b", "dgx-a100", 16, {"pp": "4", "tp": "1"}),
    ("llama-3.1-8b", "dgx-h100", 16, {"pp": "4", "tp": "2"}),
    ("llama-3.1-8b", "dgx-h100", 16, {"pp": "2", "tp": "4"}),
    ("llama-3.1-8b", "dgx-b200", 8, {"pp": "1", "tp": "1,2"}),
    ("llama-3.1-70b", "dgx-h100", 64, {"pp": "4", "tp": "8"}),
    ("qwen3-32b", "dgx-h100", 32, {"pp": "2", "tp": "4,8"}),
    ("mixtral-8x7b", "dgx-h100", 32, {"pp": "1,2", "tp": "2", "ep": "8"}),
    ("deepseek-v2-lite", "dgx-h100", 16, {"pp": "1", "tp": "1", "ep": "8"}),
    ("llama-3.1-8b", "gaudi3-hls3", 16, {"pp": "1", "tp": "2"}),
)
"""Model, cluster, size and what is fixed or limited, which keeps the searches small."""
NUMBER: Final = r"[+-]?[\d,.]+ (?:ns|µs|ms|s|min|h|days|kB|MB|GB|TB|%)"
VALUE: Final = re.compile(rf":? ({NUMBER} to {NUMBER}|{NUMBER})(?:,? ({NUMBER}))?(?![\w])")
TERMS_OF_A_STEP: Final = tuple(each.label for each in TERMS.values())
SIGNED: Final = ("nearest measured run",)
NAMED: Final = ("predicted", "simulated", "80 % band", "with your own runs", "MFU", "the slowest, waits", *SIGNED)
"""Figures that are words and a value, besides the terms of the step and the parts of memory."""
NAMES: Final = (*TERMS_OF_A_STEP, *MEMORY, *NAMED)


TITLED: Final = {"step": "predicted [time]", "MFU": "MFU [%]", "band": "80 % band [time]"}
"""Figures by the titles of columns."""
DECISIONS: Final = {
    "scale": "sizes={gpus},{twice}",
    "pareto_sizes": "sizes={gpus},{twice}&price=2",
    "vary": "over=precision&values=bf16",
    "whatif": "change.1=inter_node_latency&to.1=9us",
    "pareto": "",
    "sensitivity": "factor=1.5",
    "budget": "budget_tokens=1T",
}
"""What is asked of each, so that few searches are needed."""
SAID: Final = re.compile(f"({NUMBER}) before,|; ({NUMBER}) a step|the recommended plan has ({NUMBER})")
"""The step of the plan to take in sentences of decisions, and in that of an export."""

WHOLE: Final = ("plan", "estimate", "simulate", "/answer", "/step/answer", "/audit/answer")
"""Answers about one plan alone."""
SILENT: Final = {"decide pareto", "decide sensitivity"}
"""They may be about other plans than the one to take."""


def cells(page: str, plan: str) -> Iterator[tuple[str, str]]:
    """Figures of a plan in the rows of tables, or the columns of turned ones, that state it in words."""
    for table in re.findall(r"<table\b.*?</table>", page, re.DOTALL):
        rows = [[_words(cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in table.split("</tr>")]
        for row in (row for row in rows if plan in row):
            is_turned, place = row[0] == "plan", row.index(plan)
            named = [(each[0], each[place]) for each in rows if each] if is_turned else zip(rows[0], row, strict=True)
            yield from ((TITLED[title], value) for title, value in named if title in TITLED)
    if said := SAID.search(_words(page)):
        yield "predicted [time]", said[said.lastindex or 0]


def _words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def figures(text: str) -> Iterator[tuple[str, str]]:
    """Every named figure of a text or a page; times, shares and bytes of one name are figures of their own."""
    flat = _words(text)
    for name in NAMES:
        for start in re.finditer(rf"(?<![\w-]){re.escape(name)}(?![\w-])", flat, re.IGNORECASE):
            found = VALUE.match(flat, start.end())
            for value in filter(None, found.groups() if found else ()):
                if name in SIGNED or value[0] not in "+-":  # a sign is that of a difference from another plan
                    unit = value.rpartition(" ")[2]
                    yield f"{name} [{'bytes' if unit.endswith('B') else '%' if unit == '%' else 'time'}]", value


@pytest.fixture(scope="module", params=enumerate(QUESTIONS), ids=[f"{n}-{each[0]}" for n, each in enumerate(QUESTIONS)])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Everything that is said of the plan to take: by name of the command or the page."""
    place, (model, cluster, gpus, limits) = request.param
    locks = {**FEW, **limits}
    limit = [part for name, value in locks.items() for part in ("--limit", f"{name}={value}")]
    file = tmp_path_factory.mktemp("story") / "plans.json"
    texts = {
        "plan": run("plan", model, "--cluster", cluster, "--gpus", gpus, *limit, "--explain", "--json", file).stdout,
        "estimate": run("estimate", "--from", file, "--pick", "recommended").stdout,
        "simulate": run("simulate", file).stdout,
    }
    asked = {"model": model, "cluster": cluster, "gpus": str(gpus)}
    query = asked | {f"{LOCK}{name}": value for name, value in locks.items()}
    with TestClient(create_app(ServerSettings()), base_url=HOST) as client:
        for path in ("/answer", "/step/answer", "/export/answer"):
            page = client.get(path, params=query)
            assert page.status_code == 200, page.text[:500]
            texts[path] = page.text
        script = re.search(r"<pre[^>]*>(#!/bin/bash.*?)</pre>", texts["/export/answer"], re.DOTALL)
        if script:
            posted = {"script": unescape(script[1]), "audit_cluster": cluster}
            texts["/audit/answer"] = client.post("/audit/answer", data=posted).text
        for name, values in [*DECISIONS.items()][place % 4 :: 4]:
            own = dict(parse_qsl(values.format(gpus=gpus, twice=2 * gpus)))
            texts[f"decide {name}"] = client.get("/decide/answer", params=query | own | {"decide": name}).text
    return texts


def test_no_figure_is_shown_twice_with_different_values(shown: dict[str, str]) -> None:
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    exported = re.search(r": ([^:]+?); \S+ \S+ a step", _words(shown["/export/answer"]))
    assert exported
    for where, text in shown.items():
        found = figures(text) if where in WHOLE else cells(text, exported[1])
        for name, value in found:
            values[name][value].add(where)
    assert {name: dict(found) for name, found in values.items() if len(found) > 1} == {}
    (step,) = values["predicted [time]"].values()
    assert {name for name in shown if name not in WHOLE} - SILENT <= step
    several = [name for name, found in values.items() if len(set.union(*found.values())) > 1]
    assert len(several) >= 10  # terms, parts of memory, band and MFU are read on pages and in texts


def test_reading_finds_a_figure_that_differs() -> None:
    """The test above can fail: two values of a term, and of a band, are read as such."""
    one = figures("<b>MFU</b> 48.1 % of it; pipeline bubble 109 ms, 1.4 % 80 % band 7.32 s to 8.77 s")
    other = figures("MFU 48.1 %; pipeline bubble  109 ms   1.5 %; 80 % band 7.32 s to 8.78 s, tp communication +3.61 s")
    bubbles = {("pipeline bubble [%]", "1.4 %"), ("pipeline bubble [%]", "1.5 %")}
    bands = {("80 % band [time]", "7.32 s to 8.77 s"), ("80 % band [time]", "7.32 s to 8.78 s")}
    assert set(one) ^ set(other) == bubbles | bands


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    shares = (-0.0001, 0.0001, -0.001, 0.25)
    assert [signed_percent(share) for share in shares] == ["0.0 %", "0.0 %", "-0.1 %", "+25.0 %"]
