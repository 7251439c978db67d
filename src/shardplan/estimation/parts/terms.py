"""The terms of a step and of the memory: their keys, labels, colours and meanings.

Everything that splits a step or a memory reads these tables: breakdowns, tables of sweeps, bars, pages, pictures, the
simulator and the documentation. A new term is its formula, one row and its colour. A colour has one meaning: a part of
the memory has that of a term only where the two are about the same, such as the optimizer.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Group = Literal["arithmetic", "passes", "communication", "other"]
Hue = Literal["optimizer", "fixed time and stragglers"]


class Term(NamedTuple):
    """A term of the step time; in pictures, terms follow each other in the order of the table."""

    key: str
    """In files, followed by the unit where the key stands alone."""
    group: Group
    tone: str
    """Class of the style sheet of pages, of no other term: ``t15`` has the colour ``--c15``, light and dark."""
    meaning: str
    name: str = ""
    """What answers call it, where that is not its key."""
    times: str = ""
    """The field of a block's times whose sum over blocks, passes and micro-batches it is; else it has its own formula.

    See ``shardplan.physics.costs.block.Times``.
    """
    event: str = ""
    """What a simulated step calls it where it is an event after the last pass, and ``hue`` the colour that it has."""
    hue: Hue = "fixed time and stragglers"

    @property
    def label(self) -> str:
        """What answers call it."""
        return self.name or self.key.replace("_", " ")


class MemoryTerm(NamedTuple):
    """A part of a stage's memory; each is a field of ``shardplan.estimation.stage_memory.StageMemory``."""

    key: str
    colour: str
    """On terminals, from where notebooks take theirs."""
    tone: str
    """Class of the style sheet of pages."""
    meaning: str

    @property
    def letter(self) -> str:
        """Its mark in bars of text."""
        return self.key[0].upper()


STEP_TERMS: Final = (
    Term("matmul", "arithmetic", "t1", "dense and grouped matrix products", "matrix products", times="matmul"),
    Term("attention", "arithmetic", "t1-soft", "cores of attention and of other mixers", times="attention"),
    Term(
        "memory_bound", "passes", "t2", "passes that memory limits: norms, activations, the loss",
        "memory-bound passes", times="memory",
    ),
    Term("recompute", "passes", "t2-soft", "forward work that is done again, all of it", "recomputation"),
    Term("companion", "passes", "t13", "forward passes of frozen companions", times="companion"),
    Term("host", "other", "t9", "waiting for the host to launch kernels", "host launches", times="host"),
    Term("tp_communication", "communication", "t4", "exposed exchanges of tensor parallelism", times="tp"),
    Term("cp_communication", "communication", "t3", "exposed exchanges of context parallelism", times="cp"),
    Term("ep_communication", "communication", "t8", "exposed exchanges of expert parallelism", times="ep"),
    Term("dp_communication", "communication", "t6", "exposed exchanges of weights and gradients"),
    Term("pp_communication", "communication", "t5", "exposed transfers between pipeline stages"),
    Term("offload", "other", "t10", "exposed transfers to and from host memory", "host offload"),
    Term("optimizer", "other", "t11", "the update", "optimizer step", event="optimizer", hue="optimizer"),
    Term("fixed", "other", "t14", "fixed time of a step and each micro-batch", "fixed overheads", event="fixed time"),
    Term("stragglers", "other", "t15", "waiting for the slowest of many accelerators", event="stragglers"),
    Term("bubble", "other", "t7", "waiting for other pipeline stages", "pipeline bubble"),
)  # fmt: skip
TERMS: Final = {term.key: term for term in STEP_TERMS}
OF_BLOCKS: Final = tuple(term for term in STEP_TERMS if term.times)
IN_FILES: Final = (*OF_BLOCKS, *(term for term in STEP_TERMS if not term.times))
"""In the order of files and of ``Estimate.breakdown``."""
AFTER_PASSES: Final = tuple(term for term in STEP_TERMS if term.event)

MEMORY_TERMS: Final = (
    MemoryTerm("weights", "bright_blue", "m1", "parameters in the format of the matrix products"),
    MemoryTerm("gradients", "bright_cyan", "m2", "as they are accumulated"),
    MemoryTerm("optimizer", "bright_magenta", "t11", "states of the optimizer, with master weights"),
    MemoryTerm("companion", "cyan", "t13", "weights of frozen companions"),
    MemoryTerm("activations", "bright_yellow", "m3", "saved for the backward pass, and one recomputed layer"),
    MemoryTerm("logits", "bright_green", "m4", "logits and loss, as far as they exceed what is recomputed"),
    MemoryTerm("buffers", "bright_red", "m5", "gathered weights, gradients on their way, and what the update needs"),
    MemoryTerm("framework", "white", "m6", "context, libraries and communication buffers"),
)
MEMORY: Final = {term.key: term for term in MEMORY_TERMS}


def keys_of(*groups: Group) -> tuple[str, ...]:
    """Keys of the terms of the step in some groups, in order."""
    return tuple(term.key for term in STEP_TERMS if term.group in groups)


def term_label(key: str) -> str:
    """A term of the step as text; a key that is not known stays as it is."""
    return TERMS[key].label if key in TERMS else key.replace("_", " ")
