"""Measured RL steps: one row of a CSV file each, and the plan that its source describes, priced as any other.

An empty cell means that the source does not say. What a price needs and a row has not is assumed, and said; without
lengths of answers, batch, or layouts a row has no price, and stays with the reason.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, ShardplanError, UnknownNameError, shown
from shardplan.base.fields import dataclass, replace
from shardplan.base.files import DATA, FileKind, read_text
from shardplan.base.words import joined, one_of
from shardplan.calibrate.runs.cells import COUNT, TEXT, YES_OR_NO, CellKind, RowCell, quantity
from shardplan.decide.searching import Searches
from shardplan.rl import observed
from shardplan.rl.asked import PROMPT_TOKENS, ask_rl
from shardplan.rl.engine import WEIGHT_BYTES
from shardplan.rl.lengths import MOST_TOKENS, Lengths
from shardplan.rl.programs import FRAMEWORKS
from shardplan.rl.search import PlacementSearch, RlPlan
from shardplan.rl.task import PLACEMENTS, RlTask
from shardplan.rl.transfer import engine_facts

SHIPPED_STEPS: Final = DATA / "measured_runs" / "rl.csv"
STEPS: Final = FileKind(
    "the file of measured RL steps",
    32 * 2**20,
    "measured RL steps come in a CSV file with a header and a row for each step",
    "give CSV in UTF-8; docs/inputs/measured-runs.md lists the columns",
)
PARTS: Final = {name.replace("probs", "probabilities"): phases for name, phases in observed.PARTS.items() if phases}
"""Parts that rows state, with the phases of a plan that they are."""
TIERS: Final = ("A", "A-", "B")


@dataclass(frozen=True, kw_only=True)
class MeasuredRlStep:
    """A measured RL step; None, or an empty text: not stated. Columns of a file have the names of the fields."""

    line: int
    """Of the file."""
    id: str
    """Unique name of the row."""
    model: str
    """A built-in model, or the path of a ``config.json``."""
    cluster: str
    """A built-in cluster or accelerator, or the path of a file: where both pools run."""
    step_time_s: float
    """Measured time of one RL step, or the mean of several."""
    family: str = ""
    """Steps of one origin (one recipe or sweep); what is left out when generalisation is measured."""
    tier: str = ""
    """``A``: all that matters is stated; ``A-``: one minor thing is inferred; ``B``: one that matters is missing."""
    source: str = ""
    """Where it was published, or how it was measured."""
    software: str = ""
    """The framework. Bands are wider for one that no published step has."""
    release: str = ""
    """Release of the framework, as ``0.7``, where it sends batches in another way than others."""
    algorithm: str = ""
    """As ``--algorithm``; GRPO where it is not stated."""
    num_train: int | None = None
    """Accelerators that train."""
    num_rollout: int | None = None
    """Accelerators that generate; the same where the pools are one."""
    placement: str = ""
    """How the pools take turns."""
    staleness: int | None = None
    """Steps by which answers may be older than the weights."""
    precision: str = ""
    """Number format of training; bf16 where it is not stated."""
    rollout_precision: str = ""
    """Number format of the weights of the engines."""
    prompts: int | None = None
    """Prompts of a step."""
    samples: int | None = None
    """Answers to each prompt."""
    prompt_tokens: int | None = None
    """Mean tokens of a prompt; 256 where it is not stated."""
    response_tokens_mean: float | None = None
    """Mean tokens of an answer."""
    response_tokens_max: int | None = None
    """The longest answer that is allowed."""
    trained_tokens: int | None = None
    """Tokens of prompts and answers that the step trained on; the mean answer follows where it is not stated."""
    pack_tokens: int | None = None
    """Tokens of a packed sequence of the trainer; a prompt with the longest answer where it is not stated."""
    pass_packs: int | None = None
    """Packed sequences of a micro-batch in log-probability passes."""
    updates: int | None = None
    """Optimizer steps of an RL step."""
    old_pass: bool | None = None
    """Whether the trainer computes log-probabilities of the policy that generated."""
    reference: bool | None = None
    """Whether a reference model judges each answer; as the algorithm does where it is not stated."""
    train_tp: int | None = None
    """Tensor parallelism of the trainer."""
    train_sp: bool | None = None
    """Sequence parallelism; yes with tensor parallelism where it is not stated."""
    train_pp: int | None = None
    """Pipeline parallelism of the trainer."""
    train_cp: int | None = None
    """Context parallelism of the trainer."""
    train_ep: int | None = None
    """Expert parallelism of the trainer."""
    train_sharding: str = ""
    """As ``sharding`` of training runs. With ``zero3`` modules of Hugging Face transformers are priced."""
    train_recompute: str = ""
    """``full``, or nothing is recomputed."""
    rollout_tp: int | None = None
    """Tensor parallelism of an engine."""
    rollout_pp: int | None = None
    """Pipeline parallelism of an engine."""
    rollout_ep: int | None = None
    """Expert parallelism of an engine."""
    rollout_memory: float | None = None
    """Share of the memory that weights and cache of an engine may fill."""
    drafts: int | None = None
    """Tokens that multi-token prediction drafts in an iteration."""
    prefix_shared: bool | None = None
    """Whether a prompt is trained once for all its answers."""
    generation_s: float | None = None
    """Measured generation, not only what the trainer waits for it."""
    log_probs_s: float | None = None
    """Measured log-probabilities, all passes."""
    training_s: float | None = None
    """Measured optimizer steps."""
    transfer_s: float | None = None
    """Measured transfer of new weights to the engines."""
    notes: str = ""
    """Anything else."""

    @property
    def parts(self) -> dict[str, float | None]:
        """What was measured of each part. [s]"""
        measured = (self.generation_s, self.log_probs_s, self.training_s, self.transfer_s)
        return dict(zip(PARTS, measured, strict=True))


class Priced(NamedTuple):
    """A measured step with the plan that it ran, and what was assumed of it."""

    step: MeasuredRlStep
    task: RlTask
    plan: RlPlan
    assumed: tuple[str, ...]

    @property
    def error(self) -> float:
        """ln(predicted / measured) of the step."""
        return math.log(self.plan.step_time / self.step.step_time_s)

    def error_of(self, part: str) -> float | None:
        """The same of a part; None where it was not measured, or takes no time."""
        measured, predicted = self.step.parts[part], self.plan.cycle.time_of(*PARTS[part])
        return math.log(predicted / measured) if measured and predicted else None


class Unpriced(NamedTuple):
    """A measured step without a price, and why."""

    step: MeasuredRlStep
    reason: str


def is_rl(header: str) -> bool:
    """Whether a header is that of measured RL steps, not of training runs."""
    names = {name.strip().strip('"') for name in header.split(",")}
    return {"num_train", "num_rollout"} <= names


def read_steps(path: Path) -> tuple[MeasuredRlStep, ...]:
    """The rows of a file. Raises ``InputError``, which names line and column."""
    return steps_of(read_text(path, STEPS), str(path))


@cache
def shipped_steps() -> tuple[MeasuredRlStep, ...]:
    """The published steps."""
    return read_steps(SHIPPED_STEPS)


def steps_of(text: str, name: str) -> tuple[MeasuredRlStep, ...]:
    """The rows of a text in CSV. Raises ``InputError``."""
    table = csv.reader(io.StringIO(text))
    header = [cell.strip() for cell in next(table, [])]
    _check_header(header, name)
    found, seen = [], set()
    for cells in table:
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{name}, line {table.line_num}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: {len(cells)} cells",
                rule=f"a row has as many cells as the header, {len(header)}",
                hint="put values with commas in quotes",
            )
        step = _step(dict(zip(header, cells, strict=True)), table.line_num, name)
        if step.id in seen:
            raise InputError(f"{where}: id is {shown(step.id)} again", rule="ids are unique", hint="rename one row")
        seen.add(step.id)
        found.append(step)
    return tuple(found)


def _check_header(header: Sequence[str], name: str) -> None:
    for column in header:
        if column not in KINDS:
            raise UnknownNameError(f"column of {name}", column, tuple(KINDS), hint="rename or remove the column")
    missing = [column for column in NEEDED if column not in header]
    if missing or len(set(header)) < len(header):
        raise InputError(
            f"{name}: " + (f"no column {joined(missing)}" if missing else "a column comes twice"),
            rule=f"a file of measured RL steps has each column once, and {joined(NEEDED)}",
            hint="name each column in the first line",
        )


def _step(cells: Mapping[str, str], line: int, name: str) -> MeasuredRlStep:
    values: dict[str, Any] = {"line": line}
    for column, text in cells.items():
        cell = RowCell(Path(name), line, cells.get("id", ""), column, text.strip(), is_required=column in NEEDED)
        if cell.text:
            values[column] = KINDS[column].read(cell)
        elif cell.is_required:
            raise cell.wrong("given")
    return MeasuredRlStep(**values)


def _age(cell: RowCell) -> int:
    if not (cell.text.isdecimal() and int(cell.text) <= 64):
        raise cell.wrong(AGE.values)
    return int(cell.text)


def _choice(allowed: Iterable[str]) -> CellKind:
    def read(cell: RowCell) -> str:
        if cell.text not in choices:
            raise cell.wrong(one_of(choices))
        return cell.text

    choices = tuple(allowed)
    return CellKind(one_of(choices), read)


SECONDS: Final = quantity(1e-6, 1e9, "s", values="a time in seconds above 0")
AGE: Final = CellKind("a whole number from 0 to 64", _age)
_OF_TYPES: Final[Mapping[str, CellKind]] = {
    "str": TEXT._replace(values="a text"), "bool | None": YES_OR_NO._replace(values="yes or no"), "float": SECONDS,
    "int | None": COUNT._replace(values="a whole number, 1 or more"), "float | None": SECONDS,
}  # fmt: skip
KINDS: Final[Mapping[str, CellKind]] = {
    **{field.name: _OF_TYPES[str(field.type)] for field in fields(MeasuredRlStep) if field.name != "line"},
    "staleness": AGE,
    "drafts": AGE,
    "response_tokens_mean": quantity(0.0, MOST_TOKENS, "", values=f"a number of tokens from 0 to {MOST_TOKENS:,}"),
    "rollout_memory": quantity(0.01, 1.0, "", values="a share from 0.01 to 1"),
    "tier": _choice(TIERS),
    "placement": _choice(PLACEMENTS),
    "rollout_precision": _choice(WEIGHT_BYTES),
}
"""How the cells of a column are read."""
NEEDED: Final = ("id", "model", "cluster", "step_time_s")


def price_all(steps: Iterable[MeasuredRlStep]) -> tuple[list[Priced], list[Unpriced]]:
    """Every step that has a price, and the others with the reason."""
    priced: list[Priced] = []
    unpriced: list[Unpriced] = []
    for step in steps:
        try:
            priced.append(price(step))
        except ShardplanError as error:
            unpriced.append(Unpriced(step, error.message))
    return priced, unpriced


def price(step: MeasuredRlStep) -> Priced:
    """The plan that a step ran. Raises ``ShardplanError`` where too little is stated, or the plan is not valid."""
    _check_stated(step)
    assumed: list[str] = []
    task, searches, _, _ = ask_rl(*_asked(step, assumed))
    counts = (step.num_train or 1, step.num_rollout or 1)
    plan = PlacementSearch(task, searches).written(step.placement, counts, _trainer_fields(step, assumed))
    return Priced(step, task, plan, tuple(assumed))


def repriced(priced: Priced) -> Priced:
    """The same with the constants of generation and transfer as they are now; the trainer's do not depend on them."""
    old = priced.plan.pool
    pool = replace(old, engine=replace(old.engine))
    split, placement = (priced.plan.num_train, priced.plan.num_rollout), priced.step.placement
    plan = PlacementSearch(priced.task, Searches()).plan(placement, split, priced.plan.trained, (pool, pool.generated))
    return priced._replace(plan=plan)


def _check_stated(step: MeasuredRlStep) -> None:
    """Raises ``InputError`` without what no default can stand for."""
    needed = {
        "placement": step.placement,
        "accelerators of each pool": step.num_train and step.num_rollout,
        "prompts and samples": step.prompts and step.samples,
        "mean length of answers": step.response_tokens_mean or step.trained_tokens,
        "longest answer": step.response_tokens_max,
        "layout of the trainer": step.train_tp or step.train_sharding,
        "layout of generation": step.rollout_tp,
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise InputError(
            f"not stated: {', '.join(missing)}",
            rule="a price needs placement, batch, lengths and layouts",
            hint="fill in what the run had",
        )


def _asked(step: MeasuredRlStep, assumed: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The question of the trainer and the fields of the step, as a user gives them."""
    two_pools, is_known = PLACEMENTS[step.placement].two_pools, step.software in FRAMEWORKS
    if step.old_pass is None or step.reference is None:
        assumed.append("log-probabilities of the old policy, and of a reference where the algorithm has one")
    if step.rollout_memory is None:
        facts = engine_facts("vllm")
        share = facts.awake_share if two_pools else facts.colocated_share
        assumed.append(f"engines fill {100 * share:.0f} % of the memory")
    rollout = {f"rollout.{name}": getattr(step, f"rollout_{name}") or 1 for name in ("tp", "pp", "ep")}
    record = {
        "model": step.model,
        "cluster": step.cluster,
        "num_accelerators": f"{step.num_train}+{step.num_rollout}" if two_pools else step.num_train,
        "precision": step.precision or "bf16",
        "fix": rollout,
    }
    stated = ("prompts", "samples", "pass_packs", "updates", "prefix_shared", "old_pass", "reference", "placement")
    lengths = _lengths(step, assumed)
    longest = (step.prompt_tokens or PROMPT_TOKENS) + lengths.cap
    return record, {
        **{name: getattr(step, name) for name in stated},
        "framework": ":".join(filter(None, (step.software, step.release))) if is_known else None,
        "backend": "fsdp" if step.train_sharding == "zero3" else "megatron",
        "algorithm": step.algorithm,
        "prompt_tokens": step.prompt_tokens,
        "response_tokens": lengths,
        "pack_tokens": max(step.pack_tokens or 0, longest),
        "rollout_precision": step.rollout_precision,
        "speculative": f"mtp:{step.drafts}" if step.drafts else None,
        "memory_share": step.rollout_memory,
        "staleness": (step.staleness or 1) if step.placement == "async" else None,
    }


def _lengths(step: MeasuredRlStep, assumed: list[str]) -> Lengths:
    prompts, samples, cap = step.prompts or 1, step.samples or 1, step.response_tokens_max or 1
    mean = step.response_tokens_mean
    if step.prompt_tokens is None:
        assumed.append(f"prompts of {PROMPT_TOKENS} tokens")
    if mean is None:
        prompt_tokens = PROMPT_TOKENS if step.prompt_tokens is None else step.prompt_tokens
        mean = min(max((step.trained_tokens or 0) / prompts / samples - prompt_tokens, 1.0), float(cap))
        assumed.append(f"answers of {mean:,.0f} tokens, from the tokens of the step")
    return Lengths(mean=mean, cap=cap)


def _trainer_fields(step: MeasuredRlStep, assumed: list[str]) -> dict[str, Any]:
    unstated = [name for name in ("train_pp", "train_sharding", "train_recompute") if getattr(step, name) in (None, "")]
    if unstated:
        assumed.append(f"usual values of {joined(unstated)}")
    tp = step.train_tp or 1
    return {
        "tp": tp,
        "pp": step.train_pp or 1,
        "cp": step.train_cp or 1,
        "ep": step.train_ep or 1,
        "etp": 1,
        "sequence_parallel": tp > 1 and step.train_sp is not False,
        "sharding": step.train_sharding or "zero1",
        "recompute": "full" if step.train_recompute == "full" else "none",
    }
