"""The answer of ``plan``: the recommended plan, the best plans, reasons and alternatives; or what would fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    Block,
    Column,
    CommandLine,
    Line,
    Part,
    RowTable,
    Span,
    Tone,
    assumptions_part,
)
from shardplan.answers.estimate import (
    ALL_TERMS,
    MOST_TERMS,
    AnswerDetail,
    assumed_texts,
    evidence_parts,
    memory_part,
    next_steps,
    step_part,
    verdict,
)
from shardplan.answers.plans import plan_line, question_lines
from shardplan.answers.sections import stages_parts, truth_record
from shardplan.base.outputs import JsonTarget
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.planner.retiming import CLOSED_FORM_ERROR, Retimed
from shardplan.planner.robustness import Ties
from shardplan.reports.explanation import Explanation, explained_record
from shardplan.reports.recommendation import (
    Recommendation,
    against_fastest,
    against_text,
    faster_by,
    listed_plans,
    num_that_fit,
    reason,
    recommendation,
    ties_sentence,
)
from shardplan.reports.texts.answer import idle_text, library_texts, percent, sentence
from shardplan.reports.texts.explanation import (
    account_sentences,
    alone_text,
    best_texts,
    limits_sentences,
    most_helpful,
)
from shardplan.reports.texts.plan import field_text, flags_text, short_recompute, short_sharding
from shardplan.reports.truth import TruthLine, truth_of

WORTH_A_WORD: Final = 0.005
"""Share of the step by which the fastest plan must be faster to be named in the first lines."""
RECOMMENDED, TIE, FULL, UNTESTED = "*", "=", "!", "?"
"""Marks of the table of plans."""
WORST: Final = "at worst"
"""Title of the pessimistic step times."""
NONE_FITS: Final = Line("None of the changes that were tried (more accelerators, offload, fewer restrictions) fits.")
WIDE: Final = 100
"""From this width on alternatives are in columns, where no text is too long for them."""


def search_document(
    result: SearchResult,
    reasons: Explanation | None,
    given: Sequence[str] = (),
    *,
    detail: AnswerDetail = AnswerDetail(),  # noqa: B008  # immutable
    listed: int | None = None,
    target: JsonTarget | None = None,
    asked: str = "",
) -> AnswerDocument:
    """The whole answer, with ``reasons`` where there are some.

    ``given``: what the user set; ``listed``: plans of the table; ``target``: where the record goes; ``asked``: the
    question in words.
    """
    found = None if result.ties is None else recommendation(result.ties, result.estimates)
    if found is None:
        blocks, parts, truth = _nothing_fits(result), _parts_of_nothing(result, detail), None
    else:
        truth = truth_of(result.question, found.estimate)
        blocks = _verdict(result, found, truth, detail)
        parts = [*_plan_parts(result, found, truth, detail, listed), *_reason_parts(result, found, reasons, detail)]
        if target is not None:
            plans = (found.estimate,) if found.is_fastest else (found.estimate, found.fastest)
            steps = next_steps(target, result.question, plans, detail, asked=asked, is_search=True)
            is_short = detail == AnswerDetail()  # it follows what would help most, without a blank line
            parts = [*parts[:-1], Part("", [*parts[-1].blocks, *steps.blocks])] if is_short else [*parts, steps]
    return AnswerDocument(
        name="plan-file",
        head=question_lines(result.question, given),
        verdict=blocks,
        parts=parts,
        assumptions=() if found is None else assumed_texts(found.estimate),
        record=lambda: explained_record(result, reasons) | truth_record(truth),
        is_yes=found is not None,
    )


def _verdict(result: SearchResult, found: Recommendation, truth: TruthLine, detail: AnswerDetail) -> list[Block]:
    """The recommended plan, and what is to be known of it."""
    blocks = verdict(result.question, found.estimate, is_whole=detail.explains, truth=truth)
    if idle := idle_text(result):
        blocks.append(Line(idle, "Idle", "strong"))
    if not found.is_fastest and found.time_lost >= WORTH_A_WORD:
        text = f"plan 1 below: {faster_by(found)}, but {against_fastest(found)}"
        blocks.append(Line(text, "Fastest", "strong"))
    if texts := library_texts(result):
        blocks.append(Line("; ".join(texts), "Needs", "strong"))
    return blocks


def _plan_parts(
    result: SearchResult, found: Recommendation, truth: TruthLine, detail: AnswerDetail, listed: int | None
) -> list[Part]:
    """Memory and time of the recommended plan, and the best plans."""
    most = ALL_TERMS if detail.explains else MOST_TERMS
    memory = memory_part(found.estimate, is_whole=detail.explains)
    stages = stages_parts(truth) if detail.explains else []
    return [memory, step_part(found.estimate, most), *stages, plans_part(result, found, listed)]


def _reason_parts(
    result: SearchResult, found: Recommendation, reasons: Explanation | None, detail: AnswerDetail
) -> list[Part]:
    """What would help most, where reasons are asked for all that is known of them, and what was assumed."""
    parts = [] if reasons is None else [Part("", [Line(most_helpful(result, reasons), "Better", "strong")])]
    if detail.explains and reasons is not None:
        parts += [
            choice_part(result, found),
            Part("What limits it", [*map(Line, limits_sentences(reasons))]),
            alternatives_part(reasons, result.estimates),
            account_part(result),
            *evidence_parts(found.estimate),
        ]
    return [*parts, assumptions_part(assumed_texts(found.estimate))] if detail.states_assumptions else parts


def plans_part(result: SearchResult, found: Recommendation, most: int | None = None) -> Part:
    """The best ``most`` plans, best first, with the recommended one among them."""
    assert result.ties is not None
    ties, best, shown = result.ties, result.estimates[0], listed_plans(result, most)
    that_fit = f"of {num_that_fit(result)} that fit"
    if len(shown.estimates) == 1:
        return Part("Best plans", [], f"{that_fit}: the one above")

    def tone(estimate: Estimate) -> Tone:
        return "good" if estimate.plan == found.estimate.plan else "strong" if estimate is best else ""

    table = RowTable(shown.estimates, plan_columns(result, ties, most), tone, _notes(shown.estimates, ties))
    simulated = [Line(text, tone="quiet") for text in _simulated_sentences(ties, result.estimates)]
    return Part("Best plans", [table, *simulated], f"{that_fit}, each with other degrees; mb: micro-batch")


def plan_columns(result: SearchResult, ties: Ties, most: int | None) -> list[Column]:
    """What tells the listed plans apart."""
    best, shown = result.estimates[0], listed_plans(result, most)
    retimed, taken, recommended = ties.retimed, ties.time_of(ties.recommended), ties.recommended.plan

    def against(estimate: Estimate) -> str:
        return "" if estimate.plan == recommended else against_text(ties.time_of(estimate) - taken, taken)

    def of_plan(name: str) -> Any:
        return lambda estimate: getattr(estimate.plan, name)

    def worst(estimate: Estimate) -> str:
        robust = ties.robustness.get(estimate.plan)
        return "" if robust is None else format_time(robust.pessimistic_time)

    return [
        Column("", "", lambda e: shown.places.get(e.plan, "")),
        Column("", "", lambda e: _mark(e, ties, best), is_text=True),
        Column("", "step", lambda e: e.step_time, format_time),
        *([] if retimed is None else [Column("", "simulated", lambda e: _simulated_text(retimed, e))]),
        Column("", f"vs {RECOMMENDED}", against, rank=3),
        Column("", WORST, worst, rank=5),
        Column("", "MFU", lambda e: e.mfu, percent, rank=2),
        Column("", "memory", memory_text),
        *(Column("", name.removeprefix("tp_"), of_plan(name)) for name in shown.degrees),
        Column("", "dp", lambda e: e.dp),
        Column("", "mb", of_plan("micro_batch_size")),
        *(
            Column("", name.replace("_", " "), of_plan(name), field_text, is_text=True, rank=4)
            for name in shown.switches
        ),
        Column("", "sharding", lambda e: short_sharding(e.plan), is_text=True, rank=1),
        Column("", "recompute", lambda e: short_recompute(e.plan), is_text=True, rank=1),
    ]


def _simulated_text(retimed: Retimed, estimate: Estimate) -> str:
    """The simulated step time of a plan; "no" where it was not simulated."""
    time = retimed.step_time.get(estimate.plan)
    return "no" if time is None else format_time(time)


def _simulated_sentences(ties: Ties, estimates: Sequence[Estimate]) -> list[str]:
    """Which plans were simulated, and why others of the list were not."""
    retimed = ties.retimed
    if retimed is None:
        return []
    near = f"{100 * CLOSED_FORM_ERROR:.0f} %"
    text = (
        f"{retimed.num_plans:,} plans were simulated, which ranks them: those listed and those whose estimate is "
        f"within {near} of the best, {retimed.most:,} at most."
    )
    places = {each.plan: f"plan {number}" for number, each in enumerate(estimates, start=1)}
    kept = [f"{places.get(plan, 'the recommended plan')} ({why})" for plan, why in retimed.not_simulated.items()]
    return [text, f"Not simulated, and with the time of the estimate: {'; '.join(kept)}."] if kept else [text]


def _mark(estimate: Estimate, ties: Ties, fastest: Estimate) -> str:
    shown = UNTESTED if estimate.untested else ""
    if estimate.plan == ties.recommended.plan:
        return RECOMMENDED + shown
    return (TIE if estimate.plan in ties.robustness and estimate.plan != fastest.plan else "") + shown


def memory_text(estimate: Estimate) -> str:
    """Peak memory, marked where it might not fit."""
    return format_bytes(estimate.peak_memory_bytes) + (" " if estimate.has_headroom else FULL)


def _notes(listed: Sequence[Estimate], ties: Ties) -> list[tuple[str, str]]:
    """What the marks of the table mean."""
    notes = [("", f"{RECOMMENDED} take this one")]
    if any(TIE in _mark(each, ties, listed[0]) for each in listed):
        notes.append(("", f"{TIE} within {100 * (ties.factor - 1):.0f} %, too close to call"))
    if not all(each.has_headroom for each in listed):
        notes.append(("", f"{FULL} may not fit"))
    if any(each.untested for each in listed):
        notes.append(("", f"{UNTESTED} untested"))
    worse = "if network, overlap and host are all worse than assumed, and unmeasured plans take longer"
    return [*notes, (WORST, f"{WORST}: {worse}")]


def choice_part(result: SearchResult, found: Recommendation) -> Part:
    """Why this plan and no other."""
    assert result.ties is not None
    fastest = (
        Line("The fastest as flags of `shardplan estimate`:"),
        CommandLine(flags_text(result.question, found.fastest)),
    )
    return Part(
        "Why this plan",
        [
            Line(sentence(reason(found))),
            Line(ties_sentence(result.ties, result.num_plans_feasible, is_least=result.num_plans_pruned > 0)),
            *(() if found.is_fastest else fastest),
        ],
    )


def alternatives_part(reasons: Explanation, estimates: Sequence[Estimate]) -> Part:
    """What comes of each change."""
    columns = (
        Column("", "change", lambda row: row[0].name, is_text=True),
        Column("", "alone", lambda row: alone_text(row[0]), is_text=True, short="alone"),
        Column("", "best with it", lambda row: row[1], is_text=True, short="best"),
    )
    rows = [*zip(reasons.alternatives, best_texts(reasons, estimates), strict=True)]
    note = "the change alone, and the best plan with it when all else is free"
    return Part("Alternatives", [RowTable(rows, columns, stacked_below=WIDE)], note)


def account_part(result: SearchResult) -> Part:
    """How much was searched, and what the best is the best of."""
    return Part("Searched", [*map(Line, account_sentences(result))])


def _nothing_fits(result: SearchResult) -> list[Block]:
    """What is missing."""
    if result.smallest is not None:
        need = (result.smallest.reason or "").partition(": ")[0]  # what follows are flags of `estimate`
        why = f"Nothing fits. Of the plan that needs least memory, {need}."
    elif result.num_plans_evaluated:
        why = "Nothing fits. "
    else:
        most = next(iter(result.rejected), None)
        often = "" if most is None else f"; most often: {most}"
        why = f"No plan is valid. Every combination of the declared space breaks a rule{often}."
    lines: list[Block] = [Line((Span(why, "bad"),))]
    lines += [Line(f"{cause}.", "Cause", "strong") for cause in result.causes]
    if result.smallest is not None:
        return [*lines, plan_line(result.smallest, "Least")]
    return lines if result.suggestions else [*lines, NONE_FITS]


def _parts_of_nothing(result: SearchResult, detail: AnswerDetail) -> list[Part]:
    """How far the nearest plan is from fitting, and what would fit."""
    nearest = [each for each in (result.smallest, *(s.estimate for s in result.suggestions)) if each is not None]
    parts = [] if result.smallest is None else [memory_part(result.smallest)]
    if result.suggestions:
        columns = (
            Column("", "step", lambda each: each.estimate.step_time, format_time),
            Column("", "memory", lambda each: memory_text(each.estimate)),
            Column("", "accelerators", lambda each: each.num_accelerators, "{:,}".format, rank=1),
            Column("", "change", lambda each: each.change, is_text=True),
        )
        notes = [] if all(each.estimate.has_headroom for each in result.suggestions) else [("", f"{FULL} may not fit")]
        table = RowTable(result.suggestions, columns, notes=notes)
        parts.append(Part("What would fit", [table], "the recommended plan after each change"))
    elif parts:
        parts = [each._replace(blocks=[*each.blocks, NONE_FITS]) for each in parts]
    if detail.explains or not result.num_plans_evaluated:
        parts.append(account_part(result))
    return [*parts, assumptions_part(assumed_texts(nearest[0]))] if detail.states_assumptions and nearest else parts
