"""Launch lines of frameworks other than Megatron-LM, each with the files that it names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.errors import ShardplanError
from shardplan.launch.dialects import deepspeed
from shardplan.launch.dialects.ask import Ask, Environment, begin, named_document, unread
from shardplan.launch.dialects.configurations import deepspeed_file, finish_batch
from shardplan.launch.dialects.frameworks import maxtext, nanotron, olmo_core, torchtitan
from shardplan.launch.dialects.frameworks.small_frameworks import FMS_FSDP, PYTORCH_FSDP
from shardplan.launch.dialects.frameworks.trainer_lines import takes_one_node, trainer_line
from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.megatron_core import megatron, overrides, swift
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import (
    NamedSetting,
    Option,
    Options,
    Settings,
    configuration_named,
    options_of,
    take_open,
)
from shardplan.launch.dialects.trainers import objective_facts
from shardplan.launch.dialects.values import degree
from shardplan.launch.dialects.world import slices, world
from shardplan.launch.read import Document, Script, read_document
from shardplan.launch.read.places import is_inside

CHECKPOINT: Final = "activation-checkpoint:"
"""The word of a line of torchtitan that chooses recomputation."""


def other_facts(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """The dialect of a launch line that is not of Megatron-LM."""
    name = launch.program.rpartition("/")[2]
    pairs = Settings.of_options(launch.pairs())
    if overrides.is_performance(launch.program):
        facts = begin(ask, overrides.BRIDGE, overrides.PERFORMANCE_VERSION)
        overrides.performance_facts(facts, options)
    elif overrides.is_bridge(launch.program) or "nemo" in launch.launchers:
        facts = _recipe(ask, script, launch, options)
    elif name == "run_train.py" and options.first("config-file", "config_file") is not None:
        facts = _nanotron(ask, script, launch, options)
    elif "swift" in launch.launchers or re.search(OF_SWIFT, launch.program):
        facts = _swift(ask, script, launch)
    elif "torchtitan" in launch.program or options.first("job.config_file", "module") is not None:
        facts = _torchtitan(ask, script, launch, options)
    elif NEMO.owns(pairs) or re.fullmatch(OF_NEMO, name):
        facts = _nemo(ask, script, launch, options)
    elif is_of_fsdp(launch, options):
        facts = begin(ask, PYTORCH_FSDP.name, PYTORCH_FSDP.version)
        parsed = launch.parsed(fold=True)
        take_open(facts, parsed)
        world(facts, launch, script)
        PYTORCH_FSDP.read(facts, Settings.of_options(parsed))
    elif name.startswith("main_training"):
        facts = begin(ask, FMS_FSDP.name, FMS_FSDP.version)
        world(facts, launch, script)
        FMS_FSDP.read(facts, Settings.of_options(options))
    elif launch.program.lower().startswith("maxtext") or maxtext.is_maxtext(pairs):
        facts = _maxtext(ask, script, launch)
    elif (program := _olmo_core(ask, launch)) is not None:
        inner = replace(ask, path=program)
        facts = olmo_core.olmo_core_facts(inner, Settings.of_options(options), lambda each: world(each, launch, script))
    else:
        facts = trainer_line(ask, script, launch)
    return facts


def settings_of_line(launch: Launch) -> Settings:
    """Options of a line with underscores, and its ``key=value`` words."""
    parsed = launch.parsed(fold=True)
    return Settings.of_options(parsed, fold=lambda name: name.replace("-", "_")).over(
        Settings.of_options(launch.pairs())
    )


def record_facts(ask: Ask, script: Script, launch: Launch, dialect: Dialect) -> Facts:
    """A line that a record reads, over a configuration that it names or that its program has."""
    facts = begin(ask, dialect.name, dialect.version)
    take_open(facts, launch.parsed(fold=True))
    world(facts, launch, script)
    settings = settings_of_line(launch)
    names = [word for word in launch.words if word.shown.endswith(".py") and "=" not in word.shown]
    for word in names:
        named = NamedSetting(name="config", value=word.text, place=f"{ask.path.name}:{word.line}", shown=word.shown)
        document = _python_document(facts, ask, named)
        if document is None:
            facts.open = (*facts.open, f"file:{word.shown}")
        settings = settings if document is None else settings.over(Settings.of(document))
    path = ask.places.find(dialect.record.get("defaults", ""), ask.path.parent, is_exact=True)
    if path is not None:
        settings = settings.over(Settings.of(read_document(path, env=Environment(ask.env, facts.asked))))
        facts.note(f"what the line leaves out is that of {path.name}")
    if not launch.launchers and not {"nodes", "per_node", "num_accelerators"} & {*facts.facts, *facts.missing}:
        facts.derive("num_accelerators", 1, "one process: no launcher starts more")
    elif "deepspeed" in launch.launchers:
        takes_one_node(facts)
    dialect.read(facts, settings)
    objective_facts(facts, settings, launch.program)
    return facts


def _python_document(facts: Facts, ask: Ask, named: NamedSetting) -> Document | None:
    """A configuration in Python that a line names."""
    from shardplan.launch.read.python import read_python  # here: it is read for configurations in Python alone

    path = ask.places.find(str(named.value), ask.path.parent) if isinstance(named.value, str) else None
    if path is None:
        facts.note(f"{named.place}: {named.value or named.shown} is not next to the script")
    return None if path is None else ask.changed(read_python(path, None, env=Environment(ask.env, facts.asked)))


OF_MEGATRON_FSDP: Final = ("use-megatron-fsdp", "use-custom-fsdp", "use-torch-fsdp2")
"""Options by which Megatron-LM itself trains with FSDP."""


def is_of_fsdp(launch: Launch, options: Options) -> bool:
    """Whether a program trains by FSDP of PyTorch behind options that look like those of Megatron-LM."""
    if not megatron.is_megatron(launch.parsed(fold=True)) or any(name in options for name in OF_MEGATRON_FSDP):
        return False
    is_named = re.search(r"(?:^|[_-])fsdp\d?(?:[_-]|\.py$|$)", launch.program.rpartition("/")[2].lower())
    given = Settings.of_options(launch.parsed(fold=True))
    return is_named is not None or PYTORCH_FSDP.owns(given)


def _olmo_core(ask: Ask, launch: Launch) -> Path | None:
    """The program of a line where it is at hand and one of OLMo-core's."""
    path = ask.places.find(launch.program, ask.path.parent) if launch.program.endswith(".py") else None
    return path if path is not None and olmo_core.is_olmo_core(path) else None


OF_NEMO: Final = r"megatron_\w+_(pretraining|finetuning|tuning|continue_training)\.py"
"""Programs of NeMo 1."""


OF_SWIFT: Final = r"(?:^|[/.])swift[/.]cli[/.](?:sft|pt|rlhf)(?:\.py)?$"
"""Programs behind ``swift sft`` and its kind, which a launcher may start too."""


def _swift(ask: Ask, script: Script, launch: Launch) -> Facts:
    task = next((word.text for word in launch.words if word.text), "")
    if task in {"infer", "deploy", "eval", "export", "app", "sample", "web-ui", "merge-lora"}:
        raise unread(ask.path, f"a line of ms-swift that does not train: {task}")
    on_megatron = launch.program.rpartition("/")[2] == "megatron"
    facts = begin(ask, swift.NAME, swift.VERSION if on_megatron else swift.TRAINER)
    if "torchrun" in launch.launchers:
        world(facts, launch, script)
    _swift_world(facts, script, launch)
    parsed = launch.parsed(fold=True)
    take_open(facts, parsed)
    settings = _with_file(facts, ask, script, launch, Settings.of_options(parsed))
    if on_megatron:
        swift.swift_facts(facts, settings)
    elif swift.trainer_facts(facts, settings):
        deepspeed_file(facts, ask, settings["deepspeed"], script.documents)
        deepspeed.finish(facts)
    return facts


def _with_file(facts: Facts, ask: Ask, script: Script, launch: Launch, settings: Settings) -> Settings:
    """Options of ms-swift over those of the file that the line names, by ``--config`` or as its only word."""
    named = settings.first("config")
    loose = [word for word in launch.words[:2] if word.shown.endswith((".yaml", ".yml", ".json"))]
    if named is None and loose and "=" not in loose[0].shown:
        place = f"{loose[0].file.rpartition('/')[2]}:{loose[0].line}"
        named = NamedSetting(name="config", value=loose[0].text, place=place, shown=loose[0].shown)
    if named is None:
        return settings
    document = named_document(facts, ask, named, script.documents)
    if document is None:
        facts.open = (*facts.open, f"file:{named.value or named.shown}")
        return settings
    return settings.over({key.replace("_", "-"): each for key, each in Settings.of(document).items()})


def _recipe(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """A recipe of Megatron-Bridge or NeMo 2, with what is set over it."""
    name = overrides.BRIDGE if overrides.is_bridge(launch.program) else overrides.NEMO
    facts = begin(ask, name, overrides.VERSIONS[name])
    option = options.first("recipe", "factory")
    world(facts, launch, script)
    recipe = None if option is None else setting_of(replace(option, words=option.words[:1]))
    overrides.override_facts(facts, launch.pairs(), recipe)
    finish_batch(facts)
    return facts


def _nemo(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """Overrides of hydra, over the configuration that the line names; it decides what the line does not state."""
    facts = begin(ask, NEMO.name, NEMO.version)
    settings, option = Settings.of_options(launch.pairs()), options.first("config-name", "config_name")
    option = None if option is None else replace(option, words=option.words[:1])
    named = NamedSetting(name="config-name", value=f"{launch.program}'s configuration", place="", needs=())
    if option is not None and option.value is not None:
        name = option.value.removesuffix(".yaml").removesuffix(".yml")
        named = NamedSetting(name=option.name, value=f"{name}.yaml", place=option.place)
    document = None if option is None else named_document(facts, ask, named, script.documents)
    if document is None:
        facts.open = (f"file:{named.value}",)
    world(facts, launch, script)
    NEMO.read(facts, settings if document is None else settings.over(Settings.of(document)))
    return facts


def _nanotron(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """The configuration that a line of nanotron names."""
    facts = begin(ask, nanotron.NAME, nanotron.VERSION)
    option = options.given["config-file" if "config-file" in options else "config_file"]
    document = named_document(facts, ask, setting_of(option), script.documents)
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
    visible = variables.get("CUDA_VISIBLE_DEVICES", variables.get("ASCEND_RT_VISIBLE_DEVICES"))
    if "per_node" not in facts and visible is not None and (visible.text or "").isdigit():
        facts.derive("per_node", 1, f"{visible.file}:{visible.line} one visible device, without NPROC_PER_NODE")
    elif "per_node" not in facts and visible is not None and "," in (visible.text or ""):
        place = f"{visible.file.rpartition('/')[2]}:{visible.line}"
        facts.miss("sharding", (f"{place} several devices of one process: layers are spread over them",))
    if "per_node" in facts:
        facts.assume("nodes", 1)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")


def setting_of(option: Option) -> NamedSetting:
    """An option as a setting."""
    shown = option.words[0].shown if len(option.words) == 1 else ""
    return NamedSetting(name=option.name, value=option.value, place=option.place, needs=option.needs, shown=shown)


def _torchtitan(ask: Ask, script: Script, launch: Launch, options: Options) -> Facts:
    """Torchtitan's line: a file or a function, and overrides."""
    facts = begin(ask, torchtitan.NAME, _torchtitan_version(options))
    world(facts, launch, script)
    settings = Settings.of_options(options)
    named = settings.first("job.config_file", "job.config-file")
    if named is not None:
        document = named_document(facts, ask, named, script.documents)
        if document is None:
            facts.open = (f"file:{named.value or ' '.join(named.needs)}",)
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
    written = _written_configuration(ask, settings, facts)
    if written is not None:
        facts.note(f"the configuration is {function}, which stands next to the line")
        settings = torchtitan.over_written(facts, settings, written)
    elif known is None:
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


def _written_configuration(ask: Ask, settings: Settings, facts: Facts) -> Settings | None:
    """Constants of a configuration that ``shardplan export`` wrote next to the line; None where there is none."""
    from shardplan.launch.read.python import read_python  # here: it is read for configurations in Python alone

    module, config = settings.value("module"), settings.value("config")
    path = ask.path.parent / f"{module}.py"
    if config != torchtitan.WRITTEN or not is_inside(path, ask.path.parent):
        return None
    try:
        constants = Settings.of(read_python(path, None))
    except ShardplanError as error:
        facts.note(f"{path.name}: {error}")
        return None
    return constants if "BASE" in constants else None


def _torchtitan_version(options: Options) -> str:
    """By the names of options that only some versions have."""
    if "job.config_file" in options:
        return torchtitan.TOML
    is_release = any(name in options for name in torchtitan.OF_RELEASE)
    return torchtitan.RELEASE if is_release else torchtitan.PYTHON


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
                facts.open = (*facts.open, f"file:{text}")
                for key in ("sequence_length", "recompute", "micro_batch_size", "global_batch_size", "model"):
                    _leave_open(facts, key, settings, text)
            else:
                settings = settings.over(Settings.of(document))
    slices(facts, launch.options)
    maxtext.maxtext_facts(facts, settings)
    return facts


def _leave_open(facts: Facts, key: str, settings: Settings, text: str) -> None:
    """What an unread file may say and the line does not."""
    names = {"sequence_length": "max_target_length", "recompute": "remat_policy", "model": "model_name"}
    if names.get(key, "per_device_batch_size") not in settings:
        facts.miss(key, (f"file:{text}",))
