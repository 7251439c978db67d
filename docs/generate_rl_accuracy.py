"""Writes ``docs/rl-accuracy.md``: predictions of the published RL steps against their measurements.

python docs/generate_rl_accuracy.py           write it
python docs/generate_rl_accuracy.py --check   exit with 1 where it is not what the program would write now
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from generate_accuracy import is_current

from shardplan.base.files import DATA, shipped_document
from shardplan.calibrate.errors import Errors, errors_of, grouped
from shardplan.reports.texts.answer import percent
from shardplan.rl.accuracy import RlValidation, left_out, left_out_errors, validate_rl
from shardplan.rl.measured import shipped_steps

PAGE = "rl-accuracy.md"
CAUSES = DATA / "measured_runs" / "rl_causes.yaml"
FAR = math.log(1.2)
HEADING = """# Accuracy of RL steps

Generated from the published RL steps by `docs/generate_rl_accuracy.py`. `shardplan validate --rl` shows the same in the
terminal, and `shardplan validate rl-runs.csv` for a file with the columns of `data/measured_runs/rl.csv`.

The error of a row is exp|ln(predicted / measured)| - 1. Constants of decoding and of the transfer of weights are fitted
(`python -m shardplan.rl.fit`); nothing else of an RL step is. The values around which they are fitted were chosen by
hand with these rows known, so that errors of rows from other teams can be larger.
"""
COLUMNS = ("", "n", "median", "90th percentile", "bias")


def text() -> str:
    """The page."""
    found = validate_rl(shipped_steps())
    return HEADING + "".join(f"\n{line}\n" for line in _sections(found))


def _sections(found: RlValidation) -> Iterator[str]:
    left = left_out()
    yield "## Each family left out of the fit"
    yield _table([*left.by_family.items(), ("all", left.all)])
    yield (
        f"Of {left.order.pairs} pairs of steps of one family that differ by more than 5 %, "
        f"{percent(left.order.share or 0.0)} are in order. "
        "They differ in placement, count, release, precision or model."
    )
    inside = found.coverage
    if inside is not None:
        yield (
            f"{percent(inside.share)} of the {inside.n} measured times lie inside the band that the other families "
            f"give (95 % interval of that share: {percent(inside.low)} to {percent(inside.high)}); it should be 80 %."
        )
    yield "## Parts of a step, with the shipped constants"
    yield "Whole steps of tiers A and A-; parts of all rows that state them."
    yield _table(found.parts().items())
    yield (
        "Counted from the sources of NeMo RL, not fitted (`programs` in `data/generation.yaml`): the loss goes through "
        "a packed sequence answer by answer, in fp32, and weights of the reference come from the host. Training with "
        "FSDP2 takes 50 % longer than predicted, passes without gradients 10 %: its backward pass is slower than "
        "overlapped exchanges explain. On 64 accelerators training takes 40 to 55 % longer; batches go from one host "
        "to all others, and freed memory is given back after every update, which is not counted. Transfers of one "
        "recipe that was run twice differ by factors of 1.5 to 1.9, so that no prediction can be within 20 % of most."
    )
    yield "## Families and tiers, with the shipped constants"
    yield _table([*found.step_by("family").items(), *((f"tier {k}", v) for k, v in found.step_by("tier").items())])
    yield "Tier A: all that matters is stated. A-: one minor thing is inferred. B: one thing that matters is missing."
    yield "## Transfers of weights, each family left out"
    yield _table(_transfers().items())
    yield "## Rows more than 20 % off, and why"
    yield _rows(found)
    yield "## Rows without a price"
    groups = grouped(found.unpriced, lambda each: each.reason)
    yield "\n".join(f"- {len(rows)} ({rows[0].step.family}): {reason}" for reason, rows in groups.items())


def _transfers() -> Mapping[str, Errors]:
    from shardplan.rl.fit import measured_transfers

    groups = grouped(measured_transfers(), lambda row: row.method)
    return {name: errors_of([left_out_errors()[row.id] for row in rows]) for name, rows in groups.items()}


def _rows(found: RlValidation) -> str:
    causes: Mapping[str, str] = shipped_document(CAUSES)["causes"]
    lines = ["| row | measured | predicted | error | left out | cause |", "|---|--:|--:|--:|--:|---|"]
    for each in sorted(found.priced, key=lambda each: -abs(each.error)):
        other = left_out_errors().get(each.step.id)
        if max(abs(each.error), abs(other or 0)) > FAR:
            cause = causes.get(each.step.id) or causes.get(f"{each.step.family} {each.step.cluster}", "not known")
            shown = "" if other is None else f"{100 * math.expm1(other):+.0f} %"
            measured, predicted = each.step.step_time_s, each.plan.step_time
            off = f"{100 * math.expm1(each.error):+.0f} %"
            lines.append(f"| {each.step.id} | {measured:g} s | {predicted:.1f} s | {off} | {shown} | {cause} |")
    return "\n".join(lines)


def _table(rows: Iterable[tuple[str, Errors]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|--:|"]
    for name, errors in rows:
        bias = "" if errors.bias is None else f"{100 * errors.bias:+.1f} %"
        lines.append(
            f"| {name} | {errors.n} | {percent(errors.median or 0.0)} | {percent(errors.p90 or 0.0)} | {bias} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the exit status."""
    written = {PAGE: text()}
    if "--check" in arguments:
        return int(not is_current(written))
    (Path(__file__).parent / PAGE).write_text(written[PAGE])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
