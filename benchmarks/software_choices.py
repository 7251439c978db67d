"""Answers beside the same plan and question under other software: is any switch that the search did not take better?

    python benchmarks/software_choices.py [--json FILE]    some minutes

Of 14 mixtures of experts and 12 dense models: the fastest and the recommended plan. Of each of the two every value of
every choice that its framework offers (overlap of tensor and expert parallelism, dispatcher, graphs, loss) is tried
alone, and in every combination, as ``estimate`` prices them. What the framework refuses, what does not fit and what
makes no difference is no alternative. The recommended plan may leave a faster one for a reason (``docs/search.md``): an
alternative to it counts where it is tested and has headroom, if the plan has.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from measure import Record, parser, table, write_record

from shardplan import search
from shardplan.estimation.estimate import Estimate, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN, OF_EXPERTS
from shardplan.physics.frameworks.runnable import all_run, all_tested
from shardplan.physics.frameworks.stack import Stack, load_stack
from shardplan.planner.priced_plans import has_headroom

MOST_GAIN = 0.005
"""Share of the step that no switch may save."""
OVERLAPS = {"overlap_tp": (False, True), "overlap_ep": (False, True)}
"""Choices of overlap."""
NEEDS = {"overlap_tp": "tp", "overlap_ep": "ep"}
"""They overlap nothing where this degree is one."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A built-in model on a built-in cluster; what is not named is default."""

    model: str
    cluster: str
    num_accelerators: int
    stack: str = "megatron-lm"
    job: tuple[tuple[str, Any], ...] = ()


def asked(model: str, cluster: str, num_accelerators: int, stack: str = "megatron-lm", **job: Any) -> Asked:
    """In one line."""
    return Asked(model=model, cluster=cluster, num_accelerators=num_accelerators, stack=stack, job=(*job.items(),))


QUESTIONS = (
    asked("gpt-oss-120b", "dgx-h100", 64),
    asked("llama-3.1-8b", "dgx-h100", 8),
    asked("deepseek-v3", "dgx-h100", 1024, precision="fp8", global_batch_size=8192, sequence_length=4096),
    asked("kimi-k2", "hgx-h200", 2048, precision="fp8"),
    asked("kimi-k2", "gb200-nvl72", 4608, precision="mxfp8", global_batch_size=16384, sequence_length=4096),
    asked("qwen3-235b-a22b", "dgx-h100", 256, precision="fp8"),
    asked("glm-5", "gb300-nvl72", 1152, precision="mxfp8", global_batch_size=4096, sequence_length=4096),
    asked("minimax-m2.5", "gb300-nvl72", 2304, precision="mxfp8", sequence_length=32768),
    asked("glm-4.5", "hgx-h200", 512),
    asked("qwen3-coder-480b-a35b", "dgx-b200", 512),
    asked("llama-4-maverick", "dgx-h100", 1024, "megatron-bridge"),
    asked("deepseek-v2", "dgx-h100", 512, "megatron-bridge"),
    asked("mixtral-8x22b", "hgx-h200", 256, "torchtitan"),
    asked("qwen3-30b-a3b", "dgx-b200", 64, "nemo-automodel"),
    asked("llama-3.2-1b", "dgx-h100", 8),
    asked("llama-3.1-70b", "dgx-h100", 64),
    asked("llama-3.1-70b", "hgx-h200", 64, "torchtitan"),
    asked("llama-3.1-405b", "dgx-h100", 16_384),
    asked("llama-3.1-405b", "gb200-nvl72", 2304, "megatron-bridge", precision="fp8"),
    asked("gpt3-175b", "dgx-h100", 1024, "nemo"),
    asked("qwen2.5-72b", "dgx-a100", 256),
    asked("llama-2-13b", "dgx-a100", 64, "deepspeed"),
    asked("gemma-2-27b", "tpu-v5p-pod", 256, "maxtext"),
    asked("qwen3-8b", "dgx-h100", 8, sequence_length=131_072, global_batch_size=8),
    asked("megatron-1t", "dgx-a100", 3072),
    asked("qwen3-32b", "dgx-b200", 128),
)
"""The large mixtures and the dense models of docs/experts.md and of the issues of this project, and small ones."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A plan and the best that other software makes of it."""

    step_time: float
    """[s]"""
    num_singly: int
    """Switches tried one after the other, as far as they run and fit."""
    best_singly: float | None
    """Step time of the best of them over that of the plan."""
    which: str
    """The best of them."""
    num_together: int
    best_together: float | None
    """The same of all combinations."""


def choices_of(stack: Stack, question: Question, plan: Plan) -> dict[str, tuple[Any, ...]]:
    """Values of every choice that a framework offers for a plan of a model."""
    can = stack.can_run
    offered = {} if can is None or can.software is None else can.software
    names = [name for name in CHOSEN if name in offered and (question.model.is_moe or name not in OF_EXPERTS)]
    overlaps = {name: values for name, values in OVERLAPS.items() if getattr(plan, NEEDS[name]) > 1}
    return {**overlaps, **{name: tuple(offered[name]) for name in names}}


def alternatives(plan: Plan, choices: dict[str, tuple[Any, ...]]) -> Iterator[Plan]:
    """Every combination of the choices, the plan itself first."""
    yield plan
    for values in itertools.product(*choices.values()):
        yield replace(plan, **dict(zip(choices, values, strict=True)))


def tried(question: Question, stack: Stack, now: Estimate, *, as_safe: bool) -> Tried:
    """A plan under all software. ``as_safe``: alternatives are tested and have headroom, as that plan has."""
    plan = running(question, now.plan, stack)
    choices = choices_of(stack, question, plan)
    every = [*dict.fromkeys(alternatives(plan, choices))]
    every = [each for each, runs in zip(every, all_run(stack, question.setting, every), strict=True) if runs]
    priced = price_plans(question, every)
    shown = all_tested(stack, question.setting, every) if as_safe else [True] * len(every)
    room = is_roomy(question, now)
    kept = [each for each, is_shown in zip(priced, shown, strict=True) if each.fits and each.plan != plan and is_shown]
    same = now.step_time, now.peak_memory_bytes  # a switch that makes no difference
    kept = [each for each in kept if (each.step_time, each.peak_memory_bytes) != same]
    kept = [each for each in kept if not (as_safe and room) or is_roomy(question, each)]
    singly = [each for each in kept if len(changed(plan, each.plan, choices)) == 1]
    best = min(singly, key=lambda each: each.step_time, default=None)
    return Tried(
        step_time=now.step_time,
        num_singly=len(singly),
        best_singly=None if best is None else best.step_time / now.step_time,
        which="" if best is None else ", ".join(changed(plan, best.plan, choices)),
        num_together=len(kept),
        best_together=min((each.step_time / now.step_time for each in kept), default=None),
    )


def running(question: Question, plan: Plan, stack: Stack) -> Plan:
    """The plan with all its software stated: what it leaves open is as the job says."""
    software = question.job.software
    names = [name for name in choices_of(stack, question, plan) if getattr(plan, name) is None]
    return replace(plan, **{name: getattr(software, name) for name in names})


def changed(plan: Plan, other: Plan, choices: dict[str, tuple[Any, ...]]) -> list[str]:
    """Choices in which two plans differ, as text."""
    return [f"{name} {getattr(other, name)}" for name in choices if getattr(other, name) != getattr(plan, name)]


def is_roomy(question: Question, priced: Estimate | PricedPlan) -> bool:
    """Whether it fits at the upper end of the band of its memory too."""
    return bool(has_headroom(question, np.asarray(priced.peak_memory_bytes)))


def row_of(asked: Asked) -> dict[str, Any]:
    """One question, answered, and its two plans under all software."""
    started, stack = time.process_time(), load_stack(asked.stack)
    job: dict[str, Any] = dict(asked.job)
    found = search(asked.model, asked.cluster, asked.num_accelerators, stack=stack, prune=True, top=1, **job)
    seconds, fastest, taken = time.process_time() - started, found.best_where(), found.recommended
    if fastest is None or taken is None:
        raise SystemExit(f"nothing fits: {asked}")
    question, plan = found.question, running(found.question, taken.plan, stack)
    return {
        **{name: value for name, value in asdict(asked).items() if name != "job"},
        "job": job,
        "is_moe": question.model.is_moe,
        "search_cpu_s": round(seconds, 2),
        "plan": {name: getattr(plan, name) for name in ("tp", "cp", "pp", "vp", "ep", "etp", "sharding", "recompute")},
        "software": {name: getattr(plan, name) for name in choices_of(stack, question, plan)},
        "untested": list(taken.untested),
        "fastest": asdict(tried(question, stack, fastest, as_safe=False)),
        "taken": asdict(tried(question, stack, taken, as_safe=True)),
    }


def report(record: Record) -> str:
    """The record as a table, and the worst of it."""
    header = ("question", "taken, s", "software of it", "switches", "best", "fastest, s", "best", "of all")
    return table(header, [_row(each) for each in record["rows"]])


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    taken, fastest = each["taken"], each["fastest"]
    job = [str(each["job"][name]) for name in ("precision",) if name in each["job"]]
    asked = f"{each['model']}, {each['num_accelerators']:,} of {each['cluster']}"
    return (
        ", ".join([asked, *job, each["stack"]]),
        f"{taken['step_time']:.4g}",
        _software(each["software"]),
        str(fastest["num_singly"]),
        _share(taken["best_singly"]),
        f"{fastest['step_time']:.4g}",
        _share(fastest["best_singly"]),
        _share(fastest["best_together"]),
    )


def _software(values: dict[str, Any]) -> str:
    """Values of choices, those that are on."""
    flags = [name for name, value in values.items() if value is True]
    words = [str(value) for name, value in values.items() if isinstance(value, str) and value != "none"]
    return ", ".join([*flags, *words]).replace("partial", "partial graphs").replace("full", "full graphs") or "plain"


def _share(ratio: float | None) -> str:
    """How much longer the step takes."""
    return "" if ratio is None else f"{round(100 * (ratio - 1), 1) + 0.0:+.1f} %"


def worst(rows: Sequence[dict[str, Any]]) -> float:
    """The most that a switch saves, of any answer; negative where none does."""
    ratios = [each[kind]["best_singly"] for each in rows for kind in ("taken", "fastest")]
    return max((1 - ratio for ratio in ratios if ratio is not None), default=0.0)


def main() -> None:
    """Asks, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=1).parse_args()
    rows = [row_of(each) for each in (QUESTIONS[:2] if flags.tiny else QUESTIONS)]
    print(report({"rows": rows}))
    print(f"\nThe best switch saves {100 * worst(rows):.2f} %, at most {100 * MOST_GAIN:g} % is expected.")
    write_record(flags.json, "software_choices", rows=rows)


if __name__ == "__main__":
    main()
