"""What a user measured, held against the prediction: which causes bridge the gap, each by pricing the plan with it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Final, Literal

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.base.fields import dataclass, in_files
from shardplan.base.files import shipped_document
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.overrides import override

Kind = Literal["step_time", "tokens_per_second", "flops", "mfu", "out_of_memory"]
MOST_CAUSES: Final = 8
LEAST_SHARE: Final = 0.03
"""Share of the gap from which a cause is listed."""
MOST_BRIDGED: Final = 4.0
"""Times the gap up to which it is: a small part of a large effect explains little."""

_NUMBER: Final = r"(?P<n>\d{1,18}(?:[.,]\d{1,18}){0,6}(?:[eE][+-]?\d{1,3})?)\s*(?P<k>(?-i:[kKMG]?))"
_FORMS: Final = (
    (
        "step_time",
        rf"(?:step|iteration|iter)?\s*(?:time)?\s*[:=]?\s*{_NUMBER}\s*(?P<u>ms|s|sec|seconds|min)(?:/(?:step|it|iter))?",
    ),
    (
        "tokens_per_second",
        rf"{_NUMBER}\s*(?:tok|tokens?)\s*(?:/|per)\s*(?:s|sec|second)(?P<u>\s*(?:/|per)\s*(?:gpu|device|chip))?",
    ),
    ("flops", rf"{_NUMBER}\s*(?P<u>T|P|G)FLOPs?(?:/s|ps)?(?:/(?:gpu|device))?"),
    ("mfu", rf"MFU\s*[:=]?\s*{_NUMBER}\s*(?P<u>%?)"),
    ("out_of_memory", r"(?:CUDA )?(?:OOM|out of memory)(?:\s*(?:on|at)?\s*rank\s*(?P<n>\d{1,9}))?(?P<k>)(?P<u>)"),
)
"""What a measurement looks like: a number ``n`` with a prefix ``k`` and a unit ``u``."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A measurement."""

    text: str
    kind: Kind
    value: float
    """Seconds, tokens per second, FLOP per second, a share, or a rank (-1: any)."""
    per_accelerator: bool = False


@dataclass(frozen=True, kw_only=True)
class GapCause:
    """What may explain a gap."""

    cause: str
    """As a sentence."""
    change: dict[str, object]
    """What was priced in place of the plan's own."""
    bridges: float
    """Its effect over the gap: 1 is all of it, above 1 more than was measured."""
    step_time: float | None = field(metadata=in_files("step_time_s"))
    """With it. [s]"""
    peak_memory_bytes: float | None
    """With it. [bytes]"""
    check: str
    """What confirms it, or rules it out."""

    @property
    def explains(self) -> float:
        """How well it explains the gap, at most 1: as far as its effect falls short of the gap, or exceeds it."""
        return min(self.bridges, 1 / self.bridges) if self.bridges > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class GapExplanation:
    """A measurement next to the prediction."""

    observed: Observed
    meaning: str
    """What the measurement is in step time or memory, and how it was read."""
    ratio: float | None
    """Measured step time over the predicted one."""
    is_in_band: bool = field(metadata=in_files("in_band"))
    """Whether the prediction's band covers it."""
    causes: tuple[GapCause, ...]
    """The one that explains most first."""


def parse_observed(text: str) -> Observed:
    """A measurement as people write it: ``step 7.9s``, ``1500tok/s``, ``120 TFLOP/s``, ``MFU 38%``, ``OOM rank 0``.

    Raises ``InputError``.
    """
    for kind, form in _FORMS:
        match = re.fullmatch(form, text.strip()[:200], re.IGNORECASE)
        if match is not None:
            return _observed(text.strip(), kind, match)  # type: ignore[arg-type]
    raise _wrong(text)


def _wrong(text: str) -> InputError:
    return InputError(
        f"--observed is {shown(text)}",
        rule="--observed is a step time, a rate, an MFU below 100 % or an out-of-memory error",
        hint='write "step 7.9s", "1500tok/s", "1500tok/s/gpu", "120 TFLOP/s", "MFU 38%" or "OOM rank 0"',
    )


def _observed(text: str, kind: Kind, match: re.Match[str]) -> Observed:
    if kind == "out_of_memory":
        return Observed(text=text, kind=kind, value=float(match["n"] or -1))
    try:
        number = float(match["n"].replace(",", ""))
    except ValueError:
        raise _wrong(text) from None
    number *= {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}.get(match["k"], 1.0)
    unit = (match["u"] or "").lower().strip()
    scale = {"ms": 1e-3, "min": 60.0, "t": 1e12, "p": 1e15, "g": 1e9, "%": 0.01}.get(unit, 1.0)
    if kind == "mfu" and not unit and number > 1:
        scale = 0.01
    if not 0 < number * scale < (1.0 if kind == "mfu" else math.inf):
        raise _wrong(text)
    return Observed(
        text=text, kind=kind, value=number * scale, per_accelerator=kind == "tokens_per_second" and bool(unit)
    )


def explain(question: Question, plan: Plan, now: Estimate, observed: Observed) -> GapExplanation:
    """Which causes bridge the gap between ``now`` and what was observed."""
    if observed.kind == "out_of_memory":
        return _explain_memory(question, plan, now, observed)
    measured, meaning = _step_time(question, now, observed)
    ratio = measured / now.step_time
    causes = (
        [] if abs(math.log(ratio)) < math.log1p(LEAST_SHARE / 3) else _time_causes(question, plan, now, ratio, observed)
    )
    return GapExplanation(
        observed=observed,
        meaning=meaning,
        ratio=ratio,
        is_in_band=now.step_time_p10 <= measured <= now.step_time_p90,
        causes=tuple(causes[:MOST_CAUSES]),
    )


def _step_time(question: Question, now: Estimate, observed: Observed) -> tuple[float, str]:
    """The step time that a measurement means. [s]"""
    tokens, total = question.job.tokens_per_step, question.num_accelerators
    if observed.kind == "step_time":
        return observed.value, f"a step of {observed.value:.4g} s"
    if observed.kind == "tokens_per_second":
        each = now.tokens_per_second_per_accelerator
        is_each = observed.per_accelerator or abs(math.log(observed.value / each)) < abs(
            math.log(observed.value / each / total)
        )
        rate = observed.value * (total if is_each else 1)
        how = "per accelerator" if is_each else "of all accelerators"
        guessed = "" if observed.per_accelerator or total == 1 else ", which is nearer to the prediction"
        return tokens / rate, f"read as a rate {how}{guessed}: a step of {tokens / rate:.4g} s"
    flops = observed.value * (now.peak_flops if observed.kind == "mfu" else 1.0)
    time = now.model_flops_per_token * tokens / total / flops
    return (
        time,
        f"{flops / 1e12:.4g} TFLOP/s of an accelerator, counted as here: a step of {time:.4g} s",
    )


def _time_causes(question: Question, plan: Plan, now: Estimate, ratio: float, observed: Observed) -> list[GapCause]:
    """Causes in the direction of the gap, the ones that bridge most of it first."""
    found = list(_counting(now, ratio, observed))
    for entry in _entries():
        changed = _repriced(question, plan, entry)
        if changed is None:
            continue
        share = math.log(changed.step_time / now.step_time) / math.log(ratio)
        if share >= LEAST_SHARE:
            found.append(_cause(entry, changed, share))
    found += _known_runs(now)
    return _ranked(found)


def _ranked(causes: Sequence[GapCause]) -> list[GapCause]:
    """Those that explain the gap best first; what would cost many times as much as was lost is no explanation."""
    return sorted((each for each in causes if each.bridges <= MOST_BRIDGED), key=lambda each: -each.explains)


def _cause(entry: Mapping[str, Any], changed: Estimate, share: float) -> GapCause:
    return GapCause(
        cause=str(entry["cause"]),
        change=dict(entry["change"]),
        bridges=share,
        step_time=changed.step_time,
        peak_memory_bytes=changed.peak_memory_bytes,
        check=str(entry["check"]),
    )


def _counting(now: Estimate, ratio: float, observed: Observed) -> Iterator[GapCause]:
    """A rate that is counted otherwise: against the sparse peak, or with FLOP that are not the model's."""
    if observed.kind == "mfu":
        yield GapCause(
            cause="the MFU was divided by the peak with sparsity, which is twice the dense one",
            change={"peak": "2 x"},
            bridges=math.log(2) / math.log(ratio),
            step_time=now.step_time,
            peak_memory_bytes=None,
            check=f"divide by the dense peak, {now.peak_flops / 1e12:.0f} TFLOP/s of {now.peak_format}",
        )
    if observed.kind in {"mfu", "flops"} and now.hfu > now.mfu:
        yield GapCause(
            cause="the FLOP of recomputation were counted too (HFU)",
            change={"flops": "with recomputation"},
            bridges=math.log(now.mfu / now.hfu) / math.log(ratio),
            step_time=now.step_time,
            peak_memory_bytes=None,
            check="count forward and backward of the model once",
        )


def _known_runs(now: Estimate) -> Iterator[GapCause]:
    """Causes that measured runs nearby are known to have; they are listed last, since nothing is priced."""
    from fnmatch import fnmatchcase

    near = [run.id for run in now.evidence if run.distance < 1]
    for entry in _document("measured_runs/causes.yaml")["step_time"]:
        runs = [run for run in near if any(fnmatchcase(run, pattern) for pattern in entry["runs"])]
        if runs:
            yield GapCause(
                cause=f"known of the measured run {runs[0]} nearby: {entry['cause']}",
                change={},
                bridges=0.0,
                step_time=None,
                peak_memory_bytes=None,
                check=f"state {entry['state']}",
            )


def _explain_memory(question: Question, plan: Plan, now: Estimate, observed: Observed) -> GapExplanation:
    """Causes by the bytes that they add, as a share of what is free."""
    free = now.usable_memory_bytes - now.peak_memory_bytes
    causes = []
    for entry in _entries():
        changed = _repriced(question, plan, entry)
        added = 0.0 if changed is None else changed.peak_memory_bytes - now.peak_memory_bytes
        if changed is not None and added > LEAST_SHARE * now.peak_memory_bytes:
            causes.append(_cause(entry, changed, added / max(free, 1.0) if free > 0 else 1.0))
    rank = "" if observed.value < 0 else f" (rank {observed.value:.0f})"
    verdict = (
        "the prediction does not fit either" if free <= 0 else f"{free / 1e9:.1f} GB more than predicted are needed"
    )
    return GapExplanation(
        observed=observed,
        meaning=f"out of memory{rank}: {verdict}",
        ratio=None,
        is_in_band=now.peak_memory_p90_bytes >= now.usable_memory_bytes,
        causes=tuple(_ranked(causes)[:MOST_CAUSES]),
    )


def _repriced(question: Question, plan: Plan, entry: Mapping[str, Any]) -> Estimate | None:
    """The estimate with a cause in effect; None where it is in effect already, or does not apply."""
    try:
        other, changed = _with(question, plan, entry["change"])
        if other == question and changed == plan:
            return None
        return estimate_plan(other, changed)
    except ShardplanError:
        return None


def _with(question: Question, plan: Plan, change: Mapping[str, Any]) -> tuple[Question, Plan]:
    """Question and plan with the values of ``change``: ``software.x``, ``job.x``, ``plan.x``, ``cluster.x``."""
    by_room: dict[str, dict[str, Any]] = {"software": {}, "job": {}, "plan": {}, "cluster": {}}
    for key, value in change.items():
        room, _, name = key.partition(".")
        by_room[room][name] = value
    software = replace(question.job.software, **by_room["software"])
    job = replace(question.job, software=software, **by_room["job"])
    cluster = (
        override(question.cluster, _scaled(question, by_room["cluster"])) if by_room["cluster"] else question.cluster
    )
    return replace(question, job=job, cluster=cluster), replace(plan, **by_room["plan"])


def _scaled(question: Question, factors: Mapping[str, float]) -> Any:
    """Bandwidths and peaks times factors."""
    tiers = question.cluster.tiers
    values: dict[str, Any] = {}
    for name, factor in factors.items():
        if name == "inter_node_bandwidth" and len(tiers) > 1:
            values[name] = tiers[1].bandwidth * factor
        elif name == "intra_node_bandwidth":
            values[name] = tiers[0].bandwidth * factor
        elif name == "peak_flops":
            peaks = question.cluster.accelerator.peak_flops
            values[name] = {key: value * factor for key, value in peaks.items()}
    return values


@cache
def _document(name: str) -> Mapping[str, Any]:
    from shardplan.base.files import DATA

    return shipped_document(DATA / name)


@cache
def _entries() -> tuple[Mapping[str, Any], ...]:
    """The causes that ship, in the order of the file."""
    return tuple(_document("observed_causes.yaml")["causes"])
