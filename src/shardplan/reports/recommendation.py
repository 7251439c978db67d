"""Which plan a search recommends, and why where it is not the fastest; its ties as they are in a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.planner.result import Offer, SearchResult
from shardplan.planner.robustness import EVIDENCE, Robustness, Ties, complexity_of
from shardplan.reports.texts.answer import percent, signed_time

Record = dict[str, Any]

ALIKE_MEMORY: Final = 0.01
"""Share of the usable memory below which a difference is not worth a word."""
MUCH_LARGER: Final = 2
"""Factor between batches from which a model may learn less from each token."""
ALIKE_SHARE: Final = 0.0005
"""Shares of a step that read the same with one digit behind the point."""
SLIGHT_SHARE: Final = 0.0015
"""Share of a step below which a loss avoided is not worth a word."""
WORSE: Final = {
    "network": "the network is slower than assumed",
    "overlap": "less communication is hidden than assumed",
    "host": "the host is slower than assumed",
    EVIDENCE: "unmeasured plans take longer than estimated",
}
"""What it means that a group of constants is worse, or that the estimate is where no plan was measured."""
FASTEST: Final = {
    "network": "it depends more on the network",
    "overlap": "it depends more on hidden communication",
    "host": "it depends more on the host",
    EVIDENCE: "it is farther from measured plans",
}
"""What speaks against the fastest plan where it loses more than the recommended one, by group."""
LEAST: Final = "takes least time if all that is uncertain is worse than assumed"
SIMPLER: Final = (
    "has stages of equal layers",
    "splits fewer dimensions",
    "has fewer switches",
    "has fewer model chunks on a rank",
)
"""In what a plan is simpler, by what is weighed first."""

DEGREES: Final = ("tp", "tp_rows", "cp", "pp", "vp", "ep", "etp")
SWITCHES: Final = (
    "tp_kind", "cp_comm", "schedule", "offload", "sequence_parallel", "overlap_tp", "overlap_dp", "overlap_ep",
    *CHOSEN,
)  # fmt: skip
SAME_TIME: Final = 1e-9
"""Share by which step times differ that are the same."""


class ListedPlans(NamedTuple):
    """The plans of a table: the best of a search, fastest first, with the one to take among them."""

    estimates: Sequence[Estimate]
    places: Mapping[Plan, str]
    """Numbers by which reasons name plans, from 1; a plan that is not among the best has none."""
    degrees: tuple[str, ...]
    """Those that are not one in all of them."""
    switches: tuple[str, ...]
    """Other fields in which they differ."""


def listed_plans(result: SearchResult, most: int | None = None) -> ListedPlans:
    """The best ``most`` plans of a search that has some."""
    assert result.ties is not None
    ties, best, listed = result.ties, result.estimates[0], list(result.estimates[:most])
    if ties.recommended.plan not in {each.plan for each in listed}:
        listed = sorted([*listed, ties.recommended], key=lambda each: max(ties.time_of(each), ties.time_of(best)))
    return ListedPlans(
        listed,
        {each.plan: str(number) for number, each in enumerate(result.estimates, start=1)},
        tuple(name for name in DEGREES if any(getattr(each.plan, name) != 1 for each in listed)),
        tuple(name for name in SWITCHES if len({getattr(each.plan, name) for each in listed}) > 1),
    )


def num_that_fit(result: SearchResult) -> str:
    """How many plans fit; of a pruned search at least how many, which are no fewer than tie."""
    number = max(result.num_plans_feasible, 0 if result.ties is None else result.ties.num_plans)
    return f"{'at least ' if result.num_plans_pruned else ''}{number:,}"


def against_text(more: float, taken: float) -> str:
    """The time by which a step is longer than that of the recommended plan, which takes ``taken``. [s]"""
    return signed_time(more) if abs(more) > SAME_TIME * taken else "same"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The recommended plan against the fastest."""

    estimate: Estimate
    fastest: Estimate
    place: int | None
    """Where it is listed, from 1."""
    time_lost: float
    """Share by which its step is longer; simulated steps, where there are some."""
    memory_saved: float
    """Peak memory below that of the fastest. [bytes]"""
    group: str
    """Group of constants that tells the two apart most where it is worse."""
    lost: tuple[float, float]
    """Share of the step that is lost then: by the recommended plan, and by the fastest."""

    @property
    def is_fastest(self) -> bool:
        """Whether there is nothing to weigh."""
        return self.estimate.plan == self.fastest.plan


def recommendation(ties: Ties, estimates: Sequence[Estimate]) -> Recommendation:
    """The recommended plan of a search, against the first of its ``estimates``."""
    best, fastest = ties.recommended, estimates[0]
    places = [each.plan for each in estimates]
    gains = {group: _lost(ties, fastest, group) - _lost(ties, best, group) for group in WORSE}
    group = max(gains, key=lambda name: gains[name])
    return Recommendation(
        estimate=best,
        fastest=fastest,
        place=places.index(best.plan) + 1 if best.plan in places else None,
        time_lost=ties.time_of(best) / ties.time_of(fastest) - 1,
        memory_saved=fastest.peak_memory_bytes - best.peak_memory_bytes,
        group=group,
        lost=(_lost(ties, best, group), _lost(ties, fastest, group)),
    )


def _lost(ties: Ties, estimate: Estimate, group: str) -> float:
    return ties.robustness[estimate.plan].lost_time[group] / ties.time_of(estimate)


def simulated_record(ties: Ties, estimate: Estimate) -> Record:
    """What an element of ``plans`` says of its simulation; nothing where none was asked for."""
    if ties.retimed is None:
        return {}
    return {
        "simulated_step_time_s": ties.retimed.step_time.get(estimate.plan),
        "not_simulated": ties.retimed.not_simulated.get(estimate.plan),
    }


def ties_sentence(ties: Ties, num_feasible: int, *, is_least: bool = False) -> str:
    """What a tie is, and how many there are; ``is_least``: whether more plans than ``num_feasible`` may fit."""
    share = f"{100 * (ties.factor - 1):.0f} %"
    if ties.num_plans == 1:
        return f"No other plan comes within {share} of the fastest."
    roomy = ties.num_with_headroom
    plans = f"{'at least' if is_least else 'the'} {max(num_feasible, ties.num_plans):,} plans"
    count = "all of them" if roomy == ties.num_plans else f"{roomy:,} of them" if roomy else "none of them"
    return (
        f"Step times within {share} are too close to call, by measured pairs of configurations: {ties.num_plans:,} of "
        f"{plans} that fit tie with the fastest. At the upper end of the memory band {count} "
        f"still {'fits' if roomy == 1 else 'fit'}."
    )


def reason(found: Recommendation) -> str:
    """Why it is recommended, in numbers."""
    if found.is_fastest:
        return "the fastest plan is also the most robust of those that tie with it"
    slower = f"{percent(found.time_lost)} slower than the fastest" if found.time_lost >= ALIKE_SHARE else ""
    saved = found.memory_saved if abs(found.memory_saved) >= ALIKE_MEMORY * found.estimate.usable_memory_bytes else 0.0
    more = f"needs {format_bytes(-saved)} more" if saved < 0 else ""
    gains = [text for text in (_memory_gain(found, saved), _shown_gain(found), _time_gain(found)) if text]
    gains = gains or [_simplicity(found) or LEAST]
    costs = " and ".join(text for text in (slower, more) if text)
    return f"{costs}, but {' and '.join(gains)}" if costs else f"as fast as the fastest, and {' and '.join(gains)}"


def against_fastest(found: Recommendation) -> str:
    """What speaks most against the fastest plan, in a few words."""
    if _only_fits_by_chance(found):
        return "it may run out of memory"
    if _shown_gain(found):
        return "no test or recipe shows that it runs"
    here, there = found.lost
    if there - here >= SLIGHT_SHARE:
        return FASTEST[found.group]
    return "it is less simple" if _simplicity(found) else "it loses more if things are worse"


def faster_by(found: Recommendation) -> str:
    """How much the fastest plan gains."""
    return f"{percent(found.time_lost)} faster" if found.time_lost >= ALIKE_SHARE else "as fast"


def offer_text(question: Question, offer: Offer) -> str:
    """A neighbouring count or batch, what it gains, and the flags that ask for it."""
    used, batch, changes, flags = offer.num_accelerators, offer.global_batch_size, [], []
    if used != question.num_accelerators:
        changes.append(f"use {used:,} of the {question.num_accelerators:,} accelerators")
        flags.append(f"--gpus {used}")
    if batch != question.job.global_batch_size:
        changes.append(f"take a batch of {batch:,} sequences instead of {question.job.global_batch_size:,}")
        flags.append(f"--global-batch-size {batch}")
    text = f"{' and '.join(changes)}: {percent(offer.gain)} more tokens/s"
    if batch >= MUCH_LARGER * question.job.global_batch_size:
        tokens = batch * question.job.sequence_length / 1e6
        text = f"{text}, if the model learns as well from {tokens:.3g} M tokens a step"
    return f"{text} ({' '.join(flags)})"


def _shown_gain(found: Recommendation) -> str:
    """What the framework's record says for it alone."""
    is_shown = bool(found.fastest.untested) and not found.estimate.untested
    return "a test, recipe or run shows that it works, while none does for the fastest" if is_shown else ""


def _memory_gain(found: Recommendation, saved: float) -> str:
    best, fastest = found.estimate, found.fastest
    if _only_fits_by_chance(found):
        need, usable = format_bytes(best.peak_memory_p90_bytes), format_bytes(best.usable_memory_bytes)
        without = format_bytes(fastest.peak_memory_p90_bytes)
        return f"fits even at the upper end of its memory band ({need} of {usable}; the fastest would need {without})"
    return f"needs {format_bytes(saved)} less" if saved > 0 else ""


def _only_fits_by_chance(found: Recommendation) -> bool:
    """Whether the fastest plan does not fit at the upper end of its memory band, and the recommended one does."""
    return found.estimate.has_headroom and not found.fastest.has_headroom


def _time_gain(found: Recommendation) -> str:
    here, there = found.lost
    if there - here >= SLIGHT_SHARE:
        return f"loses {percent(here)} instead of {percent(there)} if {WORSE[found.group]}"
    return ""


def _simplicity(found: Recommendation) -> str:
    """In what it is simpler than the fastest; empty where it is not."""
    num_layers = sum(found.estimate.stage_layers)
    here, there = (complexity_of(each.plan, num_layers) for each in (found.estimate, found.fastest))
    first = next((place for place in range(len(SIMPLER)) if here[place] != there[place]), None)
    return "" if first is None or here > there else f"is simpler: it {SIMPLER[first]}"


def robustness_record(ties: Ties, estimate: Estimate, fastest: Estimate) -> Record:
    """What an element of ``plans`` says of ties; the recommended plan may be slower than all of them."""
    found = ties.robustness.get(estimate.plan)
    if found is None:
        return {"is_tie": False, "robustness": None}
    return {
        "is_tie": ties.time_of(estimate) <= ties.time_of(fastest) * ties.factor * (1 + SAME_TIME),
        "robustness": {"lost_time_s": found.lost_time, "pessimistic_step_time_s": found.pessimistic_time},
    }


def robustness_from_record(lost_time: Mapping[str, float], pessimistic_time: float) -> Robustness | None:
    """What :func:`robustness_record` wrote; None where it speaks of other groups of constants."""
    if lost_time.keys() != WORSE.keys():
        return None
    return Robustness(lost_time=dict(lost_time), pessimistic_time=pessimistic_time)
