"""Megatron-LM and its forks: the options of a launch line, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shardplan.launch.dialects.megatron_core.forks import fork_rules, fork_stages, leave_out_empty
from shardplan.launch.dialects.megatron_core.megatron_options import (
    BARE,
    OLD,
    RECORD,
    SHARDINGS,
    VERSION,
    dispatch,
    model_rules,
    recompute,
    sequence_of_images,
)
from shardplan.launch.dialects.megatron_core.megatron_stages import stages
from shardplan.launch.dialects.own_names import own_degrees, unread_names
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.settings import Option, Options, Settings, state, take_open
from shardplan.launch.dialects.values import number, whole

NAME: Final = "megatron-lm"


def is_megatron(options: Options) -> bool:
    """Whether options are of Megatron-LM or a fork."""
    own = ("tensor-model-parallel-size", "pipeline-model-parallel-size")
    return any(name in options for name in own) or sum(name in options for name in USUAL) >= LEAST_USUAL


USUAL: Final = (
    "model-parallel-size", "num-layers", "hidden-size", "num-attention-heads", "ffn-hidden-size", "seq-length",
    "max-position-embeddings", "micro-batch-size", "global-batch-size", "batch-size", "lr-decay-style",
    "tokenizer-type", "num-query-groups", "group-query-attention", "swiglu", "normalization", "disable-bias-linear",
    "kv-channels", "position-embedding-type", "untie-embeddings-and-output-weights",
)  # fmt: skip
LEAST_USUAL: Final = 5
"""Options that others have too, and how many of them a line of Megatron-LM's own, or a part of one, has."""
TRAINING: Final = (
    "train-iters", "train-samples", "train-epochs", "train-tokens", "epochs", "lr", "lr-decay-style", "lr-decay-iters",
    "weight-decay", "clip-grad", "global-batch-size", "num-rollout",
)  # fmt: skip
"""Options of which a line that trains has one."""


CONFIGURATION: Final = re.compile(r"\S+\.(?:json|ya?ml|toml)")
NO_PLAN: Final = re.compile(
    r"deepspeed|data|vocab|token|merge|prompt|eval|quant|host|cache|tp-comm|log|wandb|tool|stat"
)
"""Words of options whose files say nothing of model or plan, or are read elsewhere."""


def _files(options: Options) -> list[str]:
    """Files besides the line that decide what it leaves out (``--mm-model model.json``)."""
    own = (each for name, each in options.given.items() if not NO_PLAN.search(name))
    return [f"file:{each.value}" for each in own if CONFIGURATION.fullmatch(each.value or "")]


def trains(options: Options) -> bool:
    """Whether a line may train: it says how, or holds words that may."""
    return bool(options.open or options.unset) or any(name in options.given for name in TRAINING)


def megatron_facts(facts: Facts, options: Options, *, fragment: bool = False) -> None:
    """Reads ``options`` into ``facts``, which may know the world size already."""
    take_open(facts, options)
    sequence_of_images(facts, options)
    RECORD.state(facts, options)
    if fragment and not any(name in options for name in _DEGREES):
        open_ = ("tp", "pp", "cp", "ep", "etp", "vp") + (
            () if "use-distributed-optimizer" in options else ("sharding",)
        )
        for key in open_:
            facts.miss(key, ("the script that reads these options",))
        facts.open = facts.open or ("the script that reads these options",)
    facts.open = (*facts.open, *_files(options))
    for rule in (fork_rules, *RULES):
        rule(facts, options)
    own_degrees(facts, Settings.of_options(options), options.seen)
    model_rules(facts, options)
    fork_stages(facts, options)
    stages(facts, options)
    leave_out_empty(facts, options)
    _late_rules(facts, options, fragment=fragment)
    _oddities(facts, options)


_DEGREES: Final = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")


def _switch(facts: Facts, options: Options, key: str, name: str) -> None:
    """A bare option that sets ``key``; its default where it is not given."""
    option = options.first(name)
    if option is None:
        facts.assume(key, value=False, why=f"without --{name}")
    else:
        facts.state(key, value=True, place=option.place, option=name)


def _precision(facts: Facts, options: Options) -> None:
    """``--bf16`` or ``--fp16``, and the formats of low precision on top; fp32 without any."""
    low = options.first("fp4-format"), options.first("fp8-format", "fp8-hybrid", "fp8-e4m3")
    if low[0] is not None:
        facts.state("precision", "nvfp4", low[0].place, "fp4-format")
    elif low[1] is not None:
        _fp8(facts, low[1], options.first("fp8-recipe"))
        _switch(facts, options, "software.quantised_weights", "fp8-param-gather")
    for name in ("bf16", "fp16"):
        option = options.first(name)
        if option is not None:
            facts.state("precision", name, option.place, name)
    if not _in_file(facts, options):
        facts.assume("precision", "fp32", "neither --bf16 nor --fp16")


def _fp8(facts: Facts, option: Option, recipe: Option | None) -> None:
    if recipe is not None and recipe.value is None:
        facts.miss("precision", recipe.needs or (recipe.place,))
        return
    word = "mxfp8" if recipe is not None and recipe.value == "mxfp8" else "fp8"
    facts.state("precision", word, option.place, option.name)
    if recipe is not None and recipe.value == "blockwise":
        facts.note("fp8 with blockwise scaling is priced as fp8")


def _sharding(facts: Facts, options: Options) -> None:
    """``--use-megatron-fsdp`` with its strategy, ``--use-torch-fsdp2``, ``--zero-stage``, the distributed optimizer."""
    fsdp, strategy = (
        options.first("use-megatron-fsdp", "use-custom-fsdp"),
        options.first("data-parallel-sharding-strategy"),
    )
    if fsdp is not None and strategy is not None:
        state(facts, "sharding", strategy, lambda value: SHARDINGS.get(str(value)))
    elif fsdp is not None:
        facts.derive("sharding", "zero3", f"{fsdp.place}: optim_grads_params is its default strategy", fsdp.name)
    torch = options.first("use-torch-fsdp2")
    if torch is not None:
        facts.state("sharding", "zero3", torch.place, torch.name)
    optimizer = options.first("use-distributed-optimizer", "use-dist-ckpt-optimizer")
    if optimizer is not None:
        facts.state("sharding", "zero1", optimizer.place, optimizer.name)
    state(facts, "sharding", options.first("zero-stage"), _stage)
    if "sharding" not in facts and "deepspeed_config" not in options and "deepspeed-config" not in options:
        facts.assume("sharding", "ddp", "without --use-distributed-optimizer")


def _instances(facts: Facts, options: Options) -> None:
    """Copies of the sharded states: ranks over which they are shared are the replicas over their number."""
    option = options.first("num-distributed-optimizer-instances")
    total, count = facts.number("num_accelerators"), None if option is None else whole(option.value)
    if option is None or count == 1:
        return
    split = (facts.number("tp") or 1) * (facts.number("pp") or 1)
    if not count or not total or total % (split * count):
        facts.miss("sharding_degree", option.needs or ("num_accelerators",))
        return
    rule = f"{option.place}: {total // split} replicas / {count}"
    facts.derive("sharding_degree", total // split // count, rule, option.name)
    if facts.value("sharding") == "zero3":
        facts.replace("sharding", Fact(value="hsdp", origin="derived", why=rule))


def _stage(value: object) -> str | None:
    return {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}.get(-1 if (n := whole(value)) is None else n)


def _in_file(facts: Facts, options: Options) -> bool:
    """Whether a configuration of DeepSpeed decides what the options of Megatron-LM decide otherwise."""
    return facts.framework == "megatron-deepspeed" and options.first("deepspeed_config", "deepspeed-config") is not None


def _overlap_and_offload(facts: Facts, options: Options) -> None:
    """What a configuration of DeepSpeed decides where there is one."""
    if not _in_file(facts, options):
        _switch(facts, options, "overlap_dp", "overlap-grad-reduce")
        facts.assume("offload", "none")


def _dropout(facts: Facts, options: Options) -> None:
    """Both rates are 0.1 where they are not given."""
    rates = [options.first(name) for name in ("hidden-dropout", "attention-dropout")]
    known = [0.1 if each is None else number(each.value) for each in rates]
    if None in known:
        facts.miss("dropout", [need for each in rates if each is not None for need in each.needs])
    elif all(each is None for each in rates):
        facts.assume("dropout", value=True, why="hidden and attention dropout are 0.1")
    else:
        facts.derive("dropout", any(known), " ".join(each.place for each in rates if each is not None))


def _batch_schedule(facts: Facts, options: Options) -> None:
    """A batch that grows: the plan is judged at the last size."""
    schedule = options.first("step-batch-size-schedule")
    if schedule is not None and schedule.value is not None:
        words = schedule.value.replace(",", " ").split()
        sizes = [whole(word.rpartition(":")[2]) for word in words]
        if sizes and None not in sizes:
            facts.derive("global_batch_size", sizes[-1], f"{schedule.place}: the last size", schedule.name)
        facts.note(f"the batch grows: {schedule.value}; the plan is judged at the last size")
    ramp = options.first("rampup-batch-size")
    if ramp is not None:
        facts.note(f"{ramp.place} {ramp.value or ''}: the batch grows; the plan is judged at the full size")


def _experts(facts: Facts, options: Options) -> None:
    """How tokens reach experts, and how these are run."""
    if facts.value("num_experts"):
        dispatch(facts, options)
        if "moe-grouped-gemm" not in options:
            facts.note("without --moe-grouped-gemm the experts run one after the other; priced as grouped products")


GRAPHS: Final = {"none": "none", "local": "partial", "transformer_engine": "partial", "full_iteration": "full"}
"""What each implementation of CUDA graphs captures."""
ROUTER_PARTS: Final = {"moe_router", "moe_preprocess"}
"""Scopes of the router of experts."""


def _graphs(facts: Facts, options: Options) -> None:
    """CUDA graphs, by today's option and by those of older versions."""
    scope = options.first("cuda-graph-scope", "cuda-graph-modules")
    parts = set(str(scope.value or "").split()) if scope is not None else set()
    captured = "full" if "full_iteration" in parts else "router" if parts and parts <= ROUTER_PARTS else "partial"
    kinds = {name: captured if kind == "partial" else kind for name, kind in GRAPHS.items()}
    old = options.first("enable-cuda-graph", "external-cuda-graph")
    if (
        not state(facts, "software.cuda_graphs", options.first("cuda-graph-impl"), lambda value: kinds.get(str(value)))
        and old is not None
    ):
        facts.state("software.cuda_graphs", captured, old.place, old.name)
    facts.assume("software.cuda_graphs", "none")


RULES: Final[tuple[Callable[[Facts, Options], None], ...]] = (
    _precision,
    _sharding,
    recompute,
    _overlap_and_offload,
    _dropout,
    _batch_schedule,
    _experts,
    _graphs,
)


def _late_rules(facts: Facts, options: Options, *, fragment: bool) -> None:
    """Defaults that need other values."""
    for key in ("tp", "pp", "cp", "ep", "vp"):
        facts.assume(key, 1)
    _instances(facts, options)
    if "sequence-parallel" in options:
        option = options.given["sequence-parallel"]
        facts.state("sequence_parallel", value=True, place=option.place, option=option.name)
        if facts.value("tp") == 1:
            facts.breaks_rule(
                "sequence parallelism needs tensor parallelism",
                "--sequence-parallel with tp 1: Megatron switches it off",
                "leave --sequence-parallel out, or raise --tensor-model-parallel-size",
                "changes",
            )
    facts.assume("sequence_parallel", value=False, why="without --sequence-parallel")
    if "num_experts" in facts:
        if facts.framework == "megatron-deepspeed" and "enable-expert-tensor-parallelism" not in options:
            facts.assume("etp", 1, "without --enable-expert-tensor-parallelism")
        elif "tp" in facts.facts:
            facts.assume("etp", facts.value("tp"), "expert tensor parallelism is tp where it is not given")
        else:
            facts.miss("etp", facts.missing.get("tp", ()))
    if not _in_file(facts, options):
        facts.assume("optimizer", "adam")
    chunk = facts.number("recompute_num_layers_per_chunk")
    vp = facts.number("vp")
    if chunk is not None and vp is not None:
        facts.derive("recompute_num_layers", chunk * vp, "method block counts the layers of a chunk")
    if fragment:
        facts.note("a fragment: no launch line; options are read from variables")


def _oddities(facts: Facts, options: Options) -> None:
    """What is given twice, what only old versions know, what is not decidable."""
    for name, those in options.repeated.items():
        shown = ", ".join(f"{each.value} (line {each.line})" for each in those)
        facts.breaks_rule(
            "an option is given once", f"--{name}: {shown}; the last one counts", "remove the others", "notice"
        )
    for name in sorted(OLD & options.given.keys()) if facts.version == VERSION else ():
        facts.breaks_rule(
            "options exist in the framework's version",
            f"--{name} ({options.given[name].place}) is of versions up to 2022; {VERSION} does not know it",
            "use the version it was written for, or replace the option",
            "notice",
        )
    sign = "--" if facts.framework in (NAME, "megatron-deepspeed") else ""
    values = {name: option.value if option.words else "on" for name, option in options.given.items()}
    unread_names(facts, values, options.seen, sign, all_of=True)
    for word in options.open:
        facts.doubt(f"{word.file}:{word.line} {word.shown} may hold further options")
    for word in options.loose:
        facts.doubt(f"{word.file}:{word.line} {word.shown}")
    for name in BARE & options.given.keys():
        if any(each.words for each in (options.given[name],) if each.value not in {"True", "true", None}):
            facts.doubt(f"{options.given[name].place} {options.given[name].value}")
