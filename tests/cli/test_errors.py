"""Whatever is wrong with the input: status 2, words on standard error, the error object where --json points."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import FEW, SMALL, refused, run, unwrapped

HERE = ("--cluster", "dgx-h100", "--gpus", 8)
QUESTION = ("llama-3.2-1b", *HERE)
PLAN = ("plan", *QUESTION)
ESTIMATE = ("estimate", *QUESTION)

WRONG: dict[str, tuple[tuple[object, ...], str]] = {
    # commands and flags
    "a misspelt command": (("plna",), "did you mean plan?"),
    "a misspelt flag": ((*PLAN, "--clustr", "x"), "did you mean --cluster?"),
    "a flag that may be two": ((*PLAN, "--gpu", 64), "did you mean --gpus or --accelerator?"),
    "a batch that may be two": ((*ESTIMATE, "--batch", 64), "did you mean --global-batch-size or --micro-batch-size?"),
    "a flag of other programs": ((*PLAN, "-o", "x.json"), "did you mean --json?"),
    "a misspelt flag of a plan": ((*ESTIMATE, "--micro-batchsize", 2), "did you mean --micro-batch-size"),
    **{
        f"{command} {flag}": ((command, "llama-3.2-1b", flag), f"did you mean {meant}?")
        for command, flag, meant in (
            ("plan", "--fp8", "--precision fp8"), ("plan", "--bf16", "--precision bf16"),
            ("plan", "--adamw", "--optimizer adam"), ("plan", "--fsdp", "--fix sharding=zero3"),
            ("estimate", "--fsdp2", "--sharding zero3"), ("estimate", "--selective", "--recompute selective"),
            ("estimate", "--1f1b", "--schedule 1f1b"), ("plan", "--seq-len", "--sequence-length"),
            ("plan", "--gbs", "--global-batch-size"), ("plan", "--num-gpus", "--gpus"),
            ("plan", "--world_size", "--gpus"), ("estimate", "--tensor-model-parallel-size", "--tp"),
            ("estimate", "--mbs", "--micro-batch-size"), ("plan", "--framework", "--stack"),
        )
    },
    **{
        f"a field of a plan: {flag}": ((*PLAN, flag), f"the search chooses {field}--fix {field}=")
        for flag, field in (
            ("--tp", "tp"), ("--tensor-parallel-size", "tp"), ("--no-sequence-parallel", "sequence_parallel"),
        )
    },
    "fields that stand apart": ((*PLAN, "--fix", "tp=4", "pp=2"), "--fix tp=4,pp=2"),
    "a flag for the model": (("plan", "--model", "llama-3.2-1b"), "shardplan plan MODEL"),
    "a switch of a plan for the search": ((*PLAN, "--no-overlap-dp"), "the search chooses overlap_dp"),
    "a value for a switch": ((*ESTIMATE, "--overlap-dp=yes"), "does not take a value"),
    "an argument too many": ((*PLAN, "llama-3.1-8b"), "unexpected extra argument"),
    "a folder without a model": (("plan", Path(__file__).parent, *HERE), "holds no config.json"),
    "an empty name of a framework": ((*PLAN, "--stack", ""), "unknown stack ''"),
    "nothing": (("plan",), "missing: a model, a cluster or an accelerator, the number of accelerators"),
    "a model alone": (("estimate", "llama-3.2-1b"), "missing: a cluster or an accelerator, the number of accelerators"),
    "a cluster alone": (("plan", "--cluster", "dgx-h100"), "missing: a model, the number of accelerators"),
    "no model": (("plan", *HERE), "MODEL"),
    "no model to estimate": (("estimate", *HERE), "missing: a model"),
    "no cluster": (("plan", "llama-3.2-1b", "--gpus", 8), "missing: a cluster or an accelerator"),
    "no number of accelerators": (("plan", "llama-3.2-1b", "--cluster", "dgx-h100"), "missing: the number of"),
    "no files to compare": (("compare",), "FILE"),
    # names
    "a misspelt model": (("plan", "lama-3.2-1b", *HERE), "did you mean llama-3.2-1b"),
    "a misspelt cluster": (("plan", "llama-3.2-1b", "--cluster", "dgx-h10", "--gpus", 8), "did you mean dgx-h100"),
    "a misspelt part": (("plan", "llama-3.2-1b", "--accelerator", "h100-sxm-80g", "--gpus", 8), "mean h100-sxm-80gb"),
    "an empty name": (("plan", "", *HERE), "model is ''"),
    "a model file that is not there": (("plan", "./none/config.json", *HERE), "does not exist"),
    "a cluster file that is not there": (("plan", "llama-3.2-1b", "--cluster", "./none.yaml", "--gpus", 8), "exist"),
    "an unknown model to show": (("models", "llama-3.2-1c"), "did you mean llama-3.2-1b"),
    "an unknown cluster to show": (("clusters", "dgx-h1000"), "did you mean dgx-h100"),
    "an unknown part to show": (("accelerators", "h100-sxm-80"), "did you mean h100-sxm-80gb"),
    "two memories": (("plan", "llama-3.2-1b", "--accelerator", "A100", "--gpus", 8), "a100-sxm-40gb, a100-sxm-80gb"),
    # numbers
    "nodes and accelerators that disagree": ((*PLAN, "--nodes", 2), "has 8, so that 2 have 16leave one of them out"),
    **{
        f"{flag} 2k": (("plan", "llama-3.2-1b", "--cluster", "dgx-h100", *more, flag, "2k"), "may be 2,000 or 2,048")
        for flag, more in (("--gpus", ()), ("--nodes", ("--gpus", 8)), ("--global-batch-size", ("--gpus", 8)))
    },
    **{
        f"--gpus {value}": (("plan", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", value), "--gpus is")
        for value in ("0", "-8", "1e3", "8.0", "nan", "inf", "eight", "", " ", "9" * 30, "1,2", "0x10", "٣")
    },
    **{
        f"{flag} {value}": ((*PLAN, flag, value), words)
        for flag, value, words in (
            ("--sequence-length", "0", "--sequence-length is"),
            ("--sequence-length", "-1", "--sequence-length is"),
            ("--sequence-length", "8q", "--sequence-length is"),
            ("--sequence-length", "99999999999", "--sequence-length is"),
            ("--global-batch-size", "0", "--global-batch-size is"),
            ("--global-batch-size", "1.5", "--global-batch-size is"),
            ("--top", "0", "--top is"),
            ("--top", "many", "--top is"),
            ("--routing", "0.5", "from 1 to 1,000the nearest is 1"),
            ("--routing", "nan", "unknown routing 'nan'"),
            ("--routing", "lerned", "did you mean learned"),
            ("--routing", "0.5,0.6", "add up to 1.1, not to 1the nearest is 1"),
            ("--tokens", "0", "tokens is 0"),
            ("--tokens", "-1T", "negative"),
            ("--tokens", "nan", "--tokens"),
            ("--tokens", "lots", "--tokens"),
            ("--tokens", "1e30", "--tokens"),
            ("--inter-node-bandwidth", "25parsec", "unknown unit 'parsec'"),
            ("--inter-node-bandwidth", "25us", "unit"),
            ("--inter-node-bandwidth", "-25", "negative"),
            ("--inter-node-bandwidth", "0", "zero"),
            ("--inter-node-bandwidth", "nan", "inter_node_bandwidth"),
            ("--inter-node-latency", "5", "no unit"),
            ("--intra-node-latency", "5GB", "unit"),
            ("--memory", "0", "zero"),
            ("--memory", "1e30", "memory"),
            ("--memory-bandwidth", "fast", "memory_bandwidth"),
            ("--node-size", "0", "--node-size is"),
            ("--peak-flops", "bf16", "--peak-flops is"),
            ("--peak-flops", "bf17=989", "did you mean bf16"),
            ("--peak-flops", "bf16=", "--peak-flops is"),
            ("--peak-flops", "bf16=x", "peak_flops.bf16"),
            ("--precision", "bf15", "did you mean bf16"),
            ("--precision", "mxfp8", "no mxfp8 peak"),
            ("--optimizer", "addam", "did you mean adam"),
            ("--attention", "flsh", "did you mean flash"),
            ("--grad-dtype", "fp8", "grad_dtype"),
            ("--moment-dtype", "", "moment_dtype"),
        )
    },
    # the space of a search
    **{
        f"--fix {value}": ((*PLAN, "--fix", value), words)
        for value, words in (
            ("tp", "--fix is 'tp'"),
            ("tp=", "--fix is 'tp='"),
            ("=4", "--fix is '=4'"),
            ("tpp=4", "did you mean"),
            ("micro_batch_siz=4", "did you mean micro_batch_size"),
            ("tp=four", "tp is 'four'"),
            ("tp=0", "tp is 0"),
            ("tp=-4", "tp is"),
            ("tp=1.5", "tp is"),
            ("tp=1,2", "fixed to 2 values"),
            ("sharding=zro1", "did you mean zero1"),
            ("recompute=ful", "did you mean full"),
            ("overlap_dp=maybe", "overlap_dp"),
            ("placement=tp-cp", "placement is"),
        )
    },
    "a field fixed twice": ((*PLAN, "--fix", "tp=1", "--fix", "tp=2"), "names tp twice--limit tp="),
    "a field limited twice": ((*PLAN, "--limit", "tp=1", "--limit", "tp=2"), "names tp twice--limit tp="),
    "a field fixed and limited": ((*PLAN, "--fix", "tp=1", "--limit", "tp=1,2"), "fixed and limited"),
    "nothing left": ((*PLAN, "--limit", "tp=1,2", "--exclude", "tp=1,2"), "no candidate of tp"),
    # one plan
    **{
        f"{flag} {value}": ((*ESTIMATE, flag, value), words)
        for flag, value, words in (
            ("--tp", "3", "for 8 accelerators"),
            ("--tp", "16", "for 8 accelerators"),
            ("--tp", "0", "--tp is"),
            ("--tp", "two", "--tp is"),
            ("--pp", "99", "accelerators"),
            ("--vp", "2", "vp 2"),
            ("--ep", "2", "no experts"),
            ("--sharding", "zro1", "did you mean zero1"),
            ("--schedule", "1f1c", "did you mean 1f1b"),
            ("--recompute", "core_atn", "did you mean core_attn"),
            ("--recompute", "moe", "recompute moe"),
            ("--offload", "al", "offload"),
            ("--placement", "tp-tp", "placement is"),
            ("--stage-layers", "1,x", "--stage-layers is"),
            ("--stage-layers", "1,2", "stage_layers has 2 numbers"),
            ("--micro-batch-size", "7", "global batch"),
            ("--sharding-degree", "3", "sharding"),
            ("--documents", "long", "--documents 1024"),
            ("--documents", "abc", "must be a list such as 1024 or 1024,2048"),
            ("--documents", "0", "documents is"),
            ("--documents", "-1", "documents is"),
            ("--documents", "1024.5", "documents is"),
            ("--documents", "1024,512", "90th percentile"),
            ("--documents", "1,024", "separators of thousands"),
            ("--documents", "1024,2048,4096", "3 numbers"),
            ("--documents", "999999", "or raise --sequence-length"),
            ("--from", "none.json", "MODEL"),
        )
    },
    **{
        f"rank {rank}": ((*ESTIMATE, "--train", "lora", "--lora-rank", rank), words)
        for rank, words in (("2147483648", "from 1 to 65,536"), ("60000", "matrix with an adapter has rank 512"))
    },
    "a plan file that is not there": (("estimate", "--from", "none.json"), "does not exist"),
    "a plan that is none": (("compare", "none.json", "none.json"), "does not exist"),
    "a sequence of nothing": (("models", "llama-3.2-1b", "--sequence-length", "0"), "--sequence-length is"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_in_words_and_as_a_record(name: str) -> None:
    arguments, words = WRONG[name]
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    error = json.loads(result.stdout)["error"]
    assert error.keys() == {"rule", "message", "hint"}
    assert all(isinstance(text, str) for text in error.values())
    assert error["rule"]
    assert error["message"]
    assert words.lower() in (error["message"] + error["hint"]).lower()
    assert result.stderr.startswith(f"shardplan: {error['message']}")
    assert "Traceback" not in result.output
    assert max(map(len, error.values())) < 1500


def test_without_json_standard_output_stays_empty() -> None:
    result = run(*PLAN, "--clustr", "x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "shardplan: unknown flag '--clustr': did you mean --cluster?",
        "hint: see `shardplan plan --help`",
    ]


def test_flags_before_and_behind_what_they_need() -> None:
    assert "unknown flag '--nope'" in unwrapped(run("--nope").stderr)
    told = refused("plan", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus")
    assert "'--gpus' requires an argument" in told
    assert "see `shardplan plan --help`" in told


@pytest.mark.parametrize("spelling", [["--json", "{}"], ["--json={}"]])
@pytest.mark.parametrize("wrong", [["--clustr", "x"], ["--gpus", "x"]])
def test_an_error_leaves_the_file_alone(spelling: list[str], wrong: list[str], tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    for before in (None, '{"schema": "shardplan/plan-file/2"}'):
        if before is not None:
            path.write_text(before)
        result = run("plan", "llama-3.2-1b", "--cluster", "dgx-h100", *(part.format(path) for part in spelling), *wrong)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert (path.read_text() if path.exists() else None) == before


@pytest.mark.parametrize("target", ["{0}/none/x.json", "{0}", "", "{0}/a\0b.json", "{0}/" + "x" * 300])
def test_a_file_that_cannot_be_written_is_found_out_before_the_search(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("searched before the file was checked")

    monkeypatch.setattr("shardplan.planner.search.search_question", never)
    assert "cannot write" in refused(*PLAN, "--json", target.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


HOSTILE_CONFIGS = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "no text": b"\xff\xfe\x00\x01",
    "too deep": b"[" * 50_000,
    "no family": b'{"hidden_size": 64}',
    "an unknown family": b'{"model_type": "lama", "hidden_size": 64}',
    "sizes of zero": b'{"model_type": "llama", "hidden_size": 0}',
    "sizes in words": b'{"model_type": "llama", "hidden_size": "large"}',
    "sizes without end": b'{"model_type": "llama", "hidden_size": Infinity}',
    "sizes that are none": b'{"model_type": "llama", "hidden_size": NaN}',
    "a number of thousands of digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}",
    "heads that do not divide": b'{"model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "vocab_size": 9, '
    b'"num_hidden_layers": 2, "num_attention_heads": 7, "num_key_value_heads": 3, "max_position_embeddings": 99}',
}


@pytest.mark.parametrize("name", HOSTILE_CONFIGS)
def test_a_hostile_model_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(HOSTILE_CONFIGS[name])
    result = run("plan", path, "--cluster", "dgx-h100", "--gpus", 8)
    assert result.exit_code == 2
    assert result.stderr.startswith("shardplan: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "content", [b"", b"- a", b"name: x", b"{", b"name: !!python/object:os.system x", b"a: &a [*a, *a]", b"\x00\x01"]
)
def test_a_hostile_cluster_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(content)
    result = run("plan", "llama-3.2-1b", "--cluster", path, "--gpus", 8)
    assert result.exit_code == 2
    assert result.stderr.startswith("shardplan: ")


def test_an_interrupt_ends_with_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shardplan.planner.search.search_question", interrupted)
    result = run("plan", *SMALL, *FEW)
    assert result.exit_code == 130
    assert result.stderr.strip() == "shardplan: interrupted"


def test_numbers_are_read_as_people_write_them() -> None:
    for text in ("1024", "1,024", "1_024", " 1024 "):
        result = run("estimate", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", text, "--tp", 8, "--json", "-")
        assert json.loads(result.stdout)["num_accelerators"] == 1024
