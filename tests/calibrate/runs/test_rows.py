"""Files of measured runs: what is read, and what is refused with file, line, run, column, value and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.calibrate.rows import CELLS, PUBLISHED, asked, run, write

from shardplan.base.errors import InputError
from shardplan.calibrate.runs.columns import column_meant
from shardplan.calibrate.runs.rows import SHIPPED_RUNS, read_runs, read_table, shipped_runs
from shardplan.estimation.charge import model_flops_per_token


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
        ("num_accelerators", "1__000", "a whole number from 1"),
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
    with pytest.raises(InputError, match="line 3: id 'run' is in line 2 already"):
        read_runs(write(tmp_path, CELLS, CELLS))


def test_a_column_almost_like_a_missing_one_is_a_slip(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean peak_memory_gb"):
        run(tmp_path, peak_memory_g="70")


@pytest.mark.parametrize("column", ["model", "accelerator", "num_accelerators", "sequence_length"])
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
    "text",
    [
        f"# our runs\n{HEADER}\n{ROW}\n", f"# ours, of May\n{HEADER}\n{ROW}\n", f"#{HEADER}\n{ROW}\n",
    ],
)  # fmt: skip
def test_comments_are_not_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text, newline="")
    with pytest.raises(InputError, match="starts with '#', and comments are not read") as refused:
        read_runs(path)
    assert refused.value.rule == "the first line names the columns"
    assert "--template" in refused.value.hint


@pytest.mark.parametrize(("sign", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_read_and_said(tmp_path: Path, sign: str, name: str) -> None:
    """As spreadsheets export them where the comma is the decimal sign, and as cells are pasted."""
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}\r\n{ROW}\r\n".replace(",", sign), newline="")
    table = read_table(path)
    assert table.runs[0].step_time == 5
    assert table.taken == (f"columns are separated by {name}",)


@pytest.mark.parametrize("start", [b"PK\x03\x04\x14\x00", b"\xd0\xcf\x11\xe0\xa1\xb1"])
def test_a_spreadsheet_is_recognised(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(start + bytes(range(256)))
    with pytest.raises(InputError, match="it is a spreadsheet") as refused:
        read_runs(path)
    assert "CSV UTF-8" in refused.value.hint


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("TP", "tp"), ("gbs", "global_batch_size"), ("tensor_parallel", "tp"), ("micro_bs", "micro_batch_size"),
        ("seq_len", "sequence_length"), ("Seq Length", "sequence_length"), ("GPUs", "num_accelerators"),
        ("World Size", "num_accelerators"), ("pipeline_model_parallel_size", "pp"), ("Step Time (s)", "step_time_s"),
        ("tokens/s/GPU", "tokens_per_second_per_accelerator"), ("TFLOPs/GPU", "tflops_per_accelerator"),
        ("Seq", "sequence_length"), ("act ckpt", "recompute"),
        ("gpu_type", "accelerator"), ("run_name", "id"), ("dtype", "precision"), ("step_time_s", "step_time_s"),
        ("Max Memory (GiB)", "peak_memory_gib"), ("DP", "dp"), ("tps", None), ("throughput", None), ("loss", None),
    ],
)  # fmt: skip
def test_names_of_columns(name: str, column: str | None) -> None:
    """Of Megatron-LM, torchtitan, Transformers and usual spreadsheets; what may mean two things means none."""
    assert column_meant(name) == column


def test_columns_under_other_names_are_read_and_said_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("Run,Model,GPU,GPUs,Seq_Len,GBS,TP,Step Time (s)\na,llama-3.1-8b,H100,8,8k,64,2,5\n")
    table = read_table(path)
    assert (table.runs[0].tp, table.runs[0].sequence_length, table.runs[0].num_accelerators) == (2, 8192, 8)
    assert "column GBS is read as global_batch_size" in table.taken
    assert len(table.taken) == 8


def test_all_that_is_wrong_with_a_header_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,modle,TP,tp,num_accelerators,peak_memory_gbb\na,b,1,1,8,70\n")
    with pytest.raises(InputError) as refused:
        read_runs(path)
    for said in (
        "there is no column 'model' (is 'modle' meant?), 'accelerator'", "'sequence_length', 'global_batch_size'",
        "'tp' is repeated (TP, tp)", "did you mean peak_memory_gb",
    ):  # fmt: skip
        assert said in refused.value.message


@pytest.mark.parametrize("name", ["tps", "Throughput", "TFLOPs", "MFU", "time"])
def test_a_figure_that_may_mean_two_things_is_asked_about(tmp_path: Path, name: str) -> None:
    """torchtitan's ``tps`` is of one accelerator, that of others of all; hardware FLOP count recomputation."""
    row = {column: cell for column, cell in CELLS.items() if column != "step_time_s"}
    with pytest.raises(InputError, match=f"column '{name}' may mean several things: rename it"):
        read_runs(write(tmp_path, {**row, name: "100"}))
    assert run(tmp_path, **{name: "100"}).unknown == (name,), "where a time is stated it is a column like any other"


def test_a_header_of_many_columns_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(",".join(f"c{number}" for number in range(20_000)) + "\n1\n")
    with pytest.raises(InputError, match="20,000 columns"):
        read_runs(path)


def test_all_that_is_wrong_with_a_row_is_said_at_once(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, {**CELLS, "tp": "two", "precision": "bf61", "step_time_s": "fast"}))
    assert [error.rule.partition(" ")[0] for error in table.unreadable[0].errors] == ["precision", "tp", "step_time_s"]


@pytest.mark.parametrize(
    ("cells", "step_time"),
    [
        ({"step_time_ms": "5000"}, 5.0), ({"tokens_per_second": "104857.6"}, 5.0),
        ({"tokens_per_second_per_accelerator": "6553.6"}, 5.0),
        ({"tokens_per_second": "104857.6", "step_time_s": "5.01"}, 5.01),
    ],
)  # fmt: skip
def test_a_rate_instead_of_a_step_time(tmp_path: Path, cells: dict[str, str], step_time: float) -> None:
    """8,192 x 64 tokens in 5 s are 104,857.6 tokens/s, and 6,553.6 on each of 16 accelerators."""
    assert run(tmp_path, **{"step_time_s": "", **cells}).step_time == pytest.approx(step_time, rel=1e-12)


def test_figures_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tokens_per_second is '200000'; it must be what step_time_s says"):
        run(tmp_path, step_time_s="5", tokens_per_second="200000")


def test_a_rate_of_flop_gives_the_time_of_the_models_flop(tmp_path: Path) -> None:
    """A step time, the rate that the model's FLOP give for it, and the step time of that rate."""
    timed = asked(tmp_path, step_time_s="5")
    job = timed.question.job
    flops = model_flops_per_token(timed.question.model, job.sequence_length, job) * job.tokens_per_step
    rated = asked(tmp_path, step_time_s="", tflops_per_accelerator=str(flops / 5 / 16 / 1e12))
    assert rated.run.step_time == pytest.approx(5, rel=1e-9)
    assert any("TFLOP/s" in text for text in rated.assumed)


@pytest.mark.parametrize(("column", "value"), [("peak_memory_gib", "64"), ("peak_memory_mib", "65536")])
def test_memory_in_binary_units(tmp_path: Path, column: str, value: str) -> None:
    assert run(tmp_path, **{column: value}).peak_memory_bytes == 64 * 2**30


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
    assert len(runs) == 1709
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
