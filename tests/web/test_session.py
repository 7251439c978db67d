"""A session is a plan file: of a page, or of the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.commands import run

from shardplan.api.calls import search
from shardplan.errors import InputError
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, read_plan_file
from shardplan.web.planning.answered import answered
from shardplan.web.session import session_in, session_record
from shardplan.web.state import PageQuestion


def test_a_session_comes_back_and_is_a_plan_file() -> None:
    question = PageQuestion(model="llama-3.1-8b", gpus="8", locks={"tp": "2"}, pins=("tp=2",))
    record = session_record(question, PlanFile.of(answered(question, lambda: False).result))
    assert session_in(json.dumps(record)) == question
    assert plan_file_from_record(record).question.num_accelerators == 8


def test_a_plan_file_of_python_is_a_question_of_a_page() -> None:
    found = search("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64, precision="fp8")
    question = session_in(json.dumps(found.to_dict()))
    assert question.put().question == found.question


@pytest.mark.parametrize(
    "flags",
    [
        "--software kernels=eager --software cuda_graphs=full",
        "--train lora --base-weights nf4 --lora-rank 64 --lora-targets all",
        "--documents 1024,2048 --price 2.5 --tokens 15.6T",
        "--node-size 4 --inter-node-bandwidth 25GB/s --inter-node-latency 7us",
        "--precision fp8 --grad-dtype fp32 --optimizer muon --moe-imbalance 1.2",
        "--accelerator a100-sxm-80gb --memory 141GB --dropout --freeze embedding",
        "--stack any --intra-node-bandwidth 333333333B/s --memory-bandwidth 3TB/s",
    ],
)
def test_a_plan_file_of_the_command_line_is_the_same_question(flags: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    asked = ["plan", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "16", "--fix", "tp=2", *flags.split()]
    assert run(*asked, "--json", path).exit_code == 0
    put, file = session_in(path.read_text()).put().question, read_plan_file(path).question
    assert (put.model, put.job, put.given_profile) == (file.model, file.job, file.given_profile)
    assert replace(put.cluster, assumptions=()) == replace(file.cluster, assumptions=())


def test_a_plan_file_that_no_fields_can_put_is_refused() -> None:
    cluster = load_cluster("dgx-h100", peak_flops={"bf16": "900TFLOP/s"})
    found = search("llama-3.1-8b", cluster, 8, global_batch_size=64, fix={"tp": 2})
    with pytest.raises(InputError, match="the cluster of the plan file cannot be given"):
        session_in(json.dumps(found.to_dict()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "shardplan/other/1"}', "{" * 9000])
def test_what_is_no_session_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        session_in(text)
