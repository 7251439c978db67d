"""What a launch file says, in the project's words: each value with its origin, and what is open.

A value is *stated* (with its place), *derived* from stated ones (with the rule), or *assumed* (the framework's default,
with the reason). What the file leaves open is *missing* and carries the names that decide it. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Final, Literal

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS, MAX_NUM_LAYERS
from shardplan.inputs.job import MOST_COUNT, Job
from shardplan.inputs.plan import MAX_DEGREE, Plan

Origin = Literal["stated", "derived", "assumed"]

JOB_KEYS: Final = frozenset(each.name for each in fields(Job)) - {"software"}
PLAN_KEYS: Final = frozenset(each.name for each in fields(Plan))
WEIGHTS: Final = "weights_of_ends"
"""Layers that embedding and head count as where torchtitan cuts stages, for a model that the file does not know."""


MOST: Final[Mapping[str, int]] = {
    **dict.fromkeys(("num_hidden_layers", "num_mtp_layers", "pp", "vp", "recompute_num_layers"), MAX_NUM_LAYERS),
    **dict.fromkeys(
        ("tp", "cp", "ep", "etp", "dp", "num_experts", "num_attention_heads", "num_key_value_heads"), MAX_DEGREE
    ),
    **dict.fromkeys(("micro_batch_size", "sharding_degree", "gradient_accumulation", "n_group"), MAX_DEGREE),
    **dict.fromkeys(("num_accelerators", "nodes", "per_node"), MAX_NUM_ACCELERATORS),
}
"""Bounds of what a file may state; of all other whole numbers as of a job's counts."""


ONE_NODE: Final = "the launcher, which takes one node: --gpus"
"""What decides the accelerators of a launcher that takes all of the machine it runs on, where nothing says how many."""
Taken = Mapping[str, tuple[object, str]]
"""What is taken for what a file leaves open, by key, each with the reason; an answer that rests on it says so."""
GIVEN: Final = "given by you"
"""The reason of a value that comes with the question."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value and where it comes from."""

    value: object
    """In the project's words and units."""
    origin: Origin
    """How the file gives it."""
    why: str
    """``launch.sh:12 --num-layers``, the rule, or whose default it is."""


@dataclass(frozen=True, kw_only=True)
class Break:
    """A rule that the file breaks, or something that it sets without effect."""

    rule: str
    """The rule, as a sentence."""
    values: str
    """The values that break it."""
    knob: str
    """What to change."""
    severity: Literal["stops", "changes", "notice"] = "stops"
    """``stops``: the run does not start or fails; ``changes``: the framework changes it silently; ``notice``: no
    effect."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A launch file, understood."""

    framework: str
    """Name of the dialect."""
    version: str
    """Version whose names and defaults are taken."""
    file: str
    """The file that was named."""
    facts: Mapping[str, Fact]
    """By key: fields of the model (names of ``config.json``), of the job and of the plan, and of the world."""
    missing: Mapping[str, tuple[str, ...]]
    """Keys that the file leaves open, with what decides each (``env:NODES``, ``the tokenizer``)."""
    config: Path | None = None
    """The ``config.json`` of the model that the file names by its folder, or that was given with it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The option that states a key, as the framework calls it."""
    names: frozenset[str] = frozenset()
    """Options and keys that the file and those beside it have, as :func:`plain_name` writes them."""
    not_understood: tuple[str, ...] = ()
    """Texts that are not read."""
    priced_by: str | None = None
    """The record that holds where the framework has none of its own: of a program that the file turns on."""
    notes: tuple[str, ...] = ()
    """What a reader should know."""
    breaks: tuple[Break, ...] = ()
    """Rules that reading alone shows to be broken."""

    def value(self, key: str) -> object:
        """The value of ``key``; None where there is none."""
        found = self.facts.get(key)
        return None if found is None else found.value

    def of(self, keys: Iterable[str]) -> dict[str, object]:
        """The known values among ``keys``."""
        return {key: self.facts[key].value for key in sorted(keys) if key in self.facts}

    @property
    def stated(self) -> tuple[str, ...]:
        """Keys that the file states, or that follow from what it states."""
        return tuple(key for key, fact in self.facts.items() if fact.origin != "assumed")

    @property
    def assumed(self) -> dict[str, tuple[object, str]]:
        """Defaults, each with its reason."""
        return {key: (fact.value, fact.why) for key, fact in self.facts.items() if fact.origin == "assumed"}


def plain_name(text: str) -> str:
    """The name of an option or a key however it is written, without sections and its value.

    >>> plain_name("--micro-batch-size=2"), plain_name("train.model.micro_batch_size")
    ('micro_batch_size', 'micro_batch_size')
    """
    return text.lstrip("-").partition("=")[0].partition(" ")[0].rpartition(".")[2].lstrip("-").replace("-", "_")


class Facts:
    """Collects what a file says; the first word on a key stands."""

    def __init__(self, framework: str, version: str, file: str) -> None:
        """``framework`` and ``version``: whose names and defaults are taken."""
        self.framework, self.version, self.file = framework, version, file
        self.facts: dict[str, Fact] = {}
        self.missing: dict[str, tuple[str, ...]] = {}
        self.options: dict[str, str] = {}
        self.not_understood: list[str] = []
        self.priced_by: str | None = None
        self.notes: list[str] = []
        self.breaks: list[Break] = []
        self.names: set[str] = set()
        """Options and keys of the files that were read."""
        self.asked: set[str] = set()
        """Environment variables that the scripts read."""
        self.asked_places: set[str] = set()
        """Places of settings that a key is stated by, or asks for."""
        self.unset_is_open = False
        """Whether a file that was not read may set variables that no other file sets."""
        self.open: tuple[str, ...] = ()
        """What decides words that may be further options: nothing is at its default while these are not known."""

    def __contains__(self, key: str) -> bool:
        """Whether something is known of ``key``, be it that it is open."""
        return key in self.facts or key in self.missing

    def value(self, key: str) -> object:
        """The value so far; None where there is none."""
        return self.facts[key].value if key in self.facts else None

    def number(self, key: str) -> int | None:
        """The value so far where it is a whole number."""
        value = self.value(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def state(self, key: str, value: object, place: str, option: str = "") -> None:
        """The file says so at ``place``."""
        self.put(key, Fact(value=value, origin="stated", why=place), option)

    def derive(self, key: str, value: object, rule: str, option: str = "") -> None:
        """It follows from what is stated."""
        self.put(key, Fact(value=value, origin="derived", why=rule), option)

    def assume(self, key: str, value: object, why: str = "") -> None:
        """The default where the file is silent; ``why`` beyond that it is the framework's."""
        if self.open:
            self.miss(key, self.open)
            return
        reason = f"default of {self.framework} {self.version}".strip()
        self.put(key, Fact(value=value, origin="assumed", why=f"{reason}: {why}" if why else reason), "")

    def assume_because(self, key: str, value: object, why: str) -> None:
        """An assumption that is not the framework's default."""
        self.put(key, Fact(value=value, origin="assumed", why=why), "")

    def miss(self, key: str, needs: Iterable[str]) -> None:
        """The file leaves ``key`` open."""
        if key not in self.facts:
            self.missing[key] = tuple(dict.fromkeys((*self.missing.get(key, ()), *needs)))

    def replace(self, key: str, fact: Fact) -> None:
        """Another word on ``key``, which counts instead."""
        self._check_bounds(key, fact)
        self.missing.pop(key, None)
        self.facts[key] = fact

    def replace_where_none(self, key: str, value: object, place: str) -> None:
        """Another setting turns on what the first one leaves out."""
        if self.value(key) in (None, "none"):
            self.replace(key, Fact(value=value, origin="derived", why=place))

    def note(self, text: str) -> None:
        """What a reader should know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def doubt(self, text: str) -> None:
        """A text that is not understood, once."""
        if text not in self.not_understood:
            self.not_understood.append(text)

    def breaks_rule(
        self, rule: str, values: str, knob: str, severity: Literal["stops", "changes", "notice"] = "stops"
    ) -> None:
        """A rule that reading alone shows to be broken."""
        self.breaks.append(Break(rule=rule, values=values, knob=knob, severity=severity))

    def reading(self) -> Reading:
        """What was collected."""
        return Reading(
            framework=self.framework,
            version=self.version,
            file=self.file,
            facts=dict(self.facts),
            missing=dict(self.missing),
            options=dict(self.options),
            names=frozenset(self.names),
            not_understood=tuple(self.not_understood),
            priced_by=self.priced_by,
            notes=tuple(self.notes),
            breaks=tuple(self.breaks),
        )

    def put(self, key: str, fact: Fact, option: str) -> None:
        """Keeps ``fact``, which ``option`` says, unless there is one of ``key`` already; what was given comes first."""
        before = self.facts.get(key)
        if before is not None and before.why == GIVEN and fact.origin == "stated" and before.value != fact.value:
            self.note(f"{key} is {before.value} as given; the file says {fact.value} ({fact.why})")
        if key in self:
            return
        self._check_bounds(key, fact)
        self.facts[key] = fact
        if option:
            self.options[key] = option

    def _check_bounds(self, key: str, fact: Fact) -> None:
        """Raises InputError for a number that no run has, before anything is made of it."""
        value, most = fact.value, MOST.get(key, MOST_COUNT)
        what = key
        if key in ("pp", "vp") and isinstance(value, int) and value <= most:
            value, what = value * (self.number("vp" if key == "pp" else "pp") or 1), "pp x vp"
        if isinstance(value, int) and value > most:
            raise InputError(
                f"{what} is {value:,}, more than {most:,} ({fact.why})",
                rule=f"{what} is at most {most:,}",
                hint=f"correct it in the file, or give --given {key}=VALUE",
            )
