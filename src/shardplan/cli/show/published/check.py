"""Reference files recomputed as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.published.check import TOLERANCE, FileCheck

MOST_SHOWN: Final = 10


def show(page: Page, checks: Sequence[FileCheck]) -> None:
    """One line for each file, then what differs."""
    names = _names(checks)
    page.table(
        [
            Column(title="method", cells=[check.method for check in checks], is_text=True),
            Column(title="cases", cells=[f"{len(check.cases):,}" for check in checks], rank=2),
            Column(title="figures", cells=[f"{check.num_values:,}" for check in checks], rank=1),
            Column(title="worst difference", cells=[_difference(check) for check in checks]),
            Column(title="", cells=["passed" if check.passed else "FAILED" for check in checks], is_text=True),
            Column(title="file", cells=names, is_text=True),
        ],
        styles=["" if check.passed else "bold red" for check in checks],
    )
    for check in checks:
        if not check.passed:
            _show_differences(page, check)
    page.console.print()
    failed = sum(not check.passed for check in checks)
    if failed:
        verdict = Text(f"{failed} of {len(checks)} files differ from what is computed.", style="bold red")
    else:
        verdict = Text(f"Every figure agrees to {TOLERANCE:g}.", style="bold green")
    page.line(verdict, indent=0)


def _names(checks: Sequence[FileCheck]) -> list[str]:
    """Names of the files; with their folders where two are called the same."""
    names = [Path(check.label).name for check in checks]
    if len(set(names)) < len(names):
        names = [check.label for check in checks]
    return [name if name.isprintable() else repr(name) for name in names]


def _difference(check: FileCheck) -> str:
    """Relative; absolute where that is what fails."""
    if check.worst_at_zero > check.worst_relative:
        return f"{check.worst_at_zero:.1e} at 0"
    return f"{check.worst_relative:.1e}"


def _show_differences(page: Page, check: FileCheck) -> None:
    failed = [case for case in check.cases if not case.passed]
    page.heading(check.label, f"{len(failed):,} of {len(check.cases):,} cases differ")
    texts = []
    for case in failed:
        if case.worst_relative > TOLERANCE:
            texts.append(f"{case.name}: {case.worst_relative_at} by {case.worst_relative:.2e}, relative")
        texts += [f"{case.name}: {text}" for text in case.differing]
        if not texts:
            texts.append(f"{case.name}: by {case.worst_at_zero:.2e} where the reference is 0")
    more = len(texts) - MOST_SHOWN
    page.bullets([*texts[:MOST_SHOWN], *([f"and {more:,} more"] if more > 0 else [])])
