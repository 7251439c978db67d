"""One document on every surface."""

from __future__ import annotations

import pytest

from shardplan.answers.document import (
    AnswerDocument,
    Bar,
    BarRow,
    BarTable,
    Bullets,
    Column,
    CommandLine,
    Dot,
    Hanging,
    Line,
    Part,
    PartsBar,
    Plot,
    RowTable,
    Span,
    summary,
)
from shardplan.render.html import notebook_html, table_html
from shardplan.render.page import Page
from shardplan.render.record import document_record, frame_rows
from shardplan.render.terminal import show
from shardplan.reports.breakdown import Share

ROWS = (("<a>", 0.5), ("b", None))
TABLE = RowTable(
    ROWS,
    (
        Column("name", "name", lambda row: row[0], is_text=True),
        Column("share", "share", lambda row: row[1], "{:.0%}".format),
        Column("", "", lambda row: row[1], bar=Bar(4)),
        Column("", "", lambda row: -(row[1] or 0.0), bar=Bar(4, is_centred=True)),
        Column("", "in words", lambda row: row[0] * 2, is_wide=True, leads=True),
        Column(
            "", None, lambda row: row[1], record=lambda value: {"full": [value]}, frame=lambda value: {"cell": value}
        ),
    ),
    tone=lambda row: "strong" if row[1] else "quiet",
)
DOCUMENT = AnswerDocument(
    name="things",
    head=[Line("what · was asked", tone="strong"), Line("a flag", "You set", "warning")],
    verdict=[Line((Span("It pays", "strong"), Span("; rather.")), "Pays", "good"), Line("A doubt.", "", "doubt")],
    parts=[
        Part("Things", [TABLE, Line("None is missing.", tone="quiet")], "share: of all"),
        Part("Plot", [Plot([Dot(0, 0, "*", "first"), Dot(1, 1, "o")], ("1 s", "2 s"), ("3 B", "4 B"))]),
        Part("Parts", [PartsBar([Share(name="weights", value=3, share=0.3)], str, is_whole=True)]),
        Part("Times", [BarTable([BarRow(("send", "9 s"), 1.0, ""), BarRow(("wait", "12 s"), 0.0, "")], 4)]),
        Part("", [Hanging(Span("them"), Span("say so"), is_flush=True)]),
        Part("", [Bullets(["one", "two"]), CommandLine("shardplan plan"), Line("At the edge.", indent=0)]),
    ],
    table=TABLE,
    record=lambda: {"size": 2, "things": TABLE},
    is_yes=True,
)


def test_a_terminal_shows_all_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    show(Page(), DOCUMENT, ["a.csv"])
    assert capsys.readouterr().out.splitlines() == [
        "what · was asked",
        "You set  a flag",
        "",
        "Pays     It pays; rather.",
        "         A doubt.",
        "",
        "Things  share: of all",
        "  name  share",
        "  <a>     50%  ██    ██│",
        "  b         -          │",
        "  None is missing.",
        "",
        "Plot",
        f"        4 B |{'o':>67}",
        *["            |"] * 7,
        "        3 B |* first",
        f"{'+':>13}{'-' * 67}",
        f"{'1 s':>16}{'2 s':>64}",
        "",
        "Parts",
        f"  [{'W' * 22}{'.' * 52}]",
        "  Weights 3",
        "",
        "Times",
        "  send   9 s  ████",
        "  wait  12 s",
        "",
        "them  say so",
        "",
        "  - one",
        "  - two",
        "  shardplan plan",
        "At the edge.",
        "",
        "Written  a.csv",
    ]


def test_a_record_has_the_keys_and_entries_of_columns() -> None:
    assert document_record(DOCUMENT) == {
        "schema": "shardplan/things/1",
        "size": 2,
        "things": [{"name": "<a>", "share": 0.5, "full": [0.5]}, {"name": "b", "share": None, "full": [None]}],
    }


def test_a_frame_has_cells() -> None:
    assert frame_rows(DOCUMENT) == [
        {"name": "<a>", "share": 0.5, "cell": 0.5},
        {"name": "b", "share": None, "cell": None},
    ]


def test_html_shows_wide_columns_and_escapes_every_text() -> None:
    text = notebook_html(DOCUMENT)
    assert "<td>&lt;a&gt;</td>" in text
    assert '<td class="n">&lt;a&gt;&lt;a&gt;</td>' in text
    assert "<a>" not in text
    assert '<tr class="quiet"><td>b</td><td class="n">-</td>' in text


def test_few_rows_of_many_columns_are_columns_of_html() -> None:
    turned = table_html(TABLE._replace(turned_up_to=2), lambda row: f"/at?{row[1]}" if row[1] else "")
    assert turned.startswith('<table class="turned"><thead><tr><td></td><th scope="col" class="n">&lt;a&gt;</th><th')
    assert '<th scope="row">share</th><td class="n">50%</td><td class="n">-</td>' in turned
    assert table_html(TABLE._replace(turned_up_to=1)) == table_html(TABLE)


def test_a_row_of_html_leads_to_its_address() -> None:
    assert '<td class="n"><a href="/step?a=1&amp;b=2" data-apply>bb</a></td>' in table_html(
        TABLE, lambda row: "/step?a=1&b=2" if row[0] == "b" else ""
    )


def test_a_summary_is_the_verdict() -> None:
    assert summary(DOCUMENT) == "Pays: It pays; rather."
