"""Shell scripts: the launch that trains, and the dialect of its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.errors import shortened
from shardplan.files import read_text
from shardplan.launch.dialects import accelerate, deepspeed, maxtext, nanotron
from shardplan.launch.dialects.ask import Ask, begin, is_inside, named_document, unread
from shardplan.launch.dialects.configurations import OF_DEEPSPEED, accelerate_with_files, deepspeed_file, finish_batch
from shardplan.launch.dialects.known import refuse_by_command, refused_command
from shardplan.launch.dialects.launchers import Launch, launches, world
from shardplan.launch.dialects.megatron_core import megatron, overrides, swift
from shardplan.launch.dialects.megatron_core.megatron_names import BARE
from shardplan.launch.dialects.megatron_core.megatron_names import VERSION as MEGATRON_VERSION
from shardplan.launch.dialects.options import Option, Options, options_of
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import NamedSetting, Settings
from shardplan.launch.dialects.torchtitan import settings as torchtitan
from shardplan.launch.dialects.values import degree
from shardplan.launch.named_configurations import configuration_named
from shardplan.launch.read import Script, Word, read_script
from shardplan.launch.read.limits import LONG_FILE

MOST_OF_LINE: Final = 1000
"""Characters of a line that is looked at for a placeholder."""
MOST_FOLLOWED: Final = 3
"""Scripts that start one another."""


def script_facts(ask: Ask, followed: int = 0) -> Facts:
    """A shell script: the launch that trains, in it or in a script next to it that it starts."""
    script = read_script(ask.path, env=ask.env, arguments=ask.arguments)
    script = replace(script, directives={**script.directives, **ask.directives})
    found = launches(script)
    launch = _chosen(found)
    other = _other_script(ask, script) if launch is None and followed < MOST_FOLLOWED else None
    if other is not None:
        facts = script_facts(other, followed + 1)
        facts.note(f"{ask.path.name} starts {other.path.name}, which was read next to it")
        facts.asked |= script.asked
        return facts
    facts = _of_launch(ask, script, launch) if launch is not None else _fragment(ask, script)
    if len(found) > 1 and launch is not None:
        facts.note(f"{len(found)} programs are started; line {launch.command.line} is read: {launch.program}")
    _of_script(facts, script, launch)
    facts.asked |= script.asked
    return facts


def _other_script(ask: Ask, script: Script) -> Ask | None:
    """The script next to this one that it starts last."""
    for command in reversed(script.commands):
        texts = [word.text or "" for word in command.words]
        place = next((i for i, each in enumerate(texts) if each.endswith((".sh", ".slurm", ".sbatch"))), None)
        if place is None or not (place == 0 or texts[0] in STARTERS):
            continue
        path = ask.path.parent / texts[place].rpartition("/")[2]
        if is_inside(path, ask.path.parent) and path != ask.path:
            return Ask(
                path=path,
                env={**ask.env, **{name: word.shown for name, word in command.exported.items()}},
                arguments=tuple(word.shown for word in command.words[place + 1 :]),
                entry=ask.entry,
                given=ask.given,
                directives=_scheduled(command.words[1:place]) if texts[0] == "sbatch" else {},
            )
    return None


KNOWN_TRAINER: Final = (
    "model_name_or_path",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "fsdp",
    "bf16",
)
FEWEST_KNOWN: Final = 2
"""Options by which a program is taken for one in the manner of Hugging Face's Trainer."""
STARTERS: Final = ("bash", "sh", "sbatch", "exec", "nohup", "qsub")
"""Commands that start a script."""


def _scheduled(words: Sequence[Word]) -> dict[str, Word]:
    """Options of ``sbatch`` by long name."""
    given = options_of(words).given
    return {{"N": "nodes"}.get(name, name): option.words[0] for name, option in given.items() if option.words}


def _of_script(facts: Facts, script: Script, launch: Launch | None) -> None:
    """Notes of the reader, conditions, and the environment that changes how a run behaves."""
    for number, line in _placeholders(script.file):
        facts.breaks_rule("placeholders are filled in", f"line {number}: {line}", "put a value in its place")
    for text in script.notes:
        facts.note(text)
    for condition in () if launch is None else launch.command.when:
        facts.note(f"runs only if {condition}")
    blocking = script.environment.get("CUDA_LAUNCH_BLOCKING")
    if blocking is not None and blocking.text == "1":
        place = f"{blocking.file}:{blocking.line} CUDA_LAUNCH_BLOCKING"
        facts.state("software.blocking_launches", value=True, place=place, option="CUDA_LAUNCH_BLOCKING")


PLACEHOLDER: Final = re.compile(r"\s*(?:export\s+)?\w+=<[A-Za-z][^<>\n]{0,80}>.*")
"""An unquoted ``NAME=<text>``, which a shell takes for a redirection."""


def _placeholders(file: str) -> Iterator[tuple[int, str]]:
    """Lines that assign a placeholder, which stop the script."""
    for number, line in enumerate(read_text(Path(file), LONG_FILE).splitlines(), 1):
        if len(line) < MOST_OF_LINE and PLACEHOLDER.fullmatch(line):
            yield number, shortened(line.strip(), 60)


def _chosen(found: Sequence[Launch]) -> Launch | None:
    """The last launch with a launcher in front or with degrees; the one that trains comes last in most files."""
    ranked = [each for each in found if megatron.is_megatron(each.parsed(bare=BARE)) or each.launchers]
    return next(reversed(ranked or list(found)), None)


def _of_launch(ask: Ask, script: Script, launch: Launch) -> Facts:
    """The dialect of a launch line."""
    options = launch.parsed(bare=BARE)
    refused = refused_command(launch.program, launch.launchers)
    if refused is not None:
        raise refuse_by_command(ask.path, refused, launch)
    if megatron.is_megatron(options):
        return _megatron(ask, script, launch, options)
    return _of_other(ask, script, launch, options)


def _of_other(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """The dialect of a launch line that is not of Megatron-LM."""
    if overrides.is_bridge(launch.program) or "nemo" in launch.launchers:
        return _recipe(ask, script, launch, options)
    if launch.program.rpartition("/")[2] == "run_train.py" and options.get("config-file", "config_file") is not None:
        return _nanotron(ask, script, launch, options)
    if "swift" in launch.launchers:
        return _swift(ask, script, launch)
    if "torchtitan" in launch.program or options.get("job.config_file", "module") is not None:
        return _torchtitan(ask, script, launch, options)
    if launch.program.lower().startswith("maxtext") or maxtext.is_maxtext(Settings.of_options(launch.pairs())):
        return _maxtext(ask, script, launch)
    return _trainer(ask, script, launch)


def _swift(ask: Ask, script: Script, launch: Launch) -> Facts:
    facts = begin(ask, swift.NAME, swift.VERSION)
    _swift_world(facts, script, launch)
    swift.swift_facts(facts, Settings.of_options(launch.parsed(fold=True)))
    return facts


def _recipe(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """A recipe of Megatron-Bridge or NeMo 2, with what is set over it."""
    name = overrides.BRIDGE if overrides.is_bridge(launch.program) else overrides.NEMO
    facts = begin(ask, name, overrides.VERSIONS[name])
    option = options.get("recipe", "factory")
    world(facts, launch, script)
    recipe = None if option is None else _setting(replace(option, words=option.words[:1]))
    overrides.override_facts(facts, launch.pairs(), recipe)
    finish_batch(facts)
    return facts


def _nanotron(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """The configuration that a line of nanotron names."""
    facts = begin(ask, nanotron.NAME, nanotron.VERSION)
    option = options.given["config-file" if "config-file" in options else "config_file"]
    document = named_document(facts, ask, _setting(option), script.documents)
    if document is None:
        raise unread(ask.path, f"a script whose configuration {option.value or ''} is not next to it")
    world(facts, launch, script)
    nanotron.nanotron_facts(facts, Settings.of(document))
    return facts


def _swift_world(facts: Facts, script: Script, launch: Launch) -> None:
    variables = {**script.environment, **launch.command.assignments}
    for key, name in (("nodes", "NNODES"), ("per_node", "NPROC_PER_NODE")):
        word = variables.get(name)
        if word is not None and word.text is not None and degree(word.text):
            facts.state(key, degree(word.text), f"{word.file}:{word.line} {name}", name)
    if "per_node" in facts:
        facts.assume("nodes", 1)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")


def _megatron(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """Megatron's options, with the JSON of DeepSpeed where one is named."""
    config = options.get("deepspeed_config", "deepspeed-config")
    name = "megatron-deepspeed" if config is not None or "zero-stage" in options else megatron.NAME
    facts = begin(ask, name, "main of 2024-08 (4efb479d)" if config is not None else MEGATRON_VERSION)
    world(facts, launch, script)
    document = None if config is None else named_document(facts, ask, _setting(config), script.documents)
    megatron.megatron_facts(facts, options)
    if document is not None:
        deepspeed.deepspeed_facts(facts, Settings.of(document))
    elif config is not None:
        for key in OF_DEEPSPEED:
            facts.miss(key, (f"the file of {config.place}",))
    finish_batch(facts)
    return facts


def _setting(option: Option) -> NamedSetting:
    return NamedSetting(name=option.name, value=option.value, place=option.place, needs=option.needs)


def _fragment(ask: Ask, script: Script) -> Facts:
    """Options in variables, where a script is sourced by another one."""
    words = [piece for word in script.environment.values() for piece in _pieces(word)]
    options = options_of(words, bare=BARE)
    if not megatron.is_megatron(options):
        raise unread(ask.path, "a script without a launch that is understood")
    facts = begin(ask, megatron.NAME, MEGATRON_VERSION)
    megatron.megatron_facts(facts, options, fragment=True)
    finish_batch(facts)
    return facts


def _pieces(word: Word) -> list[Word]:
    text = word.text if word.text is not None else word.shown
    if "--" not in text:
        return []
    return [
        Word(text=None if "<" in part and word.text is None else part, shown=part, line=word.line, file=word.file,
             needs=tuple(need for need in word.needs if need in part))
        for part in text.split()
    ]  # fmt: skip


def _torchtitan(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """Torchtitan's line: a file or a function, and overrides."""
    facts = begin(ask, torchtitan.NAME, _torchtitan_version(options))
    world(facts, launch, script)
    settings = Settings.of_options(options)
    named = settings.first("job.config_file", "job.config-file")
    if named is not None:
        document = named_document(facts, ask, named, script.documents)
        settings = settings if document is None else settings.over(Settings.of(document))
        torchtitan.torchtitan_facts(facts, settings)
        return facts
    module, config = settings.value("module"), settings.value("config")
    function = f"the function {config} of torchtitan's module {module}"
    mode = next((word for word in launch.words if (word.text or "").startswith(CHECKPOINT)), None)
    own = options_of((word for word in launch.words if word is not mode), bare=torchtitan.BARE)
    settings = torchtitan.named_by_function(Settings.of_options(own))
    if mode is not None and mode.text is not None:
        place = f"{ask.path.name}:{mode.line} {mode.text}"
        settings["activation_checkpoint.mode"] = NamedSetting(
            name=CHECKPOINT, value=mode.text[len(CHECKPOINT) :], place=place
        )
    known = configuration_named(module, config)
    if known is None:
        facts.note(f"the configuration is {function}: what the line does not state is asked for")
        facts.open = (function,)
        facts.miss("precision", (f"{function}, whose converters decide it",))
        if mode is None:
            facts.miss("recompute", (function,))
    else:
        facts.note(f"the configuration is {function}: what it sets is on record")
        facts.derive("model", known.model, f"{function}: the same model in the catalogue", "config")
        settings = torchtitan.over_configuration(settings, known, function)
    torchtitan.torchtitan_facts(facts, settings)
    return facts


def _torchtitan_version(options: Options) -> str:
    """By the names of options that only some versions have."""
    if "job.config_file" in options:
        return torchtitan.TOML
    is_release = any(name in options for name in torchtitan.OF_RELEASE)
    return torchtitan.RELEASE if is_release else torchtitan.PYTHON


CHECKPOINT: Final = "activation-checkpoint:"
"""The word of a line of torchtitan that chooses recomputation."""


def _maxtext(ask: Ask, script: Script, launch: Launch) -> Facts:
    """MaxText's line: files, then overrides."""
    facts = begin(ask, maxtext.NAME, maxtext.VERSION)
    settings = Settings.of_options(launch.pairs())
    for word in launch.words:
        text = word.text if word.text is not None else word.shown
        if text.endswith((".yml", ".yaml")) and "=" not in text and not text.endswith("base.yml"):
            named = NamedSetting(name="config", value=text, place=f"{word.file}:{word.line}")
            document = named_document(facts, ask, named, script.documents)
            if document is None:
                for key in ("sequence_length", "recompute", "micro_batch_size", "global_batch_size", "model"):
                    _leave_open(facts, key, settings, text)
            else:
                settings = settings.over(Settings.of(document))
    maxtext.maxtext_facts(facts, settings)
    return facts


def _leave_open(facts: Facts, key: str, settings: Settings, text: str) -> None:
    """What an unread file may say and the line does not."""
    names = {"sequence_length": "max_target_length", "recompute": "remat_policy", "model": "model_name"}
    if names.get(key, "per_device_batch_size") not in settings:
        facts.miss(key, (f"file:{text}",))


def _trainer(ask: Ask, script: Script, launch: Launch) -> Facts:
    """A training script with options in the manner of Hugging Face's Trainer, and the files that they name."""
    parsed = launch.parsed(fold=True)
    options = Settings.of_options(parsed, fold=lambda name: name.replace("-", "_"))
    by_deepspeed = "deepspeed" in launch.launchers or "deepspeed" in options or "deepspeed_config" in options
    framework = "deepspeed" if by_deepspeed else "accelerate" if "accelerate" in launch.launchers else "hf-trainer"
    if framework == "hf-trainer" and sum(options.has(name) for name in KNOWN_TRAINER) < FEWEST_KNOWN:
        raise unread(ask.path, f"a script that starts {launch.program}, whose options are of no framework that is read")
    version = {"deepspeed": deepspeed.VERSION, "accelerate": accelerate.VERSION}.get(framework, "5.x")
    facts = begin(ask, framework, version)
    facts.open = tuple(need for word in parsed.open for need in word.needs or (word.shown,))
    world(facts, launch, script)
    front = Settings.of_options(launch.options)
    deepspeed.trainer_facts(facts, options)
    config = front.first("config_file", "config-file")
    if "accelerate" in launch.launchers and config is not None:
        document = named_document(facts, ask, config, script.documents)
        if document is None:
            for key in ("sharding", "precision", "num_accelerators"):
                facts.miss(key, (f"file:{config.value}",))
        else:
            accelerate_with_files(facts, ask, Settings.of(document), script.documents, launch.program)
    named = options.first("deepspeed_config", "deepspeed")
    if named is not None and named.value is not True:
        deepspeed_file(facts, ask, named, script.documents)
    if "sharding" not in facts:
        facts.miss("sharding", (f"the program {launch.program}",))
    deepspeed.program_defaults(facts, launch.program)
    for key in ("precision", "recompute"):
        facts.miss(key, (f"the program {launch.program}",))
    deepspeed.finish(facts)
    return facts
