"""A session is a plan file: of a page, or of the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from tests.cli.commands import run

from shardplan.api.calls import search
from shardplan.base.errors import InputError
from shardplan.base.files import DATA
from shardplan.estimation.question import Question
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, read_plan_file
from shardplan.web.answered import answered
from shardplan.web.session import session_in, session_record
from shardplan.web.state import FieldError, PageQuestion, plan_in

PROFILE = """\
generation: hopper
matmul_launch_time: {value: 3.0e-06, unit: s, source: test}
"""


def test_a_session_comes_back_and_is_a_plan_file() -> None:
    question = PageQuestion(model="llama-3.1-8b", gpus="8", locks={"tp": "2"}, pins=("tp=2",))
    record = session_record(question, PlanFile.of(answered(question, lambda: False).result))
    assert session_in(json.dumps(record)) == question
    assert plan_file_from_record(record).question.num_accelerators == 8


def test_a_plan_file_of_python_is_a_question_of_a_page() -> None:
    found = search("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64, precision="fp8")
    question = session_in(json.dumps(found.to_dict()))
    assert question.posed().question == found.question


@pytest.mark.parametrize(
    "flags",
    [
        "--software kernels=eager --software cuda_graphs=full",
        "--train lora --base-weights nf4 --lora-rank 64 --lora-targets all",
        "--documents 1024,2048 --price 2.5 --tokens 15.6T",
        "--node-size 4 --inter-node-bandwidth 25GB/s --inter-node-latency 7us",
        "--precision fp8 --grad-dtype fp32 --optimizer muon --routing 1.2",
        "--accelerator a100-sxm-80gb --memory 141GB --dropout --freeze embedding",
        "--stack any --intra-node-bandwidth 333333333B/s --memory-bandwidth 3TB/s",
    ],
)
def test_a_plan_file_of_the_command_line_is_the_same_question(flags: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ["plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "16", "--fix", "tp=2", *flags.split()]
    assert run(*asked, "--json", path).exit_code == 0
    posed, file = session_in(path.read_text()).posed().question, read_plan_file(path).question
    assert (posed.model, posed.job, posed.given_profile) == (file.model, file.job, file.given_profile)
    assert replace(posed.cluster, assumptions=()) == replace(file.cluster, assumptions=())


def put_again(question: PageQuestion) -> Question:
    """The question of the page that opens: from its address, and what is uploaded."""
    return PageQuestion.of([*parse_qsl(question.query()), ("config", question.config)]).posed().question


def is_same(ours: Question, theirs: Question) -> bool:
    """Whether the answers are the same: only what is said of a cluster may differ."""
    return replace(ours, cluster=theirs.cluster) == theirs and replace(ours.cluster, assumptions=()) == replace(
        theirs.cluster, assumptions=()
    )


@pytest.fixture
def own_files(tmp_path: Path) -> dict[str, Path]:
    """A model, a cluster with its own accelerator, and constants."""
    assert run("examples", tmp_path).exit_code == 0
    config = json.loads((DATA / "models" / "llama-3.1-8b.json").read_text()) | {"num_hidden_layers": 24}
    (tmp_path / "odd name.json").write_text(json.dumps(config))
    (tmp_path / "mine.yaml").write_text(PROFILE)
    return {
        "model": tmp_path / "odd name.json",
        "cluster": tmp_path / "my-cluster.yaml",
        "profile": tmp_path / "mine.yaml",
    }


@pytest.mark.parametrize("own", ["model", "cluster", "profile", "model cluster profile"])
def test_a_plan_file_about_files_of_ones_own_is_the_same_question(
    own: str, own_files: dict[str, Path], tmp_path: Path
) -> None:
    given = {"model": "llama-3.1-8b", "cluster": "dgx-h100"} | {name: own_files[name] for name in own.split()}
    profile = ["--profile", given["profile"]] if "profile" in given else []
    path = tmp_path / "plan.json"
    asked = ["plan", given["model"], "--cluster", given["cluster"], "--gpus", 16, "--fix", "tp=2", *profile]
    assert run(*asked, "--json", path).exit_code == 0
    opened = session_in(path.read_text())
    assert is_same(put_again(opened), read_plan_file(path).question)
    assert opened.config


def test_names_say_whether_what_is_uploaded_is_used() -> None:
    cluster = load_cluster("dgx-h100", peak_flops={"bf16": "900TFLOP/s"})
    found = search("llama-3.1-8b", replace(cluster, name="mine"), 8, global_batch_size=64, fix={"tp": 2})
    opened = session_in(json.dumps(found.to_dict()))
    assert is_same(put_again(opened), found.question)
    assert opened.with_values(cluster="dgx-h100").cluster_asked() == load_cluster("dgx-h100")
    with pytest.raises(FieldError, match="with an accelerator of its own") as raised:
        opened.with_values(accelerator="h200-sxm-141gb").posed()
    assert raised.value.field == "accelerator"


def test_a_plan_file_of_one_plan_shows_that_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ["estimate", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 16, "--tp", 2, "--recompute", "full"]
    assert run(*asked, "--json", path).exit_code == 0
    assert plan_in(session_in(path.read_text()).show)[0] == read_plan_file(path).estimates[0].plan


def test_a_plan_file_where_nothing_fits_keeps_its_framework() -> None:
    found = search("llama-3.1-405b", "dgx-h100", 8, stack="torchtitan")
    assert not found.estimates
    assert session_in(json.dumps(found.to_dict())).stack == "torchtitan"


def test_a_config_json_is_a_model() -> None:
    text = (DATA / "models" / "llama-3.1-8b.json").read_text()
    assert put_again(session_in(text)).model.layers == load_model("llama-3.1-8b").layers


def test_an_answer_of_another_kind_names_its_page(tmp_path: Path) -> None:
    path = tmp_path / "scale.json"
    asked = ["scale", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "8,16"]
    assert run(*asked, "--json", path).exit_code == 0
    with pytest.raises(InputError, match=r"\(scale\)") as raised:
        session_in(path.read_text())
    assert "Decide" in raised.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "shardplan/other/1"}', "{" * 9000])
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        session_in(text)
