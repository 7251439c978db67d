"""The usual framework of an accelerator where none is named, and what it makes of a plan where nothing is stated.

Some of its defaults depend on the model and on the degrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from shardplan.base.errors import InputError, UnknownNameError, check_kind
from shardplan.base.fields import dataclass
from shardplan.base.words import joined
from shardplan.inputs.model import ModelConfig
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack
from shardplan.physics.frameworks.stage_layers import LAYER_KINDS, MTP, layer_kinds, layers_by_cost

USUAL: Final = "usual"
"""Stands for the usual framework of the accelerator."""
ANY: Final = "any"
"""Stands for no framework: every plan that is physically consistent."""
ALL: Final = "all"
"""Stands for every published framework that runs on the accelerator, one after the other."""


def stack_for(stack: str | Stack | None, vendor: str) -> Stack | None:
    """The framework that is meant on accelerators of ``vendor``; None where none limits the plans.

    Raises ``UnknownNameError`` for a name that no framework has, ``InputError`` for a file that is not a stack.
    """
    word = stack.lower() if isinstance(stack, str) else stack
    if word is None or word == ANY:
        return None
    check_kind("stack", stack, str, Stack, hint="a name, a Stack, or None for no framework")
    if word == USUAL:
        return usual_stack(vendor)
    return load_stack(stack) if isinstance(stack, str) else stack


def usual_stack(vendor: str) -> Stack | None:
    """The usual framework on accelerators of ``vendor``; None where no shipped one is."""
    return next((each for each in _shipped() if vendor in each.usual_on), None)


def published_stacks(vendor: str) -> tuple[Stack, ...]:
    """The frameworks that anyone can run on accelerators of ``vendor``, in their newest versions, the usual one first.

    Stacks that describe how one framework was run at some time (``where``) are left out. Raises ``InputError`` where
    there are none.
    """
    found = [each for each in _shipped() if not (each.only_for_runs or each.where) and _runs_on(each, vendor)]
    if not found:
        raise InputError(
            f"no framework on record runs on accelerators of {vendor}",
            rule="frameworks that run on the accelerator are compared",
            hint="leave --stack out: plans are then limited by no framework",
        )
    return tuple(sorted(found, key=lambda stack: vendor not in stack.usual_on))


@lru_cache(maxsize=256)
def stack_of_label(label: str | None) -> Stack | None:
    """The framework that an answer is labelled with: ``torchtitan 0.3.0``; None where no shipped one has the label."""
    name, _, version = (label or "").partition(" ")
    stack = load_stack(name) if name in list_stacks() else None
    if stack is None or not version:
        return stack
    try:
        return stack.at_version(version)
    except UnknownNameError:
        return None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What decides, besides the accelerator, whether a framework can run a question at all."""

    model: ModelConfig
    train: str = "full"
    base_weights: str = "same"
    documents: bool = False
    """Whether documents are packed into a sequence."""

    @classmethod
    def of(cls, model: ModelConfig, *given: Mapping[str, Any]) -> Wanted:
        """From fields of a job as they were given; the last that has a field counts."""
        fields = {name: value for each in given for name, value in each.items()}
        return cls(
            model=model,
            train=fields.get("train") or "full",
            base_weights=fields.get("base_weights") or "same",
            documents=fields.get("documents") is not None,
        )

    def lacking(self, stack: Stack) -> tuple[str, ...]:
        """What the record of a framework says that it has not."""
        can = stack.can_run
        if can is None:
            return ()
        known = LAYER_KINDS if can.layer_kinds is None else can.layer_kinds
        kinds = [each for each in layer_kinds(self.model) if each not in known]
        adapters = ["low-rank adapters"] * (can.lora is False and self.train == "lora")
        bits = [f"weights in {self.base_weights}"] * (
            can.base_weights is not None and self.base_weights not in ("same", *can.base_weights)
        )
        masks = ["masks of packed documents"] * (can.packed_documents is False and self.documents)
        return (*kinds, *adapters, *bits, *masks)

    def is_run_by(self, stack: Stack) -> bool:
        """Whether the record says that the framework has all of it."""
        can = stack.can_run
        stated = can is not None and None not in (can.layer_kinds, can.lora, can.packed_documents)
        return stated and not self.lacking(stack)


CHANGE: Final = "--stack NAME for another, all to compare, any for none"


def candidates_of(stack: str | Stack | None, vendor: str, wanted: Wanted) -> tuple[Stack, ...]:
    """The frameworks among which an answer chooses: those that have what is wanted, where the usual one has not.

    Their order is that of :func:`published_stacks`. One is named, or usual and has it all: then there is no choice.
    Raises as :func:`stack_for`.
    """
    found = stack_for(stack, vendor)
    if found is None or not _is_usual(stack) or not wanted.lacking(found):
        return () if found is None else (found,)
    return tuple(each for each in published_stacks(vendor) if wanted.is_run_by(each))


def chosen_stack(stack: str | Stack | None, vendor: str, wanted: Wanted) -> tuple[Stack | None, tuple[str, ...]]:
    """The framework that is meant, and what is assumed where none is named: the first of :func:`candidates_of`.

    Of several a search takes the fastest (``planner.related.frameworks``). Raises as ``stack_for``.
    """
    candidates = candidates_of(stack, vendor, wanted)
    first = candidates[0] if candidates else None
    if not _is_usual(stack):
        return first, ()
    among = f"the first by name of the {len(candidates)} that have; a search takes the fastest"
    return first, (why_chosen(first, vendor, wanted, among if len(candidates) > 1 else ""),)


def why_chosen(stack: Stack | None, vendor: str, wanted: Wanted, among: str = "") -> str:
    """Why an answer is for a framework where none is named; ``among``: how it was chosen of several."""
    usual = usual_stack(vendor)
    if usual is None:
        return f"no framework is on record for accelerators of {vendor or 'this maker'}: plans are limited by none"
    if stack is not None and stack == usual:
        return f"framework {usual.name}, as is usual on {vendor} ({CHANGE})"
    name = "no framework" if stack is None else f"framework {stack.name}"
    why = f"{usual.name}, which is usual on {vendor}, has no {joined(wanted.lacking(usual), last='or')}"
    return f"{name}: {why}{among and f'; {among}'} ({CHANGE})"


def _is_usual(stack: str | Stack | None) -> bool:
    """Whether no framework is named."""
    return isinstance(stack, str) and stack.lower() == USUAL


def without_prediction_blocks(model: ModelConfig, stack: Stack | None) -> tuple[ModelConfig, tuple[str, ...]]:
    """The model as a framework trains it that has all of its layers but blocks of multi-token prediction.

    Such a framework trains the model without these blocks, which is then assumed.
    """
    if stack is None or not model.num_mtp_layers or Wanted(model=model).lacking(stack) != (MTP,):
        return model, ()
    blocks = "block" if model.num_mtp_layers == 1 else f"{model.num_mtp_layers} blocks"
    said = f"{stack.name} has no {MTP}: {model.name} is trained without its {blocks}"
    return replace(model, num_mtp_layers=0, mtp_block=None), (said,)


def _runs_on(stack: Stack, vendor: str) -> bool:
    makers = None if stack.can_run is None else stack.can_run.vendors
    return makers is None or vendor in ("", *makers)


def _shipped() -> tuple[Stack, ...]:
    return tuple(load_stack(name) for name in list_stacks())


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
