"""Configurations in files: which framework one is of, and what it says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from shardplan.launch.dialects import accelerate, deepspeed
from shardplan.launch.dialects.ask import Ask, begin, listed, named_document, refuse, refused, unread
from shardplan.launch.dialects.frameworks import maxtext, nanotron, torchtitan
from shardplan.launch.dialects.frameworks.small_frameworks import TABLES
from shardplan.launch.dialects.megatron_core import flagscale, megatron, neox, primus
from shardplan.launch.dialects.megatron_core.megatron_options import BARE
from shardplan.launch.dialects.megatron_core.megatron_options import VERSION as MEGATRON_VERSION
from shardplan.launch.dialects.reading import Facts, plain_name
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import (
    NamedSetting,
    Option,
    Options,
    Settings,
    as_option,
    batch_of,
    options_of,
    pairs_of,
    state,
    world_of,
)
from shardplan.launch.dialects.values import degree
from shardplan.launch.read import Document, Word

OF_DEEPSPEED: Final = (
    "tp",
    "sharding",
    "precision",
    "offload",
    "optimizer",
    "overlap_dp",
    "micro_batch_size",
    "global_batch_size",
    "gradient_accumulation",
)
"""What a configuration of DeepSpeed may state: open where the file is not read."""


def settings_facts(ask: Ask, settings: Settings) -> Facts:
    """The dialect that owns ``settings``. Raises InputError where none does."""
    settings = _overrides(ask).over(settings)
    facts = _facts_of(ask, settings)
    facts.names |= set(map(plain_name, settings))
    return facts


def _facts_of(ask: Ask, settings: Settings) -> Facts:
    """A configuration by the dialect that owns it."""
    if refused(settings) is not None:
        raise refuse(ask.path, settings)
    if settings.has("MODEL_ARGS"):
        return _model_args(ask, settings)
    if torchtitan.is_torchtitan(settings):
        is_python = ask.path.suffix.lower() == ".py"
        facts = begin(ask, torchtitan.NAME, torchtitan.PYTHON if is_python else torchtitan.TOML)
        torchtitan.torchtitan_facts(facts, settings)
    elif accelerate.is_accelerate(settings):
        facts = begin(ask, accelerate.NAME, accelerate.VERSION)
        accelerate_with_files(facts, ask, settings, {})
        deepspeed.finish(facts)
    elif nanotron.is_nanotron(settings):
        facts = begin(ask, nanotron.NAME, nanotron.VERSION)
        nanotron.nanotron_facts(facts, settings)
    elif neox.is_neox(settings):
        facts = begin(ask, neox.NAME, neox.VERSION)
        neox.neox_facts(facts, settings)
    elif maxtext.is_maxtext(settings):
        facts = begin(ask, maxtext.NAME, maxtext.VERSION)
        base = settings.value("base_config")
        if isinstance(base, str) and base.rpartition("/")[2] != "base.yml":
            facts.open = (f"file:{base}",)
        maxtext.maxtext_facts(facts, settings)
    elif flagscale.is_flagscale(settings):
        facts = begin(ask, flagscale.NAME, flagscale.VERSION)
        flagscale.flagscale_facts(facts, settings)
        finish_batch(facts)
    elif primus.is_primus(settings):
        facts = _primus(ask, settings)
    elif deepspeed.is_deepspeed(settings):
        facts = begin(ask, deepspeed.NAME, deepspeed.VERSION)
        deepspeed.file_facts(facts, settings)
        deepspeed.finish(facts)
    else:
        return _by_table(ask, settings)
    return facts


def _primus(ask: Ask, settings: Settings) -> Facts:
    """An experiment of Primus, which starts one of several frameworks."""
    framework = primus.framework_of(settings)
    if framework is not None and framework.value not in ("megatron", "torchtitan"):
        raise unread(ask.path, f"an experiment of Primus on {framework.value}, which is not read from its file")
    is_titan = framework is not None and framework.value == "torchtitan"
    facts = (
        begin(ask, torchtitan.NAME, torchtitan.TOML)
        if is_titan
        else begin(ask, primus.RECORD.name, primus.RECORD.version)
    )
    primus.primus_facts(facts, settings)
    if not is_titan:
        finish_batch(facts)
    return facts


OF_STAGE: Final = ".zero_optimization.stage"
"""The key that shows a section to be a configuration of DeepSpeed (``ds_cfg.zero_optimization.stage``)."""


def _by_table(ask: Ask, settings: Settings) -> Facts:
    """A framework that is a table alone. Raises InputError where none owns ``settings``."""
    dialect = next((each for each in TABLES if each.owns(settings)), None)
    if dialect is None:
        raise refuse(ask.path, settings, _closest(settings))
    if not dialect.trains(settings):
        raise unread(ask.path, f"a configuration of {dialect.name} that evaluates, predicts or exports alone")
    facts = begin(ask, dialect.name, dialect.version)
    _expansion(facts, settings)
    named = settings.first("deepspeed", "deepspeed_config")
    inside = next((key for key in settings if key.endswith(OF_STAGE)), None)
    if inside is not None:
        own = settings.section(inside.removesuffix(OF_STAGE))
        dialect.read(facts, settings, lambda: deepspeed.file_facts(facts, own))
    elif named is None or not isinstance(named.value, str):
        dialect.read(facts, settings)
    else:
        dialect.read(facts, settings, lambda: deepspeed_file(facts, ask, named, {}))
    return facts


def _closest(settings: Settings) -> str:
    """The framework of whose keys a file has some, and those that it lacks."""
    has = {each.name: [mark for mark in each.record["marks"] if settings.has(mark)] for each in TABLES}
    best = max(TABLES, key=lambda each: len(has[each.name]))
    lacks = [mark for mark in (*best.record.get("must", ()), *best.record["marks"]) if mark not in has[best.name]]
    return f"; closest is {best.name}, whose files have {listed(lacks, 4)} too" if has[best.name] and lacks else ""


def _expansion(facts: Facts, settings: Settings) -> None:
    """The width of MPT: a multiple of the hidden size."""
    ratio, hidden = degree(settings.value("model.expansion_ratio")), degree(settings.value("model.d_model"))
    if ratio and hidden:
        facts.derive("intermediate_size", ratio * hidden, f"{settings['model.expansion_ratio'].place} x d_model")


def _overrides(ask: Ask) -> Settings:
    """``key=value`` and ``--key value`` after ``--``."""
    words = [Word(text=each, shown=each, line=0, file="--") for each in ask.arguments]
    return Settings.of_options(options_of(words)).over(Settings.of_options(pairs_of(words)))


def _model_args(ask: Ask, settings: Settings) -> Facts:
    """Megatron's test cases: a map from option to value, where true is a bare option."""
    given: dict[str, Option] = {}
    for key, setting in settings.items():
        name = key.removeprefix("MODEL_ARGS.--")
        if name == key or (name in BARE and setting.value is False):
            continue
        given[name] = as_option(setting, name)
    facts = begin(ask, megatron.NAME, MEGATRON_VERSION)
    facts.miss("num_accelerators", ("the test runner: --gpus",))
    for key, setting in settings.items():
        if key.startswith("MODEL_ARGS.--") and setting.value is False and key.removeprefix("MODEL_ARGS.--") in BARE:
            facts.breaks_rule(
                "a switch takes no value",
                f"{setting.place}: false",
                "leave the key out: the parser refuses a value",
                "notice",
            )
    megatron.megatron_facts(facts, Options(given=given, repeated={}))
    finish_batch(facts)
    return facts


def finish_batch(facts: Facts) -> None:
    """The batch where it is not stated is one micro-batch of each rank."""
    world_of(facts)
    size, dp = facts.number("micro_batch_size"), facts.number("dp")
    batch_of(facts)
    if size is not None and dp is not None and "global_batch_size" not in facts:
        facts.assume("global_batch_size", size * dp, "micro-batch x dp")
    facts.miss("global_batch_size", ("num_accelerators",))
    if "num_accelerators" not in facts:
        facts.miss("num_accelerators", ("the launch line: --gpus",))
    batch_of(facts)


def accelerate_with_files(
    facts: Facts, ask: Ask, settings: Settings, written: Mapping[str, Document], program: str = ""
) -> None:
    """Accelerate's settings, with the configuration of DeepSpeed that they hold or name."""
    accelerate.accelerate_facts(facts, settings, program=program)
    named = settings.first("deepspeed_config.deepspeed_config_file")
    if named is not None:
        deepspeed_file(facts, ask, named, written)
    elif str(settings.value("distributed_type")).upper() != "DEEPSPEED":
        steps = settings.first("deepspeed_config.gradient_accumulation_steps")
        state(facts, "gradient_accumulation", steps, degree)
    elif settings.has("deepspeed_config"):
        own = {
            "deepspeed_config.zero_stage": "zero_optimization.stage",
            "deepspeed_config.offload_optimizer_device": "zero_optimization.offload_optimizer.device",
            "deepspeed_config.offload_param_device": "zero_optimization.offload_param.device",
            "deepspeed_config.gradient_accumulation_steps": "gradient_accumulation_steps",
        }
        deepspeed.deepspeed_facts(facts, Settings({new: settings[old] for old, new in own.items() if old in settings}))


def shipped(facts: Facts, framework: str, named: NamedSetting) -> Settings | None:
    """The configuration that a framework's record has under that name, where the file itself is not at hand."""
    own = Dialect(name=framework).record.get("shipped") if framework in SHIPPING else None
    folder, _, last = str(named.value or "").rpartition("/")
    if own is None or last not in own["files"] or folder.rpartition("/")[2] not in own["folders"]:
        return None
    whose = own.get("of", framework)
    facts.note(f"{named.place}: {named.value} is taken as {whose} ships it")
    place = f"{last} {AS_SHIPPED.format(whose)}"
    return Settings(
        {key: NamedSetting(name=key, value=value, place=place) for key, value in own["files"][last].items()}
    )


SHIPPING: Final = ("llama-factory", "axolotl", "accelerate")
"""Frameworks whose records have configurations that lie beside launch files as they were shipped."""
AS_SHIPPED: Final = "as {} ships it"
BY_NAME: Final = "by its name"
_STAGE: Final = re.compile(r"(?:zero|stage|(?<![a-z])z)[-_]?([0-3])(?!\d)")
"""A stage in the name of a file."""


def _named_stage(facts: Facts, named: NamedSetting) -> Settings | None:
    """The stage in the name of a file that is not at hand; whether it offloads is asked for, unless that is denied."""
    name = str(named.value or "").rpartition("/")[2].lower()
    stage = _STAGE.search(name)
    if stage is None:
        return None
    if not re.search(r"no[-_]?offload", name):
        facts.miss("offload", (f"file:{named.value}",))
    facts.note(f"{named.place}: {named.value} is not at hand, and is taken as ZeRO {stage[1]} {BY_NAME}")
    key = "zero_optimization.stage"
    return Settings({key: NamedSetting(name=key, value=int(stage[1]), place=f"{name} {BY_NAME}")})


def are_assumed(facts: Facts) -> None:
    """What a shipped configuration states is assumed: the file at hand may differ."""
    for key, fact in facts.facts.items():
        if re.search(f"{AS_SHIPPED.format('.*')}|{BY_NAME}", fact.why):
            facts.facts[key] = dataclasses.replace(fact, origin="assumed")


def deepspeed_file(facts: Facts, ask: Ask, named: NamedSetting, written: Mapping[str, Document]) -> None:
    """The JSON that ``named`` names; all that it may state is open where it is not read."""
    document = named_document(facts, ask, named, written)
    known = None if document is not None else shipped(facts, facts.framework, named) or _named_stage(facts, named)
    if known is not None:
        facts.asked_places.add(named.place)
        deepspeed.file_facts(facts, known)
        are_assumed(facts)
    elif document is None:
        facts.asked_places.add(named.place)
        for key in OF_DEEPSPEED:
            facts.miss(key, (f"file:{named.value or named.shown}",))
    else:
        deepspeed.file_facts(facts, Settings.of(document))
