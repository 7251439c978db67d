"""``shardplan published study``: the whole study of a paper, its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import asked, dataclass
from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.cli.output import FigureFiles, show_document
from shardplan.cli.progress import MOST_WORKERS, workers_of

MOST_DOMAIN: Final = 100_000
ALL: Final = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Method of the study: subramanian2024 (arXiv 2410.00273).")
]


@dataclass(frozen=True, kw_only=True)
class StudyFlags:
    """What is shown, and the number of workers."""

    PANEL = "Study"

    figure: list[str] | None = asked(
        "Show the table of this figure: F1, ..., F8, several as F1,F3 or F1..F3, or all. Can be repeated.",
        metavar="F1..F8",
    )
    corrected: str | None = asked(
        "Correct Q1, Q2, Q3, Q5 and Q11 of its known errors, or those named: Q2,Q11.", metavar="[NAMES]"
    )
    system: str = asked("System whose configurations F3 shows.", default="B200", metavar="NAME")
    nvs: int = asked("Its scale-up domain: 4, 8 or 64.", default=8, least=1, most=MOST_DOMAIN, metavar="N")
    workers: int = asked("Number of worker processes.", default=1, least=1, most=MOST_WORKERS, metavar="N")
    out: Path | None = asked(
        "Write each figure there as a page (HTML), a picture (PNG) and a table (CSV); all of them where none is "
        "named. Needs the extra 'plots'.",
        panel="Output",
        metavar="DIR",
    )


@with_flags
def study(*, name: NameArgument, output: OutputFlags, wanted: StudyFlags) -> int:
    """Repeat the whole study of a paper: every search of it, its tables and figures.

    For arXiv 2410.00273: two models, three forms of tensor parallelism, nine systems, 13 numbers of accelerators, with
    every candidate enumerated, priced and ranked.
    """
    target = output.checked_target()
    out, num_workers = wanted.out, wanted.workers
    figures = _figures(wanted.figure, everything=out is not None)
    files = None if out is None else FigureFiles(out, figures, target)
    from shardplan.answers.methods.study import STUDIES, run_study, study_document
    from shardplan.methods.subramanian2024.inputs import corrections_of
    from shardplan.plotting.subramanian2024 import chart_of

    if name not in STUDIES:
        raise UnknownNameError("study", f"{name:.60}", STUDIES, hint=f"one of {', '.join(STUDIES)}")
    shown = _system(wanted.system, wanted.nvs)
    chosen = corrections_of(wanted.corrected)
    with workers_of(num_workers) as executor:
        report = run_study(figures, corrected=chosen, executor=executor, num_workers=num_workers)
    drawn = (
        ()
        if files is None
        else [files.drawn(chart_of(each, system=shown[0], nvs=shown[1]), each.rows) for each in report.figures]
    )
    target.check_content(b"")
    written = [] if files is None else files.write(drawn)
    return show_document(study_document(report, system=shown, written=written, asked=bool(wanted.figure)), target)


def _figures(given: Sequence[str] | None, *, everything: bool) -> tuple[str, ...]:
    """Names of the figures, each once. Raises UnknownNameError."""
    names = [name for text in given or () for part in text.split(",") for name in _range(part.strip().upper())]
    for name in names:
        if name not in (*ALL, "ALL"):
            raise UnknownNameError("figure", f"{name:.40}", (*ALL, "all"), hint=f"one of {', '.join(ALL)}, or all")
    if "ALL" in names or (not names and everything):
        return ALL
    return tuple(dict.fromkeys(names))


def _range(text: str) -> tuple[str, ...]:
    """The figures from one to another: ``F1..F3``."""
    first, dots, last = text.partition("..")
    if not dots or first not in ALL or last not in ALL:
        return (text,)
    return ALL[ALL.index(first) : ALL.index(last) + 1]


def _system(name: str, domain: int) -> tuple[str, int]:
    """The system of F3, as the study names it. Raises UnknownNameError or InputError."""
    from shardplan.methods.subramanian2024.study import NVLINK_SIZES, SYSTEMS

    known = {each.upper(): each for each in SYSTEMS}
    if name.upper() not in known:
        raise UnknownNameError("system", f"{name:.40}", SYSTEMS, hint=f"one of {', '.join(SYSTEMS)}")
    if domain not in NVLINK_SIZES:
        sizes = ", ".join(map(str, NVLINK_SIZES))
        raise InputError(f"--nvs is {domain}", rule=f"the study has domains of {sizes}", hint=f"one of {sizes}")
    return known[name.upper()], domain
