"""Records of dialects: a framework's options as rows of data, read here; what no row says is a rule beside them.

A file of ``data/dialects`` has a row per option: the field that it states, its names (the first that is given counts),
how its value is read, and what holds where it is not given. Options that plans are exported with stand in capability
records (``stacks``) and are read backwards, but those of fields that rules read (``by_rule``). ``priced_by`` names the
stack whose rules and behaviour hold; without one the library's defaults do. For proposals of an audit,
``of_some_programs`` lists fields whose options are proposed only where a file has them, and ``earlier`` matches keys of
versions before the record's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache, cached_property
from typing import Any, Final, NamedTuple, get_args

from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.plan import CpComm
from shardplan.launch.dialects.own_names import own_degrees, unsaid
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Options, Settings, batch_of, state, world_of
from shardplan.launch.dialects.values import CONVERTS, Convert, degree, on_off, switch, whole, words_of
from shardplan.physics.frameworks.conditions import SWITCHES
from shardplan.physics.frameworks.option_entries import ReadOption, read_backwards

Rule = Callable[[Facts, Settings], None]


class OptionRow(NamedTuple):
    """An option."""

    field: str
    names: tuple[str, ...]
    convert: Convert
    value: object = None
    """What the field is where a switch is given, whatever its value."""

    def state(self, facts: Facts, given: Options | Settings) -> None:
        """States the field where the option is given."""
        found = given.first(*self.names)
        if found is not None and self.value is not None:
            facts.state(self.field, self.value, found.place, found.name)
        else:
            state(facts, self.field, found, self.convert)


KINDS: Final[Mapping[str, Convert]] = {
    "offload_num_layers": whole,
    "cp_comm": words_of({name: name for name in get_args(CpComm)}),
    **{name: CONVERTS[name] for name in ("switch", "precision", "optimizer", "schedule")},
}
"""How fields of a plan or a job are read where a capability record has them as they are; others are degrees."""


@cache
def _document(name: str) -> Mapping[str, Any]:
    return shipped_document(DATA / "dialects" / f"{name}.yaml")


class Dialect:
    """A framework as its record has it."""

    def __init__(self, *, name: str, rule: Rule | None = None, converts: Mapping[str, Convert] | None = None) -> None:
        """``name``: the file of the record, without its end; ``rule``: what needs more than a row, before defaults.

        ``converts``: how values are read that only this framework has, by the names in its record.
        """
        self.name, self._rule, self._converts = name, rule, converts or {}

    @property
    def record(self) -> Mapping[str, Any]:
        """What the file holds."""
        return _document(self.name)

    @property
    def version(self) -> str:
        """Version whose names and defaults these are."""
        return str(self.record["version"])

    def words(self, key: str) -> Any:
        """A list or a mapping of the record that a rule reads."""
        return self.record[key]

    @cached_property
    def rows(self) -> tuple[OptionRow, ...]:
        """Its options: those of capability records with further names or words of its own, then all others."""
        ruled, shared = self.record.get("by_rule", ()), self.record.get("include")
        own = {**({} if shared is None else _document(shared)["options"]), **self.record["options"]}
        found = dict[tuple[str, object], OptionRow]()
        for each in (each for stack in self.record.get("stacks", ()) for each in read_backwards(stack)):
            if each.field not in ruled:
                known = found.get((each.field, each.value))
                names = (*(known.names if known is not None else ()), *each.names)
                found[each.field, each.value] = OptionRow(each.field, names, self._of_plan(each), each.value)
        for key, row in found.items():
            more = own.pop(row.field, {}) if row.value is None else {}
            convert = self._convert(more["read"]) if "read" in more else row.convert
            found[key] = row._replace(names=tuple(dict.fromkeys((*row.names, *more.get("names", ())))), convert=convert)
        return (*found.values(), *self._rows(own))

    def state_section(self, facts: Facts, given: Settings, section: str, only: Collection[str] = ()) -> None:
        """States what a section of the record has rows for, or ``only`` some fields of it."""
        for row in self._rows(self.record[section]):
            if not only or row.field in only:
                row.state(facts, given)

    def _rows(self, section: Mapping[str, Any]) -> tuple[OptionRow, ...]:
        return tuple(OptionRow(name, tuple(row["names"]), self._convert(row["read"])) for name, row in section.items())

    def _of_plan(self, each: ReadOption) -> Convert:
        """How an option of a capability record is read: the framework's words, else those that are usual."""
        usual = KINDS.get(each.read if isinstance(each.read, str) else each.field, degree)
        if isinstance(each.read, str):
            return usual
        words = words_of({name.lower(): ours for name, ours in each.read.items()})
        is_switch = each.field in SWITCHES
        return lambda value: switch(words(value)) if is_switch else words(value) or usual(value)

    def _convert(self, read: Any) -> Convert:
        """How a row reads its value: by name, as one of some words, or as a switch for one of two."""
        if isinstance(read, str):
            return self._converts.get(read) or CONVERTS[read]
        return on_off(*read) if isinstance(read, list | tuple) else words_of(read)

    @cached_property
    def silent(self) -> Mapping[str, object]:
        """What holds where a file does not say it, by field."""
        of_rows = {field: each["silent"] for field, each in self.record["options"].items() if "silent" in each}
        return {**of_rows, **self.record.get("silent", {})}

    def state(self, facts: Facts, given: Options | Settings) -> None:
        """States what every option says that is given."""
        for row in self.rows:
            row.state(facts, given)

    def assume(self, facts: Facts) -> None:
        """Takes the framework's defaults where nothing is said."""
        for key, value in self.silent.items():
            facts.assume(key, value)

    def owns(self, settings: Settings) -> bool:
        """Whether a document is its own."""
        must = self.record.get("must", ())
        is_own = not must or any(settings.has(key) for key in must)
        return is_own and sum(settings.has(mark) for mark in self.record["marks"]) >= self.record["least_marks"]

    def trains(self, settings: Settings) -> bool:
        """Whether a document of its own trains."""
        return not any(settings.has(key) for key in self.record.get("idle", ())) or bool(
            switch(settings.value("do_train"))
        )

    def read(self, facts: Facts, settings: Settings, beside: Callable[[], None] | None = None) -> None:
        """Reads a document into ``facts``; ``beside`` reads a file that it names, whose word comes second."""
        self.state(facts, settings)
        if self._rule is not None:
            self._rule(facts, settings)
        if beside is not None:
            beside()
        own_degrees(facts, settings, settings.seen)
        nodes, each = facts.number("nodes"), facts.number("per_node")
        if nodes and each:
            facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
        for row in self.rows if facts.open else ():
            facts.miss(row.field, facts.open)
        self.assume(facts)
        world_of(facts)
        batch_of(facts)
        for key, need in self.record["open"].items():
            facts.miss(key, (need,))
        unsaid(facts, settings, self.record.get("watched", ""), all_of=not self.record.get("spelled_out", False))
        if facts.number("micro_batch_size") and "num_accelerators" in facts.missing:
            facts.miss("global_batch_size", ("num_accelerators",))
