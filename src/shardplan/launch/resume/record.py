"""What a framework is known to load: rules by state and by field, each with its source in the framework."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Literal, get_args

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document

RECORDS: Final = DATA / "checkpoints"
ALWAYS: Final = "always"
"""Stands for a rule that holds whatever has changed."""

Outcome = Literal["kept", "converted", "reset", "unsupported", "unknown"]
"""``kept``: loaded as it was; ``converted``: loaded after another program has rewritten the checkpoint; ``reset``: not
loaded, and the run goes on without; ``unsupported``: the load ends with an error, or is not supported and not checked;
``unknown``: the record does not say."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSetting:
    """An option on which it depends what a checkpoint holds or how it is read."""

    default: object
    """What holds where the option is not given."""
    option: str
    """As the framework calls it."""
    side: Literal["old", "new"]
    """Whose option counts: that of the run that saves, or of the one that loads."""
    source: str
    """Where the default stands."""


@dataclass(frozen=True, kw_only=True)
class ResumeRule:
    """What becomes of one state where some fields have changed."""

    state: str
    """What is saved: see ``answer.STATES``."""
    when: Mapping[str, object]
    """Settings, or the old run's ``sharding``, under which it holds; a list means one of them."""
    changed: tuple[str, ...]
    """Fields of which one has changed, or :data:`ALWAYS`."""
    outcome: Outcome
    """What happens."""
    why: str
    """The reason, as a sentence."""
    source: str
    """Where it was read: a path in the repository at the record's commit."""
    fix: str = ""
    """What to do about it; empty where there is nothing."""

    def holds(self, settings: Mapping[str, object]) -> bool:
        """Whether it applies under these settings."""
        return all(
            settings.get(name) in wanted if isinstance(wanted, list) else settings.get(name) == wanted
            for name, wanted in self.when.items()
        )


@dataclass(frozen=True, kw_only=True)
class CheckpointRecord:
    """What is known of a framework's checkpoints in one version."""

    name: str
    """The framework."""
    covers: tuple[str, ...]
    """Dialects of launch files for which it holds."""
    version: str
    """Version that was read."""
    date: str
    """Day of its commit."""
    repository: str
    """Where it was read."""
    commit: str
    """Its commit."""
    settings: Mapping[str, CheckpointSetting]
    """Options that count, by name."""
    rules: tuple[ResumeRule, ...]
    """The first that applies to a state and a field counts."""
    confirm: str
    """The check that confirms the answer."""

    @property
    def label(self) -> str:
        """Framework, version, date and commit."""
        return f"{self.name} {self.version} of {self.date} ({self.commit})"

    def rule(self, state: str, changed: str, settings: Mapping[str, object]) -> ResumeRule | None:
        """The rule for one state and one changed field; None where nothing is known."""
        found = (each for each in self.rules if each.state == state and changed in each.changed)
        return next((each for each in found if each.holds(settings)), None)

    def names(self, state: str, changed: str | None = None) -> bool:
        """Whether a rule for a state names a field; without one, whether anything is known of the state."""
        return any(each.state == state and changed in (None, *each.changed) for each in self.rules)


def record_for(framework: str) -> CheckpointRecord | None:
    """The record that covers a dialect or a framework; None where there is none."""
    return next((each for each in checkpoint_records() if framework in each.covers), None)


@cache
def checkpoint_records() -> tuple[CheckpointRecord, ...]:
    """Every record of ``data/checkpoints``."""
    return tuple(_record(shipped_document(path)) for path in sorted(RECORDS.glob("*.yaml")))


def _record(document: dict[str, Any]) -> CheckpointRecord:
    named = {name: document[name] for name in ("name", "version", "date", "repository", "commit", "confirm")}
    settings = {
        name: CheckpointSetting(
            default=each["value"], option=each["option"], side=each.get("side", "old"), source=each["source"]
        )
        for name, each in document.get("settings", {}).items()
    }
    assert {each["outcome"] for each in document["rules"]} <= {*get_args(Outcome)}, document["name"]
    rules = tuple(
        ResumeRule(**{**each, "when": each.get("when", {}), "changed": tuple(each["changed"])})
        for each in document["rules"]
    )
    return CheckpointRecord(**named, covers=tuple(document["covers"]), settings=settings, rules=rules)
