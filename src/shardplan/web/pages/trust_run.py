"""A published run as texts: what ran, what was predicted, and why the two differ."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from shardplan.reports.accuracy.known_runs import KnownRun, RunAccount
from shardplan.reports.accuracy.shortfalls import Subject
from shardplan.reports.texts.plan import plan_words
from shardplan.units import format_bytes, format_count, format_rate, format_time
from shardplan.web.figures.estimates import estimate_texts

TIERS: Final = {
    "A": "all that matters is stated",
    "A-": "one minor field is inferred",
    "B": "a field that matters is missing",
}
SUBJECTS: Final[dict[Subject, str]] = {
    "step_time": "Step time",
    "peak_memory": "Peak memory",
    "fits": "Predicted not to fit",
    "false_fits": "Predicted to fit",
}
LINK: Final = re.compile(r"https?://[^\s;,)]+")


def run_texts(account: RunAccount) -> dict[str, Any]:
    """What the panel of a run shows."""
    run, asked, estimate = account.known.run, account.prediction.asked, account.estimate
    job, cluster = asked.question.job, asked.question.cluster
    return {
        "id": run.id,
        "title": f"{asked.question.model.name} on {run.num_accelerators:,} x {run.accelerator}",
        "facts": [
            ("Origin", run.family),
            ("Framework", run.framework or "not stated"),
            ("Description", f"tier {run.tier}: {TIERS.get(run.tier, '')}"),
            ("Model", f"{asked.question.model.name}, {format_count(asked.question.model.num_parameters)} parameters"),
            ("Cluster", _network(cluster)),
            ("Job", _job(job)),
            ("Plan", ", ".join(plan_words(estimate))),
        ],
        "source": [(part, bool(LINK.fullmatch(part))) for part in re.split(f"({LINK.pattern})", run.source) if part],
        "remarks": run.notes,
        "compared": [*_compared(account)],
        "estimate": estimate_texts(estimate),
        "causes": [(SUBJECTS[subject], cause.cause, cause.state) for subject, cause in account.causes],
        "assumed": asked.assumed,
        "ignored": asked.ignored,
    }


def _network(cluster: Any) -> str:
    sizes = [f"{tier.name} of {tier.size:,}" if tier.size else tier.name for tier in cluster.tiers]
    tiers = [f"{name} at {format_rate(tier.bandwidth)}" for name, tier in zip(sizes, cluster.tiers, strict=True)]
    return f"{cluster.name}: {', '.join(tiers)}"


def _job(job: Any) -> str:
    size = f"{job.global_batch_size:,} sequences of {job.sequence_length:,} tokens a step"
    return f"{size}, {job.precision}, {job.optimizer}"


def _compared(account: RunAccount) -> list[dict[str, str]]:
    """Each quantity: measured, predicted without and with the run's family, errors."""
    known, now = account.known, account.prediction
    rows = []
    if known.measured_step_time is not None:
        inside = now.step_time_p10 <= known.measured_step_time <= now.step_time_p90
        band = f"{format_time(now.step_time_p10)} to {format_time(now.step_time_p90)}"
        rows.append(
            _row("Step time", known, "step_time", now.step_time, format_time)
            | {"band": f"{band}: the measured time is {'inside' if inside else 'outside'}"}
        )
    if known.run.peak_memory_bytes is not None:
        rows.append(_row("Peak memory", known, "peak_memory", now.peak_memory_bytes, format_bytes) | {"band": ""})
    share = now.needed_memory_bytes / now.usable_memory_bytes
    ended = "ran" if known.run.ran else "ran out of memory"
    rows.append(
        {
            "name": "Fits",
            "measured": ended,
            "unseen": "-" if known.fits is None else f"needs {100 * math.exp(known.fits):.0f} %",
            "seen": f"needs {100 * share:.0f} %",
            "unseen_error": "" if known.fits is None else ("right" if known.is_right else "wrong"),
            "seen_error": "right" if now.fits == known.run.ran else "wrong",
            "band": "",
        }
    )
    return rows


def _row(name: str, known: KnownRun, quantity: Any, now: float, text: Any) -> dict[str, str]:
    measured, unseen = known.measured(quantity), known.predicted(quantity)
    assert measured is not None
    return {
        "name": name,
        "measured": text(measured),
        "unseen": "-" if unseen is None else text(unseen),
        "seen": text(now),
        "unseen_error": "" if unseen is None else f"{100 * (unseen / measured - 1):+.1f} %",
        "seen_error": f"{100 * (now / measured - 1):+.1f} %",
    }
