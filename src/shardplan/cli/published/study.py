"""``shardplan published study``: the whole study of a paper, its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.cli.flags import OutputFlags, flag, with_flags
from shardplan.cli.output import FigureFiles, show_document
from shardplan.cli.progress import MOST_WORKERS, workers_of
from shardplan.inputs.readers.typed import whole

MOST_DOMAIN: Final = 100_000
ALL: Final = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose study: subramanian2024, of arXiv 2410.00273.")]
FigureFlag = Annotated[
    list[str] | None,
    flag(
        "Show the table of this figure: F1, ..., F8, several as F1,F3 or F1..F3, or all. Can be repeated.",
        panel="Study",
        metavar="F1..F8",
    ),
]
OutFlag = Annotated[
    Path | None,
    flag(
        "Write each figure there as a page (HTML), a picture (PNG) and a table (CSV); all of them where none is "
        "named. Needs the extra 'plots'.",
        panel="Output",
        metavar="DIR",
    ),
]
CorrectedFlag = Annotated[
    str | None,
    flag(
        "Correct Q1, Q2, Q3, Q5 and Q11 of its known errors, or those named: Q2,Q11.", panel="Study", metavar="[NAMES]"
    ),
]
SystemFlag = Annotated[str, flag("System whose configurations F3 shows.", panel="Study", metavar="NAME")]
DomainFlag = Annotated[str, flag("Its scale-up domain: 4, 8 or 64.", panel="Study", metavar="N")]
WorkersFlag = Annotated[str, flag("Number of worker processes.", panel="Study", metavar="N")]


@with_flags
def study(
    *,
    name: NameArgument,
    output: OutputFlags,
    figure: FigureFlag = None,
    corrected: CorrectedFlag = None,
    system: SystemFlag = "B200",
    nvs: DomainFlag = "8",
    workers: WorkersFlag = "1",
    out: OutFlag = None,
) -> int:
    """Repeat the whole study of a paper: every search of it, its tables and figures.

    Of arXiv 2410.00273: two models, three forms of tensor parallelism, nine systems, 13 numbers of accelerators, every
    candidate enumerated, priced and ranked.
    """
    target = output.checked_target()
    figures = _figures(figure, everything=out is not None)
    num_workers, domain = whole(workers, "--workers", most=MOST_WORKERS), whole(nvs, "--nvs", most=MOST_DOMAIN)
    files = None if out is None else FigureFiles(out, figures, target)
    from shardplan.answers.methods.study import STUDIES, run_study, study_document
    from shardplan.methods.subramanian2024.inputs import corrections_of
    from shardplan.plotting.subramanian2024 import chart_of

    if name not in STUDIES:
        raise UnknownNameError("study", f"{name:.60}", STUDIES, hint=f"one of {', '.join(STUDIES)}")
    shown = _system(system, domain)
    chosen = corrections_of(corrected)
    with workers_of(num_workers) as executor:
        report = run_study(figures, corrected=chosen, executor=executor, num_workers=num_workers)
    drawn = (
        ()
        if files is None
        else [files.drawn(chart_of(each, system=shown[0], nvs=shown[1]), each.rows) for each in report.figures]
    )
    target.check_content(b"")
    written = [] if files is None else files.write(drawn)
    return show_document(study_document(report, system=shown, written=written, asked=bool(figure)), target)


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
