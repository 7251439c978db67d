"""The answer of ``estimate``: what a plan takes and why; the parts of it that other answers about a plan show too."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Bullets,
    Column,
    CommandLine,
    Line,
    Part,
    PartsBar,
    Phrases,
    RowTable,
    ShareBars,
    Span,
    Tone,
    assumptions_part,
)
from shardplan.answers.plans import doubt_lines, plan_line, question_lines
from shardplan.answers.sections import (
    layout_parts,
    layout_record,
    observed_part,
    observed_records,
    stages_parts,
    truth_record,
)
from shardplan.base.outputs import JsonTarget
from shardplan.base.records import Record
from shardplan.base.units import format_bytes, format_time
from shardplan.base.words import joined
from shardplan.estimation.band import COMPARABLE
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import TERMS, term_label
from shardplan.estimation.question import Question
from shardplan.estimation.ranks import RankLayout, layout_of
from shardplan.reports.breakdown import Share, memory_bar, memory_use, step_split
from shardplan.reports.forms import framework_options, grouped_options
from shardplan.reports.texts.answer import (
    cost_text,
    how_near,
    note_sentence,
    percent,
    rates_text,
    run_text,
    sentence,
    training_text,
)
from shardplan.reports.texts.plan import plan_flags, variant_flag
from shardplan.reports.truth import WORDS, TruthLine, truth_of

if TYPE_CHECKING:
    from shardplan.estimation.parts.alive import Alive
    from shardplan.launch.audit.observed import GapExplanation

LEAST_SHARE: Final = 0.004
"""Terms below this share of the step are summed up in one line."""
MOST_TERMS: Final = 4
"""Terms of the step that are shown unless all are asked for."""
ALL_TERMS: Final = 100
MOST_LINES_OF_RUNS: Final = 3
"""Lines that the nearest measured runs take on a terminal, unless the first alone takes more."""


ALIVE_NOTE: Final = "copies: layers times micro-batches in flight"


class AnswerDetail(NamedTuple):
    """How much of an answer is shown."""

    explains: bool = False
    """Reasons, all terms, HFU, every option of the framework and the source of the price."""
    states_assumptions: bool = False
    stage: int | None = None
    """Pipeline stage whose memory is shown tensor by tensor; None: the fullest, where reasons are asked for."""
    has_layout: bool = False
    """Whether it is shown which ranks form the groups, and where they lie."""


def estimate_document(
    question: Question,
    estimate: Estimate,
    given: Sequence[str] = (),
    *,
    detail: AnswerDetail = AnswerDetail(),  # noqa: B008  # immutable
    target: JsonTarget | None = None,
    asked: str = "",
    observed: Sequence[GapExplanation] = (),
) -> AnswerDocument:
    """The whole answer. ``given``: what the user set.

    ``target``: where the record goes, and ``asked``: the question in words, for what to type next. ``observed``: what
    was measured, next to the prediction.
    """
    alive, truth = alive_part(question, estimate, detail), truth_of(question, estimate)
    layout = layout_of(question, estimate) if detail.has_layout else None
    parts = [*map(observed_part, observed), memory_part(estimate, is_whole=detail.explains)]
    parts += [*([] if alive is None else [alive]), step_part(estimate), *stages_parts(truth)]
    parts += traffic_parts(estimate) if layout is None else layout_parts(layout)
    parts += evidence_parts(estimate) if detail.explains else []
    parts += [assumptions_part(assumed_texts(estimate))] if detail.states_assumptions else []
    parts += [] if target is None else [next_steps(target, question, (estimate,), detail, asked=asked, is_search=False)]
    return AnswerDocument(
        name="plan-file",
        head=question_lines(question, given),
        verdict=verdict(question, estimate, is_whole=detail.explains, truth=truth),
        parts=parts,
        assumptions=assumed_texts(estimate),
        record=lambda: _record(question, estimate, alive, layout) | truth_record(truth) | observed_records(observed),
        is_yes=estimate.feasible,
    )


def _record(question: Question, estimate: Estimate, alive: Part | None, layout: RankLayout | None) -> Record:
    """The plan file of a plan, with the table of what is alive at the peak and the layout, where these are shown."""
    from shardplan.reports.plan_file import PlanFile, plan_file_record  # takes time to import

    record = plan_file_record(PlanFile(question=question, estimates=(estimate,)))
    record |= {} if layout is None else {"layout": layout_record(layout)}
    return record if alive is None else record | {"alive_at_peak": alive.blocks[0]}


def verdict(
    question: Question, estimate: Estimate, *, is_whole: bool = False, runs_on: str = "", truth: TruthLine | None = None
) -> list[Block]:
    """Whether it fits and how fast it is, how sure that is, and which plan it is.

    ``runs_on``: in place of the framework's record, where a file is of a framework without one of its own.
    """
    time = (Span(f"{format_time(estimate.step_time)} a step", "strong"),)
    if estimate.feasible:
        fits = [Line(time, "Fits", "good")]
    else:
        why = Span(sentence(estimate.reason or ""), "bad")
        fits = [Line((why,), "Too big", "bad"), Line((Span("If it fitted: "), *time), "")]
    return [
        *_refusals(estimate),
        *fits,
        truth_line(truth or truth_of(question, estimate)),
        *doubt_lines(estimate),
        plan_line(estimate),
        *([Line(runs_on, "Runs on", "strong")] if runs_on else _framework(question, estimate, is_whole=is_whole)),
        Line(rates_text(question, estimate, is_whole=is_whole), "Speed", "strong"),
        *([] if estimate.time_to_train is None else [Line(training_text(question, estimate), "Training", "strong")]),
        *([] if estimate.money is None else [Line(cost_text(question, estimate, is_whole=is_whole), "Cost", "strong")]),
    ]


def truth_line(truth: TruthLine) -> Line:
    """How far the step time can be trusted; in amber where near runs lie outside the band, or none is comparable."""
    is_doubted = truth.sureness != "sure"
    return Line(
        (Span(truth.text, "doubt" if is_doubted else ""),), WORDS[truth.sureness], "warning" if is_doubted else "strong"
    )


def _refusals(estimate: Estimate) -> list[Line]:
    """Why the framework cannot run the plan."""
    lines = []
    for refusal in estimate.refusals:
        values = f" ({refusal.message})" if refusal.message else ""
        what = Span(f"Not runnable on {estimate.framework}: ", "bad")
        lines.append(Line((what, Span(f"{refusal.rule}{values}; {refusal.hint}.")), indent=0))
    return lines


def _framework(question: Question, estimate: Estimate, *, is_whole: bool) -> list[Block]:
    """Which framework runs the plan, with its options and what these do not express; what no test shows."""
    if estimate.framework is None:
        return [Line("not checked: no framework was named", "Runs on", "strong")]
    untested = [
        Line((Span(sentence(each.partition(": ")[2]), "doubt"),), "Untested", "strong") for each in estimate.untested
    ]
    if estimate.refusals:
        return [*untested]
    blocks: list[Block] = [Line(estimate.framework, "Runs on", "strong")]
    if (found := framework_options(question, estimate)) is not None:
        groups = {"": found.options} if is_whole else grouped_options(found.in_effect)
        blocks.append(Phrases([[f"{path}:", *each] if path else each for path, each in groups.items()]))
        if found.unsaid:
            blocks.append(Line(f"No option sets: {joined(found.unsaid)}.", ""))
    return [*blocks, *untested]


def memory_part(estimate: Estimate, *, is_whole: bool = False) -> Part:
    """The fullest stage as a bar of its parts, and what each takes: the smallest together unless ``is_whole``."""
    blocks: list[Block] = [PartsBar(memory_bar(estimate).parts, format_bytes, is_whole)]
    if estimate.feasible and not estimate.has_headroom:
        blocks.append(Line("At the upper end of its band it would not fit.", tone="doubt"))
    note = estimate.peak_memory_note
    is_said = note == estimate.step_time_note or (not is_whole and estimate.peak_memory_basis != COMPARABLE)
    if note is not None and not is_said:
        blocks.append(Line(note_sentence(note), tone="quiet"))
    return Part("Memory", blocks, memory_use(estimate))


def alive_part(question: Question, estimate: Estimate, detail: AnswerDetail) -> Part | None:
    """What is alive at the memory peak of a stage, tensor by tensor; None where nobody asked for it."""
    if detail.stage is None and not detail.explains:
        return None
    from shardplan.estimation.parts.alive import check_stage, largest_of  # takes time to import
    from shardplan.estimation.priced import PricedPlan

    stage = estimate.fullest_stage if detail.stage is None else detail.stage
    check_stage(stage, estimate.plan.pp)
    rows = largest_of(PricedPlan.of(question, estimate.plan).alive_at_peak(stage))
    return Part(f"At the peak of stage {stage}", [RowTable(rows, _alive_columns(stage, rows))], ALIVE_NOTE)


def _alive_columns(stage: int, rows: Sequence[Alive]) -> list[Column]:
    whole = sum(row.num_bytes for row in rows)
    return [
        Column("stage", None, lambda _: stage),
        Column("name", "tensors", lambda row: row.name, is_text=True),
        Column("part", "part", lambda row: row.part, is_text=True, rank=1),
        Column("one_bytes", "of one", lambda row: row.one, format_bytes, rank=2),
        Column("copies", "copies", lambda row: row.copies, lambda copies: f"{copies:.4g}", rank=2),
        Column("bytes", "together", lambda row: row.num_bytes, format_bytes),
        Column("share", "share", lambda row: row.num_bytes / whole, percent),
    ]


def step_part(estimate: Estimate, most: int = ALL_TERMS) -> Part:
    """Where the seconds of the step go: the largest terms, and the rest."""
    shares = step_split(estimate)
    num_shown = min(most, sum(share.share >= LEAST_SHARE for share in shares))
    shown, rest = [*shares[:num_shown]], shares[num_shown:]
    if sum(share.share for share in rest) >= LEAST_SHARE / 4:
        shown.append(Share(name="the rest", value=sum(s.value for s in rest), share=sum(s.share for s in rest)))
    stage = f" on stage {estimate.slowest_stage}, the slowest" if len(estimate.memory) > 1 else ""
    return Part("Step", [ShareBars(shown, term_label, _tone)], f"where the time goes{stage}")


def _tone(name: str) -> Tone:
    """Of the bar of a term: arithmetic is what a step is for, all but passes over memory is lost."""
    group = TERMS[name].group if name in TERMS else "other"
    return "useful" if group == "arithmetic" else "doubt" if group == "passes" else "wrong"


def traffic_parts(estimate: Estimate) -> list[Part]:
    """Bytes that an accelerator sends in a step, by dimension and network tier."""
    if not estimate.communication:
        return []

    def over(tier: str) -> Column:
        return Column("", tier, lambda row: row[1].get(tier, 0.0) or None, format_bytes)

    rows = [*estimate.communication.items()]
    columns = [Column("", "", lambda row: row[0], is_text=True), *(over(tier) for tier in rows[0][1])]
    note = "bytes that an accelerator of the slowest stage sends in a step"
    return [Part("Traffic", [RowTable(rows, columns)], note)]


def evidence_parts(estimate: Estimate) -> list[Part]:
    """The nearest measured runs; the record has all."""
    runs = Bullets([run_text(run) for run in estimate.evidence], "quiet", most_in_all=MOST_LINES_OF_RUNS)
    return [Part("Nearest measured runs", [runs], how_near(estimate))] if estimate.evidence else []


def assumed_texts(estimate: Estimate) -> tuple[str, ...]:
    """What was taken for granted."""
    return (*estimate.assumptions, f"MFU counts {estimate.flops_convention}")


def next_steps(
    target: JsonTarget,
    question: Question,
    estimates: Sequence[Estimate],
    detail: AnswerDetail,
    *,
    asked: str,
    is_search: bool,
) -> Part:
    """What to type next: ``estimates`` are the recommended plan and, of a search, the fastest where it is another.

    ``asked``: the question as words of a command; empty where they do not say it. Only what works as it stands is
    offered: a plan file where it is written. In three lines, or all there is where reasons were asked for.
    """
    keep = f"{target.where} has everything" if target.path is not None else "--json FILE keeps everything"
    best, is_kept = estimates[0], target.path is not None
    commands = [*_of_file(target, question, estimates, is_search=is_search)] if is_kept else []
    if asked:
        commands.append(CommandLine(" ".join(["shardplan estimate", asked, *plan_flags(question, best)])))
    if not detail.explains:
        more = "--explain adds reasons" if detail.states_assumptions else "--all adds reasons and assumptions"
        return Part("", [Line(f"{more}; {keep}", "Next", "strong"), *commands])
    said = "" if detail.states_assumptions else "--assumptions says what was assumed; "
    return Part("Next steps", [Line(f"{said}{keep}."), *commands])


def _of_file(
    target: JsonTarget, question: Question, estimates: Sequence[Estimate], *, is_search: bool
) -> Iterator[CommandLine]:
    """What to do with the plan file that was written."""
    name, is_two = shlex.quote(str(target.where)), len(estimates) > 1
    picked = " --pick recommended" if is_two else ""
    yield CommandLine(f"shardplan estimate --from {name}{picked} {variant_flag(question, estimates[0].plan)}")
    if is_search and is_two:
        yield CommandLine(f"shardplan compare {name} --pick 1,recommended")
