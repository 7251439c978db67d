"""Wrong inputs on the command line, in Python, in requests and on forms: each is refused with rule, value and fix.

None is read as something else: a search while they are refused fails the test.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from starlette.testclient import TestClient
from tests.cli.commands import run
from tests.web.conftest import HOST

import shardplan
from shardplan.base.errors import ShardplanError
from shardplan.planner.search import search_question
from shardplan.web.app import create_app
from shardplan.web.settings import ServerSettings
from shardplan.web.state import PageQuestion

ROOT: Final = Path(__file__).parents[2]
FLAGS: Final = "llama-3.1-8b --cluster dgx-h100 --gpus 64"
COMMANDS: Final = """
plan llama-3.1-8b --cluster dgx-h100 --gpus 64.5 | 64.5
plan llama-3.1-8b --cluster dgx-h100 --gpus sixty-four | sixty-four
plan llama-3.1-8b --cluster dgx-h100 --gpus 2k | 2k
plan llama-3.1-8b --cluster dgx-h100 --gpus 64,96 | 64,96
plan llama-3.1-8b --cluster dgx-h100 --gpus 8..64 | 8..64
plan llama-3.1-8b --cluster dgx-h100 --gpus 8-64 | 8-64
plan llama-3.1-8b --cluster dgx-h100 --gpus 4x8x8 | 4x8x8
plan llama-3.1-8b --cluster dgx-h100 --gpus 8x4 | 8x4
plan llama-3.1-8b --cluster tpu-v5p-pod --gpus 8x8 | 8x8
plan llama-3.1-8b --cluster dgx-h100 --gpus 0x8 | 0x8
plan llama-3.1-8b --cluster dgx-h100 --gpus 9000000x8 | 72000000
plan llama-3.1-8b --cluster dgx-h100 --gpus 64+128 | 64+128
plan llama-3.1-8b --cluster dgx-h100 --gpus 0x40 | 0x40
plan llama-3.1-8b --cluster dgx-h100 --gpus 1e3 | 1e3
plan llama-3.1-8b --cluster dgx-h100 --gpus ٦٤ | ٦٤
plan llama-3.1-8b --cluster dgx-h100 --nodes 8x8 | 8x8
plan llama-3.1-8b --cluster dgx-h100 --nodes 4 --gpus 64 | 64
plan llama-3.1-8b --cluster dgx-h100 --nodes -1 | -1
plan llama-3.1-8b --cluster dgx-h100 | number of accelerators
plan llama-3.1-8b --gpus 64 | cluster
plan --cluster dgx-h100 --gpus 64 | model
plan '' --cluster dgx-h100 --gpus 64 | ''
plan ' ' --cluster dgx-h100 --gpus 64 | ' '
plan llama-3.1-8b --cluster '' --gpus 64 | ''
plan llama --cluster dgx-h100 --gpus 64 | llama
plan llama-4-900b --cluster dgx-h100 --gpus 64 | llama-4-900b
plan ./llama-3.1-8b --cluster dgx-h100 --gpus 64 | ./llama-3.1-8b
plan ../llama-3.1-8b/config.json --cluster dgx-h100 --gpus 64 | ../llama-3.1-8b/config.json
plan a/b/llama-3.1-8b --cluster dgx-h100 --gpus 64 | a/b/llama-3.1-8b
plan dgx-h100 --cluster llama-3.1-8b --gpus 64 | dgx-h100
plan llama-3.1-8b --cluster p5.48xlarg --gpus 64 | p5.48xlarg
plan llama-3.1-8b --cluster p6.48xlarge --gpus 64 | p6.48xlarge
plan llama-3.1-8b --cluster mi250 --gpus 64 | mi250
plan llama-3.1-8b --cluster tpu --gpus 64 | tpu
plan llama-3.1-8b --accelerator a100 --gpus 64 | a100
plan llama-3.1-8b --accelerator p5.48xlarge --gpus 64 | p5.48xlarge
plan llama-3.1-8b --accelerator dgx-h100 --gpus 64 | dgx-h100
plan QUESTION --sequence-length 0 | 0
plan QUESTION --sequence-length 8kb | 8kb
plan QUESTION --sequence-length 8,19 | 8,19
plan QUESTION --global-batch-size 4M | 4M
plan QUESTION --global-batch-size -512 | -512
plan QUESTION --global-batch-size 1.5 | 1.5
plan QUESTION --precision fp7 | fp7
plan llama-3.1-8b --cluster dgx-a100 --gpus 64 --precision fp8 | fp8
plan QUESTION --precision bf16,fp8 | bf16,fp8
plan QUESTION --optimizer lion | lion
plan QUESTION --train dora | dora
plan QUESTION --train qlora --base-weights same | same
plan QUESTION --lora-rank 8 | lora_rank
plan QUESTION --train lora --lora-targets w9 | w9
plan QUESTION --tokens 15TB | 15TB
plan QUESTION --tokens -1T | -1T
plan QUESTION --routing 0.5 | 0.5
plan QUESTION --freeze layers:40-50 | 40-50
plan QUESTION --companion judge=self | judge
plan QUESTION --inter-node-bandwidth 50Gbs | 50Gbs
plan QUESTION --inter-node-bandwidth 50GB | 50GB
plan QUESTION --inter-node-bandwidth 2x | 2x
plan QUESTION --inter-node-bandwidth 0 | 0
plan QUESTION --inter-node-latency 5 | 5
plan QUESTION --inter-node-latency 5m | 5m
plan QUESTION --memory 80gb | 80gb
plan QUESTION --memory 80GHz | 80GHz
plan QUESTION --memory 1MB | 1.00 MB
plan QUESTION --peak-flops 989 | 989
plan QUESTION --peak-flops bf17=989 | bf17
plan QUESTION --price -1 | -1
plan QUESTION --price 2.5EUR | 2.5EUR
plan QUESTION --node-size 0 | 0
plan QUESTION --fix tp | tp
plan QUESTION --fix tp= | tp=
plan QUESTION --fix tpp=2 | tpp
plan QUESTION --fix tp=2,4 | tp
plan QUESTION --fix tp=two | two
plan QUESTION --limit pp=4..1 | 4..1
plan QUESTION --limit sharding=zero9 | zero9
plan QUESTION --exclude recompute=ful | ful
plan QUESTION --without numpy | numpy
plan QUESTION --top 0 | 0
plan QUESTION --top ten | ten
plan QUESTION --stack torchtitan@1999-01 | 1999-01
plan QUESTION --stack all --top 3 | --top
plan QUESTION --profile hoper | hoper
plan QUESTION --software kernel=eager | kernel
plan QUESTION --seq 8k | --seq
plan QUESTION --tp 4 | --tp
plan QUESTION --gpus 128 | 128
plan QUESTION --fix tp=4 pp=2 | pp=2
plan QUESTION --export vllm | vllm
plan QUESTION --method chinchilla | chinchilla
search llama-3.1-8b --cluster dgx-h100 --gpus 64 | search
estimate QUESTION --tp 3 | 3
estimate QUESTION --tp 8 --pp 16 | 16
estimate QUESTION --tp 4x | 4x
estimate QUESTION --sharding fsdp3 | fsdp3
estimate QUESTION --ep 2 | 2
estimate QUESTION --dp 8 | dp
estimate --from nothere.json --tp 2 | nothere.json
estimate --from examples/config.json | examples/config.json
estimate --from examples/plans.json --pick 99 | 99
estimate --from examples/plans.json --pick best | best
scale llama-3.1-8b --cluster dgx-h100 --gpus 64-8 | 64
scale llama-3.1-8b --cluster dgx-h100 --gpus 8- | 8-
scale llama-3.1-8b --cluster dgx-h100 --gpus 8:64 | 8:64
scale llama-3.1-8b --cluster dgx-h100 --gpus 8,,16 | 8,,16
scale llama-3.1-8b --cluster dgx-h100 --gpus 8..16 --nodes 1..2 | --nodes
whatif examples/plans.json | change
whatif examples/plans.json --change memory=2y | 2y
whatif examples/plans.json --change precision=2x | precision
whatif examples/plans.json --change gpus=+1% | 64.64
whatif examples/plans.json --change gpus=-100% | gpus
whatif examples/plans.json --change gpus=50% | 50%
whatif examples/plans.json --change tp=2 | tp
whatif examples/plans.json --change memory | memory
whatif examples/plans.json --change bandwith=2x | bandwith
whatif examples/plans.json --change cluster=2x | 2x
whatif examples/plans.json --change gpus=64 | 64
whatif llama-3.1-8b --cluster dgx-h100 --gpus 8 --pick 1 --change gpus=2x | 1
fit llama-3.1-8b --cluster dgx-h100 --gpus 8 | largest
fit llama-3.1-8b --cluster dgx-h100 --gpus 8 --largest tp | tp
fit llama-3.1-8b --cluster dgx-h100 --gpus 8 --smallest gpus | --gpus
budget llama-3.1-8b --cluster dgx-h100 --days 30 | tokens
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --days 0 | 0
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --money 5EUR | 5EUR
budget llama-3.1-8b --cluster dgx-h100, --tokens 1T | empty
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --energy 5GW | 5GW
sensitivity llama-3.1-8b --cluster dgx-h100 --gpus 64 --factor 1 | 1
pareto llama-3.1-8b --cluster dgx-h100 --gpus 64..4096 --price free | free
export examples/plans.json --to vllm | vllm
compare examples/plans.json --pick 1,99 | 99
audit examples/launch.sh --cluster dgx-h100 --observed step=fast | fast
simulate examples/plans.json --jitter 2 | 2
simulate examples/plans.json --slow-rank 1 | 1
simulate examples/plans.json --replicas 4 --measured | --replicas
timeline examples/plans.json --jitter -1 | -1
models llama-9 | llama-9
schedules gpipe9 | gpipe9
Plan QUESTION | Plan
plan QUESTION --sequence-length NaN | NaN
plan QUESTION --sequence-length ٨k | ٨k
plan QUESTION --global-batch-size '512 sequences' | 512 sequences
plan QUESTION --precision '<b>bf16</b>' | <b>
plan QUESTION --tokens inf | inf
plan QUESTION --price '$2.5' | $2.5
plan QUESTION --memory 80GB/s | 80GB/s
plan QUESTION --memory -80GB | -80GB
plan QUESTION --inter-node-latency 5GB/s | 5GB/s
plan QUESTION --peak-flops bf16=NaN | NaN
plan QUESTION --peak-flops bf16=989,bf16=1000 | bf16
plan QUESTION --software kernels=eager,kernels=fused | kernels
plan QUESTION --fix tp=4 --fix tp=8 | tp
plan QUESTION --fix tp=4 --exclude tp=4 | tp
plan QUESTION --fix tp=٤ | ٤
plan QUESTION --exclude nodes=2 | nodes
plan QUESTION --days 30 | --days
plan QUESTION --profile examples/plans.json | plans.json
plan examples/launch.sh --cluster dgx-h100 --gpus 64 | launch.sh
plan llama-3.1-8b --cluster examples/config.json --gpus 64 | config.json
plan /dev/null --cluster dgx-h100 --gpus 64 | /dev/null
plan http://example.com/config.json --cluster dgx-h100 --gpus 64 | example.com
plan llama-3.1-8b --cluster dgx-h100 --gpus '6 4' | 6 4
estimate QUESTION --tp 4 --tp 8 | tp
estimate QUESTION --fix tp=4 | --fix
estimate QUESTION --sharding zero1 --sharding-degree 3 | 3
estimate --from examples/launch.sh | launch.sh
estimate --from examples/plans.json --observed 'MFU 380%' | 380
scale llama-3.1-8b --cluster dgx-h100 --gpus 8..64..512 | 8..64..512
whatif examples/plans.json --change memory=2x --change memory=3x | memory
whatif examples/plans.json --change =2x | =2x
fit llama-3.1-8b --cluster dgx-h100 --gpus 8 --smallest sequence_length | sequence_length
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --days NaN | NaN
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --nodes 8x8 | 8x8
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --nodes 8 --gpus 100 | 100
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --batch-limits 4096..1024 | 4096..1024
budget llama-3.1-8b --cluster dgx-h100 --tokens 1T --steps 100 | --steps
export examples/config.json --to megatron-lm | config.json
compare examples/config.json | config.json
audit examples/config.json --cluster dgx-h100 | config.json
simulate examples/plans.json --slow-rank x:2 | x:2
simulate examples/plans.json --schedule all --svg step.svg | --svg
compare examples/plans.json --pick 1,1 | plan 1
whatif QUESTION inter_node_bandwidth=2x | inter_node_bandwidth=2x
validate --run ds-azure-gpt-2t --html report.html | --html report.html
validate --run ds-azure | ds-azure
rl QUESTION --prompts 32 --samples 8 --response-tokens 1024 | 1024
rl QUESTION --prompts 32 --samples 8 --response-tokens mean=4k,max=2k | 4,096
rl QUESTION --prompts 32 --samples 8 --response-tokens mean=1k,max=2k --updates 5 | 5
rl QUESTION --prompts 32 --samples 8 --response-tokens mean=1k,max=2k --staleness 2 --placement colocated | colocated
"""
"""A command, and what the message must show of it; QUESTION stands for ``FLAGS``."""

ASKED: Final = ("llama-3.2-1b", "dgx-h100", 8)
PY: Final[Any] = shardplan
"""Without its types, which refuse some of these first."""
PYTHON: Final[list[tuple[str, Callable[[], Any]]]] = [
    ("8x4", lambda: PY.search("llama-3.2-1b", "dgx-h100", "8x4")),
    ("'5'", lambda: PY.search(*ASKED, top="5")),
    ("eight", lambda: PY.search("llama-3.2-1b", "dgx-h100", "eight")),
    ("8.0", lambda: PY.search("llama-3.2-1b", "dgx-h100", 8.0)),
    ("True", lambda: PY.search("llama-3.2-1b", "dgx-h100", num_accelerators=True)),
    ("0", lambda: PY.search("llama-3.2-1b", "dgx-h100", 0)),
    ("None", lambda: PY.search("llama-3.2-1b", "dgx-h100", None)),
    ("-8", lambda: PY.search("llama-3.2-1b", "dgx-h100", -8)),
    ("[8", lambda: PY.search("llama-3.2-1b", "dgx-h100", [8, 16])),
    ("3", lambda: PY.search(3, "dgx-h100", 8)),
    ("None", lambda: PY.search(None, "dgx-h100", 8)),
    ("", lambda: PY.search("", "dgx-h100", 8)),
    ("42", lambda: PY.search("llama-3.2-1b", 42, 8)),
    ("seq", lambda: PY.search(*ASKED, seq=8192)),
    ("8k5", lambda: PY.search(*ASKED, sequence_length="8k5")),
    ("0.5", lambda: PY.search(*ASKED, sequence_length=0.5)),
    ("global_batch_size", lambda: PY.search(*ASKED, global_batch_size="512 ok")),
    ("fp7", lambda: PY.search(*ASKED, precision="fp7")),
    ("maybe", lambda: PY.search(*ASKED, dropout="maybe")),
    ("tpp", lambda: PY.search(*ASKED, fix={"tpp": 2})),
    ("two", lambda: PY.search(*ASKED, fix={"tp": "two"})),
    ("fix", lambda: PY.search(*ASKED, fix=["tp=2"])),
    ("tp=2", lambda: PY.search(*ASKED, fix="tp=2")),
    ("zero9", lambda: PY.search(*ASKED, limit={"sharding": ["zero9"]})),
    ("pp", lambda: PY.search(*ASKED, limit={"pp": []})),
    ("top", lambda: PY.search(*ASKED, top=0)),
    ("1.5", lambda: PY.search(*ASKED, top=1.5)),
    ("megatrn", lambda: PY.search(*ASKED, stack="megatrn")),
    ("7", lambda: PY.search(*ASKED, stack=7)),
    ("hoper", lambda: PY.search(*ASKED, profile="hoper")),
    ("kernel", lambda: PY.search(*ASKED, software={"kernel": "eager"})),
    ("eagr", lambda: PY.search(*ASKED, software={"kernels": "eagr"})),
    ("numpy", lambda: PY.search(*ASKED, without=["numpy"])),
    ("lora_rank", lambda: PY.search(*ASKED, lora_rank=8)),
    ("12", lambda: PY.estimate(*ASKED, {"tp": 12})),
    ("dp", lambda: PY.estimate(*ASKED, {"dp": 8})),
    ("fsdp9", lambda: PY.estimate(*ASKED, {"sharding": "fsdp9"})),
    ("tp 2", lambda: PY.estimate(*ASKED, "tp 2")),
    ("4.0", lambda: PY.estimate(*ASKED, {"tp": 4.0})),
    ("vllm", lambda: PY.export(PY.load("examples/plans.json"), "vllm")),
    ("plans.json", lambda: PY.export("examples/plans.json", "nemo")),
    ("nothere", lambda: PY.load("nothere.json")),
    ("config.json", lambda: PY.load("examples/config.json")),
    ("memory", lambda: PY.whatif("examples/plans.json", {"memory": "2y"})),
    ("64.64", lambda: PY.whatif("examples/plans.json", {"num_accelerators": "+1%"})),
    ("precision", lambda: PY.whatif("examples/plans.json", {"precision": "+1%"})),
    ("tp", lambda: PY.whatif("examples/plans.json", {"tp": 2})),
    ("25", lambda: PY.whatif("examples/plans.json", {"inter_node_bandwidth": 25})),
    ("sizes", lambda: PY.scale("llama-3.2-1b", "dgx-h100", [])),
    ("sideways", lambda: PY.fit(*ASKED, largest="sideways")),
    ("largest", lambda: PY.fit(*ASKED, largest="layers", smallest="gpus")),
    ("factor", lambda: PY.sensitivity(*ASKED, factor=1.0)),
    ("tokens", lambda: PY.budget("llama-3.2-1b", "dgx-h100", days=3)),
    ("days", lambda: PY.budget("llama-3.2-1b", "dgx-h100", tokens=1e12, days=0)),
    ("money", lambda: PY.budget("llama-3.2-1b", "dgx-h100", tokens=1e12, money="much")),
    ("usd", lambda: PY.load_cluster("dgx-h100", price="2 usd")),
    ("12", lambda: PY.load_cluster("dgx-h100", inter_node_bandwidth=12)),
    ("bandwith", lambda: PY.load_cluster("dgx-h100", bandwith="12GB/s")),
    ("p7.48xlarge", lambda: PY.load_cluster("p7.48xlarge")),
    ("a100", lambda: PY.load_accelerator("a100")),
    ("llama-3.2-1bb", lambda: PY.load_model("llama-3.2-1bb")),
    ("tpp", lambda: PY.load("examples/plans.json").variant(tpp=2)),
    ("3", lambda: PY.load("examples/plans.json").variant(tp=3)),
    ("model_type", lambda: PY.search({}, "dgx-h100", 8)),
    ("no change", lambda: PY.whatif("examples/plans.json", {})),
    ("sixteen", lambda: PY.scale("llama-3.2-1b", "dgx-h100", [8, "sixteen"])),
    ("64..8", lambda: PY.scale("llama-3.2-1b", "dgx-h100", "64..8")),
    ("nan", lambda: PY.search(*ASKED, tokens=math.nan)),
    ("price", lambda: PY.load_cluster("dgx-h100", price=math.nan)),
    ("b'", lambda: PY.search(b"llama-3.2-1b", "dgx-h100", 8)),
    ("tp", lambda: PY.search(*ASKED, fix={"tp": True})),
    ("3", lambda: PY.search(*ASKED, limit={3: [4]})),
    ("tp", lambda: PY.search(*ASKED, fix={"tp": 2}, limit={"tp": [4]})),
    ("sequence_length", lambda: PY.search(*ASKED, sequence_length=[4096])),
    ("tp", lambda: PY.estimate(*ASKED, {"tp": 10**30})),
    ("changes", lambda: PY.whatif("examples/plans.json", "memory=2x")),
    ("8.5", lambda: PY.scale("llama-3.2-1b", "dgx-h100", 8.5)),
    ("largest", lambda: PY.fit(*ASKED, largest=5)),
    ("factor", lambda: PY.sensitivity(*ASKED, factor="x")),
    ("3", lambda: PY.load(3)),
    ("3", lambda: PY.audit(3, cluster="dgx-h100")),
]
"""What the message must show, and a call."""

QUESTION: Final[dict[str, Any]] = {"model": "llama-3.2-1b", "cluster": "dgx-h100", "num_accelerators": 8}
RL: Final = QUESTION | {"prompts": 64, "samples": 8, "response_tokens": "mean=512,max=2k"}
BUDGET: Final[dict[str, Any]] = {"model": "llama-3.2-1b", "clusters": ["dgx-h100"], "job": {"tokens": "1T"}}
PLANS: Final = json.loads((ROOT / "examples" / "plans.json").read_text(encoding="utf-8"))
REQUESTS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    ("8x4", "plan", QUESTION | {"num_accelerators": "8x4"}),
    ("eight", "plan", QUESTION | {"num_accelerators": "eight"}),
    ("8.5", "plan", QUESTION | {"num_accelerators": 8.5}),
    ("num_accelerators", "plan", {"model": "llama-3.2-1b", "cluster": "dgx-h100"}),
    ("/etc/passwd", "plan", QUESTION | {"model": "/etc/passwd"}),
    ("./llama-3.2-1b", "plan", QUESTION | {"model": "./llama-3.2-1b"}),
    ("nobody/thing-7b", "plan", QUESTION | {"model": "nobody/thing-7b"}),
    ("model", "plan", {"cluster": "dgx-h100", "num_accelerators": 8}),
    ("p7", "plan", QUESTION | {"cluster": "p7"}),
    ("seq", "plan", QUESTION | {"seq": 8192}),
    ("fp7", "plan", QUESTION | {"job": {"precision": "fp7"}}),
    ("8kb", "plan", QUESTION | {"job": {"sequence_length": "8kb"}}),
    ("global_batch_size", "plan", QUESTION | {"job": {"global_batch_size": 0}}),
    ("lora_rank", "plan", QUESTION | {"job": {"lora_rank": 8}}),
    ("maybe", "plan", QUESTION | {"job": {"dropout": "maybe"}}),
    ("tpp", "plan", QUESTION | {"fix": {"tpp": 2}}),
    ("two", "plan", QUESTION | {"fix": {"tp": "two"}}),
    ("zero9", "plan", QUESTION | {"limit": {"sharding": ["zero9"]}}),
    ("top", "plan", QUESTION | {"top": 0}),
    ("megatrn", "plan", QUESTION | {"stack": "megatrn"}),
    ("all", "plan", QUESTION | {"stack": "all"}),
    ("hoper", "plan", QUESTION | {"profile": "hoper"}),
    ("50Gbs", "plan", QUESTION | {"overrides": {"inter_node_bandwidth": "50Gbs"}}),
    ("2x", "plan", QUESTION | {"overrides": {"inter_node_bandwidth": "2x"}}),
    ("inter_node_bandwidth", "plan", QUESTION | {"overrides": {"inter_node_bandwidth": 50}}),
    ("12", "estimate", QUESTION | {"plan": {"tp": 12}}),
    ("tp", "estimate", QUESTION | {"plan": {"tp": "4"}}),
    ("dp", "estimate", QUESTION | {"plan": {"dp": 4}}),
    ("plan", "estimate", QUESTION),
    ("days", "budget", BUDGET | {"days": 0}),
    ("clusters", "budget", BUDGET | {"clusters": []}),
    ("money", "budget", BUDGET | {"money": "much"}),
    ("8+x", "rl", RL | {"num_accelerators": "8+x"}),
    ("mean=many", "rl", RL | {"response_tokens": "mean=many"}),
    ("nowhere", "rl", RL | {"placement": "nowhere"}),
    ("schema", "compare", {"files": [{}]}),
    ("vllm", "export", {"file": PLANS, "to": "vllm"}),
    ("99", "export", {"file": PLANS, "to": "nemo", "pick": 99}),
    ("jitter", "simulate", {"file": PLANS, "jitter": 2}),
    ("gpipe9", "simulate", {"file": PLANS, "schedule": "gpipe9"}),
    ("launch.exe", "audit", {"text": "torchrun x.py", "name": "launch.exe"}),
    ("launch.sh is a script", "audit", {"text": "x"}),
    ("num_accelerators", "plan", QUESTION | {"num_accelerators": [8]}),
    ("num_accelerators", "plan", QUESTION | {"num_accelerators": 10**40}),
    ("model", "plan", QUESTION | {"model": "a" * 5000}),
    ("job", "plan", QUESTION | {"job": []}),
    ("tokens", "plan", QUESTION | {"job": {"tokens": "NaN"}}),
    ("fix", "plan", QUESTION | {"fix": [["tp", 2]]}),
    ("prune", "plan", QUESTION | {"prune": "yes"}),
    ("stack", "plan", QUESTION | {"stack": 1}),
    ("days", "budget", BUDGET | {"days": "30"}),
    ("file", "export", {"file": "examples/plans.json", "to": "nemo"}),
]
"""What the message must show, a task of the API and its body."""

FORMS: Final[list[tuple[str, dict[str, str]]]] = [
    ("eight", {"gpus": "eight"}),
    ("8x4", {"gpus": "8x4"}),
    ("8-64", {"gpus": "8-64"}),
    ("-1", {"gpus": "-1"}),
    ("2k", {"gpus": "2k"}),
    ("8,16", {"gpus": "8,16"}),
    ("99999999999", {"gpus": "99999999999"}),
    ("llama-9", {"model": "llama-9"}),
    ("/etc/passwd", {"model": "/etc/passwd"}),
    ("./llama-3.2-1b", {"model": "./llama-3.2-1b"}),
    ("a/b/llama-3.2-1b", {"model": "a/b/llama-3.2-1b"}),
    ("mixtral", {"model": "mixtral"}),
    ("p7", {"cluster": "p7"}),
    ("h", {"cluster": "h"}),
    ("examples/my-cluster.yaml", {"cluster": "examples/my-cluster.yaml"}),
    ("a100", {"accelerator": "a100"}),
    ("dgx-h200", {"accelerator": "dgx-h200"}),
    ("0", {"sequence_length": "0"}),
    ("8kb", {"sequence_length": "8kb"}),
    ("1.5", {"global_batch_size": "1.5"}),
    ("4M", {"global_batch_size": "4M"}),
    ("fp7", {"precision": "fp7"}),
    ("lion", {"optimizer": "lion"}),
    ("dora", {"train": "dora"}),
    ("15TB", {"tokens": "15TB"}),
    ("maybe", {"dropout": "maybe"}),
    ("w9", {"train": "lora", "lora_targets": "w9"}),
    ("lora_rank", {"lora_rank": "8"}),
    ("40-50", {"freeze": "layers:40-50"}),
    ("judge", {"companion": "judge=self"}),
    ("megatrn", {"stack": "megatrn"}),
    ("kernel", {"software": "kernel=eager"}),
    ("eagr", {"software": "kernels=eagr"}),
    ("kernels", {"software": "kernels"}),
    ("50Gbs", {"set.inter_node_bandwidth": "50Gbs"}),
    ("2x", {"set.inter_node_bandwidth": "2x"}),
    ("5", {"set.inter_node_latency": "5"}),
    ("80gb", {"set.memory": "80gb"}),
    ("0", {"set.node_size": "0"}),
    ("free", {"price": "free"}),
    ("-2", {"price": "-2"}),
    ("two", {"lock.tp": "two"}),
    ("zero9", {"lock.sharding": "zero9"}),
    ("4..1", {"lock.pp": "4..1"}),
    ("tpp", {"lock.tpp": "2"}),
    ("not JSON", {"config": "{", "model": "config.json"}),
    ("list", {"config": "[1]", "model": "config.json"}),
    ("model_type", {"config": "{}", "model": "config.json"}),
    ("hidden_size", {"config": '{"hidden_size": 8, "hidden_size": 16}', "model": "config.json"}),
    ("NaN", {"price": "NaN"}),
    ("٨", {"gpus": "٨"}),
    ("٤", {"lock.tp": "٤"}),
    ("script", {"model": "<script>alert(1)</script>"}),
    ("kernels", {"software": "kernels=eager,kernels=fused"}),
    ("bandwith", {"set.bandwith": "50 GB/s"}),
]
"""What the message must show, and fields of the form in place of those of a question."""
SEARCHES: Final = ("planner.scope.survey_of", "decide.searching.best_together")


@pytest.fixture
def never_searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the folder of the project, where a search fails."""
    monkeypatch.chdir(ROOT)
    with ExitStack() as stack:
        for name in SEARCHES:
            stack.enter_context(patch(f"shardplan.{name}", side_effect=AssertionError("it was read and searched")))
        yield


def faults(said: Iterable[tuple[str, str, object, dict[str, str]]]) -> list[str]:
    """Of name, value, status and error of each input those that lack the rule, the value, the fix or the status."""
    return [
        f"{name}: {status} {error}"
        for name, value, status, error in said
        if not (status and error.get("rule") and error.get("hint") and value in error.get("message", ""))
    ]


@pytest.mark.usefixtures("never_searched")
def test_wrong_commands() -> None:
    def said() -> Iterator[tuple[str, str, object, dict[str, str]]]:
        for row in COMMANDS.strip().splitlines():
            line, _, value = row.rpartition(" | ")
            result = run(*shlex.split(line.replace("QUESTION", FLAGS)), "--json", "-")
            is_refused = result.exit_code == 2
            yield line, value, is_refused, json.loads(result.stdout)["error"] if is_refused else {"is": result.output}

    assert faults(said()) == []


def error_of(call: Callable[[], object]) -> dict[str, str]:
    try:
        return {"accepted": repr(call())}
    except ShardplanError as error:
        return error.to_record()["error"]


@pytest.mark.usefixtures("never_searched")
def test_wrong_arguments_in_python() -> None:
    assert faults((str(place), value, True, error_of(call)) for place, (value, call) in enumerate(PYTHON)) == []


def test_wrong_requests() -> None:
    with TestClient(create_app(ServerSettings(api_only=True)), base_url=HOST) as client:
        answers = [(value, client.post(f"/api/{task}", json=body)) for value, task, body in REQUESTS]
    said = ((value, value, each.status_code == 422, each.json().get("error", {})) for value, each in answers)
    assert faults(said) == []


@pytest.mark.usefixtures("never_searched")
def test_wrong_forms() -> None:
    def search(fields: dict[str, str]) -> object:
        question = PageQuestion.of(({"model": "llama-3.2-1b", "cluster": "dgx-h100", "gpus": "8"} | fields).items())
        posed = question.posed()
        return search_question(posed.question, stack=posed.stack, limit=question.restrictions())

    assert faults((str(fields), value, True, error_of(partial(search, fields))) for value, fields in FORMS) == []


def test_there_are_many() -> None:
    assert len(COMMANDS.strip().splitlines()) + len(PYTHON) + len(REQUESTS) + len(FORMS) > 320
