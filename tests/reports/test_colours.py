"""Colours of terms and parts of memory: one meaning each."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from shardplan.base.files import DATA
from shardplan.estimation.parts.terms import MEMORY, TERMS
from shardplan.reports.timeline.bars import MEMORY_HUES

STYLE = (DATA.parent / "web" / "static" / "style.css").read_text()
TONES = [*(term.tone for term in TERMS.values()), *(part.tone for part in MEMORY.values())]
SAME = {"optimizer", "companion"}
"""What a step and a memory have of the same."""


def test_no_two_terms_share_a_colour() -> None:
    shared = {tone for tone, number in Counter(TONES).items() if number > 1}
    assert shared == {MEMORY[name].tone for name in SAME}
    assert all(TERMS[name].tone == MEMORY[name].tone for name in SAME)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_tone_has_a_colour_of_its_own_in_both_schemes(scheme: int) -> None:
    found = re.findall(r"--([cm]\d+(?:-soft)?): (#[0-9a-f]{6});", STYLE)
    half = len(found) // 2
    colours = dict(found[scheme * half : (scheme + 1) * half])
    assert {re.sub(r"^t", "c", tone) for tone in TONES} <= colours.keys()
    assert len(set(colours.values())) == len(colours)


def test_the_timeline_has_the_colours_of_the_page() -> None:
    light = dict(re.findall(r"--([cm]\d+(?:-soft)?): (#[0-9a-f]{6});", STYLE.split("@media (prefers-color-scheme")[0]))
    for name, hue in MEMORY_HUES.items():
        assert hue["light"] == light[MEMORY[name].tone.replace("t", "c")], name
