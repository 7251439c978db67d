"""Conditions in a capability record: ``overlap_ep and pp > 1 and vp == 1``.

A condition compares facts of a plan, its job and its model. It is parsed once and asked of one plan or of arrays of
candidates alike. Only comparisons, ``and``, ``or``, ``not``, whole numbers, texts, lists of texts and the arithmetic
of whole numbers are understood; names are those of :data:`FACTS`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from math import gcd
from typing import Any, Final

import numpy as np

from shardplan.arrays import Flags
from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.fields import dataclass
from shardplan.inputs.degrees import Degrees, Setting, data_parallel_degree, num_microbatches
from shardplan.inputs.layers import MLP
from shardplan.inputs.plan import RECOMPUTE_PRESETS, recompute_modules

Facts = Mapping[str, Any]
Term = Callable[[Facts], Any]

MOST_CHARACTERS: Final = 300
MOST_NUMBER: Final = 1_000_000


def recompute_words(policy: str) -> tuple[str, ...]:
    """What a policy recomputes as records list it: modules, or ``full`` or ``op_sac`` alone."""
    return (policy,) if policy in ("full", *RECOMPUTE_PRESETS["op_sac"]) else recompute_modules(policy)


def _overlaps_transfers(d: Degrees) -> Flags:
    return np.greater(d.vp, 1) if d.plan.overlap_pp is None else d.plan.overlap_pp


def _schedule(d: Degrees) -> Any:
    left_open = np.where(d.interleaved, "interleaved", "1f1b")
    return d.plan.schedule or (left_open if left_open.ndim else str(left_open))


def _of_plan(name: str) -> Callable[[Setting, Degrees], Any]:
    return lambda _s, d: getattr(d.plan, name)


FACTS: Final[Mapping[str, Callable[[Setting, Degrees], Any]]] = {
    "tp": lambda _s, d: d.tp,
    "cp": lambda _s, d: d.cp,
    "pp": lambda _s, d: d.pp,
    "vp": lambda _s, d: d.vp,
    "ep": lambda _s, d: d.ep,
    "etp": lambda _s, d: d.etp,
    "micro_batch_size": lambda _s, d: d.micro_batch_size,
    "dp": data_parallel_degree,
    "microbatches": num_microbatches,
    "schedule": lambda _s, d: _schedule(d),
    "recompute": lambda _s, d: recompute_words(d.plan.recompute),
    "recompute_num_layers": lambda _s, d: d.plan.recompute_num_layers or 0,
    "offload_num_layers": lambda _s, d: d.plan.offload_num_layers or 0,
    "overlap_pp": lambda _s, d: _overlaps_transfers(d),
    **{name: _of_plan(name) for name in ("sharding", "offload", "cp_comm", "tp_kind", "sequence_parallel")},
    **{name: _of_plan(name) for name in ("overlap_tp", "overlap_dp", "overlap_ep")},
    "vendor": lambda s, _d: s.cluster.accelerator.vendor,
    "precision": lambda s, _d: s.job.precision,
    "optimizer": lambda s, _d: s.job.optimizer,
    "layers": lambda s, _d: s.model.num_hidden_layers,
    "kv_heads": lambda s, _d: gcd(*s.kv_heads),
    "num_experts": lambda s, _d: gcd(*s.num_experts),
    "experts": lambda s, _d: s.model.is_moe,
    "dense": lambda s, _d: any(isinstance(kind.mlp, MLP) for kind in s.model.layer_kinds),
    "tied": lambda s, _d: s.model.tie_word_embeddings,
}  # fmt: skip
"""What conditions may name. ``recompute`` is a list of modules (``"moe" in recompute``); ``kv_heads`` and
``num_experts`` are the greatest common divisor of the layers' numbers, 0 where there are none; a number of layers is 0
where none is given; ``experts`` and ``dense``: whether layers have them; ``tied``: whether input and output embeddings
are one table; ``vendor``: the accelerator's maker; ``overlap_pp`` is what follows from ``vp`` where it is left open."""


def _is_in(value: Any, options: Any) -> Flags:
    return np.isin(value, options) if isinstance(value, np.ndarray) else value in options


READS: Final[Mapping[str, tuple[str, ...]]] = {
    "dp": ("tp", "cp", "pp"),
    "microbatches": ("tp", "cp", "pp", "micro_batch_size"),
    "schedule": ("schedule", "vp"),
    "overlap_pp": ("overlap_pp", "vp"),
    **dict.fromkeys(("vendor", "precision", "optimizer", "layers"), ()),
    **dict.fromkeys(("kv_heads", "num_experts", "experts", "dense", "tied"), ()),
}
"""Fields of a plan that decide a fact; where it is not listed, the field of its name."""


def plan_fields(facts: Iterable[str]) -> tuple[str, ...]:
    """Fields of a plan that decide some facts."""
    return tuple(dict.fromkeys(field for fact in facts for field in READS.get(fact, (fact,))))


_TEXTS: Final = ("schedule", "sharding", "offload", "cp_comm", "tp_kind", "precision", "optimizer", "vendor")
_NUMBERS: Final = (
    "tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "dp", "microbatches", "layers", "kv_heads", "num_experts",
    "recompute_num_layers", "offload_num_layers",
)  # fmt: skip
_SAMPLE: Final[Facts] = {
    name: "" if name in _TEXTS else 1 if name in _NUMBERS else () if name == "recompute" else False for name in FACTS
}

_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: np.mod,
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _is_in,
    ast.NotIn: lambda value, options: np.logical_not(_is_in(value, options)),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition."""

    text: str
    """As the record has it."""
    names: tuple[str, ...]
    """Facts that it reads."""
    test: Term

    def holds(self, s: Setting, d: Degrees) -> Flags:
        """Whether it is so, for one plan or for each of many."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Flags = self.test({name: FACTS[name](s, d) for name in self.names})
        return found


def parse_condition(text: object, label: str) -> Condition:
    """The condition in ``text``; ``label`` names it in errors. Raises ``InputError``."""
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARACTERS:
        raise _wrong(text, label, f"it is a text of at most {MOST_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        condition = Condition(text, tuple(names), _term(tree, text, label))
        condition.test(_SAMPLE)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise _wrong(text, label, "it cannot be read as a comparison") from None
    return condition


def _term(node: ast.expr, text: str, label: str) -> Term:
    """The value of a part of a condition."""
    match node:
        case ast.Name(id=name) if name in FACTS:
            return operator.itemgetter(name)
        case ast.Name(id=name):
            raise UnknownNameError(f"fact in {label}", name, FACTS, hint=f"one of {', '.join(FACTS)}")
        case ast.Constant(value=constant) if _is_plain(constant):
            return lambda _: constant
        case ast.UnaryOp(op=ast.Not(), operand=part):
            negated = _term(part, text, label)
            return lambda facts: np.logical_not(negated(facts))
    return _joined(node, text, label) or _operation(node, text, label)


def _is_plain(constant: object) -> bool:
    return isinstance(constant, str) or (isinstance(constant, int) and constant <= MOST_NUMBER)


def _joined(node: ast.expr, text: str, label: str) -> Term | None:
    """A list, or conditions joined by ``and`` or ``or``; None for anything else."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            terms = [_term(part, text, label) for part in parts]
            return lambda facts: tuple(term(facts) for term in terms)
        case ast.BoolOp(op=op, values=parts):
            terms = [_term(part, text, label) for part in parts]
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return lambda facts: reduce(join, [term(facts) for term in terms])
    return None


def _operation(node: ast.expr, text: str, label: str) -> Term:
    """Arithmetic of two numbers, or one comparison."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply = _ARITHMETIC[type(op)]
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _COMPARISONS:
            apply = _COMPARISONS[type(compared)]
        case _:
            raise _wrong(text, label, "it may have comparisons, and, or, not, whole numbers, texts, lists and + - * %")
    first, second = _term(left, text, label), _term(right, text, label)
    return lambda facts: apply(first(facts), second(facts))


def _wrong(text: object, label: str, why: str) -> InputError:
    return InputError(
        f"{label} is {shown(text)}: {why}",
        rule="a condition compares facts of plan, job and model",
        hint='write it like overlap_ep and pp > 1 and vp == 1, or "moe" in recompute',
    )
