"""Launch lines of frameworks other than Megatron-LM, each with the files that it names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.files import read_text
from shardplan.launch.dialects import accelerate, deepspeed, torchtitan
from shardplan.launch.dialects.ask import Ask, Environment, begin, listed, named_document, unread
from shardplan.launch.dialects.configurations import deepspeed_file, finish_batch
from shardplan.launch.dialects.configured import accelerate_line, configuration_of, configured_facts
from shardplan.launch.dialects.frameworks import maxtext, nanotron, olmo_core
from shardplan.launch.dialects.frameworks.small_frameworks import FMS_FSDP, PYTORCH_FSDP
from shardplan.launch.dialects.launches import Launch, open_words
from shardplan.launch.dialects.megatron_core import megatron, overrides, swift
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.own_names import own_degrees, unsaid
from shardplan.launch.dialects.programs import take_defaults
from shardplan.launch.dialects.reading import ONE_NODE, Fact, Facts
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
from shardplan.launch.dialects.trainers import copy_facts, fsdp_facts, objective_facts
from shardplan.launch.dialects.values import degree, switch
from shardplan.launch.dialects.world import slices, world
from shardplan.launch.read import Document, Script, read_document
from shardplan.launch.read.places import is_inside
from shardplan.launch.read.trees import LONG_FILE

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
        facts = _trainer(ask, script, launch)
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
        _takes_one_node(facts)
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


OF_ANSWERS: Final = ("max_new_tokens", "max_length_generation", "gen_len")
"""Options of programs that generate text."""
OF_ADAPTERS: Final = r"(?:^|[_/.-])q?lora(?:[_.-]|$)"
"""Names of programs that may train adapters by themselves."""


LEAST_LOOSE: Final = 4
"""Words of no option from which a line is taken for one in names and values without hyphens."""


def _loose_pairs(facts: Facts, options: Options) -> None:
    """``batch_size 8 model.use_lora True``: settings of the program's own, which are not read."""
    words = [each.shown for each in options.loose if "=" not in each.shown]
    if len(words) >= LEAST_LOOSE:
        facts.doubt(f"settings without hyphens are not read: {' '.join(words)[:80]} ...")
        facts.open = (*facts.open, "settings without hyphens")
        facts.miss("train", ("settings without hyphens",))


def _own_file(facts: Facts, ask: Ask, script: Script, options: Settings) -> None:
    """A configuration of DeepSpeed that a program takes under its own name (``--config`` of gdGPT)."""
    named = options.first("config")
    document = None if named is None else named_document(facts, ask, named, script.documents)
    settings = Settings() if document is None else Settings.of(document)
    if deepspeed.is_deepspeed(settings):
        deepspeed.file_facts(facts, settings)


def _of_no_framework(ask: Ask, launch: Launch, options: Options) -> InputError:
    """What to say of a program of one's own: its options, and what of them or beside them would be read."""
    names = listed(f"--{name}" for name in options.given) or listed(word.shown for word in launch.words) or "nothing"
    values = (word.shown.rpartition("=")[2] for word in launch.words if word.text is not None)
    files = [each for each in values if each.endswith((".yaml", ".yml", ".json", ".toml", ".py"))]
    variables = listed(f"--env {name}=VALUE" for name in open_words(launch.words))
    own = f"give {listed(files)}, which it reads; " if files else ""
    if variables:
        own += f"give {variables}, which may hold its options; "
    usual = ", ".join(f"--{name}" for name in KNOWN_TRAINER[:3])
    return unread(
        ask.path,
        f"a script that starts {launch.program} (line {launch.command.line}) with {names}: options of no framework "
        "that is read",
        f"{own}a line is read by options of Megatron-LM or of Hugging Face's Trainer ({usual}); or describe the plan "
        "with flags of `shardplan estimate`",
    )


def _fsdp_file(facts: Facts, ask: Ask, script: Script, options: Settings) -> None:
    """The file of ``--fsdp_config``; what it may state is open where it is not read."""
    named = options.first("fsdp_config")
    if named is None or not str(named.value or named.shown).endswith(".json"):
        return
    document = named_document(facts, ask, named, script.documents)
    if document is None:
        for key in ("recompute", "offload"):
            facts.miss(key, (f"file:{named.value or named.shown}",))
        return
    own = {f"fsdp_config.{key}": each for key, each in Settings.of(document).items()}
    fsdp_facts(facts, Settings({**own, **{key: options[key] for key in ("fsdp",) if key in options}}))


def _takes_one_node(facts: Facts) -> None:
    """All accelerators of the machine, where neither the line nor a file that is not at hand says how many."""
    if "num_accelerators" not in facts:
        facts.miss("num_accelerators", (ONE_NODE,))


def _hosts(facts: Facts, ask: Ask, named: NamedSetting | None) -> None:
    """Slots of all hosts in DeepSpeed's file of them; the machine alone where none is named."""
    if named is None:
        _takes_one_node(facts)
        return
    path = ask.places.find(str(named.value or ""), ask.path.parent)
    slots = [] if path is None else _SLOTS.findall(read_text(path, LONG_FILE))
    if slots:
        facts.derive("num_accelerators", sum(map(int, slots)), f"{named.said}: slots of {len(slots)} hosts", named.name)


_SLOTS: Final = re.compile(r"^\s*[^\s#]\S*\s+slots\s*=\s*(\d{1,4})\b", re.MULTILINE)
"""A line of a file of hosts."""


def _ulysses(facts: Facts, script: Script, launch: Launch) -> None:
    """The variables by which Accelerate turns Ulysses on for a program of DeepSpeed."""
    variables = {**script.environment, **launch.command.assignments}
    use, size = (variables.get(name) for name in ("ACCELERATE_USE_PARALLELISM_CONFIG", ULYSSES))
    if use is not None and size is not None and str(use.text).lower() == "true" and degree(size.text):
        facts.state("cp", degree(size.text), f"{size.file.rpartition('/')[2]}:{size.line} {ULYSSES}", ULYSSES)


def _visible(facts: Facts, script: Script, launch: Launch) -> None:
    """Devices that a line makes visible, which launchers take where nothing says how many; without one, one of them."""
    word = {**script.environment, **launch.command.assignments}.get("CUDA_VISIBLE_DEVICES")
    if word is None or not re.fullmatch(r"\d+(?:,\d+)*", word.text or "") or facts.open:
        return
    number = len(str(word.text).split(","))
    if {"nodes", "per_node", "num_accelerators"} & {*facts.facts, *facts.missing} or "torchrun" in launch.launchers:
        return
    if launch.launchers or number == 1:
        place = f"{word.file.rpartition('/')[2]}:{word.line} CUDA_VISIBLE_DEVICES"
        facts.derive("num_accelerators", number, f"{place}: {number} on one node")
        if number == 1 and not launch.launchers and facts.missing.get("sharding") == (f"the program {launch.program}",):
            facts.replace("sharding", Fact(value="ddp", origin="derived", why=f"{place}: one process"))


HOSTS: Final = frozenset({"hostfile", "H", "deepspeed_hostfile"})
"""Options by which launchers start the nodes of a file."""
ULYSSES: Final = "PARALLELISM_CONFIG_SP_SIZE"


def _check_trains(ask: Ask, launch: Launch, options: Settings) -> None:
    """Raises InputError for a line that generates or evaluates alone."""
    if any(name in options for name in OF_ANSWERS) and "per_device_train_batch_size" not in options:
        raise unread(ask.path, f"a script that generates text, and trains nothing: {launch.program}")
    trains = options.first("do_train")
    if trains is not None and switch(trains.value) is False:
        raise unread(ask.path, f"a script that evaluates, and trains nothing: {launch.program} with {trains.said}")


def _over_file(facts: Facts, ask: Ask, script: Script, launch: Launch, options: Settings) -> Settings:
    """Options over the file of arguments that a line names beside them (``run_sft.py config.yaml --bf16=true``)."""
    word = configuration_of(launch)
    if word is None or not re.search(r"\.ya?ml$", word.shown):
        return options
    place = f"{word.file.rpartition('/')[2]}:{word.line}"
    named = NamedSetting(name="config", value=word.text, place=place, needs=word.needs, shown=word.shown)
    document = named_document(facts, ask, named, script.documents)
    settings = Settings() if document is None else Settings.of(document)
    if document is None:
        facts.open = (*facts.open, f"file:{word.shown}")
    return options.over(settings) if sum(map(settings.has, KNOWN_TRAINER)) >= FEWEST_KNOWN else options


def _trainer(ask: Ask, script: Script, launch: Launch) -> Facts:
    """A training script with options in the manner of Hugging Face's Trainer, and the files that they name."""
    parsed = launch.parsed(fold=True)
    options = Settings.of_options(parsed, fold=lambda name: name.replace("-", "_"))
    by_deepspeed = "deepspeed" in launch.launchers or "deepspeed" in options or "deepspeed_config" in options
    framework = "deepspeed" if by_deepspeed else "accelerate" if "accelerate" in launch.launchers else "hf-trainer"
    if configuration_of(launch) is not None and sum(options.has(name) for name in KNOWN_TRAINER) < FEWEST_KNOWN:
        return configured_facts(ask, script, launch)
    if framework == "hf-trainer" and sum(options.has(name) for name in KNOWN_TRAINER) < FEWEST_KNOWN:
        raise _of_no_framework(ask, launch, parsed)
    _check_trains(ask, launch, options)
    version = {"deepspeed": deepspeed.VERSION, "accelerate": accelerate.VERSION}.get(framework, "5.x")
    facts = begin(ask, framework, version)
    take_open(facts, parsed)
    options = _over_file(facts, ask, script, launch, options)
    world(facts, launch, script)
    front = Settings.of_options(launch.options)
    _loose_pairs(facts, parsed)
    deepspeed.trainer_facts(facts, options)
    own_degrees(facts, options, options.seen)
    _ulysses(facts, script, launch)
    if "accelerate" in launch.launchers:
        accelerate_line(facts, ask, script, front, launch.program)
    named = options.first("deepspeed_config", "deepspeed")
    if named is not None and named.value is not True:
        deepspeed_file(facts, ask, named, script.documents)
    elif by_deepspeed:
        _own_file(facts, ask, script, options)
    _fsdp_file(facts, ask, script, options)
    deepspeed.program_defaults(facts, options, launch.program)
    take_defaults(facts, ask, launch, options)
    for key in ("sharding", "precision", "recompute"):
        if key != "sharding" or key not in facts:
            facts.miss(key, (f"the program {launch.program}",))
    _visible(facts, script, launch)
    hosts = next((front[name] for name in HOSTS if name in front), None)
    if not {"deepspeed", "accelerate"}.isdisjoint(launch.launchers) and not {"nodes", "per_node"} & {*facts.facts}:
        _hosts(facts, ask, hosts)
    if not launch.launchers and not {"nodes", "per_node"} & {*facts.missing}:
        facts.miss("num_accelerators", ("no launcher starts more than one process: --gpus",))
    deepspeed.finish(facts)
    if "train" not in facts and re.search(OF_ADAPTERS, launch.program.lower()):
        facts.miss("train", (f"the program {launch.program}: full or lora",))
    evaluates = options.first("do_eval", "do_predict")
    if evaluates is not None and switch(evaluates.value) and "do_train" not in options:
        facts.note(f"{evaluates.place} without --do_train: programs that read them train nothing")
    objective_facts(facts, options, launch.program)
    if not by_deepspeed:
        copy_facts(facts, options)
    unsaid(facts, options, sign="--")
    unsaid(facts, Settings.of_options(launch.pairs()))
    return facts
