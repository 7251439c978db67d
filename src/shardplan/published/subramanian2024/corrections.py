"""What the paper's programme has wrong, and which of it can be set right (numbers as in the documentation)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, cast

from shardplan.errors import InputError, UnknownNameError

Correction = Literal["Q1", "Q2", "Q3", "Q5", "Q11"]
Corrections = frozenset[Correction]

FAITHFUL: Final[Corrections] = frozenset()
"""As published."""

CORRECTIONS: Final[dict[Correction, str]] = {
    "Q1": "transfers between pipeline stages in different scale-up domains take time",
    "Q2": "the layer norm of SUMMA normalises channels, not tokens",
    "Q3": "an all-reduce sends everything twice on every network, not only across domains",
    "Q5": "SUMMA has as many rounds of communication as blocks, not one more",
    "Q11": "the inputs of column-parallel layers are kept in shards and gathered again in the backward pass",
}
"""What each correction does."""

FLAWS: Final[dict[str, str]] = {
    "Q1": "transfers between pipeline stages are free where they leave a scale-up domain that holds several stages",
    "Q2": "the layer norm of SUMMA has the width of the sequence in place of the embedding",
    "Q3": "an all-reduce inside a domain, or with one rank in each, sends everything once in place of twice",
    "Q4": "two biases of 1D tensor parallelism run on the whole sequence, although it is scattered",
    "Q5": "SUMMA communicates one round more than it has blocks where communication dominates",
    "Q6": "a bias reads or writes the activation, not both",
    "Q7": "rounding down loses a part of sequences that do not divide evenly",
    "Q8": "every operator costs 20 us, but the rounds of SUMMA cost it once",
    "Q9": "the bandwidth of a scale-up domain does not depend on the ranks that use it",
    "Q10": "a group with one rank in each domain uses one network adapter, however many there are",
    "Q11": "the inputs of column-parallel layers are kept whole on every tensor-parallel rank, but not under SUMMA",
    "Q12": "no embedding, output head, residual, optimizer step or framework memory; gradients in 16 bits",
    "Q13": "its FLOP count holds vector work at the ratio of the matrix and vector rates: no base for an MFU",
    "Q14": "gradients of norm parameters are not reduced over the ranks that share the sequence",
    "Q15": "gradient communication hides behind one layer of one micro-batch only",
    "Q16": "stages are uniform, and the pipeline bubble contains the transfers between them",
    "Q17": "its search fills scale-up domains exactly, and the depth of the pipeline divides the number of layers",
}
"""Known errors and omissions of the method, by number."""


def corrections_of(given: object) -> Corrections:
    """None, all (``True`` or ``all``) or those named. Raises ``InputError``."""
    if given is None or given is False:
        return FAITHFUL
    if given is True:
        return frozenset(CORRECTIONS)
    names = given.replace("+", ",").split(",") if isinstance(given, str) else given
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"corrected is {given!r:.80}",
            rule="corrected is true, false or a list of names",
            hint=f"names: {', '.join(CORRECTIONS)}",
        )
    return _named([name.strip().upper() for name in names if name.strip()])


def _named(names: list[str]) -> Corrections:
    if names == ["ALL"]:
        return frozenset(CORRECTIONS)
    for name in names:
        if name not in CORRECTIONS:
            raise UnknownNameError("correction", f"{name:.40}", CORRECTIONS, hint=f"one of {', '.join(CORRECTIONS)}")
    return frozenset(cast("list[Correction]", names))
