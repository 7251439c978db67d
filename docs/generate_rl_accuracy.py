"""Writes ``docs/rl-accuracy.md``: predictions of the published RL steps against their measurements.

python docs/generate_rl_accuracy.py           write it
python docs/generate_rl_accuracy.py --check   exit with 1 where it is not what the program would write now
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

from generate_accuracy import is_current

from shardplan.base.files import DATA, shipped_document
from shardplan.base.units import format_bytes
from shardplan.calibrate.errors import CLEAR_DIFFERENCE, Errors, Inside, errors_of, grouped
from shardplan.reports.texts.answer import percent
from shardplan.rl.accuracy import RlValidation, SeenSteps, left_out, left_out_errors, seen_steps, validate_rl
from shardplan.rl.measured import MeasuredRlStep, shipped_steps
from shardplan.rl.memory import MeasuredMemory, measured_memory, with_one_length
from shardplan.rl.task import PLACEMENTS

PAGE = "rl-accuracy.md"
CAUSES = DATA / "measured_runs" / "rl_causes.yaml"
FAR = math.log(1.2)
HEADING = """# Accuracy of RL steps

Generated from the published RL steps by `docs/generate_rl_accuracy.py`. `shardplan validate --rl` shows the same in the
terminal, and `shardplan validate rl-runs.csv` for [a file of your own](inputs/measured-runs.md#rl-steps).

The error of a row is exp|ln(predicted / measured)| - 1. Only constants of decoding and of the transfer of weights are
fitted (`python -m shardplan.rl.fit`). The values around which they are fitted were chosen by hand with these rows
known, so errors of other teams can be larger.

For a step of your own with NeMo RL, expect errors as *with each family left out*; with another framework, larger ones.
Leaving a family out shows the effect of another model, size or release, not that of another team's software. So bands
of other frameworks, and of answers without one, are 1.3 times as wide (in logarithm).
"""
PHASES = ("run", "training", "generation", "weights sent", "measured", "fullest, error")
TRIALS = ("run", "micro-batch that ran", "failed", "full at", "with one length")
BY_PHASE = """Bytes of an accelerator in each phase. One run states what it took, and the phase in which weights are
sent was counted with that number known. The other ran, and does not state the layout of its engine."""
BY_TRIAL = """Other runs state the largest micro-batch that ran, for answers of unknown length. *Full at*: mean tokens
of a sequence with which the memory of training is predicted to be full. The runs with a limit use one dataset. *With
one length*: the error of the predicted memory at the limit, with {tokens:,} tokens for all of them (the geometric
mean). It is not stated which phase failed."""
PROGRAMS = """Counted from the sources of NeMo RL, not fitted (`programs` in `data/generation.yaml`): the loss passes
over a packed sequence answer by answer, in fp32, and weights of the reference come from the host. Up to v0.6 the
driver pickles the batch for every rank separately, padded to the longest answer: 5 s of training and 4 s of each pass
with 70B on 64 accelerators. FSDP2 gathers embedding and head before the first layer and reduces their gradients after
the last, which no layer hides, and its AdamW updates the tensors one by one. The rates of pickling and of that loop
were measured on one core with newer versions, not on hosts of the runs. On 64 accelerators training takes 10 to 22 %
longer; returning freed memory after every update is not counted."""
FSDP2 = """Training with FSDP2 takes 24 to 30 % longer than predicted on two rows (8B on 8 accelerators), while passes
without gradients are within 1 %: 120 to 150 ms of the backward pass of every micro-batch are missing. The source of
that release (v0.3.1) gathers weights for each pass of every micro-batch, reduces gradients in fp32 and runs
FlashAttention-2; these are counted. Smaller: outputs of layers in fp32, 5 ms, and packs that are filled up, less than
1 %. It offloads nothing, clips once a step and frees memory once a step. Eager kernels and launches by the host do not
explain it. Recomputation of the MLPs (80 ms) or exposed sums of gradients (76 ms) would, but its configuration
recomputes nothing and the sums overlap with computation."""
VERL = """For verl, losses and log-probabilities are counted (0.9.1), with the entropy in the pass of the old policy.
What its driver sends is not."""
TRANSFER = """A transfer is what NeMo RL's timer `prepare_for_generation` covers. On shared accelerators that is copying
the optimizer's moments to the host, waking the engines, and the transfer itself. Each accelerator gathers the whole
model tensor by tensor, over tp, pp and ep of Megatron's plan or in fp32 over all with FSDP2, and packs it for its
engine. Moments are copied into host memory that is allocated anew each time: 4 of 7 s with 8B on 8 accelerators. The
time per tensor and the rate of copies to new memory are fitted. Transfers of one recipe that ran twice differ by
factors of 1.5 to 1.9; the best prediction of both has a median error of 25 %."""
TIERS = "Tier A: all that matters is stated. A-: one minor thing is inferred. B: one thing that matters is missing."
COLUMNS = ("", "n", "median", "90th percentile", "bias")


def text() -> str:
    """The page."""
    found = validate_rl(shipped_steps())
    return HEADING + "".join(f"\n{line}\n" for line in _sections(found))


def _sections(found: RlValidation) -> Iterator[str]:
    yield from _by_family_left_out(found)
    yield from _parts(found)
    yield "## Families and tiers, with the shipped constants"
    yield _table([*found.step_by("family").items(), *((f"tier {k}", v) for k, v in found.step_by("tier").items())])
    yield TIERS
    yield "## Transfers of weights, each family left out"
    yield _table(_transfers().items())
    yield "## Memory of shared accelerators"
    yield from _memory()
    yield from _far_and_unpriced(found)


def _by_family_left_out(found: RlValidation) -> Iterator[str]:
    """Errors, order and bands of families that the constants have not seen."""
    left = left_out()
    yield "## Each family left out of the fit"
    yield _table([*left.by_family.items(), ("all", left.all)])
    yield (
        f"Of {left.order.pairs} pairs of steps of one family that differ by more than 5 %, "
        f"{percent(left.order.share or 0.0)} are predicted in the right order. "
        "They differ in placement, count, release, precision or model."
    )
    yield _placements()
    if found.coverage is not None:
        yield _covered(found, found.coverage)
    yield _others(found)


def _covered(found: RlValidation, inside: Inside) -> str:
    return (
        f"{percent(inside.share)} of the {inside.n} measured times lie inside the band that the other families "
        f"give (95 % interval of that share: {percent(inside.low)} to {percent(inside.high)}); it should be 80 %. "
        f"By family: {_inside(found)}."
    )


def _parts(found: RlValidation) -> Iterator[str]:
    """Errors of the parts of a step, and what is counted in them."""
    yield "## Parts of a step, with the shipped constants"
    yield "Whole steps of tiers A and A-; parts of all rows that state them."
    yield _table(found.parts().items())
    yield from (PROGRAMS, FSDP2, VERL, TRANSFER)


def _far_and_unpriced(found: RlValidation) -> Iterator[str]:
    yield "## Rows more than 20 % off, and why"
    yield _rows(found)
    yield "## Rows without a prediction"
    groups = grouped(found.unpriced, lambda each: each.reason)
    yield "\n".join(f"- {len(rows)} ({rows[0].step.family}): {reason}" for reason, rows in groups.items())


def _placements() -> str:
    """How often pairs of different placements are predicted in the right order, by family and in one setting."""
    pairs = [pair for pair in combinations(seen_steps(), 2) if _is_clear(*pair)]
    families = {
        name: f"{sum(map(_in_order, each))} of {len(each)} ({name})"
        for name, each in grouped(pairs, lambda pair: pair[0].step.family).items()
    }
    one_setting = [pair for pair in pairs if _setting(pair[0].step) == _setting(pair[1].step)]
    return (
        f"{len(pairs)} of them differ in placement. The predicted order is right in {', '.join(families.values())}. "
        f"Of {len(one_setting)} pairs with the same release, cluster, precision and number of accelerators, it is "
        f"right in {sum(map(_in_order, one_setting))}."
    )


def _is_clear(one: SeenSteps, other: SeenSteps) -> bool:
    """Whether two steps of a family differ in placement, and clearly in time."""
    a, b = one.step, other.step
    is_far = abs(math.log(a.step_time_s / b.step_time_s)) > math.log1p(CLEAR_DIFFERENCE)
    return is_far and a.family == b.family and a.placement != b.placement


def _in_order(pair: tuple[SeenSteps, SeenSteps]) -> bool:
    one, other = pair
    apart = math.log(one.step.step_time_s / other.step.step_time_s)
    return (apart + one.error - other.error) * apart > 0


def _setting(step: MeasuredRlStep) -> tuple[object, ...]:
    """What is equal in two steps that differ only in their placement."""
    two_pools = PLACEMENTS[step.placement].two_pools
    total = (step.num_train or 0) + (step.num_rollout or 0) * two_pools
    return step.release, step.cluster, step.precision, step.model, step.response_tokens_max, total


def _inside(found: RlValidation) -> str:
    families = found.inside_by("family").items()
    return ", ".join(
        f"{round(each.share * each.n)} of {each.n} ({name})" for name, each in families if each is not None
    )


def _others(found: RlValidation) -> str:
    """Errors of steps of frameworks that no constant was fitted to."""
    used = {row.step.software for row in seen_steps()}
    errors = [
        f"{each.step.id} ({each.step.software}, tier {each.step.tier}) {100 * math.expm1(each.error):+.0f} %"
        for each in found.priced
        if each.step.software not in used
    ]
    return f"Errors of published steps of other frameworks: {', '.join(errors) or 'none'}; causes are below."


def _transfers() -> Mapping[str, Errors]:
    from shardplan.rl.fit import measured_transfers

    groups = grouped(measured_transfers(), lambda row: row.method)
    return {name: errors_of([left_out_errors()[row.id] for row in rows]) for name, rows in groups.items()}


def _memory() -> Iterator[str]:
    """Bytes by phase where a run states what it took, and the largest micro-batches that ran."""
    rows, one = measured_memory(), with_one_length()
    yield BY_PHASE
    yield _aligned(PHASES, (_phases_of(row) for row in rows if row.tokens is not None))
    yield BY_TRIAL.format(tokens=one.tokens)
    yield _aligned(TRIALS, (_trial(row, one.errors.get(row.id)) for row in rows if row.tokens is None))


def _phases_of(row: MeasuredMemory) -> tuple[str, ...]:
    if row.phases is None or row.peak is None:
        return row.id, format_bytes(row.training(row.tokens or 1)), "", "", "ran", ""
    off = f"{100 * (row.phases.fullest / row.peak - 1):+.1f} %"
    return row.id, *map(format_bytes, (*row.phases, row.peak)), off


def _trial(row: MeasuredMemory, error: float | None) -> tuple[str, ...]:
    off = "" if error is None else f"{100 * math.expm1(error):+.0f} %"
    return row.id, str(row.plan.micro_batch_size), str(row.failed or ""), f"{row.full_at:,}", off


def _aligned(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table, its numbers to the right."""
    named = tuple(columns)
    lines = [f"| {' | '.join(named)} |", f"|---|{'--:|' * (len(named) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


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
    return _aligned(COLUMNS, (_errors(name, errors) for name, errors in rows))


def _errors(name: str, errors: Errors) -> tuple[str, ...]:
    bias = "" if errors.bias is None else f"{100 * errors.bias:+.1f} %"
    return name, str(errors.n), percent(errors.median or 0.0), percent(errors.p90 or 0.0), bias


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the exit status."""
    written = {PAGE: text()}
    if "--check" in arguments:
        return int(not is_current(written))
    (Path(__file__).parent / PAGE).write_text(written[PAGE])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
