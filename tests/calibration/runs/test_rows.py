"""Files of measured runs: what is read, and what is refused with file, line, run, column, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.calibration.rows import CELLS, PUBLISHED, run, write

from shardplan.calibration.runs.cells import COLUMNS
from shardplan.calibration.runs.rows import SHIPPED_RUNS, read_runs, read_table, shipped_runs
from shardplan.errors import InputError


def test_published_rows_are_read_in_order_and_in_si_units() -> None:
    runs = read_runs(PUBLISHED)
    assert [one.id for one in runs][:2] == ["175b-full", "175b-present"]
    first = runs[0]
    assert (first.step_time, first.inter_node_bandwidth, first.vp, first.cp) == (18.13, 25e9, 3, None)
    assert (first.sequence_parallel, first.recompute, first.peak_memory_bytes) == (False, "full", None)
    assert (first.line, first.folder) == (2, PUBLISHED.parent)


def test_empty_cells_are_not_stated(tmp_path: Path) -> None:
    one = run(tmp_path, tp="", precision="", sequence_parallel="", recompute="")
    assert (one.tp, one.precision, one.sequence_parallel, one.recompute, one.grad_dtype) == (None, None, None, "", None)


def test_options_are_pairs_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    one = run(tmp_path, options=" overlap=dp_grad,tp ; colour=blue;")
    assert dict(one.options) == {"overlap": "dp_grad,tp", "colour": "blue"}


def test_modules_of_the_experts_activation_have_two_names(tmp_path: Path) -> None:
    assert run(tmp_path, recompute="mlp, moe_act,layernorm").recompute == "mlp,activation,layernorm"


def test_memory_is_in_gb_and_step_time_may_be_missing(tmp_path: Path) -> None:
    one = run(tmp_path, step_time_s="", peak_memory_gb="70.5", memory_kind="reserved")
    assert (one.step_time, one.peak_memory_bytes, one.memory_kind) == (None, 70.5e9, "reserved")


def test_columns_that_the_format_does_not_know_are_kept_by_name(tmp_path: Path) -> None:
    assert run(tmp_path, weather="rain").unknown == ("weather",)


@pytest.mark.parametrize(
    ("column", "value", "wanted"),
    [
        ("num_accelerators", "many", "a whole number from 1"),
        ("num_accelerators", "1.5", "a whole number from 1"),
        ("num_accelerators", "", "a whole number from 1"),
        ("num_accelerators", "1_000", "a whole number from 1"),
        ("num_accelerators", "nan", "a whole number from 1"),
        ("num_accelerators", "-8", "a whole number from 1"),
        ("tp", "0", "a whole number from 1"),
        ("step_time_s", "inf", "a number from 1e-06 to 1e+06 s"),
        ("step_time_s", "0", "a number from"),
        ("peak_memory_gb", "80 GB", "a number from"),
        ("inter_node_gb_s", "fast", "GB/s"),
        ("precision", "bf61", "did you mean bf16?"),
        ("attention", "flsh", "did you mean flash?"),
        ("sharding", "zero4", "did you mean zero3"),
        ("sequence_parallel", "maybe", "yes or no"),
        ("recompute", "mpl", "did you mean mlp?"),
        ("recompute", "yes", "one of none, selective"),
        ("recompute", "full,mlp", "one of none, selective"),
        ("offload", "weights", "none, optimizer, activations"),
        ("memory_kind", "used", "allocated, reserved, process"),
        ("tier", "C", "A, A- or B"),
        ("options", "=dp_grad", "key=value pairs"),
        ("options", "a=1;a=2", "each key once"),
        ("model", "", "given"),
        ("id", "", "given"),
        ("notes", "x" * 5000, "at most 4000 characters"),
    ],
)
def test_a_bad_cell_is_refused_with_all_that_locates_it(tmp_path: Path, column: str, value: str, wanted: str) -> None:
    path = write(tmp_path, CELLS, {**CELLS, "id": "second", column: value})
    with pytest.raises(InputError) as refused:
        read_runs(path)
    message = refused.value.message
    assert str(path) in message
    assert "line 3" in message
    assert column in message
    assert wanted.partition(" (")[0] in message
    assert column == "id" or "'second'" in message
    assert value[:20] in message


def test_a_bad_cell_keeps_its_row_apart_and_no_other(tmp_path: Path) -> None:
    bad = [{**CELLS, "id": "b", "precision": "bf61"}, {**CELLS, "id": "", "tp": "2"}, {**CELLS, "id": "c", "tp": "two"}]
    table = read_table(write(tmp_path, CELLS, *bad, {**CELLS, "id": "d"}, CELLS))
    assert [one.id for one in table.runs] == ["run", "d"]
    assert [(row.id, row.line, row.step_time) for row in table.unreadable] == [
        ("b", 3, 5.0), ("line 4", 4, 5.0), ("c", 5, 5.0), ("run", 7, 5.0),
    ]  # fmt: skip
    assert table.unreadable[0].error.rule == "precision is one of bf16, fp16, fp8, mxfp8, nvfp4, fp32"
    assert table.unreadable[3].error.rule == "every run has an id of its own"


def test_a_row_with_a_comma_too_many_is_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}\n{ROW}\n{ROW.replace('a,', 'b,')},and more\n")
    table = read_table(path)
    assert ([one.id for one in table.runs], [row.id for row in table.unreadable]) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("precision", "bfloat16", "bf16"), ("precision", "float8", "fp8"), ("precision", "FP8", "fp8"),
        ("precision", "fp8_cs", "fp8"), ("precision", "half", "fp16"), ("grad_dtype", "torch.float32", "fp32"),
        ("attention", "sdpa", "flash"), ("attention", "flex", "flash"), ("attention", "cudnn", "flash"),
        ("attention", "flash-attn-3", "flash"), ("attention", "eager", "unfused"),
        ("sharding", "fsdp", "zero3"), ("sharding", "FSDP2", "zero3"), ("sharding", "none", "ddp"),
        ("sharding", "ZeRO-1", "zero1"), ("sharding", "zero-1", "zero1"), ("sharding", "FULL_SHARD", "zero3"),
        ("sharding", "SHARD_GRAD_OP", "zero2"), ("sharding", "HYBRID_SHARD", "hsdp"),
        ("recompute", "op", "op_sac"), ("recompute", "attn", "core_attn"), ("recompute", "block", "full"),
        ("recompute", "Full", "full"), ("recompute", "off", "none"), ("recompute", "norm+attn", "layernorm,core_attn"),
        ("sequence_parallel", "on", True), ("sequence_parallel", "0", False), ("offload", "cpu_adam", "optimizer"),
        ("memory_kind", "nvidia-smi", "process"), ("step_time_from", "throughput", "tokens"), ("tier", "a-", "A-"),
    ],
)  # fmt: skip
def test_words_of_frameworks_in_cells(tmp_path: Path, column: str, text: str, value: object) -> None:
    """Names of PyTorch's ShardingStrategy and dtypes, of Transformers' and torchtitan's attention, NeMo's recipes."""
    assert getattr(run(tmp_path, **{column: text}), column) == value


def test_a_cell_that_is_taken_as_another_word_says_so(tmp_path: Path) -> None:
    one = run(tmp_path, sharding="fsdp", precision="BF16", options="overlap=dp_grad;dp_param;tp;compile=yes")
    assert {column: (taken.text, taken.value) for column, taken in one.taken.items()} == {
        "sharding": ("fsdp", "zero3"),
        "options": (
            "overlap=dp_grad;dp_param;tp;compile=yes", {"overlap": "dp_grad,dp_param,tp", "compile": "yes"}
        ),
    }  # fmt: skip
    assert dict(one.options) == {"overlap": "dp_grad,dp_param,tp", "compile": "yes"}


def test_neither_time_nor_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="step_time_s is ''; it must be given where peak_memory_gb is not") as refused:
        run(tmp_path, step_time_s="")
    assert refused.value.hint == "fill in step_time_s"


@pytest.mark.parametrize(
    ("column", "value", "hint"),
    [
        ("model", "", "fill in model"),
        ("num_accelerators", "", "fill in num_accelerators"),
        ("num_accelerators", "many", "correct num_accelerators"),
        ("tp", "0", "correct tp, or leave the cell empty where it is not stated"),
    ],
)
def test_only_a_cell_that_may_be_empty_can_be_left_so(tmp_path: Path, column: str, value: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        run(tmp_path, **{column: value})
    assert refused.value.hint == hint


def test_an_id_stands_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 3: id 'run' stands in line 2 already"):
        read_runs(write(tmp_path, CELLS, CELLS))


def test_a_column_almost_like_a_missing_one_is_a_slip(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean peak_memory_gb"):
        run(tmp_path, peak_memory_g="70")


@pytest.mark.parametrize("column", ["id", "model", "accelerator", "num_accelerators", "sequence_length"])
def test_columns_that_must_be_there(tmp_path: Path, column: str) -> None:
    row = {name: cell for name, cell in CELLS.items() if name != column}
    with pytest.raises(InputError, match=f"there is no column '{column}'"):
        read_runs(write(tmp_path, row))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"id,model\n", "there is no column 'accelerator'"),
        (b'id,"mod', "is not CSV"),
        (b"id,id\n1,2\n", "repeated"),
        (b"id,model,accelerator,num_accelerators,sequence_length,global_batch_size\n", "has a header and no rows"),
        (b"id,model,accelerator,num_accelerators,sequence_length,global_batch_size\na,b,c,1,1,1,1\n", "7 cells for 6"),
        (b"id,model\n" + b"x" * 200_000 + b",b\n", "is not CSV"),
    ],
)
def test_hostile_files(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_runs(path)


HEADER = "id,model,accelerator,num_accelerators,sequence_length,global_batch_size,step_time_s"
ROW = "a,llama-3.1-8b,h100-sxm-80gb,8,8192,64,5"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}\n{ROW}\n".replace(",", ";"), "has semicolons and no commas: 'id;model;"),
        (f"{HEADER}\r\n{ROW}\r\n".replace(",", "\t"), r"has tabs and no commas: 'id\\tmodel\\t"),
        (f"# our runs\n{HEADER}\n{ROW}\n", "starts with '#', and comments are not read: '# our runs'"),
        (f"# ours, of May\n{HEADER}\n{ROW}\n", "starts with '#'"),
        (f"#{HEADER}\n{ROW}\n", "starts with '#'"),
    ],
)
def test_other_separators_and_comments(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, newline="")
    with pytest.raises(InputError, match=said) as refused:
        read_runs(path)
    assert refused.value.rule == "columns are separated by commas, and the first line names them"
    assert refused.value.hint.startswith("separate columns with commas, and begin with their names: id,model,")


def test_a_column_called_hash_is_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"#,{HEADER}\n1,{ROW}\n")
    assert read_runs(path)[0].unknown == ("#",)


@pytest.mark.parametrize(("path", "said"), [(".", "is a directory"), ("nothing.csv", "does not exist")])
def test_what_is_no_file(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_runs(tmp_path / path)


def test_a_path_with_a_null_character() -> None:
    with pytest.raises(InputError, match="no null characters"):
        read_runs("runs\0.csv")


def test_too_large_a_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    with path.open("wb") as file:
        file.truncate(40 * 2**20)
    with pytest.raises(InputError, match="bytes, more than"):
        read_runs(path)


def test_shipped_runs_have_sources_and_models() -> None:
    runs = shipped_runs()
    assert len(runs) == 1467
    assert all(one.source and one.family and one.tier in ("A", "A-", "B") and one.framework for one in runs)
    assert all(not one.unknown for one in runs)
    files = {one.model for one in runs if "/" in one.model}
    assert files == {f"models/{path.name}" for path in (SHIPPED_RUNS.parent / "models").glob("*.json")}


@pytest.mark.parametrize("word", ["oom", "OOM", "out_of_memory", "CUDA OOM", "torch.cuda.OutOfMemoryError"])
def test_a_run_out_of_memory_needs_neither_time_nor_memory(tmp_path: Path, word: str) -> None:
    assert not run(tmp_path, step_time_s="", result=word).ran


@pytest.mark.parametrize("cells", [{"step_time_s": "5"}, {"step_time_s": "", "peak_memory_gb": "70"}])
def test_a_run_out_of_memory_has_neither(tmp_path: Path, cells: dict[str, str]) -> None:
    with pytest.raises(InputError, match="empty where the result is oom"):
        run(tmp_path, result="oom", **cells)


@pytest.mark.parametrize("word", ["", "ran", "ok", "completed"])
def test_a_run_that_ran_has_one_or_the_other(tmp_path: Path, word: str) -> None:
    assert run(tmp_path, result=word).ran
    with pytest.raises(InputError, match="given where peak_memory_gb is not"):
        run(tmp_path, step_time_s="", result=word)


def test_documentation_lists_every_column() -> None:
    page = (Path(__file__).parents[3] / "docs" / "inputs" / "measured-runs.md").read_text()
    missing = [column for column in COLUMNS if f"`{column}`" not in page]
    assert missing == []


def test_a_header_without_end_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"column{number}" for number in range(20_000)) + "\n1\n", encoding="utf-8")
    with pytest.raises(InputError, match="has 20,000 columns"):
        read_runs(path)
