"""Flags about files and output, which commands share. Those of questions are declared in :mod:`shardplan.ask.forms`."""

from __future__ import annotations

from pathlib import Path

from shardplan.fields import asked, dataclass, switch
from shardplan.outputs.target import JSON, JsonTarget, OwnFile


@dataclass(frozen=True, kw_only=True)
class DetailFlags:
    """How much of the answer is printed."""

    PANEL = "Output"

    explain: bool = switch("Also print the reasons: what limits the plan, alternatives, nearest measured runs.")
    assumptions: bool = switch("Also print all that was assumed.")
    all: bool = switch("Print everything.")

    @property
    def explains(self) -> bool:
        """Whether the reasons are printed."""
        return self.explain or self.all

    @property
    def states_assumptions(self) -> bool:
        """Whether the assumptions are printed."""
        return self.assumptions or self.all


@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """Where the answer goes."""

    PANEL = "Output"

    json: str | None = asked(
        "Write the answer as JSON to a file, or to standard output (-) in place of text.", metavar="FILE|-"
    )
    force: bool = switch("Replace files that shardplan did not write.")

    def target(self, where: str | None = None, flag: str = "--json", kind: OwnFile = JSON) -> JsonTarget:
        """Where the file of ``flag`` goes; that of ``--json`` where none is named."""
        return JsonTarget(self.json if flag == "--json" else where, flag, kind=kind, is_forced=self.force)

    def checked_target(self, *reads: str | Path | None) -> JsonTarget:
        """As ``target``, once it is known that it can be written and is none of ``reads``. Raises InputError."""
        target = self.target()
        target.check(*reads)
        return target
