"""Lengths of answers: their mean is the given one, and their tail is that of the distribution."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.rl.asked import lengths_of
from shardplan.rl.lengths import Lengths


@settings(max_examples=40, deadline=None)
@given(
    cap=st.integers(64, 65536),
    share=st.floats(0.02, 0.98),
    spread=st.floats(0.05, 2.0),
    endless=st.floats(0, 0.2),
)
def test_the_mean_is_the_given_one(cap: int, share: float, spread: float, endless: float) -> None:
    lengths = Lengths(mean=share * cap, cap=cap, spread=spread, endless=endless)
    steps = np.linspace(0, cap, 20001)
    longer = np.array([lengths.longer_than(t) for t in steps])
    assert np.trapezoid(longer, steps) == pytest.approx(share * cap, rel=0.02)
    assert (lengths.alive * np.diff(lengths.edges)).sum() == pytest.approx(share * cap, rel=1e-9)
    assert (np.diff(longer) <= 1e-12).all()


@pytest.mark.parametrize(("text", "said"), [("12\n\n-4\n", "line 3: '-4'"), ("", "no length"), ("long\n", "'long'")])
def test_what_is_wrong_with_a_file_of_lengths_is_shown(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        lengths_of(f"file={file}")


def test_all_alike_end_at_once() -> None:
    lengths = Lengths(mean=100, cap=4096, spread=0, endless=0)
    assert lengths.longer_than(99) == 1
    assert lengths.longer_than(100) == 0
    assert lengths.mean_age() == pytest.approx(50, rel=0.01)


def test_the_age_is_that_of_a_renewal_process() -> None:
    spread = 0.6
    lengths = Lengths(mean=100, cap=100_000, spread=spread, endless=0)
    assert lengths.mean_age() == pytest.approx(100 * (1 + spread**2) / 2, rel=0.03)


def test_measured_lengths_are_counted() -> None:
    lengths = Lengths.of_file([10, 20, 30, 40])
    assert lengths.mean == 25
    assert lengths.cap == 40
    assert [lengths.longer_than(t) for t in (0, 10, 25, 40)] == [1, 0.75, 0.5, 0]
    assert Lengths.of_file([10, 90], cap=50).mean == 30


def test_the_words_of_the_flag() -> None:
    lengths = lengths_of("mean=2k,max=4k,spread=0.3,endless=0")
    assert (lengths.mean, lengths.cap, lengths.spread, lengths.endless) == (2048, 4096, 0.3, 0)
    assert math.isclose(lengths_of("mean=100,max=200").endless, 0.01)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("mean=2k", "one mean and one max"),
        ("4096", "one mean and one max"),
        ("mean=4k,max=2k", "at most the cap"),
        ("mean=2k,max=4k,skew=1", "skew"),
        ("mean=2k,max=4k,endless=2", "endless"),
        ("file=lengths.txt,mean=3", "stands alone"),
        ("mean=2k,max=100000000", "max"),
    ],
)
def test_wrong_words_are_refused(text: str, named: str) -> None:
    with pytest.raises(InputError) as refused:
        lengths_of(text)
    assert named in str(refused.value) + refused.value.rule
    assert refused.value.hint


def test_a_file_of_lengths_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("10\n30\n\n")
    assert lengths_of(f"file={path}").mean == 20
    path.write_text("10\nmany\n")
    with pytest.raises(InputError, match="whole number"):
        lengths_of(f"file={path}")
