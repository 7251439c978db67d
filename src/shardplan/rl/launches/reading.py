"""Which framework of post-training a launch file is of, and what it says, by the rows of ``data/dialects/rl``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.files import read_text
from shardplan.launch.dialects.ask import Ask, Environment, begin, named_document, take_notes, unread
from shardplan.launch.dialects.callers import launches_with
from shardplan.launch.dialects.configured import accelerate_line, configuration_of
from shardplan.launch.dialects.launches import Launch, is_beside, launches
from shardplan.launch.dialects.read import DOCUMENTS, MOST_FOLLOWED, other_script
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings
from shardplan.launch.dialects.values import degree, switch, whole, zero_stage
from shardplan.launch.dialects.world import world
from shardplan.launch.read import Document, Script, read_document, read_script
from shardplan.launch.read.trees import LONG_FILE

NAMES: Final = ("verl", "easyr1", "nemo-rl", "slime", "openrlhf", "ms-swift", "trl", "skyrl", "oat")
DIALECTS: Final[Mapping[str, Dialect]] = {name: Dialect(name=f"rl/{name}") for name in NAMES}
"""By the name that an export has. Of a line that two may own, the first does."""
BY_KEYS: Final = ("verl", "easyr1", "nemo-rl", "skyrl")
"""Those whose lines have ``key=value``; those of the others have options."""
DECIDES: Final = re.compile(
    r"parallel|offload|micro_batch|batch_size|packing|dynamic|num_gpus|nnodes|num_nodes|_epochs$|speculative|lora|fp8|quant"
    r"|(?:down|sub|over)_?sampl|accuracy_(?:filter|lower|upper)|[._]n(?:_(?!gpus|val$)\w+)?$|vote|recurrent|_adv_estimator$|ptx|pretrain_data$"
)
"""In a key that may change what a step takes."""
NO_MATTER: Final = re.compile(
    r"log_prob|logprob|val_|eval|valid|critic|reward|optim\.|data\.(gen|val)|num_train_epochs|total_epochs|num_epoch"
    r"|warmup|filter|(?:^|\.)ref\.|save|load|train_iters|ppo_epochs|num_batched|max_num_epochs|generation_batch_size|sequence_length"
    r"|lora_alpha|log[-_]|offload-rollout|bucket|world_size|ray_init"
)
"""In such a key that is of something else, or read by a rule."""


ELSEWHERE: Final = {"training.trainer_type": "grpo|ppo", "experiment.task.type": "^rl$"}
"""Keys of frameworks whose RL steps are not read, and their values that start one."""
EXAMPLES: Final = {
    "response_mean": "800",
    "unpadded": "yes",
    "recompute": "full",
    "kl": "0",
    "response_max": "512",
    "mode": "colocate",
    "tp": "1",
    "kl_reward": "no",
}
"""Values of keys that are asked for, as in a hint."""


class RlLaunch(NamedTuple):
    """What a launch file of post-training says."""

    name: str
    """Of the framework, as in :data:`DIALECTS`."""
    facts: Facts
    settings: Settings
    """All that the file sets, by name."""

    @property
    def title(self) -> str:
        """The framework as people write it."""
        return str(DIALECTS[self.name].record["title"])


def read_rl_launch(ask: Ask) -> RlLaunch | None:
    """The file as one of post-training; None where it is none. Raises ``InputError``."""
    suffix = ask.path.suffix.lower()
    if suffix in DOCUMENTS:
        return _of_document(ask)
    if suffix in (".sh", ".slurm", ".sbatch", ".bash", ""):
        return _of_script(ask)
    return None


def _of_document(ask: Ask) -> RlLaunch | None:
    asked: set[str] = set()
    try:
        document = ask.changed(read_document(ask.path, env=Environment(ask.env, asked), places=ask.places))
    except ShardplanError:
        return None  # whoever reads it next says why
    settings = Settings.of(document)
    for key, value in ELSEWHERE.items():
        found = settings.first(key)
        if found is not None and re.search(value, str(found.value).lower()):
            raise InputError(
                f"{ask.path} starts reinforcement learning: {found.said}",
                rule="a file of this framework is read for training alone, and an RL step is more than its update",
                hint="give the script or configuration of the framework beneath it, or describe it: `shardplan rl`",
            )
    names = ("verl", "easyr1", "nemo-rl", "ms-swift", "trl")
    name = next((name for name in names if DIALECTS[name].owns(settings)), None)
    if name is None:
        return None
    start, launch = next(launches_with(ask), (None, None)) if name == "trl" and ask.places.starts else (None, None)
    if start is not None and launch is not None:
        own = _of_line(start.asked(ask), start.script, launch, name)
        own.facts.file = str(ask.path)
        own.facts.note(f"taken as {start.place} starts it: {start.said}")
        return own
    facts = begin(ask, name, DIALECTS[name].version)
    take_notes(facts, document)
    _base(facts, name)
    _state(facts, name, settings)
    return RlLaunch(name, facts, settings)


def _of_script(ask: Ask, followed: int = 0) -> RlLaunch | None:
    folders = ask.places.folders(ask.path.parent)
    try:
        script = read_script(
            ask.path, env=ask.env, arguments=ask.arguments, folders=folders, directives=ask.directives, node=ask.node
        )
    except ShardplanError:
        return None
    found = launches(script)
    for launch in reversed(found):
        name = None if is_beside(launch.program) else _owner(launch)
        if name is not None:
            return _of_line(ask, script, launch, name)
    other = None if found or followed == MOST_FOLLOWED else other_script(ask, script)
    below = None if other is None else _of_script(other, followed + 1)
    if below is not None and other is not None:
        below.facts.note(f"{ask.path.name} starts {other.path.name}, which was read too")
    return below


def _owner(launch: Launch) -> str | None:
    """The framework of a line: by its program, and by options that it alone has."""
    for name, dialect in DIALECTS.items():
        settings = _line_settings(launch, name)
        program = launch.program.rpartition("/")[2]
        is_named = program in dialect.record["programs"] or launch.program in dialect.record["programs"]
        if name == "slime" and settings.value("loss-type") == "sft_loss":
            continue  # supervised training by Megatron's options
        if name == "ms-swift":
            if "swift" in (*launch.launchers, program) and str(settings.value("rlhf_type")).lower() in ("grpo", "ppo"):
                return name
        elif name == "trl" and "grpo" in program.lower() and settings.has("num_generations"):
            return name
        elif name in ("trl", "nemo-rl") and is_named and configuration_of(launch) is not None:
            return name if name == "nemo-rl" or "grpo" in launch.program + "".join(launch.launchers) else None
        elif (dialect.owns(settings) and (is_named or name not in ("nemo-rl", "slime"))) or (
            name in ("verl", "easyr1", "skyrl") and is_named
        ):
            return name
    return None


def _line_settings(launch: Launch, name: str) -> Settings:
    """What the line itself sets."""
    if name in BY_KEYS:
        return Settings.of_options({key.removeprefix("--"): each for key, each in launch.pairs().items()})
    if name == "oat":
        return Settings.of_options(launch.parsed(fold=True), fold=lambda word: word.replace("-", "_"))
    return Settings.of_options(launch.parsed())


def _of_line(ask: Ask, script: Script, launch: Launch, name: str) -> RlLaunch:
    """A line with the configuration that it names."""
    settings, dialect = _line_settings(launch, name), DIALECTS[name]
    facts = begin(ask, name, dialect.version)
    facts.asked |= script.asked
    document = _configuration(facts, ask, script, launch, name)
    if document is not None:
        take_notes(facts, document)
        settings = settings.over(Settings.of(document))
        _base(facts, name)
    if name == "verl":
        settings = settings.over(_of_copy(facts, ask, launch))
    own = [word for word in launch.parsed().open if not (name in BY_KEYS and _PAIR.match(word.shown))]
    open_ = tuple(need for word in own for need in word.needs or (word.shown,))
    facts.open = (*facts.open, *open_)
    if name in ("trl", "ms-swift"):
        _of_trainer(facts, ask, script, launch, settings)
    if "agent" in launch.program.rpartition("/")[2]:
        facts.derive("agent", value=True, rule=f"the program {launch.program}")
    evaluates = settings.first("trainer.val_only")
    if evaluates is not None and switch(evaluates.value):
        raise unread(ask.path, f"a script that evaluates, and trains nothing: {evaluates.said}")
    if name in ("slime", "verl") and re.search(r"train_async|one_step_off", launch.program):
        facts.derive("one_step_off", value=True, rule=launch.program)
    _state(facts, name, settings)
    return RlLaunch(name, facts, settings)


def _configuration(facts: Facts, ask: Ask, script: Script, launch: Launch, name: str) -> Document | None:
    """The configuration that a line names. Raises ``InputError`` where it decides and is not at hand."""
    options = launch.parsed()
    if name == "verl":
        given = options.first("config-name")
        plain = "" if given is None else (given.value or "").removesuffix(".yaml").removeprefix("one_step_off_")
        folder = options.first("config-path")
        if given is None or (plain in OWN_NAMES and (folder is None or folder.value == "config")):
            if given is not None and given.value is not None and "megatron" in given.value:
                facts.derive("backend", "megatron", f"{given.place} {given.value}")
            return None
        named = f"{(given.value or given.words[0].shown).removesuffix('.yaml')}.yaml"
        place = given.place
        own = _of_program(ask, launch, named)
        if folder is not None:
            within = re.sub(r"^<[^<>]*>/?", "", folder.value or folder.words[0].shown)
            named = f"{within.rstrip('/')}/{named}"
        elif own is not None:
            facts.note(f"{own.name} is read in the folder of {launch.program}")
            return ask.changed(read_document(own, env=Environment(ask.env, facts.asked), places=ask.places))
    elif name == "easyr1":
        option = launch.pairs().get("config")
        if option is None or option.value is None:
            return None
        named, place = option.value, option.place
    elif name in ("nemo-rl", "trl"):
        word = configuration_of(launch)
        if word is None:
            return None
        named, place = (word.text or word.shown).removeprefix("@"), f"{word.file.rpartition('/')[2]}:{word.line}"
    else:
        return None
    found = named_document(facts, ask, NamedSetting(name="config", value=named, place=place), script.documents)
    if found is None:
        raise InputError(
            f"{ask.path} starts with the configuration {named}, which is not at hand",
            rule="what a launch file decides by another file is read there",
            hint=f"give {Path(named).name} too: shardplan audit {ask.path} {Path(named).name}, or --root",
        )
    return found


OWN_NAMES: Final = ("ppo_trainer", "ppo_megatron_trainer", "dapo_trainer")
"""verl's own configurations, whose values are in the record."""
_PAIR: Final = re.compile(r"[+~]*[\w.@/]+=")
"""A ``key=value`` whose value alone may be open."""
COPY: Final = "verl/trainer/config/ppo_trainer.yaml"
KL: Final = "algorithm.use_kl_in_reward"


def _of_copy(facts: Facts, ask: Ask, launch: Launch) -> Settings:
    """What a line leaves out, where a copy of verl lies in its repository: that copy's own configuration."""
    path = _of_program(ask, launch) or _in_repository(ask, COPY)
    if path is None or launch.parsed().first("config-name") is not None:
        return Settings({})
    document = read_document(path, env=Environment(ask.env, facts.asked), places=ask.places)
    record, found = DIALECTS["verl"].record, Settings.of(document)
    rows = {**record["options"], **record["fsdp"]}.values()
    names = {name for row in rows for name in row["names"] if found.value(name) is not None}
    facts.note(f"what the line leaves out is that of the repository's own verl: {path.name}")
    own = {name: found[name] for name in names}
    if not found.has(KL):
        own[KL] = NamedSetting(
            name=KL, value=True, place=f"{path.name}, which has no {KL}: without use_kl_loss it is on"
        )
    return Settings(own)


def _of_program(ask: Ask, launch: Launch, name: str = "") -> Path | None:
    """The configuration of a program by hydra, or ``name`` in its folder, where the program is at hand."""
    module = f"{launch.program.removesuffix('.py').replace('.', '/')}.py"
    program = _in_repository(ask, module)
    found = None if program is None else _HYDRA.search(read_text(program, LONG_FILE))
    if program is None or found is None:
        return None
    path = program.parent / found[1] / f"{name.removesuffix('.yaml') or found[2]}.yaml"
    return path if ask.places.may_read(path, ask.path.parent) else None


def _in_repository(ask: Ask, name: str) -> Path | None:
    """A path from the root of the repository, or from the only folder there that has it, which a script goes to."""
    found = ask.places.find(name, ask.path.parent, is_exact=True)
    inner = () if found else (each for root in ask.places.folders(ask.path.parent) for each in root.glob(f"*/{name}"))
    only = {each.resolve(): each for each in inner if ask.places.may_read(each, ask.path.parent)}
    return found or (only.popitem()[1] if len(only) == 1 else None)


_HYDRA: Final = re.compile(
    r"@hydra\.main\(\s*config_path=[\"']([\w./]*)[\"'],\s*config_name=[\"']([\w./-]+?)(?:\.yaml)?[\"']"
)
"""Where a program says which configuration it has."""


def _base(facts: Facts, name: str) -> None:
    """Defaults of a configuration that is based on one that is not at hand hold where that one is on record."""
    base = DIALECTS[name].record.get("base")
    missing = {text: found[1] for text in facts.notes if (found := _BUILDS_ON.search(text)) is not None}
    if base is not None:
        facts.open = (*facts.open, *(f"file:{each}" for each in missing.values() if PurePath(each).name != base))
        facts.notes = [text for text in facts.notes if text not in missing]


_BUILDS_ON: Final = re.compile(r"builds on (\S+), which was not read")


def _of_trainer(facts: Facts, ask: Ask, script: Script, launch: Launch, settings: Settings) -> None:
    """Processes, and what accelerate or DeepSpeed shards."""
    world(facts, launch, script)
    variables = {**script.environment, **launch.command.assignments}
    for key, name in (("nodes", "NNODES"), ("per_node", "NPROC_PER_NODE")):
        word = variables.get(name)
        if word is not None and degree(word.text):
            facts.state(key, degree(word.text), f"{word.file.rpartition('/')[2]}:{word.line} {name}", name)
    batch = next((each for key, each in settings.items() if _OWN_BATCH.fullmatch(key) and each.value), None)
    if batch is not None and not settings.has("per_device_train_batch_size"):
        facts.miss("micro_answers", (f"{batch.said}, as the program reads it (--given micro_answers=N)",))
    named = settings.first("deepspeed", "deepspeed_config")
    file = "" if named is None else str(named.value or named.shown)
    stage = re.search(r"(?:zero|ds_?z)[-_]?(?:stage)?[-_]?(\d)", file)
    if stage is not None and named is not None:
        facts.derive("sharding", zero_stage(stage[1]), f"{named.place} {file}, by its name")
        facts.derive("offload_always", "offload" in file, f"{named.place} {file}")
    elif named is not None:
        facts.miss("sharding", (f"{named.place} {file} (--given sharding=zero3)",))
    if "accelerate" in launch.launchers:
        own = Facts("accelerate", "", str(ask.path))
        accelerate_line(own, ask, script, Settings.of_options(launch.options), "")
        for key in ("sharding", "num_accelerators", "nodes", "per_node", "precision"):
            if key in own.facts:
                facts.put(key, own.facts[key], "")
            elif key in own.missing:
                facts.miss(key, own.missing[key])
    facts.assume_because("sharding", "ddp", "neither DeepSpeed nor FSDP shards")
    facts.assume_because("nodes", 1, "the launcher runs on one node where none are given")


_OWN_BATCH: Final = re.compile(r"(?!per_device|eval|generation)\w*batch_size\w*")
"""A program's own word for a batch: the Trainer's default does not hold."""


def _state(facts: Facts, name: str, settings: Settings) -> None:
    """What the rows say; those of the backend after it is known."""
    dialect = DIALECTS[name]
    dialect.state(facts, settings)
    dialect.assume(facts)
    backend = _backend(facts, name)
    if backend in dialect.record:
        dialect.state_section(facts, settings, backend)
    for key, value in dialect.record["of_backend"].get(backend, {}).items():
        facts.assume(key, value)
    facts.derive("backend", backend, "the backend that is on")
    for key in dialect.record.get("varies", ()):
        is_moot = key == "recompute" and backend == "megatron"
        is_moot = is_moot or (key == "kl_reward" and switch(facts.value("kl_loss")))
        if key not in facts and not is_moot:
            facts.miss(key, (f"not in the file, and its default differs by version (--given {key}={EXAMPLES[key]})",))
    _agent(facts, settings)
    uneven, read = (
        str(dialect.record["uneven"]),
        {*settings.seen, *(name for row in dialect.rows for name in row.names)},
    )
    for key, each in settings.items():
        if uneven and re.fullmatch(uneven, key) and each.value not in (None, "", False):
            facts.miss("stage_layers", (f"{each.said}: stages of unlike size (--given stage_layers=even)",))
        elif key not in read and DECIDES.search(key) and not NO_MATTER.search(key) and _is_set(each):
            facts.doubt(f"{each.place} = {str(each.value)[:60]}")


def _agent(facts: Facts, settings: Settings) -> None:
    """An agent of a fork's own, which generates with tools between its turns."""
    own = [each for name, each in settings.items() if name not in settings.seen and _AGENT.search(name)]
    switches = [switch(each.value) for each in own if _AGENT_IS_ON.search(each.name)]
    on = next((each for each in own if (_is_set(each) or each.needs) and whole(each.value) not in (0, 1)), None)
    is_said = switch(facts.value("turns")) or (facts.number("turns_number") or 1) > 1
    if on is not None and not is_said and (True in switches or not switches):
        facts.derive("agent", value=True, rule=on.said)


_AGENT_IS_ON: Final = re.compile(r"(?:enable|activate|use)_(?:agents?|tools?|search)$")
_AGENT: Final = re.compile(
    rf"{_AGENT_IS_ON.pattern}|(?:tools?|agent|interaction)_config(?:_path)?$|tools_config$|tool_(?:server|instances)|agent_?task"
    r"|task_yaml$|harbor_trial|recurrent\.enable$|agent\.(?:.*\.)?max_steps$|max_(?:\w+_)?turns?$"
    r"|multi_turn_scheduler$|multi_turn\.enabled?$|rounds_ctrl|agentgym\.|(?:^|[._])env_(?:addr|url|server\w*)$"
)
"""Names by which forks turn agents on; one turn is none."""


def _is_set(each: NamedSetting) -> bool:
    return each.value not in (None, "", False, "False", "false", "null", "None", 0, "0")


def _backend(facts: Facts, name: str) -> str:
    if name in ("verl", "skyrl"):
        return str(facts.value("backend") or "fsdp")
    if name == "nemo-rl":
        return "megatron" if switch(facts.value("is_megatron")) else "fsdp"
    return "megatron" if name == "slime" else "fsdp"
