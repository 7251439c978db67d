"""What no RL step can be is refused alike on the command line, in Python, for requests and on the page."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from starlette.testclient import TestClient
from tests.cli.commands import run, unwrapped

import shardplan
from shardplan.base.errors import ShardplanError
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings

QUESTION: dict[str, Any] = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 16}
STEP: dict[str, Any] = {"prompts": 32, "samples": 8, "response_tokens": "mean=256,max=1k", "placement": "in-turns"}


class Bad(NamedTuple):
    """A wrong question."""

    name: str
    changes: dict[str, Any]
    value: str
    """What every message names."""
    rule: str
    fix: str
    """What the command's hint says."""
    field: str
    """Of the page."""
    mends: str = ""
    """What the page sets at a click."""


CASES = (
    Bad("answers above the window", {"response_tokens": "mean=1k,max=200k"}, "131,072", "model's window",
        "--response-tokens to at most 130816", "rl.response_tokens"),
    Bad("prompts above the window", {"prompt_tokens": 200_000}, "131,072", "model's window",
        "--prompt-tokens below 131072", "rl.prompt_tokens"),
    Bad("prompts that do not divide", {"updates": 5}, "5 optimizer steps", "share the prompts evenly",
        "--updates to a divisor of 32", "rl.updates"),
    Bad("heads that do not divide", {"fix": {"rollout.tp": 3}}, "32 heads", "vllm shares heads",
        "--fix rollout.tp=32", "rl.fix"),
    Bad("more ranks than heads", {"fix": {"rollout.tp": 64}, "num_accelerators": 128}, "32 heads", "vllm shares heads",
        "--fix rollout.tp=32", "rl.fix"),
    Bad("experts of a dense model", {"fix": {"rollout.ep": 8}}, "no experts", "share whole experts",
        "leave rollout.ep out", "rl.fix"),
    Bad("experts that other ranks share", {"model": "qwen3-30b-a3b", "fix": {"rollout.ep": 8, "rollout.tp": 4}},
        "128 experts", "share whole experts", "--fix rollout.tp=8", "rl.fix"),
    Bad("more stages than layers", {"fix": {"rollout.pp": 32}, "num_accelerators": 64}, "16 layers", "has a layer",
        "--fix rollout.pp=16", "rl.fix"),
    Bad("a replica larger than its pool", {"fix": {"rollout.tp": 16}, "num_accelerators": "8+8"}, "8 generate",
        "fill the accelerators", "product divides 8", "rl.fix"),
    Bad("replicas that fill no pool", {"fix": {"rollout.pp": 7}}, "7 accelerators a replica", "fill the accelerators",
        "product divides 8", "rl.fix"),
    Bad("pools larger than the cluster", {"cluster": "deepseek-h800", "num_accelerators": "2000+2000"}, "4,000",
        "no larger than their cluster", "at most 2,048", "gpus"),
    Bad("a pool larger than its cluster", {"rollout_cluster": "deepseek-h800", "num_accelerators": "16+4096"}, "4,096",
        "no larger than their cluster", "at most 2,048", "gpus"),
    Bad("one number for two clusters", {"rollout_cluster": "hgx-h20"}, "hgx-h20", "a number of accelerators each",
        "--gpus 64+128", "gpus"),
    Bad("pools larger than all", {"num_accelerators": "9000000+9000000"}, "9000000", "at most 10,000,000",
        "--gpus 64+128", "gpus"),
    Bad("staleness of colocated", {"placement": "colocated", "staleness": 2}, "staleness is 2", "asynchronous",
        "--placement async", "rl.staleness", "rl.placement=async"),
    Bad("no staleness of asynchronous", {"placement": "async", "staleness": 0}, "staleness is 0", "a step old",
        "--staleness 1", "rl.staleness", "rl.staleness=1"),
    Bad("pools of colocated", {"placement": "colocated", "num_accelerators": "8+8"}, "colocated", "both",
        "leave --placement out", "rl.placement"),
    Bad("a field without its pool", {"fix": {"tp": 4}}, "'tp'", "names its pool",
        "--fix train.tp=4 or --fix rollout.tp=4", "rl.fix", "rl.fix=train.tp=4"),
    Bad("a field of the trainer alone", {"fix": {"rollout.cp": 2}}, "rollout.cp", "names its pool",
        "--fix train.cp=2", "rl.fix"),
    Bad("an unknown framework", {"framework": "vrl"}, "vrl", "framework", "nemo-rl", "rl.framework"),
    Bad("a release that is no number", {"framework": "nemo-rl:latest"}, "latest", "a release is a number",
        "--framework nemo-rl:0.7", "rl.framework"),
    Bad("a release after the last that is known", {"framework": "nemo-rl:9"}, "nemo-rl:9", "releases 0.1 to 0.7",
        "--framework nemo-rl:0.7", "rl.framework"),
    Bad("a plan that a framework never runs", {"framework": "nemo-rl", "fix": {"train.vp": 2}}, "2",
        "runs vp 1 alone", "--fix train.vp=1", "rl.fix"),
    Bad("an unknown trainer", {"framework": "nemo-rl", "backend": "deepspeed"}, "deepspeed", "backend", "fsdp",
        "rl.backend"),
    Bad("a placement of another framework", {"framework": "nemo-rl", "placement": "partial"}, "partial",
        "nemo-rl runs", "--placement colocated", "rl.placement"),
    Bad("drafts without layers for them", {"speculative": "mtp:2"}, "llama-3.2-1b has no layers", "that the model has",
        "--speculative eagle", "rl.speculative"),
    Bad("drafts that a launch file cannot say", {"framework": "nemo-rl", "speculative": "eagle"}, "eagle",
        "nemo-rl runs speculative none or mtp", "--speculative none", "rl.speculative"),
    Bad("an algorithm of another framework", {"framework": "nemo-rl", "algorithm": "ppo"}, "ppo",
        "nemo-rl runs algorithm", "--algorithm grpo", "rl.algorithm"),
    Bad("micro-batches that no launch file has", {"framework": "slime", "fix": {"train.micro_batch_size": 2}}, "2",
        "runs micro batch size 1 alone", "--fix train.micro_batch_size=1", "rl.fix"),
    Bad("a critic with another vocabulary", {"algorithm": "ppo", "critic": "qwen3-8b"}, "151,936",
        "a critic reads the tokens of the policy", "vocabulary of 128,256", "rl.critic"),
    Bad("a value that no plan has", {"fix": {"train.micro_batch_size": 0}}, "micro_batch_size is 0",
        "micro_batch_size is", "--fix train.micro_batch_size", "rl.fix"),
    Bad("a mean given twice", {"response_tokens": "mean=1k,max=2k,mean=3k"}, "mean=1k,max=2k,mean=3k",
        "one mean and one max", '--response-tokens "mean=2k,max=4k"', "rl.response_tokens"),
    Bad("an unknown field", {"fix": {"train.zp": 2}}, "zp", "field of a plan", "--fix train.tp=2", "rl.fix"),
)  # fmt: skip


def asked(case: Bad) -> dict[str, Any]:
    return {**QUESTION, **STEP, **case.changes}


def of_command(case: Bad) -> list[str]:
    given = asked(case)
    words = ["rl", given.pop("model"), "--gpus", str(given.pop("num_accelerators"))]
    fix = given.pop("fix", {})
    words += [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return words + [part for name, value in fix.items() for part in ("--fix", f"{name}={value}")]


def of_page(case: Bad) -> dict[str, str]:
    given = asked(case)
    train, _, generate = str(given.pop("num_accelerators")).partition("+")
    fix = ",".join(f"{name}={value}" for name, value in given.pop("fix", {}).items())
    first = {"model": given.pop("model"), "cluster": given.pop("cluster"), "gpus": train}
    own = {**given, "generating": generate, "fix": fix}
    return first | {f"rl.{name}": str(value) for name, value in own.items() if value != ""}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(ServerSettings(time_limit=120.0)), base_url="http://127.0.0.1:8321") as found:
        yield found


@pytest.fixture(scope="module")
def form(client: TestClient) -> str:
    return client.get("/rl").text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_everywhere(client: TestClient, form: str, case: Bad) -> None:
    ended = run(*of_command(case))
    text = unwrapped(ended.stderr)
    assert ended.exit_code == 2
    assert case.value in text
    assert case.fix in text
    with pytest.raises(ShardplanError) as raised:
        shardplan.rl(**asked(case))
    notes = "".join(raised.value.__notes__)
    assert case.value in str(raised.value)
    assert case.rule in raised.value.rule
    assert "--" not in f"{raised.value}{notes}", "arguments, not flags"
    found = client.post("/api/rl", json=asked(case))
    error = found.json()["error"]
    assert found.status_code == 422
    assert case.value in error["message"]
    assert case.rule in error["rule"]
    assert error["hint"]
    assert "--" not in error["hint"], "fields, not flags"
    page = client.get("/rl/answer", params=of_page(case), headers={"HX-Request": "true"})
    shown = html.unescape(re.sub(r"<[^>]*>", "", page.text))
    assert page.status_code == 422
    assert f'data-wrong="{case.field}"' in page.text
    assert case.value.casefold() in shown.casefold()
    assert "--" not in shown
    offered = re.findall('data-set="([^"]+)"', page.text)
    assert case.mends in (*offered, "")
    assert all(f'name="{each.partition("=")[0]}"' in form for each in offered)


def test_a_wrong_fix_in_python_names_the_right_keys() -> None:
    with pytest.raises(ShardplanError) as raised:
        shardplan.rl(**QUESTION, **STEP, fix={"tp": 4})
    (note,) = raised.value.__notes__
    assert note == 'hint: write fix={"train.tp": 4} or fix={"rollout.tp": 4}'
    shardplan.rl(**QUESTION, **STEP, fix={"train.tp": 4}, limit={"pp": [1], "cp": [1]})
