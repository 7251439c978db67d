"""What a framework makes of a plan where nothing is stated: defaults that depend on model and degrees."""

from __future__ import annotations

from shardplan.frameworks.stack import Stack
from shardplan.frameworks.stage_layers import layers_by_cost
from shardplan.inputs.model import ModelConfig


def usual_chunks(layers_per_chunk: int | None, num_layers: int, pp: int, num_microbatches: int) -> int:
    """Model chunks of a pipeline rank: the number nearest to the usual size that layers and micro-batches allow."""
    layers = num_layers // pp
    if pp == 1 or layers_per_chunk is None or layers < 1 or num_microbatches < 1 or num_microbatches % pp:
        return 1
    counts = [vp for vp in range(1, layers + 1) if layers % vp == 0]
    return min(counts, key=lambda vp: abs(layers / vp - layers_per_chunk))


def usual_stage_layers(stack: Stack | None, model: ModelConfig, pp: int, vp: int) -> tuple[int, ...] | None:
    """Layers of every stage where the stack closes stages by cost; None where they are shared out evenly."""
    return layers_by_cost(model, pp) if stack is not None and stack.stages_by_cost and pp > 1 == vp else None


def usual_expert_tp(
    stack: Stack | None, model: ModelConfig, num_accelerators: int, *, tp: int, ep: int, pp: int
) -> int:
    """Expert-tensor parallelism: the tensor-parallel degree where the stack splits experts so and the ranks suffice."""
    if stack is None or not model.is_moe:
        return 1
    always = stack.can_run is not None and stack.can_run.expert_tensor_parallel == "tp"
    is_split = stack.experts_split_as_layers or always
    return tp if is_split and num_accelerators % (tp * ep * pp) == 0 else 1
