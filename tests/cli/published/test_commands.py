"""``shardplan published``: cases of the four methods in their own terms, and checks of reference files."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, refused, run, unwrapped

from shardplan.cli.published.commands import EXAMPLES
from shardplan.methods.catalogue import load_method
from shardplan.methods.fields import read_fields
from shardplan.methods.searcher.method import SearcherCase, result_file, search

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "methods" / "data"
CALCULATOR = ("published", "calculator")
SEARCHED = ("published", "subramanian2024", "--model", "gpt3_1T", "--system", "H200", "--nvs", 4, "--strategy", "1d")
LAYER = (
    "published", "data-movement", "--device", "H100 SXM5", "--d-in", 16384, "--d-out", 81920, "--tp-in", 8,
    "--tp-out", 40, "--dp", 32, "--batch", 32768,
)  # fmt: skip
LIMITS = (
    "published",
    "data-movement",
    "--limits",
    "--min-flop",
    "1e24",
    "--max-flop",
    "1e32",
    "--points-per-decade",
    1,
)
QUESTIONS: dict[str, tuple[object, ...]] = {
    "calculator": CALCULATOR,
    "experts": (*CALCULATOR, "--params", 141, "--gpus", 256, "--moe", "--num-experts", 8),
    "nothing": (*CALCULATOR, "--params", 1000, "--gpus", 8, "--hidden-size", 25600, "--num-layers", 128),
    "search": (*SEARCHED, "--gpus", 512, "--explain"),
    "summa": (*SEARCHED[:-1], "2d", "--gpus", 512, "--explain", "--corrected"),
    "layer": LAYER,
    "layers": (
        "published",
        "data-movement",
        "--d-in",
        16384,
        "--d-out",
        81920,
        "--batch",
        4194304,
        "--num-devices",
        96,
    ),
    "limits": LIMITS,
    "searcher": ("published", "searcher", "--input", DATA / "searcher.json", "--case", 2),
    "check": ("published", "check", *sorted(DATA.glob("*.json"))),
}


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_line_is_wider_than_the_terminal(name: str, columns: int) -> None:
    result = run(*QUESTIONS[name], columns=columns)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if len(line) > columns] == []
    assert [line for line in lines if line != line.rstrip()] == []


def _cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text())["cases"]
    return cases


@pytest.mark.parametrize("name", ["calculator", "searcher"])
def test_any_case_of_a_reference_file_is_answered_with_its_published_figures(name: str) -> None:
    for number, case in enumerate(_cases(name), start=1):
        record = answer("published", name, "--input", DATA / f"{name}.json", "--case", number)
        by_name = answer("published", name, "--input", DATA / f"{name}.json", "--case", case["name"])
        assert record == by_name
        if name == "calculator":
            assert record["recommended"] == case["recommended"]
            assert [row["memory_per_gpu"] for row in record["rows"]] == [row["memory_per_gpu"] for row in case["rows"]]
        else:
            assert record["best"]["total_ms"] == pytest.approx(case["best"]["total_ms"], rel=1e-12)
            assert record["n_configs"] == case["n_configs"]


@pytest.mark.parametrize(
    ("case", "part"),
    [("notebook_value", "notebook_value"), ("fwd_bwd[3]", "fwd_bwd"), ("end_of_batch[0]", "end_of_batch")],
)
def test_cases_of_data_movement_have_the_names_that_the_check_prints(case: str, part: str) -> None:
    document = json.loads((DATA / "data_movement.json").read_text())[part]
    expected = document if case == part else document[int(case[-2])]
    record = answer("published", "data-movement", "--input", DATA / "data_movement.json", "--case", case)
    assert record["result_secs"] == expected["result_secs"]


def test_a_row_of_the_published_results_is_a_case() -> None:
    record = answer("published", "subramanian2024", "--input", DATA / "subramanian2024_top1.csv", "--case", 1)
    assert record["configurations"][0]["throughput"] == pytest.approx(6.668817027224912, rel=1e-12)


def test_a_case_by_itself_in_json_and_in_yaml(tmp_path: Path) -> None:
    case = {"strategy": "1d", "model": "gpt3_1T", "system": "H200", "nvs": 4, "gpus": 2048, "top": 1}
    (tmp_path / "case.json").write_text(json.dumps(case))
    (tmp_path / "case.yaml").write_text("\n".join(f"{name}: {value}" for name, value in case.items()))
    of_flags = answer(*SEARCHED, "--gpus", 2048, "--top", 1)
    for name in ("case.json", "case.yaml"):
        record = answer("published", "subramanian2024", "--input", tmp_path / name)
        assert record == of_flags
    assert record["configurations"][0]["throughput"] == pytest.approx(102.463805377367, rel=1e-12)  # stats.ipynb
    changed = answer("published", "subramanian2024", "--input", tmp_path / "case.json", "--gpus", 4096)
    assert changed["n_gpus"] == 4096


def test_the_calculator_without_flags_answers_the_example_of_its_page() -> None:
    record = answer(*CALCULATOR)
    of_flags = answer(
        *CALCULATOR, "--params", 70, "--gpus", 64, "--memory", "80GB", "--batch-size", 512, "--seq-len", 4096
    )
    assert record == of_flags
    assert record["recommended"] == {"tp": 2, "pp": 16, "dp": 2}
    assert _cases("calculator")[0]["recommended"] == record["recommended"]


def test_ours_stands_beside_each_number_of_the_calculator() -> None:
    record = answer(*CALCULATOR)
    for row in record["rows"]:
        ours = row["ours"]
        assert {"step_time_s", "peak_memory_bytes", "communication_bytes", "bubble_fraction", "feasible"} <= set(ours)
        assert ours["peak_memory_bytes"] > row["memory_per_gpu"] * 1e9  # fp32 gradients and master copy, framework
    fastest = min(
        (row for row in record["rows"] if row["ours"]["feasible"]), key=lambda row: row["ours"]["step_time_s"]
    )
    assert record["our_fastest"] == {name: fastest[name] for name in ("tp", "pp", "dp")}
    errors = {error["figure"]: error for error in record["known_errors"]}
    assert errors["memory_per_gpu"]["theirs"] == pytest.approx(43.2e9, rel=1e-3)
    assert errors["pp_per_step_gb"]["ours"] < errors["pp_per_step_gb"]["theirs"]
    text = unwrapped(run(*CALCULATOR).stdout)
    for words in ("Recommends tp 2, pp 16, dp 2: 43.2 GB", "Our estimate of it:", "bubble", "Known errors"):
        assert words in text


def test_our_side_of_the_calculator_is_of_the_cluster_that_is_named() -> None:
    h100, b200 = (answer(*CALCULATOR, "--cluster", name)["rows"] for name in ("dgx-h100", "dgx-b200"))
    assert b200[0]["ours"]["step_time_s"] < h100[0]["ours"]["step_time_s"]
    assert b200[0]["memory_per_gpu"] == h100[0]["memory_per_gpu"]
    torus = answer(*CALCULATOR, "--cluster", "tpu-v5p-pod")["rows"]
    assert "step_time_s" in torus[0]["ours"]


def test_where_there_is_no_estimate_of_ours_the_calculator_still_answers() -> None:
    result = run(*CALCULATOR, "--hidden-size", 9_999_999, "--num-layers", 1_000_000)
    assert result.exit_code == 0
    assert "No estimate of ours:" in unwrapped(result.stdout)


def test_the_search_says_what_fits_and_what_the_corrections_change() -> None:
    flags = (
        "published",
        "subramanian2024",
        "--model",
        "vit_era5",
        "--system",
        "B200",
        "--strategy",
        "1d",
        "--gpus",
        1024,
    )
    assert answer(*flags, status=1)["num_fitting"] == 0
    assert "Nothing fits. Least memory:" in unwrapped(run(*flags).stdout)
    corrected = answer(*flags, "--corrected")
    assert corrected["corrected"] == ["Q1", "Q2", "Q3", "Q5", "Q11"]
    assert corrected["num_fitting"] > 0
    assert answer(*flags, "--corrected", "q11")["corrected"] == ["Q11"]
    assert answer(*flags, "--corrected=Q11,q2")["corrected"] == ["Q2", "Q11"]


def test_every_operator_is_explained_forward_and_backward() -> None:
    record = answer(*QUESTIONS["summa"])
    assert len(record["operators"]) == 14
    for operator in record["operators"]:
        for direction in ("forward", "backward"):
            assert {"flops", "memory_bytes", "compute_s", "communication_s", "time_s", "collectives"} <= set(
                operator[direction]
            )
    text = run(*QUESTIONS["summa"], columns=120).stdout
    for words in ("Forward", "Backward", "FLOP", "bytes", "sent", "fc1 bias", "broadcast of", "rounds", "layer "):
        assert words in text


def test_one_configuration_is_priced_in_its_best_place_or_where_it_is_put() -> None:
    flags = (*SEARCHED, "--gpus", 2048, "--tp", 4, "--pp", 32, "--mbs", 1)
    placed = answer(*flags, "--nv-tp", 4)["configurations"]
    assert answer(*flags)["configurations"] == placed
    assert placed[0]["throughput"] == pytest.approx(102.463805377367, rel=1e-12)
    assert answer(*flags, "--nv-tp", 1, "--nv-dp", 4)["configurations"][0]["throughput"] < placed[0]["throughput"]
    assert "Fits: 102.464 samples/s" in unwrapped(run(*flags).stdout)


def test_a_layer_of_data_movement_has_the_value_of_the_notebook() -> None:
    record = answer(*LAYER)
    assert record["result_secs"] == 3.2554072481051035e-05
    assert record["bound"] == "flop"
    assert "arithmetic sets the time" in unwrapped(run(*LAYER).stdout)


def test_the_limits_show_the_curve_the_cliff_and_the_claims() -> None:
    record = answer(*LIMITS)
    assert [point["training_flop"] for point in record["points"]] == pytest.approx([10.0**d for d in range(24, 33)])
    assert record["points"][-1]["utilisation"] == 0
    text = unwrapped(run(*LIMITS).stdout)
    for words in ("The cliff:", "Limits curve", "Claims of arXiv 2411.01137", "latency", "Assumptions"):
        assert words in text
    short = answer(*LIMITS, "--training-time", "30days")["cliffs"]
    for less, more in zip(short, record["cliffs"], strict=True):
        assert less["training_flop"] < more["training_flop"]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_searcher_reads_two_files_and_writes_its_result_file(workers: int, tmp_path: Path) -> None:
    case = _cases("searcher")[0]
    for name in ("cluster", "model"):
        (tmp_path / f"{name}.json").write_text(json.dumps(case[name]))
    output = tmp_path / "output.json"
    files = ("--cluster", tmp_path / "cluster.json", "--model", tmp_path / "model.json")
    record = answer("published", "searcher", *files, "--output", output, "--workers", workers)
    asked = read_fields(SearcherCase, {"cluster": case["cluster"], "model": case["model"]}, owner="test")
    assert output.read_text() == result_file(search(asked))
    assert record["configs"] == load_method("searcher").answer(case)["configs"]
    assert json.loads(output.read_text())["4, 2, 1"] == "716.3067ms/iter"
    written = run("published", "searcher", *files, "--output", "-")
    assert written.stdout == output.read_text()


def test_the_reference_files_are_recomputed() -> None:
    files = sorted(DATA.glob("*.json"))
    record = answer("published", "check", *files, DATA / "subramanian2024_top1.csv")
    assert record["passed"] is True
    assert [file["method"] for file in record["files"]] == [
        "calculator",
        "data-movement",
        "searcher",
        "subramanian2024",
    ]
    assert all(file["worst_relative_difference"] < 1e-14 for file in record["files"])
    assert record["files"][3]["num_cases"] == 2 * 162


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("3.2554072481051035e-05", "3.25540726e-05", "notebook_value: result_secs by"),
        ('"bound": "flop"', '"bound": "hbm"', "bound is 'hbm', computed 'flop'"),
    ],
)
def test_a_difference_is_the_answer_no(before: str, after: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "reference.json"
    path.write_text((ROOT / "examples" / "reference.json").read_text().replace(before, after))
    result = run("published", "check", path)
    assert result.exit_code == 1
    assert "FAILED" in unwrapped(result.stdout)
    assert words in unwrapped(result.stdout)
    record = answer("published", "check", path, status=1)
    assert record["passed"] is False
    assert record["files"][0]["num_failed"] == 1


@pytest.mark.usefixtures("other_packages")
def test_a_method_of_another_package_is_a_command_of_its_name(tmp_path: Path) -> None:
    case, reference = tmp_path / "case.json", tmp_path / "reference.json"
    case.write_text('{"rate": 4}')
    reference.write_text('{"mine": 1}')
    record = answer("published", "mine", "--input", case)
    assert record["step_s"] == 0.25
    assert record["infinite"] is None
    text = unwrapped(run("published", "mine", "--input", case).stdout)
    assert "step_s" in text
    assert "nested.rows" in text
    assert answer("published", "check", reference)["files"][0]["method"] == "mine"
    assert "method 'mine' fails: KeyError" in refused("published", "mine")
    assert "cannot be used" in unwrapped(run("published", "gone", "--input", case).stderr)
    reference.write_text('{"ours": 1}')
    assert "method 'broken' fails: ZeroDivisionError" in unwrapped(run("published", "check", reference).stderr)


WRONG: dict[str, tuple[tuple[object, ...], str]] = {
    "a misspelt method": (("published", "calculater"), "did you mean calculator?"),
    "a misspelt flag": ((*CALCULATOR, "--parms", 3), "did you mean --params"),
    "an argument too many": ((*CALCULATOR, "x"), "unexpected extra argument"),
    "a case without a file": ((*CALCULATOR, "--case", "1"), "--case is given without --input"),
    "no parameters": ((*CALCULATOR, "--params", "nan"), "--params is 'nan'"),
    "memory in seconds": ((*CALCULATOR, "--memory", "80us"), "--memory"),
    "a batch that is too small": ((*CALCULATOR, "--batch-size", 3), "deepest pipeline"),
    "experts without a mixture": ((*CALCULATOR, "--num-experts", 4), "--num-experts is given without --moe"),
    "an unknown cluster": ((*CALCULATOR, "--cluster", "dgx-h10"), "did you mean dgx-h100"),
    "no strategy": (("published", "subramanian2024"), "strategy is missing"),
    "a misspelt system": ((*SEARCHED[:5], "H20", *SEARCHED[6:], "--gpus", 8), "did you mean H200"),
    "an unknown correction": ((*SEARCHED, "--gpus", 8, "--corrected", "Q4"), "unknown correction 'Q4'"),
    "no candidates": ((*SEARCHED, "--gpus", 7), "no configuration"),
    "degrees that do not divide": ((*SEARCHED, "--gpus", 64, "--tp", 3), "multiply to 3"),
    "no layer": (("published", "data-movement"), "layer.d_in is missing"),
    "an unknown device": ((*LAYER[:3], "h100", *LAYER[4:]), "did you mean H100 SXM5"),
    "a layer beside the limits": ((*LAYER, "--limits"), "--d-in is given with --limits"),
    "variants of no limits": ((*LAYER, "--variants"), "--variants is given without --limits"),
    "limits the wrong way round": (tuple("1e33" if each == "1e24" else each for each in LIMITS), "at least min_flop"),
    "a time without unit": ((*LIMITS, "--training-time", "3"), "has no unit"),
    "no cluster": (("published", "searcher"), "cluster is missing"),
    "a file that is not there": (("published", "searcher", "--cluster", "none.json"), "does not exist"),
    "no workers": (("published", "searcher", "--workers", 0), "--workers is"),
    "an output that cannot be": (("published", "searcher", "--output", "/nowhere/x/y"), "cannot write"),
    "two answers in one place": (("published", "searcher", "--output", "-"), "both --json and --output"),
    "which case": (("published", "searcher", "--input", DATA / "searcher.json"), "holds 2 cases"),
    "no such case": (("published", "searcher", "--input", DATA / "searcher.json", "--case", "3x8"), "3x8-nonpow2"),
    "no files": (("published", "check"), "FILE"),
    "a file of no method": (("published", "check", ROOT / "examples" / "plans.json"), "not a reference file"),
    "a folder": (("published", "check", ROOT), "it is a directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_in_words_and_as_a_record(name: str) -> None:
    arguments, words = WRONG[name]
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 2, result.output
    error = json.loads(result.stdout)["error"]
    assert all(error[key] for key in ("rule", "message", "hint"))
    assert words.lower() in (error["message"] + error["hint"]).lower()
    assert result.stderr.startswith(f"shardplan: {error['message']}")


HOSTILE = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "no text": b"\xff\xfe\x00\x01",
    "too deep": b"[" * 50_000,
    "other fields": b'{"color": 3}',
    "no cases": b'{"cases": []}',
    "cases that are none": b'{"cases": [1, null]}',
    "numbers without end": b'{"strategy": "1d", "model": "gpt3_1T", "system": "A100", "gpus": Infinity}',
    "digits without end": b'{"gpus": ' + b"9" * 5000 + b"}",
    "too many accelerators": b'{"strategy": "1d", "model": "gpt3_1T", "system": "A100", "gpus": 1e300}',
}


@pytest.mark.parametrize("suffix", ["json", "yaml", "csv"])
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("method", ["calculator", "subramanian2024", "data-movement", "searcher"])
def test_a_hostile_case_is_refused(method: str, name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"case.{suffix}"
    path.write_bytes(HOSTILE[name])
    for arguments in (("published", method, "--input", path), ("published", "check", path)):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("shardplan: ")
        assert len(result.stderr) < 1500


def test_the_group_by_itself_shows_its_commands() -> None:
    for arguments in (("published",), ("published", "--help")):
        result = run(*arguments)
        assert result.exit_code == 0
        for name in ("calculator", "subramanian2024", "data-movement", "searcher", "check"):
            assert name in unwrapped(result.stdout)
        assert "METHOD" not in result.stdout


@pytest.mark.parametrize(
    "command", [line for lines in EXAMPLES.values() for line in lines], ids=lambda line: str(line)[20:90]
)
def test_examples_of_the_help_run_on_a_fresh_clone(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    result = run(*shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["published", "--help"],
        ["published", "subramanian2024", "--help"],
        ["published", "study", "--help"],
        ["published", "methods", "-h"],
    ],
)
def test_help_loads_nothing_that_is_slow(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from shardplan.cli.main import app\n"
        "try:\n"
        f"    app({arguments!r}, prog_name='shardplan')\n"
        "finally:\n"
        "    slow = {'numpy', 'yaml', 'rich', 'plotly', 'matplotlib'} & set(sys.modules)\n"
        "    sys.stderr.write(' '.join(sorted(slow)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: shardplan" in unwrapped(done.stdout)


DOCUMENTED = sorted(
    {
        line.split("#")[0].strip()
        for page in (ROOT / "docs" / "published").glob("*.md")
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line.startswith("shardplan ") and not {"FILE...", "--variants", "figures"} & set(line.split())
    }
)
"""Commands of the pages, but for those that take long."""


@pytest.mark.parametrize("command", DOCUMENTED, ids=lambda line: str(line)[10:130])
def test_commands_of_the_documentation_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("*.ipynb"))
    monkeypatch.chdir(tmp_path)
    result = run(*shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_figures_are_finite_in_every_answer() -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [number for part in value.values() for number in numbers(part)]
        if isinstance(value, list):
            return [number for part in value for number in numbers(part)]
        return [value] if isinstance(value, float) else []

    for name in ("calculator", "search", "layer", "layers", "limits", "searcher"):
        assert all(math.isfinite(number) for number in numbers(answer(*QUESTIONS[name])))
