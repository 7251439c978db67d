"""The answer of ``rl``: the best of every placement, which pool waits, both layouts, where the time of a step goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardplan.answers.document import (
    AnswerDocument,
    Bar,
    Block,
    Bullets,
    Column,
    Line,
    Part,
    RowTable,
)
from shardplan.answers.plans import asked_record, plan_record, plan_text, whole_percent
from shardplan.base.units import format_bytes, format_time, short_count
from shardplan.plotting.chart import GREY, IDLE, PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.texts.answer import cluster_words, longer_or_shorter, sentence
from shardplan.rl.accuracy import band_of, nearest
from shardplan.rl.memory import PhaseMemory, phase_memory
from shardplan.rl.observed import MeasuredPart
from shardplan.rl.question import RlQuestion, inputs_of
from shardplan.rl.search import Move, RlPlan, RlResult
from shardplan.rl.steps import Phase
from shardplan.rl.task import PLACEMENTS, RlTask
from shardplan.rl.transfer import engine_facts

PHASES: Final[Mapping[str, tuple[str, str]]] = {
    "generation": ("generation", PALETTE[0]),
    "reward": ("rewards", PALETTE[5]),
    "log_probs": ("log-probabilities", PALETTE[1]),
    "critic": ("critic", PALETTE[4]),
    "update": ("training", PALETTE[2]),
    "transfer": ("weights to engines", PALETTE[3]),
    "sleep": ("engines to sleep", GREY),
    "wake": ("engines to wake", GREY),
}
"""Name and colour of every phase."""


LEAST_WAIT: Final = 0.002
"""Share of a step from which a wait is drawn."""


def title(placement: str) -> str:
    """A placement in words."""
    return PLACEMENTS[placement].title


def split(plan: RlPlan) -> str:
    """How the accelerators are split."""
    return f"{plan.num_train:,}" if plan.cycle.shares_pool else f"{plan.num_train:,} + {plan.num_rollout:,}"


def phase_time(key: str) -> Any:
    """Seconds of a phase of a plan."""
    return lambda plan: plan.cycle.time_of(key)


def layout_text(plan: RlPlan) -> str:
    """Replicas of the engine."""
    return f"{plan.pool.num_replicas:,} x ({plan.pool.engine.replica})"


COLUMNS: Final = (
    Column("placement", "placement", lambda plan: plan.placement, title, is_text=True),
    Column("num_train", None, lambda plan: plan.num_train),
    Column("num_rollout", None, lambda plan: plan.num_rollout),
    Column("", "accelerators", split, is_text=True),
    Column("step_time_s", "step", lambda plan: plan.step_time, format_time),
    Column("step_time_p10_s", None, lambda plan: plan.step_time * band_of(plan).low),
    Column("step_time_p90_s", None, lambda plan: plan.step_time * band_of(plan).high),
    Column("generation_s", "generation", phase_time("generation"), format_time, rank=1),
    Column("log_probs_s", "log-probs", phase_time("log_probs"), format_time, rank=2),
    Column("critic_s", None, phase_time("critic")),
    Column("training_s", "training", phase_time("update"), format_time, rank=1),
    Column("transfer_s", "weights", phase_time("transfer"), format_time, rank=3),
    Column("switch_s", None, lambda plan: plan.cycle.time_of("sleep", "wake")),
    Column("idle_train", "trainer waits", lambda plan: plan.cycle.idle("trainer"), whole_percent),
    Column("idle_rollout", "generation waits", lambda plan: plan.cycle.idle("rollout"), whole_percent),
    Column("tokens_per_s", "tokens/s", lambda plan: plan.tokens_per_second, short_count, rank=1),
    Column("", "generation layout", layout_text, is_text=True, rank=3),
    Column("rollout_tp", None, lambda plan: plan.pool.engine.replica.tp),
    Column("rollout_pp", None, lambda plan: plan.pool.engine.replica.pp),
    Column("rollout_ep", None, lambda plan: plan.pool.engine.replica.ep),
    Column("rollout_replicas", None, lambda plan: plan.pool.num_replicas),
    Column("", None, lambda plan: plan.trained.estimate, record=plan_record, frame=lambda _: {}),
)


def rl_document(
    result: RlResult,
    given: Sequence[str] = (),
    assumptions: Sequence[str] = (),
    *,
    asked: RlQuestion | None = None,
    observed: Sequence[MeasuredPart] = (),
    decisions: Sequence[AnswerDocument] = (),
) -> AnswerDocument:
    """The whole answer.

    ``given``: what the user set in place of usual values; ``decisions``: the answers to what else was asked.
    """
    table, best = RowTable(result.plans, COLUMNS), result.best
    parts = [] if best is None else _parts(result, best, table)
    parts = [*_observed_parts(observed), *(part for each in decisions for part in each.parts), *parts]
    if result.refused:
        lines = [f"{title(name)}: {reason}" for name, reason in result.refused.items()]
        parts.append(Part("Placements without a plan", [Bullets(lines)]))
    return AnswerDocument(
        name="rl",
        head=rl_head(result.task, given),
        verdict=[*_verdict(best), *(line for each in decisions for line in each.verdict)],
        parts=parts,
        assumptions=assumptions,
        table=table,
        record=lambda: {
            **asked_record(result.task.question, assumptions),
            "rl": task_record(result.task),
            **({} if asked is None else {"asked": asked.as_record(result.task)}),
            "inputs": inputs_of(result.task),
            "num_searches": result.num_searches,
            "refused": dict(result.refused),
            "moves": RowTable(result.moves, MOVES),
            **{key: value for each in decisions for key, value in each.record().items()},
            "observed": RowTable(observed, OBSERVED),
            "memory_by_phase_bytes": None if best is None else _plain_memory(memory_by_phase(result.task, best)),
            "nearest": [] if best is None else [each.text for each in nearest(best)],
            "plans": table,
        },
        chart=lambda: rl_chart(result),
        is_yes=best is not None,
    )


def _plain_memory(phases: PhaseMemory | None) -> dict[str, float] | None:
    return None if phases is None else phases._asdict()


MOVES: Final = (
    Column("num_train", "trainer", lambda move: move.num_train, "{:,}".format),
    Column("num_rollout", "generation", lambda move: move.num_rollout, "{:,}".format),
    Column("step_time_s", "step", lambda move: move.step_time, format_time),
)
"""Splits next to that of the best plan."""


def task_record(task: RlTask) -> dict[str, Any]:
    """What an RL step is, as it was asked."""
    answers, lengths = task.answers, task.answers.lengths
    return {
        "prompts": answers.prompts,
        "samples": answers.samples,
        "prompt_tokens": answers.prompt_tokens,
        "response_tokens_mean": lengths.mean,
        "response_tokens_max": lengths.cap,
        "response_tokens_spread": lengths.spread,
        "response_tokens_endless": lengths.endless,
        "updates": task.packing.updates,
        "pack_tokens": task.packing.pack_tokens,
        "prefix_shared": task.packing.shared_prompts,
        "framework": task.packing.framework.label,
        "backend": task.packing.framework.backend or None,
        "algorithm": task.algorithm,
        "old_pass": task.old_pass,
        "reference": task.reference,
        "critic": None if task.critic is None else task.critic.name,
        "reward_seconds": task.reward_time,
        "engine": task.engine,
        "rollout_cluster": task.generating.name,
        "rollout_precision": task.rollout_precision,
        "cache_precision": task.cache_precision,
        "speculative": task.drafter,
        "drafts": task.drafts,
        "staleness": task.staleness,
        "transfer": task.transfer,
        "in_flight": task.in_flight,
        "padded": task.packing.padded,
        "epochs": task.packing.epochs,
        "memory_share": task.memory_share,
        "states_stay": task.states_stay,
    }


def rl_head(task: RlTask, given: Sequence[str]) -> list[Line]:
    """What was asked."""
    question, answers = task.question, task.answers
    where = f"{question.num_accelerators:,} x {question.cluster.accelerator.name} ({cluster_words(question)})"
    if task.rollout_cluster is not None:
        where += (
            f", generation on {task.num_rollout or 0:,} x {task.generating.accelerator.name} ({task.generating.name})"
        )
    lengths = f"answers of {answers.lengths.mean:,.0f} tokens on average, {answers.lengths.cap:,} at most"
    step = f"{answers.prompts:,} prompts x {answers.samples:,} answers"
    lines = [
        Line(f"{task.algorithm.upper()} of {question.model.name} on {where}", tone="strong"),
        Line(
            f"{step} · {lengths} · {task.packing.updates} optimizer step{'s' * (task.packing.updates > 1)}",
            tone="quiet",
        ),
    ]
    return [*lines, Line("; ".join(given), "You set", "warning")] if given else lines


def _verdict(best: RlPlan | None) -> list[Block]:
    if best is None:
        return [Line("No placement has a plan that fits.", "Too big", "bad")]
    rate = f"{short_count(best.tokens_per_second)} tokens/s"
    band = band_of(best)
    span = f"{format_time(best.step_time * band.low)} to {format_time(best.step_time * band.high)}"
    where = f"{split(best)} accelerator{'s' * (best.num_accelerators > 1)}"
    text = f"{title(best.placement)}, {where}: {format_time(best.step_time)} a step ({span}), {rate}."
    return [Line(text[0].upper() + text[1:], "Step", "good"), Line(_why(best), "Waits")]


def _why(best: RlPlan) -> str:
    """Which pool waits."""
    if best.cycle.shares_pool:
        generation = best.cycle.time_of("generation") / best.step_time
        tail = best.generated.tail / max(best.step_time, 1e-12)
        text = f"generation is {whole_percent(generation)} of the step"
        has_tail = best.placement == "colocated" and tail > 0.02
        return sentence(f"{text}, {whole_percent(tail)} with few answers left" if has_tail else text)
    trainer, engines = (whole_percent(best.cycle.idle(pool)) for pool in ("trainer", "rollout"))
    return f"The trainer waits {trainer} of the step, generation {engines}."


def _moves(result: RlResult, best: RlPlan) -> list[Part]:
    """A node moved from one pool to the other, each way."""

    def change(move: Move) -> str:
        return longer_or_shorter(best.step_time, move.step_time)

    table = RowTable(result.moves, (*MOVES, Column("", "change", text=change, is_text=True, leads=True)))
    note = "of the splits that were searched"
    return [Part("One node to the other pool", [table], note)] if result.moves else []


def _parts(result: RlResult, best: RlPlan, table: RowTable) -> list[Part]:
    task = result.task
    engine, memory = best.pool.engine, best.pool.memory
    weights, cache = engine.weights, memory - engine.weights
    at_once = best.generated.at_once
    return [
        Part("Placements", [table], "the best of each; accelerators: trainer + generation"),
        *_moves(result, best),
        Part("Where the time of a step goes", [RowTable(best.cycle.phases, _phase_columns(best))]),
        Part(
            "Trainer",
            [
                Line(plan_text(best.trained.estimate), "Plan", "strong"),
                Line(_packing(task, best), "Packed"),
                Line(_memory(task, best), "Memory"),
                Line(_program(task, best), "Program"),
            ],
        ),
        Part(
            "Generation",
            [
                Line(f"{layout_text(best)}, {task.engine}", "Layout", "strong"),
                Line(
                    f"{at_once:,.0f} answers of a replica run at once; there is room for {best.pool.room:,.0f}", "Batch"
                ),
                Line(f"{format_bytes(weights)} of weights, {format_bytes(cache)} for the cache", "Memory"),
            ],
        ),
        _measured(best),
    ]


def memory_by_phase(task: RlTask, best: RlPlan) -> PhaseMemory | None:
    """Of accelerators that both share; None where each pool has its own."""
    stay = {"states_stay": task.states_stay, "engine_stays": task.engine_stays}
    if not best.cycle.shares_pool:
        return None
    return phase_memory(best.trained.priced, best.pool.engine, best.pool.memory, engine_facts(task.engine), **stay)


def _memory(task: RlTask, best: RlPlan) -> str:
    """Of the trainer's accelerators; where the engine is on them, in each phase."""
    usable, phases = f"of {format_bytes(best.usable_memory)} usable", memory_by_phase(task, best)
    if phases is None:
        return f"{format_bytes(best.trainer_memory)} {usable}"
    training, generation, transfer = map(format_bytes, phases)
    engine = "the engine awake" if task.engine_stays else "the engine asleep"
    return f"{training} {usable}, with {engine}; in generation {generation}, while weights are sent {transfer}"


def _measured(best: RlPlan) -> Part:
    """Measured steps that are like the plan, and what the band is made of."""
    band = f"The band is made to hold eight of ten steps, by {band_of(best).text}."
    return Part("Nearest measured steps", [Bullets([each.text for each in nearest(best)]), Line(band, tone="quiet")])


def _packing(task: RlTask, best: RlPlan) -> str:
    number = best.trained.priced.question.job.global_batch_size
    updates = task.packing.updates
    each = "the optimizer step" if updates == 1 else f"each of {updates:,} optimizer steps"
    return f"{number:,} sequences of {task.packing.pack_tokens:,} tokens in {each}"


def _program(task: RlTask, best: RlPlan) -> str:
    """What the framework's own program takes of the step, or that nobody has counted it."""
    framework = task.packing.framework
    if framework.facts is None:
        name = framework.name or "a framework"
        return f"what {name} does around these kernels is not counted, such as sending batches from its driver to ranks"
    swapped = task.reference * best.trained.reference_time
    passes = task.passes * best.trained.around_pass + swapped
    times = f"{format_time(passes)} of log-probabilities and {format_time(best.trained.around_update)} of training"
    counted = "batches sent to ranks, losses answer by answer"
    if not framework.facts.sent_bytes:
        counted = "losses and log-probabilities; batches that its driver sends to ranks are not counted"
    return f"{times} are what {framework} does around the kernels: {counted}"


def _phase_columns(best: RlPlan) -> list[Column]:
    def name(phase: Phase) -> str:
        return PHASES[phase.key][0]

    def pool(phase: Phase) -> str:
        return "all" if best.cycle.shares_pool else "generation" if phase.pool == "rollout" else "trainer"

    return [
        Column("", "phase", name, is_text=True),
        Column("", "on", pool, is_text=True),
        Column("", "time", lambda phase: phase.time, format_time),
        Column("", "share", lambda phase: phase.time / best.step_time, whole_percent),
        Column("", "", lambda phase: min(phase.time / best.step_time, 1.0), bar=Bar(24)),
    ]


OBSERVED: Final = (
    Column("part", "part", lambda each: each.part, is_text=True),
    Column("measured_s", "measured", lambda each: each.measured, format_time),
    Column("predicted_s", "predicted", lambda each: each.predicted, format_time),
    Column("ratio", "ratio", lambda each: each.ratio, "{:.2f}".format),
)


def _observed_parts(observed: Sequence[MeasuredPart]) -> list[Part]:
    """What was measured."""
    says = Bullets([f"{each.part}, {each.says}" for each in observed])
    return [Part("What was measured", [RowTable(observed, OBSERVED), says])] if observed else []


def rl_chart(result: RlResult) -> Chart:
    """When every phase runs in a step of every placement, on each pool."""
    return phases_chart(
        [(title(plan.placement), plan) for plan in result.plans],
        f"{result.task.question.model.name}: an RL step by placement",
    )


def phases_chart(plans: Sequence[tuple[str, RlPlan]], heading: str) -> Chart:
    """When every phase runs in a step of every plan, on each pool; plans have names."""
    placed = [(_row(name, plan, phase), phase, plan) for name, plan in plans for phase in plan.cycle.phases]
    rows = list(dict.fromkeys(row for row, _, _ in placed))

    def series(key: str) -> Series:
        found = {
            row: (plan.cycle.ends[key] - phase.time, phase.time) for row, phase, plan in placed if phase.key == key
        }
        spans = [found.get(row, (0.0, 0.0)) for row in rows]  # on every row, so that these keep their order
        starts, times = zip(*spans, strict=True)
        name, colour = PHASES[key]
        return Series(name=name, x=rows, y=times, starts=starts, kind="bars", colour=colour)

    shown = [key for key in PHASES if any(phase.key == key and phase.time for _, phase, _ in placed)]
    panel = Panel(
        title="phases of a step",
        x=Axis(title="", scale="names"),
        y=Axis(title="seconds"),
        series=(*map(series, shown), *_waits(placed)),
        is_horizontal=True,
        is_stacked=True,
    )
    return Chart(
        name="rl",
        title=heading,
        panels=(panel,),
        num_columns=1,
        note="Pools that work on answers of an earlier step start together. Predicted by shardplan.",
        panel_size=(820, 420),
    )


def _waits(placed: Sequence[tuple[str, Phase, RlPlan]]) -> Iterator[Series]:
    """When a pool waits for the other: the first time of every row, then the second."""
    steps = {row: plan.step_time for row, _, plan in placed}
    found: dict[str, list[tuple[float, float]]] = {row: [] for row in steps}
    free = dict.fromkeys(steps, 0.0)
    spans = [(plan.cycle.ends[phase.key] - phase.time, phase.time, row) for row, phase, plan in placed]
    for start, time, row in [*sorted(spans), *((step, 0.0, row) for row, step in steps.items())]:
        if start - free[row] > LEAST_WAIT * steps[row]:
            found[row].append((free[row], start - free[row]))
        free[row] = max(free[row], start + time)
    for number in range(max(map(len, found.values()), default=0)):
        waits = [(each[number : number + 1] or [(0.0, 0.0)])[0] for each in found.values()]
        starts, times = zip(*waits, strict=True)
        yield Series(name="waits", x=[*found], y=times, starts=starts, kind="bars", colour=IDLE)


def _row(name: str, plan: RlPlan, phase: Phase) -> str:
    """On which accelerators a phase runs."""
    where = "all" if plan.cycle.shares_pool else "generation" if phase.pool == "rollout" else "trainer"
    return f"{name}:\n{where}"
