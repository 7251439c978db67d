"""Launch lines of programs in the manner of Hugging Face's Trainer, with the files that they name."""

from __future__ import annotations

import re
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.files import read_text
from shardplan.launch.dialects import accelerate, deepspeed
from shardplan.launch.dialects.ask import Ask, begin, listed, named_document, unread
from shardplan.launch.dialects.configurations import deepspeed_file
from shardplan.launch.dialects.configured import accelerate_line, configuration_of, configured_facts
from shardplan.launch.dialects.launches import Launch, open_words
from shardplan.launch.dialects.own_names import own_degrees, unsaid
from shardplan.launch.dialects.programs import take_defaults
from shardplan.launch.dialects.reading import ONE_NODE, Fact, Facts
from shardplan.launch.dialects.settings import NamedSetting, Options, Settings, take_open
from shardplan.launch.dialects.trainers import copy_facts, fsdp_facts, objective_facts
from shardplan.launch.dialects.values import degree, switch
from shardplan.launch.dialects.world import world
from shardplan.launch.read import Script
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
        f"a script that starts {launch.program} (line {launch.command.line}) with {names}; these are options of no "
        "framework that shardplan reads",
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


def takes_one_node(facts: Facts) -> None:
    """All accelerators of the machine, where neither the line nor a file that is not at hand says how many."""
    if "num_accelerators" not in facts:
        facts.miss("num_accelerators", (ONE_NODE,))


def _hosts(facts: Facts, ask: Ask, named: NamedSetting | None) -> None:
    """Slots of all hosts in DeepSpeed's file of them; the machine alone where none is named."""
    if named is None:
        takes_one_node(facts)
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


def _machines(facts: Facts, ask: Ask, script: Script, launch: Launch) -> None:
    """How many accelerators a line takes: those it makes visible, of hosts, of one node, or one."""
    _visible(facts, script, launch)
    front = Settings.of_options(launch.options)
    hosts = next((front[name] for name in HOSTS if name in front), None)
    if not {"deepspeed", "accelerate"}.isdisjoint(launch.launchers) and not {"nodes", "per_node"} & {*facts.facts}:
        _hosts(facts, ask, hosts)
    if not launch.launchers and not {"nodes", "per_node"} & {*facts.missing}:
        facts.miss("num_accelerators", ("no launcher starts more than one process: --gpus",))


def trainer_line(ask: Ask, script: Script, launch: Launch) -> Facts:
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
    _machines(facts, ask, script, launch)
    deepspeed.finish(facts)
    if "train" not in facts and re.search(OF_ADAPTERS, launch.program.lower()):
        facts.miss("train", (f"the program {launch.program}: full or lora",))
    evaluates = options.first("do_eval", "do_predict")
    if evaluates is not None and switch(evaluates.value) and "do_train" not in options:
        facts.note(f"{evaluates.place} without --do_train: programs that read them train nothing")
    pairs = Settings.of_options(launch.pairs())
    objective_facts(facts, options.over(pairs), launch.program)
    if not by_deepspeed:
        copy_facts(facts, options)
    unsaid(facts, options, sign="--")
    unsaid(facts, pairs)
    return facts
