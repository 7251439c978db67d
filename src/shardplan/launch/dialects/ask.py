"""A launch file and what the user says about it; files that it names; which files are refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError, ShardplanError, shortened, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, printable, shipped_document
from shardplan.base.words import folded, guess, joined
from shardplan.launch.dialects.edits import NONE, Edits
from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.reading import GIVEN, Facts, Taken, plain_name
from shardplan.launch.dialects.settings import NamedSetting, Options, Settings
from shardplan.launch.dialects.values import degree
from shardplan.launch.read import Document, Word, read_document
from shardplan.launch.read.facts import Command
from shardplan.launch.read.places import Places, is_inside

MOST_NAMED: Final = 8
"""Variables, programs or keys that a notice or a refusal names."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A file, and what the user says about it."""

    path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    entry: str | None = None
    directives: Mapping[str, Word] = field(default_factory=dict)
    """Options of the scheduler's command that starts the script; they count before those in it."""
    unset_is_open: bool = False
    """Whether a file that was not read may set variables that no other file sets."""
    places: Places = field(default_factory=Places)
    """Companions of the file, and where it is launched from."""
    node: int | None = None
    """Accelerators of a node of the cluster, which some launchers take where nothing says how many."""
    world: Callable[[Facts], None] | None = None
    """What the line that starts a configuration says of nodes and processes; it comes before the configuration."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Values of keys that the file leaves open, or that count in place of what it says."""
    taken: Taken = field(default_factory=dict)
    """What is taken for what the file leaves open."""
    edits: Edits = NONE
    """What is changed in the files before they are read."""
    started: str = ""
    """How the repository starts the file, where its line gives arguments or variables."""

    def check(self) -> None:
        """Raises InputError for companions or a root that are not there, and for an entry of what has no functions."""
        self.places.check(self.path)
        if self.entry is not None and self.path.suffix.lower() != ".py":
            raise InputError(
                f"--entry is {shown(self.entry)}, and {printable(str(self.path))} is not Python",
                rule="an entry is a function of a configuration in Python",
                hint="leave --entry out, or give the .py file that has the function",
            )

    def changed(self, document: Document) -> Document:
        """A configuration with what is changed in it."""
        if self.edits == NONE:
            return document
        name = document.file.rpartition("/")[2]
        return self.edits.in_document(document, name, is_named=name == self.path.name)


class Environment(dict[str, str]):
    """Environment variables for a configuration; ``asked`` collects the names that it looks for."""

    def __init__(self, env: Mapping[str, str], asked: set[str]) -> None:
        super().__init__(env)
        self._asked = asked

    def __contains__(self, name: object) -> bool:
        self._asked.add(str(name))
        return super().__contains__(name)


def unread(path: Path, what: str, hint: str = "name the script or configuration that is launched") -> InputError:
    """What to say of a file that is no launch file, and what would make it readable."""
    return InputError(
        f"{path} is {what}",
        rule="a launch file is a shell script, a configuration (YAML, JSON, TOML) or a Python configuration",
        hint=hint,
    )


def listed(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """``names``, each once, as far as they are listed."""
    found = [shortened(each, 60) for each in dict.fromkeys(names)]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def take_given(facts: Facts, ask: Ask) -> None:
    """What the user says comes first."""
    for key, text in ask.given.items():
        number = degree(text)
        facts.state(key, text if number is None else number, GIVEN)
    for key, (value, why) in ask.taken.items():
        facts.assume_because(key, value, why)


def unread_variables(facts: Facts, env: Mapping[str, str]) -> None:
    """Notices of variables that the user gives and that no file reads."""
    nodes, read = facts.facts.get("nodes"), ", ".join(sorted(facts.asked)[:MOST_NAMED]) or "no variable"
    fixed = "" if nodes is None else f". It has {nodes.value} nodes: {nodes.why}"
    for name in sorted(set(env) - facts.asked):
        meant = guess(name, {folded(each): each for each in facts.asked})
        facts.breaks_rule(
            "variables that are given are read",
            f"--env {name}={env[name]} has no effect: the file does not read {name}{fixed}",
            f"it reads {read}{meant}; --gpus gives another number of accelerators than the file states",
            "notice",
        )


def begin(ask: Ask, framework: str, version: str) -> Facts:
    """Facts of a framework, with what the user says first."""
    facts = Facts(framework, version, str(ask.path))
    facts.unset_is_open = ask.unset_is_open
    if ask.started:
        facts.note(ask.started)
    take_given(facts, ask)
    if ask.world is not None:
        ask.world(facts)
    return facts


def named_document(facts: Facts, ask: Ask, named: NamedSetting, written: Mapping[str, Document]) -> Document | None:
    """The configuration that an option names: written by the script itself, or next to it."""
    value = named.value if isinstance(named.value, str) else _name_in(named.shown)
    if value is None:
        own = _written_as(named.shown, written)
        if own is not None:
            return ask.changed(own)
        facts.note(f"{named.place}: the file's name is not decidable")
        return None
    wanted = value.rsplit("/", 1)[-1]
    for name, document in written.items():
        if name == value or name.rsplit("/", 1)[-1] == wanted:
            facts.names |= set(map(plain_name, document.values))
            return ask.changed(document)
    found = ask.places.find(value, ask.path.parent)
    if found is not None:
        return _read_quietly(facts, found, ask)
    facts.note(f"{named.place}: {value} is not next to the script")
    return None


def _written_as(shown: str, written: Mapping[str, Document]) -> Document | None:
    """What the script writes to a name of which the same is open: ``config.<env:SLURM_JOBID>.json``."""
    wanted = shown.rpartition("/")[2]
    return next((each for name, each in written.items() if wanted and name.rpartition("/")[2] == wanted), None)


def _name_in(shown: str) -> str | None:
    """The name of a file whose folder is not decidable."""
    _, slash, name = shown.rpartition("/")
    return name if slash and name and not {"<", ">"} & set(name) else None


def _read_quietly(facts: Facts, path: Path, ask: Ask) -> Document | None:
    try:
        document = read_document(path, env=Environment(ask.env, facts.asked), places=ask.places)
    except ShardplanError as error:
        facts.note(f"{path.name}: {error}")
        return None
    facts.names |= set(map(plain_name, document.values))
    if not is_inside(path, ask.path.parent):
        facts.note(f"{path.name} is read at {printable(str(path))}")
    return ask.changed(document)


def take_notes(facts: Facts, document: Document) -> None:
    """What the reader of a document noted."""
    for text in document.notes:
        facts.note(text)


_REFUSED: Final = shipped_document(DATA / "dialects" / "refused.yaml")
MARKS: Final[Mapping[str, Sequence[str]]] = _REFUSED["marks"]
"""Keys by which a file is recognised."""

COMMANDS: Final[Mapping[str, str]] = _REFUSED["commands"]
"""Programs and launchers by which a line is recognised."""


def refused(settings: Settings) -> str | None:
    """The framework of a configuration that is recognised but not read."""
    return next((name for name, marks in MARKS.items() if any(settings.has(mark) for mark in marks)), None)


def refuse(path: Path, settings: Settings, closest: str = "") -> InputError:
    """What to say of a configuration that no dialect reads; ``closest``: of which one it has some keys."""
    keys = listed(key.partition(".")[0] for key in settings)
    return _error(path, refused(settings), f": its keys are {keys or 'none'}{closest}")


def refused_command(program: str, launchers: Sequence[str]) -> str | None:
    """The framework of a line that is recognised but not read."""
    for mark, name in COMMANDS.items():
        lower = f"/{program.lower()}"
        if (
            mark in launchers
            or re.match(rf"/{re.escape(mark)}(?!\w*\.py$)", lower)
            or f"/{mark}/" in lower
            or lower.endswith(f"/{mark}")
        ):
            return name
    return None


MODES: Final = ("pretrain", "finetune", "inference")
"""What ``--mode`` of SwissArmyTransformer says (``sat/arguments.py`` of THUDM/SwissArmyTransformer)."""


def refused_options(options: Options, command: Command) -> str | None:
    """The framework of options that look like Megatron-LM's and mean something else."""
    mode = options.first("mode")
    is_of_sat = mode is not None and mode.value in MODES and options.first("model-parallel-size", "experiment-name")
    if "actor_num_nodes" in options and "vllm_num_engines" in options:
        return "OpenRLHF"
    is_of_sat = is_of_sat or options.first("inner-hidden-size", "max-sequence-length", "layernorm-order")
    return "SwissArmyTransformer" if is_of_sat or "SAT_HOME" in {**command.exported, **command.assignments} else None


def refuse_by_command(path: Path, name: str, launch: Launch) -> InputError:
    """What to say of a launch line that is recognised but not read."""
    return _error(path, name, f" (line {launch.command.line})")


def frameworks_read() -> list[str]:
    """Titles of the frameworks whose files are read."""
    records = (shipped_document(each) for each in sorted((DATA / "dialects").glob("*.yaml")))
    return [record["title"] for record in records if "title" in record]


def _error(path: Path, name: str | None, seen: str = "") -> InputError:
    of_known = f"a launch file of {name}, which is recognised but not read"
    what = (of_known if name else "not one that shardplan recognises") + seen
    return InputError(
        f"{path} is {what}",
        rule="a launch file belongs to a framework that shardplan reads",
        hint=f"shardplan reads files of {joined(frameworks_read())}; or describe the plan with flags of "
        "`shardplan estimate`",
    )
