"""The command line of a page asks what the page asks."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.chosen import with_software
from tests.cli.commands import run

from shardplan.reports.plan_file import read_plan_file
from shardplan.web.answered import answered
from shardplan.web.state import PageQuestion
from shardplan.web.verdict import estimate_command, plan_command

QUESTIONS = {
    "names": PageQuestion(model="llama-3.1-8b", gpus="16"),
    "job": PageQuestion(
        model="llama-3.1-8b",
        gpus="16",
        job={"sequence_length": "4k", "tokens": "1.5T", "precision": "fp8", "dropout": "on", "documents": "1024,2048"},
    ),
    "framework": PageQuestion(model="llama-3.1-8b", gpus="16", stack="torchtitan"),
    "no framework": PageQuestion(model="llama-3.1-8b", gpus="16", stack="any"),
    "software": PageQuestion(model="llama-3.1-8b", gpus="16", software="kernels=eager, cuda_graphs=none"),
    "hardware": PageQuestion(
        model="llama-3.1-8b",
        gpus="16",
        accelerator="a100-sxm-80gb",
        sets={"inter_node_bandwidth": "25 GB/s", "node_size": "4"},
        price="2.5",
    ),
    "locks": PageQuestion(
        model="llama-3.1-8b", gpus="16", locks={"tp": "1,2", "pp": "2..4", "recompute": "layernorm,mlp"}
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_command_line_of_a_search_finds_its_plan(name: str, tmp_path: Path) -> None:
    page = answered(QUESTIONS[name], lambda: False)
    assert page.best is not None
    for command in (plan_command(QUESTIONS[name]), estimate_command(QUESTIONS[name], page.posed.question, page.best)):
        path = tmp_path / f"{command.split()[1]}.json"
        assert run(*shlex.split(command)[1:], "--json", path).exit_code == 0
        file = read_plan_file(path)
        found = file.pick(file.best_pick)
        assert file.question.job == page.posed.question.job
        assert with_software(file.question, found.plan) == with_software(page.posed.question, page.best.plan)
        assert found.step_time == pytest.approx(page.best.step_time, rel=1e-12)
