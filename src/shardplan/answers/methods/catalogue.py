"""Methods of estimating a training run: our own estimate, the published models, and those of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Bullets, CommandLine, Hanging, Line, Part, Span
from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.methods.base import Method
from shardplan.methods.catalogue import broken_methods, list_methods, load_method, load_methods


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One method: what it is, what it counts, what it leaves out."""

    name: str
    """Word for it on the command line."""
    title: str
    """What it is, in a line."""
    source: str
    """Where it was published."""
    counts: tuple[str, ...]
    leaves_out: tuple[str, ...]
    """What it leaves out or has wrong."""
    fault: str | None = None
    """Why it cannot be used; None where it can."""

    @classmethod
    def of(cls, method: Method) -> MethodEntry:
        """The entry of a method."""
        return cls(
            name=method.name,
            title=str(getattr(method, "title", "")),
            source=str(getattr(method, "source", "")),
            counts=tuple(map(str, getattr(method, "counts", ()))),
            leaves_out=tuple(map(str, getattr(method, "leaves_out", ()))),
        )


OURS: Final = MethodEntry(
    name="shardplan",
    title="our own estimate: what `shardplan plan` and `shardplan estimate` answer with",
    source="pages on formulas in the documentation, each with its sources",
    counts=(
        "every operator of real architectures: attention of any kind, MLPs, experts, state-space layers, both ends",
        "tensor, context, pipeline, expert and data parallelism, sharding, recomputation, offload, pipeline schedules",
        "any number of network tiers, and any placement of the parallel dimensions on them",
        "efficiencies, latencies and overheads from a profile of the accelerator's generation, each with its source",
        "memory of every stage, what the framework holds included; a band for the step time",
    ),
    leaves_out=(
        "routing of tokens to experts that changes from step to step (one ratio of imbalance holds for all)",
        "traffic of other jobs on the same network",
        "data loading and evaluation; checkpoints and failures, which `shardplan budget` adds",
    ),
)
"""Our own estimate, in the words of a method."""


def method_entries() -> tuple[MethodEntry, ...]:
    """Ours, the published ones, those of other packages, and last those that cannot be used."""
    broken = (
        MethodEntry(name=name, title="cannot be used", source="", counts=(), leaves_out=(), fault=fault)
        for name, fault in broken_methods().items()
    )
    return (OURS, *(MethodEntry.of(method) for method in load_methods()), *broken)


def method_entry(name: str) -> MethodEntry:
    """One of them. Raises ``UnknownNameError``, or ``InputError`` where its package is at fault."""
    known = (OURS.name, *list_methods())
    if name not in known:
        raise UnknownNameError("method", f"{name:.60}", known, hint="see `shardplan methods`")
    return OURS if name == OURS.name else MethodEntry.of(load_method(name))


MOST_SHOWN: Final = 3
"""Entries of what a method leaves out that the list shows."""
COMMANDS: Final = (
    "shardplan methods subramanian2024",
    "shardplan plan llama-2-70b --cluster dgx-h100 --gpus 64 --method subramanian2024",
    "shardplan published --help",
)


def methods_document(entries: Sequence[MethodEntry]) -> AnswerDocument:
    """All of them in a few lines each."""
    about = "All that a method counts and leaves out; a question of yours in its terms; a case in its own words:"
    first, *others = ([*_entry(entry)] for entry in entries)
    return AnswerDocument(
        name="methods",
        verdict=first,
        parts=[
            *(Part("", each) for each in others),
            Part("Next steps", [Line(about), *map(CommandLine, COMMANDS)]),
        ],
        record=lambda: {"methods": plain(list(entries))},
    )


def _entry(entry: MethodEntry) -> Iterator[Hanging | Line]:
    yield Hanging(Span(entry.name, "strong"), Span(entry.title, "quiet"), is_flush=True)
    if entry.fault is not None:
        yield Line(entry.fault, tone="wrong")
        return
    more = len(entry.leaves_out) - MOST_SHOWN
    left_out = [*entry.leaves_out[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    yield Hanging(Span("counts    "), Span("; ".join(entry.counts)))
    yield Hanging(Span("leaves out"), Span("; ".join(left_out)))
    yield Hanging(Span("source    "), Span(entry.source, "quiet"))


def method_document(entry: MethodEntry) -> AnswerDocument:
    """Everything that a method says of itself."""
    return AnswerDocument(
        name="methods",
        verdict=[Line(entry.name, tone="strong"), Line(entry.title), Line(f"Source: {entry.source}", tone="quiet")],
        parts=[
            Part("Counts", [Bullets(entry.counts)]),
            Part("Leaves out" if entry is OURS else "Leaves out or has wrong", [Bullets(entry.leaves_out)]),
        ],
        record=lambda: {"methods": plain([entry])},
    )


def answer_record(name: str, case: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a method to a case in its own terms, as a mapping that JSON can hold."""
    head = {"method": name, "case": plain(case)}
    return head | {key: value for key, value in plain(answer).items() if key not in (*head, "schema")}
