"""Files of measured runs as spreadsheets of other teams have them: without ids, with decimal commas."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardplan.answers.validation import shared_reasons, worst_of
from shardplan.base.units import comma_text, without_thousands
from shardplan.calibrate.runs.rows import read_table
from shardplan.calibrate.validate import validate

HEAD = "Model;GPU;#GPUs;seq_len;gbs;TP;Step Time (s)"
ROW = "llama-3.1-8b;H100;64;8192;512;{tp};{time}"


def written(folder: Path, *rows: tuple[int, str]) -> Path:
    path = folder / "ours.csv"
    path.write_text("\n".join([HEAD, *(ROW.format(tp=tp, time=time) for tp, time in rows)]))
    return path


def test_rows_without_ids_are_named_by_their_lines(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, (1, "6.5"), (2, "6.9")))
    assert [run.id for run in table.runs] == ["ours, line 2", "ours, line 3"]
    assert [run.num_accelerators for run in table.runs] == [64, 64]
    assert sum("no column id" in text for text in table.taken) == 1


def test_a_row_with_an_empty_id_is_still_refused(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    path.write_text(f"id;{HEAD}\n;{ROW.format(tp=1, time='6.5')}\n")
    (row,) = read_table(path).unreadable
    assert "id" in row.error.message


def test_a_decimal_comma_is_named_with_the_number_to_write(tmp_path: Path) -> None:
    (row,) = read_table(written(tmp_path, (1, "6,5"))).unreadable
    assert "write 6.5 with a point" in row.error.message


@pytest.mark.parametrize(
    ("text", "plain"), [("1,234", "1234"), ("1,234,567.5", "1234567.5"), ("3,5", "3,5"), ("0,25", "0,25"), ("7", "7")]
)
def test_commas_between_thousands_alone_are_dropped(text: str, plain: str) -> None:
    assert without_thousands(text) == plain


def test_what_a_comma_may_mean() -> None:
    assert "3.5 with a point" in comma_text("3,5")
    assert "3.35 with" in comma_text("3,35TB/s")
    assert "or 1234" in comma_text("1,234")
    assert not comma_text("1,234,567")
    assert not comma_text("3.5")


def test_rows_that_cannot_have_run_are_left_out_of_the_errors(tmp_path: Path) -> None:
    """70 billion parameters on one accelerator with Adam take over 1 TB."""
    path = written(tmp_path, (1, "6.5"), (2, "6.9"))
    sound = validate(path)
    text = path.read_text().rstrip() + "\nllama-3.1-70b;H100;1;8192;1;1;99\n"
    path.write_text(text)
    found = validate(path)
    assert [one.run.line for one in found.impossible] == [4]
    assert found.step_time == sound.step_time
    assert found.step_time_by("family") == sound.step_time_by("family")
    assert found.coverage() == sound.coverage()
    assert len(found.predictions) == 3


def test_what_all_rows_share_is_said_once(tmp_path: Path) -> None:
    found = validate(written(tmp_path, (1, "6.5"), (2, "6.9")))
    shared = shared_reasons(found.counted)
    assert any("h100-sxm-80gb" in text for text in shared)
    assert not any("h100-sxm-80gb" in each.reason for each in worst_of(found.counted))
    assert any("h100-sxm-80gb" in each.reason for each in worst_of(found.counted[:1]))
