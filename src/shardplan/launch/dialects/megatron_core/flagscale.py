"""FlagScale: Megatron-LM's options in two YAML files, the experiment and the training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from shardplan.launch.dialects.megatron_core.megatron import megatron_facts
from shardplan.launch.dialects.megatron_core.megatron_names import BARE
from shardplan.launch.dialects.options import Option, Options
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.values import degree, switch
from shardplan.launch.read.facts import Word

NAME: Final = "flagscale"
VERSION: Final = "main of 2025 (da4935ec)"


def is_flagscale(settings: Settings) -> bool:
    """Whether a document is an experiment of FlagScale."""
    return settings.has("experiment.task") and (settings.has("experiment.runner") or settings.has("train"))


def flagscale_facts(facts: Facts, settings: Settings) -> None:
    """Reads an experiment with the training that it is joined with."""
    if settings.value("experiment.task.backend") not in {None, "megatron"}:
        facts.doubt(f"{settings['experiment.task.backend'].place} {settings.value('experiment.task.backend')}")
    state(facts, "nodes", settings.first("experiment.runner.nnodes"), degree)
    state(facts, "per_node", settings.first("experiment.runner.nproc_per_node"), degree)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")
    options = {option.name: option for option in _options(settings)}
    if not options:
        facts.open = ("the file of the training (defaults)",)
    hetero = settings.first("train.system.hetero.enable_hetero")
    if hetero is not None and switch(hetero.value):
        for key in ("tp", "pp", "dp", "cp", "ep", "stage_layers", "num_accelerators", "recompute"):
            facts.miss(key, (f"{hetero.place}: stages of different degrees have no counterpart",))
    megatron_facts(facts, Options(given=options, repeated={}))


def _options(settings: Settings) -> Iterator[Option]:
    """Settings of the training as options: true is a bare one, false and null are none."""
    for key, setting in settings.items():
        if not key.startswith(("train.system.", "train.model.", "train.data.")):
            continue
        name = key.rpartition(".")[2].replace("_", "-")
        off = setting.value in (None, False) and not setting.needs
        if off or (re.search(r"\.(hetero|logging|tokenizer|checkpoint)\.", key) and name not in OF_TOKENIZER):
            continue
        place = setting.place.rsplit(" ", 1)[0]
        file, _, line = place.rpartition(":")
        listed = setting.value if isinstance(setting.value, tuple | list) else [setting.value]
        shown = " ".join(map(str, listed))
        word = Word(
            text=None if setting.needs else shown, shown=shown, line=_line(line), file=file, needs=setting.needs
        )
        words = () if setting.value is True or name in BARE else (word,)
        yield Option(name=name, words=words, file=file, line=_line(line))


OF_TOKENIZER: Final = ("tokenizer-type", "tokenizer-path", "vocab-size")


def _line(text: str) -> int:
    return int(text) if text.isdigit() else 0
