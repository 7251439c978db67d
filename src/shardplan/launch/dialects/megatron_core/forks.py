"""Options that forks of Megatron-LM add or spell otherwise.

MindSpeed-LLM as in ``mindspeed_llm/core/transformer/transformer_block.py`` and its managers of features, Ascend's
examples of 2026; partitions of DeepSpeed as in ``deepspeed/runtime/pipe/module.py`` 0.19.8.

``megatron/arguments.py`` of epfLLM/Megatron-LLM at 806a8330.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from shardplan.launch.dialects.megatron_core.megatron_options import RECORD
from shardplan.launch.dialects.own_names import OFF
from shardplan.launch.dialects.reading import Fact, Facts
from shardplan.launch.dialects.settings import Option, Options, state
from shardplan.launch.dialects.trainers import targets_of
from shardplan.launch.dialects.values import degree, whole

ALGORITHMS: Final = {"ulysses_cp_algo": "a2a", "megatron_cp_algo": "p2p", "kvallgather_cp_algo": "allgather"}
"""``--context-parallel-algo``; hybrids of two have no counterpart."""
SWITCHES: Final[Mapping[str, tuple[str, object]]] = RECORD.words("switches")
"""Bare options that say what an option of Megatron-LM says under another name."""
NOT_PRICED: Final[Mapping[str, str]] = RECORD.words("not_priced")
"""Options that change memory or time in a way that is not priced."""
KERNELS: Final[Mapping[str, str]] = RECORD.words("kernels")
"""Switches that turn FlashAttention on, and its generation in Megatron-DeepSpeed."""
GENERATES: Final[Sequence[str]] = RECORD.words("generates").split()
"""Options of programs that generate text and do not train."""


def fork_rules(facts: Facts, options: Options) -> None:
    """What forks state under other names; before the rules of Megatron-LM."""
    for name, (key, value) in SWITCHES.items():
        option = options.first(name)
        if option is not None and option.value != "0":
            facts.state(key, value, option.place, name)
    if facts.framework == "megatron-deepspeed" and facts.number("num_experts") == 1:
        del facts.facts["num_experts"]  # one expert is a dense layer there
    for name, text in NOT_PRICED.items():
        option = options.first(name)
        if option is not None and str(option.value).lower() not in OFF - {"none"}:
            facts.doubt(f"{option.place}: {text}")
    state(facts, "cp_comm", options.first("context-parallel-algo"), lambda value: ALGORITHMS.get(str(value)))
    _kernel(facts, options)
    state(facts, "gated", options.first("glu-activation"), lambda value: str(value) not in {"", "None"})
    _adapters(facts, options)
    _of_slime(facts, options)
    _moments(facts, options)
    _experts(facts, options)
    generates = options.first(*GENERATES)
    if generates is not None:
        facts.note(f"{generates.place}: the program generates text; it is priced as if it trained")
    task = options.first("task")
    if task is not None and "ZEROSHOT" in (task.value or "").upper():
        facts.note(f"{task.place} {task.value}: the program evaluates; it is priced as if it trained")
    elif task is not None and generates is None:
        facts.doubt(f"{task.place} {task.value or ''}: a head of its own is priced as the logits over the vocabulary")


BACKENDS: Final = {"flash": "flash", "fused": "flash", "unfused": "unfused", "local": "unfused"}
"""``--attention-backend``; ``auto`` chooses by what is installed."""


def _kernel(facts: Facts, options: Options) -> None:
    """The kernel of attention, by today's option or by the switches of Megatron-DeepSpeed and of older versions."""
    backend, of_fork = options.first("attention-backend"), facts.framework == "megatron-deepspeed"
    if backend is not None and backend.value != "auto":
        state(facts, "attention", backend, lambda value: BACKENDS.get(str(value)))
    switches = [option for name in KERNELS if (option := options.first(name)) and option.value not in OFF]
    for option in switches[:1]:
        facts.state("attention", "flash", option.place, option.name)
        if of_fork and KERNELS[option.name]:
            facts.state("software.attention_generation", KERNELS[option.name], option.place, option.name)
    local = options.first("transformer-impl")
    if local is not None and local.value == "local":
        facts.derive("attention", "unfused", f"{local.place} local: scores are written", local.name)


def _adapters(facts: Facts, options: Options) -> None:
    """Low-rank adapters: their rank turns them on in MindSpeed-LLM, a switch in others."""
    rank, on = (
        options.first("lora-r", "lora-rank", "lora_rank", "lora-dim"),
        options.first("use-lora", "use_lora", "use-qlora", "use_qlora"),
    )
    targets = options.first("lora-target-modules", "lora_target_modules")
    if rank is None or degree(rank.value) is None:
        return
    if on is None and rank.name != "lora-r":
        facts.miss("train", (f"{rank.place} {rank.value}: full or lora",))
        return
    if on is not None and "q" in on.name:
        facts.doubt(f"{on.place}: quantised weights are not priced")
    facts.state("train", "lora", rank.place, rank.name)
    state(facts, "lora_rank", rank, degree)
    state(facts, "lora_targets", targets, targets_of)
    facts.miss("lora_targets", ("--lora-target-modules",))


def _of_slime(facts: Facts, options: Options) -> None:
    """Slime trains in 16 bits with the distributed optimizer (``backends/megatron_utils/arguments.py`` at 624b824a)."""
    each = options.first("actor-num-gpus-per-node")
    if each is None:
        return
    state(facts, "per_node", each, degree)
    state(facts, "nodes", options.first("actor-num-nodes"), degree)
    facts.assume("nodes", 1)
    nodes, size = facts.number("nodes"), facts.number("per_node")
    if nodes and size:
        facts.derive("num_accelerators", nodes * size, f"{nodes} nodes x {size} accelerators")
    facts.derive("sharding", "zero1", "slime turns the distributed optimizer on")
    if "fp16" not in options and options.first("fp8-format", "fp4-format") is None:
        facts.derive("precision", "bf16", "slime trains in bf16 without --fp16")
    if "use-dynamic-batch-size" in options:
        facts.miss("micro_batch_size", ("--max-tokens-per-gpu: as many sequences as have these tokens",))
    facts.miss("sequence_length", ("answers of varying length",))
    facts.doubt(f"{each.place}: models beside the one that trains, and answers that are generated, are not priced")


def _moments(facts: Facts, options: Options) -> None:
    """Formats of the optimizer's moments and of gradients, which ``--use-precision-aware-optimizer`` allows."""
    formats = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
    state(facts, "grad_dtype", options.first("main-grads-dtype"), lambda value: formats.get(str(value)))
    if (short := options.first("grad-reduce-in-bf16")) is not None:
        facts.state("grad_dtype", "bf16", short.place, short.name)
    both = [options.first(name) for name in ("exp-avg-dtype", "exp-avg-sq-dtype")]
    if any(each is not None for each in both):
        values = {"fp32" if each is None else each.value for each in both}
        first = next(each for each in both if each is not None)
        state(
            facts, "moment_dtype", first, lambda _: formats.get(str(next(iter(values)))) if len(values) == 1 else None
        )
    share = options.first("optimizer-offload-fraction")
    if share is not None and share.value not in {"1", "1.0"} and "optimizer-cpu-offload" in options:
        facts.doubt(f"{share.place} {share.value}: a share of the states in host memory is priced as all of them")


def _experts(facts: Facts, options: Options) -> None:
    """Dense layers in front, shared experts by number, tensor-parallel ranks that hold experts of their own."""
    shared, width = options.first("n-shared-experts"), facts.number("moe_intermediate_size")
    count = None if shared is None else whole(shared.value)
    if shared is not None and count and width:
        facts.derive(
            "shared_expert_intermediate_size", count * width, f"{shared.place}: {count} x {width}", shared.name
        )
    elif shared is not None and shared.needs:
        facts.miss("shared_expert_intermediate_size", shared.needs)
    extended, tp, ep = options.first("moe-tp-extend-ep"), facts.number("tp") or 1, facts.number("ep") or 1
    if extended is not None and "tp" not in facts.missing and "ep" not in facts.missing:
        rule = f"{extended.place}: ranks of tensor parallelism hold whole experts"
        facts.replace("ep", Fact(value=ep * tp, origin="derived", why=rule))
        facts.derive("etp", 1, rule, extended.name)
    _over_replicas(facts, options.first("moe-expert-model-parallelism"))
    _dense_first(facts, options.first("first-k-dense-replace"), options.first("moe-layer-freq"), options)


def _over_replicas(facts: Facts, option: Option | None) -> None:
    """Megablocks spreads experts over the data-parallel ranks, as far as there are experts."""
    if option is None:
        return
    total, split = facts.number("num_accelerators"), (facts.number("tp") or 1) * (facts.number("pp") or 1)
    experts = facts.number("num_experts")
    if total and experts and total % split == 0:
        facts.derive("ep", min(total // split, experts), f"{option.place}: data-parallel ranks", option.name)
    else:
        facts.miss("ep", option.needs or ("num_accelerators",))


def _dense_first(facts: Facts, first: Option | None, every: Option | None, options: Options) -> None:
    """Layers from the k-th on have experts, every n-th of them counted from the first layer."""
    layers = facts.number("num_hidden_layers")
    if first is None or layers is None or "num_experts" not in facts:
        return
    dense, step = whole(first.value), 1 if every is None else whole(every.value)
    if dense is None or not step:
        facts.miss("moe_layer_freq", first.needs or (first.place,))
        return
    real = layers - len(_empty(options) or ())
    pattern = tuple(int(i >= dense and i % abs(step) == 0) for i in range(real))
    facts.derive("moe_layer_freq", pattern, f"{first.place} {dense}", first.name)


def _empty(options: Options) -> tuple[int, ...] | None:
    """Places of layers that do nothing (``--noop-layers 62,63``)."""
    option = options.first("noop-layers")
    if option is None or option.value is None:
        return None
    places = [whole(each) for each in option.value.replace("\uff0c", ",").split(",")]
    return None if None in places else tuple(each for each in places if each is not None)


def fork_stages(facts: Facts, options: Options) -> None:
    """Stages of forks, before those of Megatron-LM: a list of layers, a partition by the types of modules."""
    listed, partition = options.first("num-layer-list"), options.first("pp-partition-method")
    layers, pp = facts.number("num_hidden_layers"), facts.number("pp")
    if listed is not None:
        counts = [whole(each) for each in (listed.value or "").split(",")]
        if None in counts or len(counts) != pp or (layers is not None and sum(n or 0 for n in counts) != layers):
            facts.miss("stage_layers", listed.needs or (f"{listed.place} {listed.value}",))
        else:
            facts.derive("stage_layers", tuple(counts), f"{listed.place} {listed.value}", listed.name)
    elif partition is not None and pp is not None and pp > 1 and layers is not None:
        ends = 2 if "embedding" in (partition.value or "") else 0
        each, rest = divmod(layers + ends, pp)
        if rest or (partition.value or "").strip("'\"").lower() not in {
            "type:transformer|embedding",
            "type:transformer",
        }:
            facts.miss("stage_layers", partition.needs or (f"{partition.place} {partition.value}",))
        elif ends:
            counts = [each - 1, *[each] * (pp - 2), each - 1]
            facts.derive("stage_layers", tuple(counts), f"{partition.place}: both ends count", partition.name)
    if options.first("schedules-method") is not None:
        schedule = options.given["schedules-method"]
        state(facts, "schedule", schedule, lambda value: "dualpipe-v" if value == "dualpipev" else None)
        facts.derive("vp", 2, schedule.place)


def leave_out_empty(facts: Facts, options: Options) -> None:
    """Layers that do nothing are no layers of the model; the stages that hold them have fewer."""
    option, places = options.first("noop-layers"), _empty(options)
    layers, pp, vp = (facts.number(key) for key in ("num_hidden_layers", "pp", "vp"))
    if option is None:
        return
    if places is None or layers is None or any(not 0 <= each < layers for each in places):
        facts.miss("model", option.needs or (f"{option.place} {option.value}",))
        return
    rule = f"{layers} layers, of which {len(places)} do nothing ({option.place})"
    facts.replace("num_hidden_layers", Fact(value=layers - len(places), origin="derived", why=rule))
    if pp is None or vp is None or layers % (pp * vp) or "stage_layers" in facts:
        facts.miss("stage_layers", (option.place,))
        return
    size = layers // (pp * vp)
    counts = [size] * (pp * vp)
    for each in places:
        counts[each // size] -= 1
    facts.derive("stage_layers", tuple(counts), rule, option.name)


EPFL: Final = "Megatron-LLM of 2024 (806a8330)"
EPFL_RENAMED: Final = {"no-tie-embed-logits": "untie-embeddings-and-output-weights"}
"""Options that Megatron-LM has under another name."""

EPFL_PLANS: Final = frozenset(f"--{name}" for name in RECORD.words("plans_of_epfl").split())
"""Options of plans that Megatron-LM has and the fork too."""


def is_underscored(options: Options) -> bool:
    """Whether options, with hyphens, are of the fork."""
    own = options.first("num-layers", "use-checkpoint-args", "lr-decay-style")
    return own is not None and "micro-batch-size" in options and "tensor-model-parallel-size" in options


def epfl_facts(facts: Facts, options: Options) -> None:
    """What it states otherwise, before the rules of Megatron-LM."""
    bias, norm = options.first("use-bias"), options.first("use-rms-norm")
    if options.first("use-flash-attn") is None:
        facts.derive("attention", "unfused", "without --use_flash_attn")
    facts.derive("bias", bias is not None, bias.place if bias is not None else "without --use_bias", "use_bias")
    if norm is not None:
        facts.state("normalization", "RMSNorm", norm.place, norm.name)
    state(facts, "num_key_value_heads", options.first("num-attention-heads-kv"), degree)
    kinds = {"absolute": "learned_absolute", "rotary": "rope"}
    state(facts, "position_embedding_type", options.first("position-embedding-type"), lambda word: kinds.get(str(word)))
    if (beside := options.first("parallel-attn")) is not None:
        facts.note(f"{beside.place}: attention beside the MLP is priced as in front of it")


def with_underscores(options: str) -> tuple[str, ...]:
    """Options of Megatron-LM as the fork spells them.

    >>> with_underscores("--micro-batch-size 2")
    ('--micro_batch_size 2',)
    """
    return (re.sub(r"(?<=--)[a-z][a-z0-9-]*", lambda name: name[0].replace("-", "_"), options),)
