"""A launch file of any kind as a :class:`Reading`: which framework it is of, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shardplan.errors import InputError, ShardplanError
from shardplan.launch.dialects import accelerate, deepspeed, maxtext, megatron, nanotron, neox, swift, torchtitan
from shardplan.launch.dialects.known import refuse, refuse_by_command, refused_command
from shardplan.launch.dialects.launchers import Launch, launches, world
from shardplan.launch.dialects.megatron_names import BARE
from shardplan.launch.dialects.megatron_names import VERSION as MEGATRON_VERSION
from shardplan.launch.dialects.options import Option, Options, options_of
from shardplan.launch.dialects.reading import GIVEN, Facts, Reading
from shardplan.launch.dialects.settings import Setting, Settings, batch_of, state, world_of
from shardplan.launch.dialects.tables import TABLES
from shardplan.launch.dialects.values import degree
from shardplan.launch.read import Document, Script, Word, read_document, read_python, read_script

SHELL: Final = (".sh", ".bash", ".slurm", ".sbatch", ".sub", "")
DOCUMENTS: Final = (".yaml", ".yml", ".json", ".toml", ".jsonc", ".ini", ".cfg")


OF_DEEPSPEED: Final = ("tp", "sharding", "precision", "offload", "optimizer", "overlap_dp", "micro_batch_size",
                       "global_batch_size", "gradient_accumulation")  # fmt: skip
"""What a configuration of DeepSpeed may state: open where the file is not read."""
MOST_FOLLOWED: Final = 3
"""Scripts that start one another."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A file, and what the user says about it."""

    path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    entry: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    """Values of keys that the file leaves open, or that count in place of what it says."""


def read_launch(ask: Ask) -> Reading:
    """What the file says. Raises InputError for a file that is not read, or not by any dialect."""
    suffix = ask.path.suffix.lower()
    if suffix == ".py":
        facts = _python(ask)
    elif suffix in DOCUMENTS:
        facts = _document(ask)
    elif suffix == ".md":
        raise _unread(ask.path, "documentation; give the file that its text shows")
    else:
        facts = _script(ask)
    return facts.reading()


def _unread(path: Path, what: str) -> InputError:
    return InputError(
        f"{path} is {what}",
        rule="a launch file is a shell script, a configuration (YAML, JSON, TOML) or a Python configuration",
        hint="name the script or configuration that is launched",
    )


def _stated(facts: Facts, ask: Ask) -> None:
    """What the user says comes first."""
    for key, text in ask.given.items():
        number = degree(text)
        facts.state(key, text if number is None else number, GIVEN)


def _facts(ask: Ask, framework: str, version: str) -> Facts:
    facts = Facts(framework, version, str(ask.path))
    _stated(facts, ask)
    return facts


def _document(ask: Ask) -> Facts:
    """A configuration alone."""
    document = read_document(ask.path, env=ask.env)
    facts = _settings(ask, Settings.of(document), document)
    _noted(facts, document)
    return facts


def _noted(facts: Facts, document: Document) -> None:
    for text in document.notes:
        facts.note(text)


def _settings(ask: Ask, settings: Settings, document: Document | None = None) -> Facts:
    """The dialect that owns ``settings``. Raises InputError where none does."""
    overrides = _overrides(ask)
    settings = overrides.over(settings)
    if settings.has("MODEL_ARGS"):
        return _model_args(ask, settings)
    if torchtitan.is_torchtitan(settings):
        facts = _facts(ask, torchtitan.NAME, torchtitan.TOML)
        torchtitan.torchtitan_facts(facts, settings)
    elif accelerate.is_accelerate(settings):
        facts = _facts(ask, accelerate.NAME, accelerate.VERSION)
        _accelerate(facts, ask, settings, {})
        deepspeed.finish(facts)
    elif nanotron.is_nanotron(settings):
        facts = _facts(ask, nanotron.NAME, nanotron.VERSION)
        nanotron.nanotron_facts(facts, settings)
    elif neox.is_neox(settings):
        facts = _facts(ask, neox.NAME, neox.VERSION)
        neox.neox_facts(facts, settings)
    elif maxtext.is_maxtext(settings):
        facts = _facts(ask, maxtext.NAME, maxtext.VERSION)
        maxtext.maxtext_facts(facts, settings)
    elif deepspeed.is_deepspeed(settings):
        facts = _facts(ask, deepspeed.NAME, deepspeed.VERSION)
        deepspeed.deepspeed_facts(facts, settings)
        deepspeed.finish(facts)
    else:
        return _by_table(ask, settings)
    return facts


def _by_table(ask: Ask, settings: Settings) -> Facts:
    """A framework that is a table alone. Raises InputError where none owns ``settings``."""
    dialect = next((each for each in TABLES if each.owns(settings)), None)
    if dialect is None:
        raise refuse(ask.path, settings)
    facts = _facts(ask, dialect.name, dialect.version)
    _expansion(facts, settings)
    named = settings.first("deepspeed", "deepspeed_config")
    if named is not None and isinstance(named.value, str):
        _deepspeed_file(facts, ask, named, {})
    dialect.read(facts, settings)
    return facts


def _expansion(facts: Facts, settings: Settings) -> None:
    """The width of MPT: a multiple of the hidden size."""
    ratio, hidden = degree(settings.value("model.expansion_ratio")), degree(settings.value("model.d_model"))
    if ratio and hidden:
        facts.derive("intermediate_size", ratio * hidden, f"{settings['model.expansion_ratio'].place} x d_model")


def _overrides(ask: Ask) -> Settings:
    """``key=value`` and ``--key value`` after ``--``."""
    words = [Word(text=each, shown=each, line=0, file="--") for each in ask.arguments]
    return Settings.of_options(options_of(words)).over(_pairs(words))


def _pairs(words: Sequence[Word]) -> Settings:
    from shardplan.launch.dialects.options import pairs_of

    return Settings.of_options(pairs_of(words))


def _model_args(ask: Ask, settings: Settings) -> Facts:
    """Megatron's test cases: a map from option to value, where true is a bare option."""
    given: dict[str, Option] = {}
    for key, setting in settings.items():
        if not key.startswith("MODEL_ARGS.--") or setting.value is False:
            continue
        name = key.removeprefix("MODEL_ARGS.--")
        text = None if setting.value is None else _as_text(setting.value)
        word = Word(text=text, shown=str(setting.value), line=_line(setting), file=ask.path.name, needs=setting.needs)
        words = () if setting.value is True else (word,)
        given[name] = Option(name=name, words=words, file=ask.path.name, line=_line(setting))
    facts = _facts(ask, megatron.NAME, MEGATRON_VERSION)
    facts.miss("num_accelerators", ("the test runner: --gpus",))
    megatron.megatron_facts(facts, Options(given=given, repeated={}))
    _batch(facts)
    return facts


def _as_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _line(setting: Setting) -> int:
    text = setting.place.rsplit(" ", 1)[0].rpartition(":")[2]
    return int(text) if text.isdigit() else 0


def _batch(facts: Facts) -> None:
    """The batch where it is not stated is one micro-batch of each rank."""
    world_of(facts)
    size, dp = facts.number("micro_batch_size"), facts.number("dp")
    if size is not None and dp is not None and "global_batch_size" not in facts:
        facts.assume("global_batch_size", size * dp, "micro-batch x dp")
    facts.miss("global_batch_size", ("num_accelerators",))
    facts.miss("num_accelerators", ("the launch line: --gpus",))
    batch_of(facts)


def _python(ask: Ask) -> Facts:
    """A configuration in Python, or one of its functions."""
    document = read_python(ask.path, ask.entry, env=ask.env)
    settings = Settings.of(document)
    from shardplan.launch.dialects.recipes import is_recipe, recipe_facts

    if is_recipe(settings):
        facts = Facts("", "", str(ask.path))
        _stated(facts, ask)
        recipe_facts(facts, settings, ask.entry)
    else:
        facts = _settings(ask, settings, document)
    _noted(facts, document)
    return facts


def _script(ask: Ask, followed: int = 0) -> Facts:
    """A shell script: the launch that trains, in it or in a script next to it that it starts."""
    script = read_script(ask.path, env=ask.env, arguments=ask.arguments)
    found = launches(script)
    launch = _chosen(found)
    other = _other_script(ask, script) if launch is None and followed < MOST_FOLLOWED else None
    if other is not None:
        facts = _script(other, followed + 1)
        facts.note(f"{ask.path.name} starts {other.path.name}, which was read next to it")
        return facts
    facts = _of_launch(ask, script, launch) if launch is not None else _fragment(ask, script)
    if len(found) > 1 and launch is not None:
        facts.note(f"{len(found)} programs are started; line {launch.command.line} is read: {launch.program}")
    _of_script(facts, script, launch)
    return facts


def _other_script(ask: Ask, script: Script) -> Ask | None:
    """The script next to this one that it starts last."""
    for command in reversed(script.commands):
        texts = [word.text for word in command.words]
        place = next(
            (i for i, each in enumerate(texts[:8]) if each is not None and each.endswith((".sh", ".slurm"))), None
        )
        if place is None or not (place == 0 or texts[0] in {"bash", "sh", "sbatch", "exec", "nohup"}):
            continue
        path = ask.path.parent / str(texts[place]).rpartition("/")[2]
        if path.is_file() and _is_inside(path, ask.path.parent) and path != ask.path:
            env = {**ask.env, **{k: w.text for k, w in command.exported.items() if w.text is not None}}
            arguments = tuple(word.text if word.text is not None else word.shown for word in command.words[place + 1 :])
            return Ask(path=path, env=env, arguments=arguments, entry=ask.entry, given=ask.given)
    return None


def _of_script(facts: Facts, script: Script, launch: Launch | None) -> None:
    """Notes of the reader, conditions, and the environment that changes how a run behaves."""
    for text in script.notes:
        facts.note(text)
    for condition in () if launch is None else launch.command.when:
        facts.note(f"runs only if {condition}")
    blocking = script.environment.get("CUDA_LAUNCH_BLOCKING")
    if blocking is not None and blocking.text == "1":
        place = f"{blocking.file}:{blocking.line} CUDA_LAUNCH_BLOCKING"
        facts.state("software.blocking_launches", value=True, place=place, option="CUDA_LAUNCH_BLOCKING")


def _chosen(found: Sequence[Launch]) -> Launch | None:
    """The last launch with a launcher in front or with degrees; the one that trains comes last in most files."""
    ranked = [each for each in found if megatron.is_megatron(each.parsed(bare=BARE)) or each.launchers]
    return (ranked or list(found) or [None])[-1]


def _of_launch(ask: Ask, script: Script, launch: Launch) -> Facts:
    """The dialect of a launch line."""
    options = launch.parsed(bare=BARE)
    refused = refused_command(launch.program, launch.launchers)
    if refused is not None:
        raise refuse_by_command(ask.path, refused, launch)
    if megatron.is_megatron(options):
        return _megatron(ask, script, launch, options)
    if "swift" in launch.launchers:
        facts = _facts(ask, swift.NAME, swift.VERSION)
        _swift_world(facts, script, launch)
        swift.swift_facts(facts, Settings.of_options(launch.parsed(fold=True)))
        return facts
    if "torchtitan" in launch.program or options.get("job.config_file", "module") is not None:
        return _torchtitan(ask, script, launch, options)
    if launch.program.lower().startswith("maxtext") or maxtext.is_maxtext(Settings.of_options(launch.pairs())):
        return _maxtext(ask, script, launch)
    return _trainer(ask, script, launch)


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
    facts = _facts(ask, name, "main of 2024-08 (4efb479d)" if config is not None else MEGATRON_VERSION)
    world(facts, launch, script)
    document = None if config is None else _named_document(facts, ask, _setting(config), script.documents)
    megatron.megatron_facts(facts, options)
    if document is not None:
        deepspeed.deepspeed_facts(facts, Settings.of(document))
    elif config is not None:
        for key in OF_DEEPSPEED:
            facts.miss(key, (f"the file of {config.place}",))
    _batch(facts)
    return facts


def _setting(option: Option) -> Setting:
    return Setting(name=option.name, value=option.value, place=option.place, needs=option.needs)


def _named_document(facts: Facts, ask: Ask, named: Setting, written: Mapping[str, Document]) -> Document | None:
    """The configuration that an option names: written by the script itself, or next to it."""
    if not isinstance(named.value, str):
        facts.note(f"{named.place}: the file's name is not decidable")
        return None
    wanted = named.value.rsplit("/", 1)[-1]
    for name, document in written.items():
        if name == named.value or name.rsplit("/", 1)[-1] == wanted:
            return document
    for folder in _folders(ask.path):
        for candidate in (folder / named.value, folder / wanted):
            if ".." not in candidate.parts and candidate.is_file() and _is_inside(candidate, folder):
                return _read_quietly(facts, candidate, ask)
    facts.note(f"{named.place}: {named.value} is not next to the script")
    return None


def _folders(path: Path) -> tuple[Path, ...]:
    return (path.parent,)


def _is_inside(path: Path, folder: Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def _read_quietly(facts: Facts, path: Path, ask: Ask) -> Document | None:
    try:
        return read_document(path, env=ask.env)
    except ShardplanError as error:
        facts.note(f"{path.name}: {error}")
        return None


def _fragment(ask: Ask, script: Script) -> Facts:
    """Options in variables, where a script is sourced by another one."""
    words = [piece for word in script.environment.values() for piece in _pieces(word)]
    options = options_of(words, bare=BARE)
    if not megatron.is_megatron(options):
        raise _unread(ask.path, "a script without a launch that is understood")
    facts = _facts(ask, megatron.NAME, MEGATRON_VERSION)
    megatron.megatron_facts(facts, options, fragment=True)
    _batch(facts)
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
    facts = _facts(ask, torchtitan.NAME, torchtitan.TOML if "job.config_file" in options else torchtitan.PYTHON)
    world(facts, launch, script)
    settings = Settings.of_options(options)
    named = settings.first("job.config_file", "job.config-file")
    if named is not None:
        document = _named_document(facts, ask, named, script.documents)
        settings = settings if document is None else settings.over(Settings.of(document))
        torchtitan.torchtitan_facts(facts, settings)
        return facts
    module, config = settings.value("module"), settings.value("config")
    facts.note(
        f"the configuration is the function {config} of torchtitan's module {module}: give its file to read the rest"
    )
    facts.state("model_name", f"{config}", options.given["config"].place if "config" in options else "")
    for key in (
        "tp",
        "pp",
        "cp",
        "ep",
        "micro_batch_size",
        "global_batch_size",
        "sequence_length",
        "precision",
        "recompute",
    ):
        for names, convert in [torchtitan.TABLE[key]] if key in torchtitan.TABLE else []:
            state(facts, key, settings.first(*names), convert)
        facts.miss(key, (f"the function {config} of torchtitan's module {module}",))
    facts.miss("model", (f"the function {config}: --model",))
    return facts


def _maxtext(ask: Ask, script: Script, launch: Launch) -> Facts:
    """MaxText's line: files, then overrides."""
    facts = _facts(ask, maxtext.NAME, maxtext.VERSION)
    settings = Settings.of_options(launch.pairs())
    for word in launch.words:
        text = word.text if word.text is not None else word.shown
        if text.endswith((".yml", ".yaml")) and "=" not in text and not text.endswith("base.yml"):
            named = Setting(name="config", value=text, place=f"{word.file}:{word.line}")
            document = _named_document(facts, ask, named, script.documents)
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


def _accelerate(facts: Facts, ask: Ask, settings: Settings, written: Mapping[str, Document], program: str = "") -> None:
    accelerate.accelerate_facts(facts, settings, program=program)
    named = settings.first("deepspeed_config.deepspeed_config_file")
    if named is not None:
        _deepspeed_file(facts, ask, named, written)
    elif settings.has("deepspeed_config"):
        own = {
            "deepspeed_config.zero_stage": "zero_optimization.stage",
            "deepspeed_config.offload_optimizer_device": "zero_optimization.offload_optimizer.device",
            "deepspeed_config.offload_param_device": "zero_optimization.offload_param.device",
            "deepspeed_config.gradient_accumulation_steps": "gradient_accumulation_steps",
        }
        deepspeed.deepspeed_facts(facts, Settings({new: settings[old] for old, new in own.items() if old in settings}))


def _deepspeed_file(facts: Facts, ask: Ask, named: Setting, written: Mapping[str, Document]) -> None:
    document = _named_document(facts, ask, named, written)
    if document is None:
        for key in OF_DEEPSPEED:
            facts.miss(key, (f"file:{named.value}",))
    else:
        deepspeed.deepspeed_facts(facts, Settings.of(document))


def _trainer(ask: Ask, script: Script, launch: Launch) -> Facts:
    """A training script with options in the manner of Hugging Face's Trainer, and the files that they name."""
    options = Settings.of_options(launch.parsed(fold=True), fold=lambda name: name.replace("-", "_"))
    by_deepspeed = "deepspeed" in launch.launchers or "deepspeed" in options or "deepspeed_config" in options
    framework = "deepspeed" if by_deepspeed else "accelerate" if "accelerate" in launch.launchers else "hf-trainer"
    version = {"deepspeed": deepspeed.VERSION, "accelerate": accelerate.VERSION}.get(framework, "5.x")
    facts = _facts(ask, framework, version)
    world(facts, launch, script)
    front = Settings.of_options(launch.options)
    deepspeed.trainer_facts(facts, options)
    config = front.first("config_file", "config-file")
    if "accelerate" in launch.launchers and config is not None:
        document = _named_document(facts, ask, config, script.documents)
        if document is None:
            for key in ("sharding", "precision", "num_accelerators"):
                facts.miss(key, (f"file:{config.value}",))
        else:
            _accelerate(facts, ask, Settings.of(document), script.documents, launch.program)
    named = options.first("deepspeed_config", "deepspeed")
    if named is not None and named.value is not True:
        _deepspeed_file(facts, ask, named, script.documents)
    if "sharding" not in facts:
        facts.miss("sharding", (f"the program {launch.program}",))
    for key in ("precision", "recompute"):
        facts.miss(key, (f"the program {launch.program}",))
    deepspeed.finish(facts)
    return facts
