"""Lines of Megatron-Bridge's performance scripts: a model, an accelerator and a size, and options over their table.

Options as in ``scripts/performance/argument_parser.py`` at 067f987df0. The table of plans is code of the repository:
what a line does not state is asked for.
"""

from __future__ import annotations

import re
from typing import Final

from shardplan.inputs.words import RECOMPUTE_WORDS
from shardplan.launch.dialects.megatron_core.megatron_stages import stages
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Options, batch_of, state, world_of
from shardplan.launch.dialects.values import degree, precision
from shardplan.words import folded

VERSION: Final = "0.7.0, scripts/performance"
PROGRAM: Final = r"(?:.*/)?scripts/performance/(?:\w+_)?(?:run_script|setup_experiment)\.py"
RECORD: Final = Dialect(name="performance")
DISPATCHERS: Final = {"deepep": "deepep", "hybridep": "hybridep"}
LEFT: Final = (
    "tp", "pp", "cp", "ep", "vp", "micro_batch_size", "global_batch_size", "sequence_length", "sharding", "recompute",
    "overlap_tp", "overlap_ep", "offload", "sequence_parallel",
)  # fmt: skip
"""What the table of the repository decides where a line does not."""


def is_performance(program: str) -> bool:
    """Whether a program is one of the performance scripts."""
    return re.fullmatch(PROGRAM, program) is not None


def performance_facts(facts: Facts, options: Options) -> None:
    """Reads a line of the performance scripts."""
    RECORD.state(facts, options)
    dtype = options.first("compute_dtype", "c")
    state(facts, "precision", dtype, lambda value: precision(folded(str(value))))
    facts.assume("precision", "bf16", "--compute_dtype")
    if options.first("pipeline_model_parallel_layout") is not None:
        stages(facts, options.renamed({"pipeline_model_parallel_layout": "pipeline-model-parallel-layout"}))
    modules, layers = options.first("recompute_modules"), options.first("recompute_num_layers", "rl")
    if layers is not None:
        facts.derive("recompute", "full", layers.place, layers.name)
        state(facts, "recompute_num_layers", layers, degree)
    elif modules is not None:
        words = [RECOMPUTE_WORDS.get(folded(each)) for each in (modules.value or "").replace(",", " ").split()]
        state(facts, "recompute", modules, lambda _: None if None in words else ",".join(map(str, words)))
    dispatcher = options.first("moe_flex_dispatcher_backend")
    state(facts, "software.moe_dispatcher", dispatcher, lambda value: DISPATCHERS.get(str(value)))
    task = options.first("task")
    if task is not None and task.value == "lora":
        facts.state("train", "lora", task.place, task.name)
        for key in ("lora_rank", "lora_targets"):
            facts.miss(key, ("the recipe of adapters",))
    each, total = facts.number("per_node"), facts.number("num_accelerators")
    if each and total and total % each == 0:
        facts.derive("nodes", total // each, f"{total} / {each} of a node")
    world_of(facts)
    batch_of(facts)
    name, gpu = facts.value("model_name"), options.first("gpu", "g")
    place = f"the table of plans for {name} on {gpu.value if gpu is not None else 'the accelerator'}"
    facts.miss("model", (f"the recipe {name}: --model",))
    facts.miss("num_accelerators", ("--num_gpus",))
    for key in LEFT:
        facts.miss(key, (place,))
