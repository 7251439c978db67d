"""Lines that start a trainer with a configuration: ``llamafactory-cli train a.yaml``, ``tune run ... --config a.yaml``.

The configuration is read with what the line says of nodes and processes in front, and its overrides on top.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.launch.dialects import accelerate
from shardplan.launch.dialects.ask import Ask, named_document, take_notes, unread
from shardplan.launch.dialects.configurations import accelerate_with_files, are_assumed, settings_facts, shipped
from shardplan.launch.dialects.launches import CONFIGURED, Launch
from shardplan.launch.dialects.reading import ONE_NODE, Facts
from shardplan.launch.dialects.settings import NamedSetting, Settings
from shardplan.launch.dialects.values import degree
from shardplan.launch.dialects.world import world
from shardplan.launch.read import Script, Word

_FILE: Final = re.compile(r"@?(\S+\.(?:ya?ml|toml|json))$")
NOT_TRAINING: Final = (
    "infer", "inference", "eval", "evaluate", "export", "chat", "api", "webchat", "merge-lora", "merge_lora",
    "download", "ls", "cp", "validate", "preprocess", "quantize", "generate", "serve", "vllm-serve", "convert",
)  # fmt: skip
"""Tasks of these commands that do not train."""
OWN_TASKS: Final = re.compile(r"accelerate|deepspeed|zero\d|fsdp", re.IGNORECASE)
"""Names of configurations that are read elsewhere."""


def trains(launch: Launch) -> bool:
    """Whether a line of a trainer's own command does not only convert, merge or evaluate."""
    is_own = not (CONFIGURED | {"swift"}).isdisjoint(launch.launchers)
    return not is_own or task_of(launch) not in NOT_TRAINING


def task_of(launch: Launch) -> str:
    """The first word of a line that is no option."""
    return next((word.text or "" for word in launch.words if not word.shown.startswith("-")), "")


def configuration_of(launch: Launch) -> Word | None:
    """The configuration that a line names, by an option or as a word of its own."""
    options = launch.parsed()
    for name in _OF_FILE:
        option = options.first(name)
        if option is not None and option.words and _FILE.fullmatch(option.words[0].shown):
            return option.words[0]
    words = [word for word in launch.words if "=" not in word.shown and _FILE.fullmatch(word.shown)]
    loose = [word for word in words if word in options.loose or word.shown.startswith("@") or word is launch.words[0]]
    return next((word for word in loose if not OWN_TASKS.search(Path(word.shown).name)), None)


def configured_facts(ask: Ask, script: Script, launch: Launch) -> Facts:
    """The configuration of a line. Raises InputError where it names none that is at hand, or does not train."""
    task = task_of(launch)
    if task in NOT_TRAINING:
        raise unread(ask.path, f"a line that does not train: {launch.program} {task}")
    word = configuration_of(launch)
    inner = replace(ask, arguments=(), world=lambda facts: _world(facts, ask, script, launch))
    if word is None and "llamafactory" in launch.launchers:
        options = launch.parsed(fold=True)
        return settings_facts(inner, Settings.of_options(options, fold=lambda name: name.replace("-", "_")))
    if word is None:
        raise unread(ask.path, f"a script that starts {launch.program} without a configuration that is decided")
    place = f"{word.file.rpartition('/')[2]}:{word.line}"
    name = None if word.text is None else word.text.removeprefix("@")
    named = NamedSetting(name="config", value=name, place=place, needs=word.needs, shown=word.shown.removeprefix("@"))
    notes = Facts("", "", str(ask.path))
    document = named_document(notes, ask, named, script.documents)
    if document is None:
        raise unread(
            ask.path, f"a script whose configuration {named.shown or name} is not at hand: give it too, or --root"
        )
    pairs = Settings.of_options({key.removeprefix("--"): each for key, each in launch.pairs().items()})
    settings = Settings.of(document)
    facts = settings_facts(inner, pairs.over(_options(launch, settings)).over(settings))
    take_notes(facts, document)
    for note in (*notes.notes, f"{ask.path.name} starts {launch.program} with {Path(named.shown or str(name)).name}"):
        facts.note(note)
    facts.names |= notes.names
    facts.asked |= notes.asked
    return facts


def _options(launch: Launch, settings: Settings) -> Settings:
    """Options of a line that stand over its configuration: ``--train.micro_batch_size 4``, or keys that it has too."""
    takes_all = not {"trl", "axolotl"}.isdisjoint(launch.launchers)
    given = {name.replace("-", "_"): each for name, each in launch.parsed().given.items() if name not in _OF_FILE}
    kept = {n: e for n, e in given.items() if takes_all or "." in n or n == "deepspeed" or settings.has(n)}
    return Settings.of_options(kept)


_OF_FILE: Final = ("config", "c", "config-file", "config_file", "config-path")
"""Options that name a configuration."""


def _world(facts: Facts, ask: Ask, script: Script, launch: Launch) -> None:
    """Nodes and processes: of the launcher, else of variables, else all of one machine."""
    given = {} if CONFIGURED.isdisjoint(launch.launchers) else launch.parsed().given
    own = {name: replace(each, words=each.words[:1]) for name, each in given.items()}
    world(facts, replace(launch, options={**own, **launch.options}), script)
    if "accelerate" in launch.launchers:
        accelerate_line(facts, ask, script, Settings.of_options(launch.options), "")
    variables = {**script.environment, **launch.command.assignments}
    for key, name in (("nodes", "NNODES"), ("per_node", "NPROC_PER_NODE")):
        word = variables.get(name)
        if "llamafactory" in launch.launchers and word is not None and degree(word.text):
            facts.state(key, degree(word.text), f"{word.file}:{word.line} {name}", name)
    visible = variables.get("CUDA_VISIBLE_DEVICES", variables.get("ASCEND_RT_VISIBLE_DEVICES"))
    if "per_node" not in facts and visible is not None and re.fullmatch(r"\d+(?:,\d+)*", visible.text or ""):
        number = len(str(visible.text).split(","))
        facts.derive("per_node", number, f"{visible.file}:{visible.line} {number} visible devices")
    if "per_node" in facts:
        facts.assume_because("nodes", 1, "the launcher runs on one node where none are given")
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")
    is_open = not {"num_accelerators", "nodes", "per_node"} & {*facts.facts, *facts.missing}
    if is_open and not {"tune", "oumi"} & {*launch.launchers}:
        facts.miss("num_accelerators", (ONE_NODE,))


def accelerate_line(facts: Facts, ask: Ask, script: Script, front: Settings, program: str) -> None:
    """Options of ``accelerate launch``, over the file that they may name."""
    settings, config = accelerate.line_settings(front), front.first("config_file", "config-file")
    document = None if config is None else named_document(facts, ask, config, script.documents)
    below = None if config is None or document is not None else shipped(facts, accelerate.NAME, config)
    if config is not None and document is None and below is None:
        own = {"precision": "mixed_precision", "sharding": "distributed_type", "num_accelerators": "num_processes"}
        for key, name in own.items():
            if name not in settings:
                facts.miss(key, (f"file:{config.value or config.shown}",))
    below = below if document is None else Settings.of(document)
    accelerate_with_files(facts, ask, settings if below is None else settings.over(below), script.documents, program)
    are_assumed(facts)
