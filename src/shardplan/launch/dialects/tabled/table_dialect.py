"""A framework that is a table: names of keys, and defaults where a key is not given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shardplan.fields import dataclass
from shardplan.launch.dialects.own_words import own_degrees
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Settings, Table, assume_all, batch_of, state_all, world_of
from shardplan.launch.dialects.unread_names import unsaid
from shardplan.launch.dialects.values import switch

PLAIN: Final = {"pp": 1, "cp": 1, "ep": 1, "vp": 1}
"""Degrees of one, where a framework has no others."""


@dataclass(frozen=True, kw_only=True)
class TableDialect:
    """A framework as a table."""

    name: str
    version: str
    marks: tuple[str, ...]
    """Keys of which ``least_marks`` show that a document is its own."""
    least_marks: int
    must: tuple[str, ...] = ()
    """Keys of which it has one at least, where the marks are those of others too."""
    table: Table
    defaults: Mapping[str, object]
    open: Mapping[str, str]
    """What its files never state, with where it comes from."""
    watched: str = ""
    """A pattern of the keys that are listed where nothing reads them; none where it is empty."""
    spelled_out: bool = False
    """Whether files give the framework's defaults too: then those alone that say a word that matters."""
    idle: tuple[str, ...] = ()
    """Keys of files that train nothing, unless ``do_train`` is on."""
    rule: Callable[[Facts, Settings], None] | None = None
    """What needs more than a table, before defaults are taken."""

    def owns(self, settings: Settings) -> bool:
        """Whether a document is its own."""
        is_own = not self.must or any(settings.has(key) for key in self.must)
        return is_own and sum(settings.has(mark) for mark in self.marks) >= self.least_marks

    def trains(self, settings: Settings) -> bool:
        """Whether a document of its own trains."""
        return not any(settings.has(key) for key in self.idle) or bool(switch(settings.value("do_train")))

    def read(self, facts: Facts, settings: Settings, beside: Callable[[], None] | None = None) -> None:
        """Reads a document into ``facts``; ``beside`` reads a file that it names, whose word comes second."""
        state_all(facts, settings, self.table)
        if self.rule is not None:
            self.rule(facts, settings)
        if beside is not None:
            beside()
        own_degrees(facts, settings, settings.seen)
        _nodes(facts)
        for key in self.table if facts.open else ():
            facts.miss(key, facts.open)
        assume_all(facts, self.defaults)
        world_of(facts)
        batch_of(facts)
        for key, need in self.open.items():
            facts.miss(key, (need,))
        unsaid(facts, settings, self.watched, all_of=not self.spelled_out)
        if facts.number("micro_batch_size") and "num_accelerators" in facts.missing:
            facts.miss("global_batch_size", ("num_accelerators",))


def _nodes(facts: Facts) -> None:
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} accelerators")
