"""An answer as text, the same on the command line and on pages: question, verdict, nearest measured runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shardplan.base.units import format_count, format_rate, format_time
from shardplan.base.words import joined

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.estimation.evidence import NearRun
    from shardplan.estimation.question import Question
    from shardplan.inputs.cluster import Cluster
    from shardplan.inputs.readers.causes import Cause
    from shardplan.planner.result import SearchResult, WithoutLibraries

SAME: Final = 5e-4
"""Share of a difference that rounds to 0.0 %."""


def percent(share: float) -> str:
    """A share as text."""
    return f"{100 * share:.1f} %"


def signed_percent(share: float, digits: int = 1) -> str:
    """A relative difference as text; one that rounds to nothing has no sign."""
    text = f"{100 * share:+.{digits}f}"
    return f"{text if float(text) else text[1:]} %"


def longer_or_shorter(before: float, after: float) -> str:
    """How much longer or shorter one time is than another."""
    share = after / before - 1
    if abs(share) < SAME:
        return "no change"
    return f"{abs(100 * share):.1f} % {'longer' if share > 0 else 'shorter'}"


def sentence(text: str) -> str:
    """A clause with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def note_sentence(note: str) -> str:
    """What is not measured, as a sentence; names of degrees stay as they are."""
    return sentence(note) if note.startswith("no ") else f"{note}."


def question_title(question: Question, count: str | None = None) -> str:
    """Model and accelerators. ``count``: their number as text, where it is not one."""
    where = f"{count or f'{question.num_given:,}'} x {question.cluster.accelerator.full_name}"
    return f"{question.model.name} on {where}{f': {question.uses}' if question.uses else ''}"


def idle_text(result: SearchResult) -> str:
    """What all given accelerators would do, where a search leaves some idle; empty where it leaves none."""
    question, fewer = result.question, result.fewer
    if not question.num_idle or fewer is None:
        return ""
    time, given = fewer.step_time_of_all, f"{question.num_given:,}"
    all_of_them = f"nothing fits on all {given}" if time is None else f"all {given} take {format_time(time)} a step"
    return f"{all_of_them} (--use-all); idle ones count in MFU, tokens/s per accelerator and cost"


def library_texts(result: SearchResult) -> list[str]:
    """What the answer becomes without the libraries that its plan needs: ``without hybridep 18.9 s (+2 %)``."""
    taken = result.recommended
    if taken is None:
        return []
    return [f"without {joined(each.missing)} {_then(each, taken)}" for each in result.without_libraries()]


LEAST_LONGER: Final = 0.05
"""From which a step is longer in the digits that are shown. [%]"""


def _then(without: WithoutLibraries, taken: Estimate) -> str:
    if without.step_time is None:
        return "nothing fits"
    longer = 100 * (without.step_time / taken.step_time - 1)
    return f"{format_time(without.step_time)} a step ({f'{longer:+.1f} %' if longer >= LEAST_LONGER else 'no slower'})"


def question_parts(question: Question) -> tuple[str, ...]:
    """Size of the model, cluster and job, each in a few words."""
    model, job = question.model, question.job
    parameters = format_count(model.num_parameters)
    if model.is_moe:
        parameters += f" ({format_count(model.num_active_parameters)} active)"
    sequences = "sequence" if job.global_batch_size == 1 else "sequences"
    tokens = "token" if job.sequence_length == 1 else "tokens"
    step = f"{job.global_batch_size:,} {sequences} of {job.sequence_length:,} {tokens} a step"
    beside = "" if job.base_weights == "same" else f" beside {job.base_weights} weights"
    trained = f"lora of rank {job.lora_rank}{beside}" if job.train == "lora" else f"without {job.freeze}"
    training = () if job.trains_all else (trained,)
    return f"{parameters} parameters", cluster_words(question), step, job.precision, job.optimizer, *training


def cluster_words(question: Question) -> str:
    """The cluster, and how many accelerators the largest known one has where the question takes more."""
    cluster, most = question.cluster, question.cluster.max_num_accelerators
    is_larger = most is not None and question.num_accelerators > most
    return f"{cluster.name} (largest known: {most:,})" if is_larger else cluster.name


def band_name(basis: str) -> str:
    """What the two ends are: of a calibrated band, in 8 of 10 comparable runs the measured value is between them."""
    from shardplan.estimation.band import COMPARABLE  # whoever has an estimate has imported it

    return "80 % band" if basis == COMPARABLE else basis


def step_band(estimate: Estimate) -> str:
    """The two ends of the step time, and what they are: ``80 % band 7.32 s to 8.77 s``."""
    ends = f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}"
    name = band_name(estimate.step_time_basis)
    if name == estimate.step_time_basis:
        return f"{ends}, {name}"
    return f"{name} {ends}{' with your own runs' if estimate.step_time_own_p10 is None else ''}"


def narrowed_text(estimate: Estimate) -> str:
    """What measured runs of one's own would make of the band of the step time; empty where it has them."""
    low, high = estimate.step_time_own_p10, estimate.step_time_own_p90
    if low is None or high is None:
        return ""
    return f"with your own runs {format_time(low)} to {format_time(high)}"


def mfu_text(estimate: Estimate, *, is_whole: bool) -> str:
    """Utilisation and the peak that it is a share of; ``is_whole``: with what counts recomputation too."""
    mfu = f"MFU {percent(estimate.mfu)}"
    if is_whole and estimate.hfu > estimate.mfu * 1.0005:
        mfu += f", HFU {percent(estimate.hfu)}"
    return f"{mfu} of {format_rate(estimate.peak_flops, 'FLOP')} {estimate.peak_format}"


def token_rates(question: Question, estimate: Estimate) -> tuple[str, str]:
    """Tokens per second: of all accelerators, and of one."""
    per_accelerator = estimate.tokens_per_second_per_accelerator
    rate, total = (format_count(round(each)) for each in (per_accelerator, per_accelerator * question.num_given))
    return total, rate


def rates_text(question: Question, estimate: Estimate, *, is_whole: bool) -> str:
    """Tokens per second and utilisation."""
    total, rate = token_rates(question, estimate)
    return f"{total} tokens/s ({rate} per accelerator), {mfu_text(estimate, is_whole=is_whole)}"


def training_text(question: Question, estimate: Estimate) -> str:
    """Days and accelerator-hours for the tokens of the job, with their band."""
    time, tokens = estimate.time_to_train, question.job.tokens
    assert time is not None
    assert tokens is not None
    low, high = (
        format_time(time * end / estimate.step_time) for end in (estimate.step_time_p10, estimate.step_time_p90)
    )
    hours = format_count(round(time / 3600 * question.num_given))
    return (
        f"{format_time(time)} for {format_count(tokens)} tokens ({low} to {high}), {hours} accelerator-hours, "
        "without failures and restarts"
    )


def cost_text(question: Question, estimate: Estimate, *, is_whole: bool) -> str:
    """Money for that time, with its band, and at which price; ``is_whole``: with the source of the price."""
    money, cluster = estimate.money, question.cluster
    assert money is not None
    low, high = (
        format_count(round(money * end / estimate.step_time))
        for end in (estimate.step_time_p10, estimate.step_time_p90)
    )
    source = f" ({first_source(cluster)})" if is_whole else ""
    price = f"{price_text(cluster)} an accelerator-hour"
    return f"{money_text(money)} ({low} to {high}) at {price}{source}"


def money_text(money: float, currency: str = "USD") -> str:
    """Money, as everywhere: ``1.20M USD``."""
    return f"{format_count(round(money))} {currency}"


def price_text(cluster: Cluster) -> str:
    """The price of an hour of an accelerator."""
    return f"{cluster.accelerator_price:,.2f} USD"


def first_source(cluster: Cluster) -> str:
    """Where the price of an accelerator comes from, without further quotes."""
    return cluster.price_source.partition(";")[0]


def how_near(estimate: Estimate) -> str:
    """How far the question is from the nearest measured run."""
    return near_words(estimate.evidence[0].distance)


def near_words(distance: float) -> str:
    """How far a measured run is from a question: one is a doubling of one parallel degree."""
    number = round(distance)
    if not number:
        return "nearly the same plan" if distance else "the same plan"
    return f"about {'one doubling' if number == 1 else f'{number} doublings'} of a parallel degree away"


def run_text(run: NearRun) -> str:
    """A measured run near the question, predicted without it."""
    measured, predicted = run.measured_step_time, run.measured_step_time * (1 + run.unseen_error)
    return (
        f"{run.id} ({run.num_accelerators:,} x {run.accelerator}; {run.summary}): measured {format_time(measured)}, "
        f"predicted unseen {format_time(predicted)} ({error_text(run)}){why_off(run)}"
    )


FAR_OFF: Final = 0.25
"""Error from which on a measured run is cited with the reason."""


def why_off(run: NearRun) -> str:
    """The known cause of a large error, behind it; empty for an error of less than ``FAR_OFF``."""
    if abs(run.unseen_error) < FAR_OFF:
        return ""
    cause = _cause(run)
    return ", for a reason that is not known" if cause is None else f", known cause: {cause.cause}"


def is_explained(run: NearRun) -> bool:
    """Whether the cause of its error is known."""
    return _cause(run) is not None


def _cause(run: NearRun) -> Cause | None:
    from shardplan.reports.accuracy.causes import cause_of  # takes time to import

    return cause_of(run.id)


def error_text(run: NearRun) -> str:
    """How far a measured run was from the prediction of constants that have not seen it."""
    return signed_percent(run.unseen_error)


def signed_time(time: float) -> str:
    """A difference of times."""
    return ("+" if time >= 0 else "-") + format_time(abs(time))


def more_or_less(share: float) -> str:
    """A relative difference."""
    if abs(share) < SAME:
        return "the same"
    return f"{percent(abs(share))} {'more' if share > 0 else 'less'}"
