"""``shardplan published methods`` and ``shardplan plan --method``."""

from __future__ import annotations

import json

import pytest
from tests.cli.commands import answer, refused, run, unwrapped

import shardplan
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software

BUILT_IN = ("calculator", "subramanian2024", "data-movement", "searcher")
QUESTION = ("llama-2-70b", "--cluster", "dgx-h100", "--gpus", 64)


def test_ours_and_the_four_say_what_they_count_and_leave_out() -> None:
    methods = answer("published", "methods")["methods"]
    assert [method["name"] for method in methods] == ["shardplan", *BUILT_IN]
    for method in methods:
        assert all(method[name] for name in ("title", "source", "counts", "leaves_out"))
    text = unwrapped(run("published", "methods").stdout)
    for name in ("shardplan", *BUILT_IN, "2410.00273", "2411.01137", "leaves out"):
        assert name in text


@pytest.mark.parametrize("name", ["shardplan", *BUILT_IN])
def test_one_method_shows_all_of_itself(name: str) -> None:
    (record,) = answer("published", "methods", name)["methods"]
    text = unwrapped(run("published", "methods", name, columns=120).stdout)
    for entry in (*record["counts"], *record["leaves_out"], record["source"]):
        assert entry in text


@pytest.mark.usefixtures("other_packages")
def test_methods_of_other_packages_stand_in_the_same_list() -> None:
    methods = {method["name"]: method for method in answer("published", "methods")["methods"]}
    assert methods["mine"]["counts"] == ["time"]
    assert "No module named 'no_such_package'" in methods["gone"]["fault"]
    assert "No module named" in unwrapped(run("published", "methods").stdout)
    assert "cannot be used" in refused("published", "methods", "gone")


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_question_of_ours_in_the_terms_of_a_method(name: str) -> None:
    record = answer("plan", *QUESTION, "--method", name, "--top", 4)
    assert record["method"] == name
    assert record["mapped"]
    assert record["ignored"]
    assert len(record["rows"]) == 4
    for row in record["rows"]:
        assert {"dp", "tp", "pp"} <= set(row["degrees"])
        assert row["degrees"]["dp"] * row["degrees"]["tp"] * row["degrees"]["pp"] * row["degrees"].get("cp", 1) == 64


def test_our_estimate_stands_beside_every_row() -> None:
    record = answer("plan", *QUESTION, "--method", "searcher", "--top", 3)
    job = shardplan.Job(**record["job"] | {"software": Software(**record["job"]["software"])})
    for row in record["rows"]:
        plan = Plan(tp=row["degrees"]["tp"], pp=row["degrees"]["pp"])
        model, cluster = shardplan.load_model("llama-2-70b"), shardplan.load_cluster("dgx-h100")
        ours = shardplan.estimate(model, cluster, 64, plan, job=job, stack=None)
        assert row["ours"]["step_time_s"] == ours.step_time
        assert row["ours"]["peak_memory_bytes"] == ours.peak_memory_bytes
    assert any("micro-batches of one sequence" in text for text in record["assumptions"])


def test_a_row_that_breaks_a_rule_of_ours_says_which() -> None:
    record = answer("plan", "gpt2", "--cluster", "dgx-h100", "--gpus", 16, "--method", "data-movement", "--top", 50)
    result = [row for row in record["rows"] if "broken_rule" in row["ours"]]
    assert result
    assert all("tp" in row["ours"]["broken_rule"] for row in result)
    assert "No plan of ours:" in unwrapped(
        run("plan", "gpt2", "--cluster", "dgx-h100", "--gpus", 16, "--method", "data-movement").stdout
    )


def test_a_grid_of_one_row_is_one_dimensional_and_more_are_summa() -> None:
    flags = ("--cluster", "dgx-a100", "--gpus", 512, "--global-batch-size", 1536, "--sequence-length", 2048)
    record = answer("plan", "gpt3-175b", *flags, "--method", "subramanian2024", "--top", 20)
    rows = {
        row["degrees"].get("tp_rows"): row["ours"]["plan"]["tp_kind"] for row in record["rows"] if "plan" in row["ours"]
    }
    assert rows[1] == "1d"
    assert rows[None] == "1d"
    assert all(kind == "summa" for degree, kind in rows.items() if degree and degree > 1)


def test_the_calculator_leaves_accelerators_over_and_ours_takes_the_same() -> None:
    record = answer("plan", "llama-2-70b", "--cluster", "dgx-h100", "--gpus", 24, "--method", "calculator")
    row = next(row for row in record["rows"] if row["degrees"]["tp"] * row["degrees"]["pp"] == 16)
    assert row["degrees"]["dp"] == 1
    assert "step_time_s" in row["ours"]


def test_where_nothing_fits_by_its_own_rule_the_answer_is_no() -> None:
    result = run("plan", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", 8, "--method", "calculator")
    assert result.exit_code == 1
    assert "Nothing fits by its own rule." in unwrapped(result.stdout)


@pytest.mark.parametrize(
    ("model", "name", "words"),
    [
        ("mixtral-8x7b", "data-movement", "attention and a dense MLP"),
        ("mixtral-8x7b", "subramanian2024", "mixtures of experts"),
        ("deepseek-v3", "subramanian2024", "LatentAttention"),
        ("nemotron-h-56b", "calculator", "layers without attention"),
    ],
)
def test_a_method_refuses_what_it_cannot_speak_of(model: str, name: str, words: str) -> None:
    result = run("plan", model, "--cluster", "dgx-h100", "--gpus", 64, "--method", name, "--json", "-")
    assert result.exit_code == 2
    error = json.loads(result.stdout)["error"]
    assert words in error["message"]
    assert "shardplan published methods" in error["hint"]
    assert "hint:" in unwrapped(result.stderr)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--method", "sercher"), "did you mean searcher?"),
        (("--method", ""), "unknown method"),
        (("--method", "searcher", "--top", "0"), "--top is"),
        (("--method", "searcher", "--fix", "tp=2"), "--fix is given with --method searcher"),
        (("--method", "searcher", "--limit", "tp=2"), "--limit is given"),
        (("--method", "searcher", "--gpus", "x"), "--gpus is"),
    ],
)
def test_wrong_flags_with_a_method_are_refused(flags: tuple[str, ...], words: str) -> None:
    assert words in refused("plan", *QUESTION, *flags)


def test_our_own_method_is_our_search() -> None:
    small = ("llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 8, "--limit", "pp=1", "--top", 1)
    named, plain = (answer("plan", *small, *flags) for flags in (("--method", "shardplan"), ()))
    assert named["plans"] == plain["plans"]


@pytest.mark.usefixtures("other_packages")
def test_a_method_of_another_package_answers_the_same_question() -> None:
    record = answer("plan", *QUESTION, "--method", "mine")
    assert record["rows"][0]["step_time_s"] == 1.0
    assert record["rows"][0]["ours"]["step_time_s"] > 1
    assert "Its best: dp 64, tp 1, pp 1, 1.00 s a step" in unwrapped(run("plan", *QUESTION, "--method", "mine").stdout)
    assert "method 'broken' fails: KeyError" in refused("plan", *QUESTION, "--method", "broken")


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ("published", "methods"),
        ("published", "methods", "calculator"),
        *(("plan", *QUESTION, "--method", name) for name in BUILT_IN),
    ],
    ids=lambda arguments: f"{arguments[0]} {arguments[-1]}",
)
def test_no_line_is_wider_than_the_terminal(arguments: tuple[object, ...], columns: int) -> None:
    lines = run(*arguments, columns=columns).stdout.splitlines()
    assert [line for line in lines if len(line) > columns and not line.startswith(("  shardplan ", "  --"))] == []
    assert [line for line in lines if line != line.rstrip()] == []
