"""The answer of ``budget``: the runs on each cluster side by side, where their time goes, and their failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Column,
    Line,
    Part,
    RowTable,
    Span,
    Tone,
    assumptions_part,
)
from shardplan.answers.plans import plan_columns, plan_text, rounded
from shardplan.base.records import Record
from shardplan.base.units import format_bytes, format_count, format_time
from shardplan.base.version import VERSION
from shardplan.decide.budget import BudgetOption, ClusterBudget
from shardplan.decide.goodput import DAY, Accounts
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.texts.answer import money_text, percent, sentence

ACCOUNTS: Final = {
    "productive": PALETTE[2],
    "recomputed": PALETTE[3],
    "checkpoint": PALETTE[0],
    "detection": PALETTE[1],
    "restart": PALETTE[4],
    "start_up": GREY,
}
"""What the wall time is spent on, with its colour."""
WHOLE_TONNES: Final = 100
"""Carbon from here on is shown without decimals. [t]"""
GWH: Final = 1e6
"""[kWh]"""


def option(name: str) -> Callable[[ClusterBudget], Any]:
    """A field of the run on a cluster."""
    return attrgetter(f"option.{name}")


def finite(value: float | None) -> float | None:
    """A time; None where it is endless."""
    return value if value is not None and math.isfinite(value) else None


def between_failures(budget: ClusterBudget) -> float | None:
    """Mean time between failures. [s]"""
    rate = option("duration.recovery.failures_per_second")(budget)
    return finite(1 / rate if rate else None)


def recorded(key: str, value: Callable[[ClusterBudget], Any]) -> Column:
    """An entry of records that is no single number or text, so that no table has it."""
    return Column("", None, value, record=lambda found: {key: found}, frame=lambda _: {})


def known(name: str, field: str) -> Callable[[ClusterBudget], Any]:
    """A field of the price or the energy of a run; None where that is not known."""

    def value(budget: ClusterBudget) -> Any:
        found = option(name)(budget)
        return None if found is None else getattr(found, field)

    return value


def accounts(budget: ClusterBudget) -> dict[str, float]:
    """What the wall time is spent on. [s]"""
    return {name: getattr(option("duration.accounts")(budget), name) for name in ACCOUNTS}


def degrees(budget: ClusterBudget) -> dict[str, int]:
    """The degrees of the plan."""
    return {name: getattr(option("estimate.plan")(budget), name) for name in ("tp", "cp", "pp", "vp", "ep")}


def stages(budget: ClusterBudget) -> list[Record]:
    """Pieces of the run, each with one batch."""
    return [
        {
            "num_steps": stage.num_steps,
            "global_batch_size": stage.question.job.global_batch_size,
            "sequence_length": stage.question.job.sequence_length,
            "step_time_s": stage.estimate.step_time,
        }
        for stage in option("stages")(budget)
    ]


def paid_text(run: BudgetOption) -> str:
    """What a run costs."""
    if run.money is None or run.price is None:
        return "no price"
    return money_text(run.money, run.price.currency)


def carbon_text(tonnes: float) -> str:
    """Carbon dioxide."""
    return f"{tonnes:,.0f} t" if tonnes >= WHOLE_TONNES else f"{tonnes:.3g} t"


def account_cells(budget: ClusterBudget) -> dict[str, Any]:
    """Accounts in seconds and degrees, as cells of a table."""
    return {f"{name}_s": time for name, time in accounts(budget).items()} | degrees(budget)


CLUSTER: Final = Column("cluster", "cluster", option("question.cluster.name"), is_text=True)
COLUMNS: Final = (
    CLUSTER,
    Column("meets_limits", None, lambda budget: not option("shortfalls")(budget)),
    recorded("shortfalls", lambda budget: [*option("shortfalls")(budget)]),
    Column("num_accelerators", "accelerators", option("num_accelerators"), "{:,}".format),
    Column("", "time", option("wall_time"), format_time),
    Column("days", None, option("days")),
    Column("days_p10", None, lambda budget: option("duration.wall_time_p10")(budget) / DAY),
    Column("days_p90", None, lambda budget: option("duration.wall_time_p90")(budget) / DAY),
    Column("goodput", None, option("duration.accounts.goodput")),
    recorded("accounts_s", accounts),
    Column("accelerator_hours", "hours", option("accelerator_hours"), rounded, rank=2),
    Column("", "money", attrgetter("option"), paid_text),
    Column("money", None, option("money")),
    Column("currency", None, known("price", "currency")),
    Column("price_per_accelerator_hour", None, known("price", "per_hour")),
    Column("energy_kwh", "energy", known("energy", "total"), lambda energy: f"{energy / GWH:.3g} GWh"),
    Column("accelerator_energy_kwh", None, known("energy", "accelerators")),
    Column("carbon_t", "CO2", option("carbon"), carbon_text, rank=1),
    Column("mfu", "MFU", option("estimate.mfu"), percent, rank=1),
    Column("", "goodput", option("duration.accounts.goodput"), percent),
    Column("step_time_s", "step", option("estimate.step_time"), format_time, is_wide=True),
    Column("num_steps", "steps", option("num_steps"), "{:,}".format, is_wide=True),
    Column("num_failures", "failures", option("duration.num_failures"), "{:,.0f}".format, is_wide=True),
    Column("time_between_failures_s", "between failures", between_failures, format_time, is_wide=True),
    Column("checkpoint_bytes", "checkpoint", option("duration.checkpoint_bytes"), format_bytes, is_wide=True),
    Column("checkpoint_write_time_s", "written in", option("duration.recovery.write_time"), format_time, is_wide=True),
    Column("checkpoint_interval_s", None, lambda budget: finite(option("duration.recovery.interval")(budget))),
    Column("restart_time_s", "restart", option("duration.recovery.restart_time"), format_time, is_wide=True),
    Column("spares", None, option("spares")),
    Column("spares_needed", "spares needed", option("spares_needed"), "{:,}".format, is_wide=True),
    Column("global_batch_size", None, option("question.job.global_batch_size")),
    Column("sequence_length", None, option("question.job.sequence_length")),
    Column("num_searches", None, lambda budget: budget.num_sizes),
    recorded("plan", lambda budget: estimate_record(option("estimate")(budget))),
    recorded("stages", stages),
    recorded("assumptions", lambda budget: [*option("assumptions")(budget)]),
    Column("", None, record=lambda _: {}, frame=account_cells),
    Column("", "plan", lambda budget: plan_text(option("estimate")(budget)), is_text=True, is_wide=True, leads=True),
)


MOST_BESIDE: Final = 4
"""Clusters whose costs are columns next to each other on pages."""
HINT: Final = Line(
    "--assumptions lists every default that was taken, with its source.", tone="quiet", indent=0, only="terminal"
)


def budget_document(budgets: Sequence[ClusterBudget], *, states_assumptions: bool = False) -> AnswerDocument:
    """The whole answer. ``states_assumptions``: with everything that was assumed."""
    runs = [each for each in budgets if each.option is not None]
    options = [each.option for each in budgets if each.option is not None]
    table = RowTable(runs, COLUMNS, turned_up_to=MOST_BESIDE)
    hint = [] if states_assumptions else [HINT]
    parts = [*_parts(table, options, states_assumptions=states_assumptions)] if options else []
    if parts:
        parts[-1] = parts[-1]._replace(blocks=[*parts[-1].blocks, *hint])
    job = options[0].question if options else None
    return AnswerDocument(
        name="budget",
        verdict=[
            *([_title(options[0])] if options else []),
            *soonest(options, len(budgets)),
            *(line for each in budgets for line in verdict(each)),
            *([] if options else hint),
        ],
        parts=parts,
        assumptions=tuple(dict.fromkeys(text for each in options for text in each.assumptions)),
        table=table if runs else None,
        record=lambda: {
            "shardplan_version": VERSION,
            "model": None if job is None else job.model.name,
            "tokens": None if job is None else job.job.tokens,
            "options": table,
            "without_plan": [
                {"cluster": each.cluster.name, "reason": each.reason} for each in budgets if each.option is None
            ],
        },
        chart=(lambda: budget_chart(options)) if options else None,
        is_yes=all(each.option is not None and not each.option.shortfalls for each in budgets),
    )


def soonest(options: Sequence[BudgetOption], num_clusters: int) -> Iterator[Line]:
    """The cluster that is done soonest, on a page that compares several: those that miss a limit come last."""
    if num_clusters > 1 and options:
        first = min(options, key=lambda run: (bool(run.shortfalls), run.wall_time))
        name = first.question.cluster.name
        yield Line(f"{name}, of {num_clusters} clusters.", "Done first", "strong", only="pages")


def _title(run: BudgetOption) -> Line:
    """What is trained."""
    job = run.question.job
    tokens = format_count(round(job.tokens or 0))
    return Line(f"{run.question.model.name}, {tokens} tokens, {job.precision}", tone="strong")


def verdict(budget: ClusterBudget) -> Iterator[Line]:
    """Whether the limits are met on a cluster, and by what."""
    run = budget.option
    if run is None:
        yield Line(f"{budget.cluster.name}: {budget.reason}", "No plan", "bad")
        return
    low, high = (format_time(time) for time in (run.duration.wall_time_p10, run.duration.wall_time_p90))
    where = f"{run.num_accelerators:,} x {run.question.cluster.accelerator.full_name}, {_domains(run)}"
    words = (
        Span(f"{format_time(run.wall_time)} on {where}", "strong"),
        Span(f"; {low} to {high} by the band of the step time"),
    )
    yield Line(words, "Misses", "bad") if run.shortfalls else Line(words, "Takes", "good")
    for each in run.shortfalls:
        yield Line(f"This is the nearest; {each}.", "")
    if run.estimate.not_measured is not None:
        yield Line(f"Outside the measured runs: {run.estimate.not_measured}.", "", "doubt")
    if run.price is None:
        part = run.question.cluster.accelerator.name
        yield Line(f"No price of {part} is known: give one (--price).", "", "doubt")


def _domains(run: BudgetOption) -> str:
    """The cluster, with the nodes or racks that the accelerators fill where they fill one or more."""
    innermost, name = run.question.cluster.tiers[0], run.question.cluster.name
    num_domains = run.num_accelerators / innermost.size if innermost.size else 0.0
    if num_domains < 1:
        return name
    count = f"{num_domains:,.0f}" if num_domains.is_integer() else f"{num_domains:,.1f}"
    return f"{count} {innermost.name}{'s' * (num_domains != 1)} of {name}"


def _parts(table: RowTable, options: Sequence[BudgetOption], *, states_assumptions: bool) -> Iterator[Part]:
    yield Part("Cost", [table], "of the whole run")
    plans = [
        CLUSTER,
        Column("", "step", option("estimate.step_time"), format_time),
        Column("", "batch", option("question.job.global_batch_size"), "{:,}".format),
        *plan_columns(table.rows, option("estimate")),
    ]
    note = "mb: micro-batch size; batch: sequences per step (--global-batch-size)"
    yield Part("Plan", [RowTable(table.rows, plans)], note)
    yield Part("Time", [_time(options)], "how it is spent, averaged over failures")
    yield Part("Failures", [*_failures(options[0])], options[0].question.cluster.name)
    if states_assumptions:
        # What was assumed: once where it is alike for all runs
        shared = [text for text in options[0].assumptions if all(text in each.assumptions for each in options)]
        yield assumptions_part(shared)
        for run in options:
            own = [text for text in run.assumptions if text not in shared]
            if own:
                yield assumptions_part(own, f"of {run.question.cluster.name} alone")


def _time(options: Sequence[BudgetOption]) -> RowTable:
    """Time and share of each account; the share alone where runs stand side by side."""

    def cell(spent: Accounts) -> Callable[[str], str]:
        def text(name: str) -> str:
            time = getattr(spent, name)
            share = percent(time / spent.wall_time)
            return f"{format_time(time)} {share:>7}" if len(options) == 1 else share

        return text

    def tone(name: str) -> Tone:
        return "good" if name == "productive" else ""

    names = Column("", "", text=lambda name: name.replace("_", "-"), is_text=True)
    each = [Column("", run.question.cluster.name, text=cell(run.duration.accounts)) for run in options]
    return RowTable([*ACCOUNTS], [names, *each], tone)


def _failures(run: BudgetOption) -> Iterator[Block]:
    """How often a run fails, and what it keeps."""
    recovery = run.duration.recovery
    rate = recovery.failures_per_second
    for warning in run.warnings:
        yield Line(f"{sentence(warning)} Set --failure-rate.", tone="doubt")
    if not rate:
        yield Line("None are assumed.")
        return
    size = f"Checkpoints of {format_bytes(run.duration.checkpoint_bytes)} take {format_time(recovery.write_time)}"
    yield Line(
        f"One every {format_time(1 / rate)}: {rounded(run.duration.num_failures)} in the run. {size} "
        f"and come every {format_time(recovery.interval)}."
    )
    nodes = f"{run.spares_needed:,} spare accelerators are enough to replace failed ones at once 99 % of the time"
    yield Line(f"{nodes}; {run.spares:,} are paid for (--spares).")


def budget_line(budget: ClusterBudget) -> str:
    """A cluster's answer in a line."""
    run = budget.option
    if run is None:
        return f"{budget.cluster.name}: {budget.reason}"
    size = f"{run.num_accelerators:,} x {budget.cluster.name}"
    text = f"{size}: {format_time(run.wall_time)}, {rounded(run.accelerator_hours)} accelerator-hours"
    return f"{text}, misses {'; '.join(run.shortfalls)}" if run.shortfalls else text


def budget_chart(options: Sequence[BudgetOption]) -> Chart:
    """Where the time of the runs goes, and what they cost."""
    question = options[0].question
    names = [f"{each.question.cluster.name}\n{each.num_accelerators:,}" for each in options]
    currency = next((f" {each.price.currency}" for each in options if each.price), "")
    costs = [
        panel
        for panel in (
            _cost("money", f"million{currency}", names, [run.money for run in options]),
            _cost("energy", "GWh", names, [None if run.energy is None else run.energy.total for run in options]),
        )
        if panel is not None
    ]
    return Chart(
        name="budget",
        title=f"{question.model.name}, {(question.job.tokens or 0) / 1e12:.4g} T tokens",
        panels=(_spent(options, names), *costs),
        num_columns=1 + len(costs),
        note="How the days are spent, averaged over failures.",
        panel_size=(420, 380),
    )


def _spent(options: Sequence[BudgetOption], names: Sequence[str]) -> Panel:
    """Days of every run by what they are spent on."""
    series = tuple(
        Series(
            name=name.replace("_", "-"),
            x=names,
            y=[getattr(run.duration.accounts, name) / DAY for run in options],
            kind="bars",
            colour=colour,
        )
        for name, colour in ACCOUNTS.items()
    )
    days, nothing = Axis(title="time [days]"), Axis(title="", scale="names")
    return Panel(title="time", x=nothing, y=days, series=series, is_stacked=True)


def _cost(title: str, unit: str, names: Sequence[str], values: Sequence[float | None]) -> Panel | None:
    """Money or energy of every run in millions, where it is known."""
    found = [(name, value / 1e6) for name, value in zip(names, values, strict=True) if value is not None]
    if not found:
        return None
    bars = Series(name="", x=[name for name, _ in found], y=[y for _, y in found], kind="bars", colour=PALETTE[5])
    return Panel(
        title=title if len(found) == len(names) else f"{title}, where it is known",
        x=Axis(title="", scale="names"),
        y=Axis(title=f"{title} [{unit}]"),
        series=(bars,),
    )
