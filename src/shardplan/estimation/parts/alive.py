"""What is alive on one rank at its memory peak, tensor by tensor; together it is the stage's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files
from shardplan.estimation.plan_columns import PlanColumns
from shardplan.estimation.pricing import embedding_block, head_block, mtp_block
from shardplan.estimation.stage_memory import StageMemory
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.memory import LOSS_HELD, applied_share, mask_bytes, on_device
from shardplan.physics.schedules.pipeline import ends_in_flight, microbatches_in_flight
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import Saved
from shardplan.physics.workload.stage import Parts, Stage

SMALLEST: Final = 1.0
"""What is smaller is a rounding of sums. [bytes]"""
LEAST_SHARE: Final = 0.005
"""Share of a stage's memory below which tensors are shown together."""


@dataclass(frozen=True, kw_only=True)
class Alive:
    """Tensors of one kind that a rank holds when its memory is fullest."""

    name: str
    part: str
    """The part of the stage's memory that they count in."""
    num_bytes: float = field(metadata=in_files("bytes"))
    """All of them. [bytes]"""
    copies: float | None = None
    """Layers times micro-batches in flight that keep one each; None for what is there once."""

    @property
    def one(self) -> float | None:
        """Of one layer and micro-batch. [bytes]"""
        return self.num_bytes / self.copies if self.copies else None


def alive_at_peak(columns: PlanColumns, numbers: PlanNumbers, memory: StageMemory, at: int) -> tuple[Alive, ...]:
    """The tensors of stage ``at`` of the only plan, the largest first. ``memory``: that of the stage.

    Where the loss is the peak, what a layer's backward pass takes later is not there yet.
    """
    (kept,), states = columns.step.work.kept, columns.states_memory

    def here(values: object) -> float:
        return float(columns.of_stages(values, 0)[at])  # type: ignore[arg-type]  # numbers or arrays of stages

    tensors = [*_saved(columns, numbers, columns.rows.stages_of[0][at])]
    recomputed, whole, passing = here(kept.recomputed), here(states.whole), here(kept.passing)
    saved = sum(tensor.num_bytes for tensor in tensors)
    masks = here(mask_bytes(columns.question.job, columns.numbers))
    outputs = memory.activations - recomputed - masks - saved
    loss = memory.logits
    if loss > SMALLEST and columns.question.job.software.loss_kernel not in LOSS_HELD:
        loss, recomputed, passing = loss + recomputed + passing, 0.0, 0.0
    once = (
        ("weights", "weights", memory.weights),
        ("gradients", "gradients", memory.gradients),
        ("optimizer states", "optimizer", memory.optimizer),
        ("weights of companions", "companion", memory.companion),
        ("recomputed layer", "activations", recomputed),
        ("outputs of chunks", "activations", outputs),
        ("attention masks", "activations", masks),
        ("logits and loss", "logits", loss),
        ("gathered weights and gradients", "buffers", whole),
        ("gradients of a layer", "buffers", passing),
        ("update", "buffers", memory.buffers - whole - here(kept.passing)),
        ("workspaces", "framework", memory.framework),
    )
    found = [*tensors, *(Alive(name=name, part=part, num_bytes=float(size)) for name, part, size in once)]
    return tuple(sorted((each for each in found if each.num_bytes > SMALLEST), key=lambda each: -each.num_bytes))


def largest_of(tensors: Sequence[Alive], least: float = LEAST_SHARE) -> tuple[Alive, ...]:
    """Those that take a share of the whole or more, and the others together."""
    whole = sum(tensor.num_bytes for tensor in tensors)
    large = [tensor for tensor in tensors if tensor.num_bytes >= least * whole]
    small = [tensor.num_bytes for tensor in tensors if tensor.num_bytes < least * whole]
    return (*large, *([Alive(name=f"{len(small)} smaller ones", part="", num_bytes=sum(small))] if small else []))


def check_stage(stage: int, pp: int) -> None:
    """Refuses a stage that the pipeline lacks. Raises InputError."""
    if not 0 <= stage < pp:
        raise InputError(
            f"stage is {stage} of a pipeline with {pp} stage{'s' * (pp > 1)}",
            rule="stages are counted from 0 up to pp - 1",
            hint=f"set --stage to a number from 0 to {pp - 1}" if pp > 1 else "set --stage to 0",
        )


class _Kept(NamedTuple):
    """Tensors of one name over all layers of a stage."""

    num_bytes: float
    copies: float


def _saved(columns: PlanColumns, numbers: PlanNumbers, stage: Stage) -> Iterator[Alive]:
    """What the layers and ends of a stage keep for the backward pass, less what recomputation frees."""
    question = columns.question
    factor = float(question.profile.activation_factor[question.job.software.kernels])
    share = float(applied_share(stage.num_layers, numbers))
    in_flight = microbatches_in_flight(stage.rank, numbers, stage.num_layers)
    ends = float(on_device(ends_in_flight(in_flight, numbers), stage.num_layers, numbers))
    inside = float(on_device(in_flight, stage.num_layers, numbers))
    sums: dict[str, _Kept] = {}
    for (count, tensors), (_, cost) in zip(
        _tensors(columns, numbers).held(stage), columns.prices.blocks.held(stage), strict=True
    ):
        is_end = cost is columns.prices.blocks.head or cost is columns.prices.blocks.mtp
        copies = float(count) * (ends if is_end else inside)
        for tensor in tensors:
            again = 0.0 if tensor.layer_input else share * float(cost.repeats.share_of(tensor))
            size, before = copies * factor * (1 - again) * float(tensor.bytes), sums.get(tensor.name, _Kept(0.0, 0.0))
            if size:
                sums[tensor.name] = _Kept(before.num_bytes + size, before.copies + copies * (1 - again))
    for name, kept in sums.items():
        yield Alive(name=name.replace("_", " "), part="activations", num_bytes=kept.num_bytes, copies=kept.copies)


def _tensors(columns: PlanColumns, numbers: PlanNumbers) -> Parts[tuple[Saved, ...]]:
    """What every part of the model keeps of a micro-batch."""
    question, model = columns.question, columns.question.model
    shard = Shard.of(model.hidden_size, question.job, numbers)
    return Parts(
        layers=tuple(layer_block(kind, shard).saved for kind in model.layer_kinds),
        embedding=embedding_block(model, shard).saved,
        head=head_block(model, shard).saved,
        mtp=mtp_block(model, shard).saved if model.num_mtp_layers else (),
    )
