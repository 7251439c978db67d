"""Programs whose lines are a record and few rules: OpenRLHF and verl without rollouts, and nanoGPT.

Names and defaults at the commits that the records name.
"""

from __future__ import annotations

import re
from typing import Final

from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.trainers import adapter_facts, objective_facts, packed_facts
from shardplan.launch.dialects.values import degree, precision, switch


def _ranked(facts: Facts, config: Settings, ranks: tuple[str, ...], targets: tuple[str, ...]) -> None:
    """Adapters where the rank is above zero; all linear layers get them unless it is said."""
    rank = config.first(*ranks)
    if rank is not None and degree(rank.value):
        facts.state("train", "lora", rank.place, rank.name)
    elif rank is not None and rank.needs:
        facts.miss("train", rank.needs)
    facts.assume("train", "full", "no rank of adapters")
    adapter_facts(facts, config, ranks=ranks, targets=targets, matrices="all")


def _openrlhf(facts: Facts, config: Settings) -> None:
    """Formats, adapters, ring attention and what a reward model or pairs add."""
    word = config.first("param_dtype", "ds.param_dtype")
    if word is not None:
        state(facts, "precision", word, precision)
    elif any(name.startswith("ds.") for name in config):
        facts.assume("precision", "bf16", "ds.param_dtype")
    _ranked(facts, config, ("lora_rank", "ds.lora.rank"), ("target_modules", "ds.lora.target_modules"))
    packed_facts(facts, config, doubled=True)
    if facts.number("cp") not in (None, 1):
        facts.derive("cp_comm", "p2p", "ring attention")
    flash = config.first("flash_attn")
    if flash is not None and switch(flash.value):
        facts.state("attention", "flash", flash.place, flash.name)
    facts.assume("overlap_dp", facts.value("sharding") == "zero3", "overlap_comm")


OPENRLHF: Final = Dialect(name="openrlhf", rule=_openrlhf)


def _verl(facts: Facts, config: Settings) -> None:
    """Adapters, Ulysses, and the micro-batch of earlier versions, which is one of all ranks."""
    _ranked(facts, config, ("model.lora_rank",), ("model.target_modules",))
    if facts.number("cp") not in (None, 1):
        facts.derive("cp_comm", "a2a", "ulysses_sequence_parallel_size")
    whole = config.first("data.micro_batch_size")
    if whole is not None and "micro_batch_size" not in facts:
        facts.miss("micro_batch_size", (f"{whole.place}: of all ranks together",))
    facts.assume("micro_batch_size", 4, "micro_batch_size_per_gpu")


VERL_SFT: Final = Dialect(name="verl-sft", rule=_verl)


def _nanogpt(facts: Facts, config: Settings) -> None:
    """The batch, which is accumulated over all ranks, the vocabulary of the data, and weights that are loaded."""
    steps, size = config.first("gradient_accumulation_steps"), facts.number("micro_batch_size")
    number = 40 if steps is None else degree(steps.value)
    if steps is not None and number is None:
        facts.miss("global_batch_size", steps.needs or (steps.said,))
    elif size and number:
        place = "gradient_accumulation_steps, by default 40," if steps is None else f"{steps.place} {number}"
        facts.derive("global_batch_size", size * number, f"{place} of all ranks x batch_size {size}")
    started, data = config.first("init_from"), config.first("dataset")
    word = "scratch" if started is None else str(started.value)
    if started is not None and word != "scratch":
        if named_model(word) is not None:
            facts.derive("model", word, f"{started.place} {word}", started.name)
        facts.miss("model", (f"{started.place} = {word}: --model",))
    known = NANOGPT.words("vocabularies").get("openwebtext" if data is None else str(data.value))
    if known is not None:
        facts.derive("vocab_size", known, "the default data" if data is None else f"{data.place} {data.value}")
    facts.miss("vocab_size", ("meta.pkl of the data, else 50304 (--given vocab_size=VALUE)",))
    hidden = facts.number("hidden_size")
    facts.assume("hidden_size", 768, "n_embd")
    facts.derive("intermediate_size", 4 * (hidden or 768), "4 n_embd")
    objective_facts(facts, config)


NANOGPT: Final = Dialect(name="nanogpt", rule=_nanogpt)
LINES: Final = (OPENRLHF, VERL_SFT, NANOGPT)


def dialect_of_line(launch: Launch, settings: Settings) -> Dialect | None:
    """The record whose program a line starts; a name that many programs have needs its options too."""
    for each in LINES:
        if re.search(each.record["program"], launch.program) and ("must" not in each.record or each.owns(settings)):
            return each
    return None
