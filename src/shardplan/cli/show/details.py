"""What an answer prints on request, and what to do next with it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from shardplan.cli.flags.plan import DetailFlags
from shardplan.cli.layout import Column, Page
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.outputs.target import JsonTarget
from shardplan.reports.texts.answer import how_near, run_text
from shardplan.reports.texts.plan import flags_text, plan_flags, variant_flag
from shardplan.units import format_bytes

MOST_LINES_OF_RUNS = 3
"""Lines that the nearest measured runs take on the terminal, unless the first alone takes more."""


def show_traffic(page: Page, estimate: Estimate) -> None:
    """Bytes that an accelerator sends in a step, by dimension and network tier."""
    if not estimate.communication:
        return
    page.heading("Traffic", "bytes that an accelerator of the slowest stage sends in a step")
    tiers = list(next(iter(estimate.communication.values())))
    columns = [Column(title="", cells=list(estimate.communication), is_text=True)]
    for tier in tiers:
        sent = [moved.get(tier, 0.0) for moved in estimate.communication.values()]
        columns.append(Column(title=tier, cells=[format_bytes(value) if value else "-" for value in sent]))
    page.table(columns)


def show_evidence(page: Page, estimate: Estimate) -> None:
    """The nearest measured runs, as many as fit in three lines; the JSON has all."""
    if not estimate.evidence:
        return
    page.heading("Nearest measured runs", how_near(estimate))
    texts = [run_text(run) for run in estimate.evidence]
    lengths = [page.num_lines(text) for text in texts]
    shown = max([1, *(n for n in range(2, len(texts) + 1) if sum(lengths[:n]) <= MOST_LINES_OF_RUNS)])
    page.bullets(texts[:shown], style="dim")


def show_assumptions(page: Page, estimate: Estimate) -> None:
    """What was taken for granted."""
    page.heading("Assumptions")
    page.bullets(estimate.assumptions, style="dim")
    page.bullets([f"MFU counts {estimate.flops_convention}"], style="dim")


def show_next_steps(
    page: Page,
    target: JsonTarget,
    question: Question,
    estimates: Sequence[Estimate],
    *,
    is_search: bool,
    flags: DetailFlags,
) -> None:
    """What to type next: ``estimates`` are the plan to take and, of a search, the fastest where it is another.

    In three lines, or all there is where reasons were asked for.
    """
    file = str(target.where) if target.path is not None else "plans.json" if is_search else "plan.json"
    keep = f"{file} has everything" if target.path is not None else f"--json {file} keeps everything"
    name, best = shlex.quote(file), estimates[0]
    picked = " --pick recommended" if len(estimates) > 1 else ""
    other = f"shardplan estimate --from {name}{picked} {variant_flag(question, best.plan)}"
    if not flags.explains:
        more = "--explain adds reasons" if flags.states_assumptions else "--all adds reasons and assumptions"
        page.labelled("Next", f"{more}; {keep}")
        page.verbatim(other)
        page.verbatim(" ".join(["shardplan estimate ...", *plan_flags(question, best)]))
        return
    page.heading("Next steps")
    page.line(f"{'' if flags.states_assumptions else '--assumptions says what was assumed; '}{keep}.")
    page.verbatim(other)
    picks = " --pick 1,recommended" if len(estimates) > 1 else " --pick 1,2" if is_search else " other.json"
    page.verbatim(f"shardplan compare {name}{picks}")
    page.line("The plan as flags of `shardplan estimate`:")
    page.verbatim(flags_text(question, best))
