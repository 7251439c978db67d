"""Conditions in a capability record: ``overlap_ep and pp > 1 and vp == 1``.

A condition compares facts of a plan, its job and its model. It is parsed once and asked of one plan or of arrays of
candidates alike. Only comparisons, ``and``, ``or``, ``not``, whole numbers, texts, lists of texts and arithmetic are
understood; names are those of :data:`FACTS`. Options of a framework take their values from the same language.

What every entry of a capability record is read with: its fields, its source, and errors that name the entry.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import reduce
from math import gcd
from typing import Any, Final, NamedTuple

import numpy as np

from shardplan.base.arrays import Flags
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.inputs.layers import MLP
from shardplan.inputs.plan import RECOMPUTE_PRESETS, recompute_modules
from shardplan.inputs.plan_numbers import Degrees, Setting, data_parallel_degree, num_microbatches, replicas
from shardplan.inputs.software import CHOICES, CHOSEN

Facts = Mapping[str, Any]
Term = Callable[[Facts], Any]
Fact = Callable[[Setting, Degrees], Any]

MOST_CHARACTERS: Final = 300
MOST_NUMBER: Final = 1_000_000


def recompute_words(policy: str) -> tuple[str, ...]:
    """What a policy recomputes as records list it: modules, or ``full`` or ``op_sac`` alone."""
    return (policy,) if policy in ("full", *RECOMPUTE_PRESETS["op_sac"]) else recompute_modules(policy)


def _schedule(d: Degrees) -> Any:
    left_open = np.where(d.interleaved, "interleaved", "1f1b")
    return d.plan.schedule or (left_open if left_open.ndim else str(left_open))


def _sharding_degree(s: Setting, d: Degrees) -> Any:
    return np.where(np.equal(d.sharding_degree, 0), replicas(s, d), d.sharding_degree)


def _group_size(d: Degrees) -> Any:
    return np.where(np.equal(d.microbatch_group_size, 0), d.pp, d.microbatch_group_size)


def _scale_up(s: Setting) -> int:
    """Accelerators of a scale-up domain that the job uses: as many of each where several hold equally many."""
    size, n = s.cluster.innermost.size or s.num_accelerators, s.num_accelerators
    domains = -(-n // size)
    return n // domains if domains > 1 and n % domains == 0 else size


def _is_uneven(s: Setting, d: Degrees) -> Flags:
    if d.plan.stage_layers is not None:
        return len(set(d.plan.stage_layers)) > 1
    chunks = np.multiply(d.pp, d.vp)
    return np.greater(chunks, 1) & (np.not_equal(np.mod(s.model.num_hidden_layers, chunks), 0) | _has_mtp(s))


def _has_mtp(s: Setting) -> bool:
    return s.model.num_mtp_layers > 0


def _of_plan(name: str) -> Fact:
    return lambda _s, d: getattr(d.plan, name)


def _of_software(name: str) -> Fact:
    """A field of the software: what the plan states of it, or else the job."""
    if name not in CHOSEN:
        return lambda s, _d: getattr(s.job.software, name)
    return lambda s, d: getattr(s.job.software if getattr(d.plan, name) is None else d.plan, name)


FACTS: Final[Mapping[str, Fact]] = {
    "tp": lambda _s, d: d.tp,
    "cp": lambda _s, d: d.cp,
    "pp": lambda _s, d: d.pp,
    "vp": lambda _s, d: d.vp,
    "ep": lambda _s, d: d.ep,
    "etp": lambda _s, d: d.etp,
    "micro_batch_size": lambda _s, d: d.micro_batch_size,
    "tp_rows": lambda _s, d: d.tp_rows,
    "dp": data_parallel_degree,
    "replicas": replicas,
    "sharding_degree": _sharding_degree,
    "microbatches": num_microbatches,
    "microbatch_group_size": lambda _s, d: _group_size(d),
    "uneven": _is_uneven,
    "placement": lambda _s, d: d.plan.placement,
    "schedule": lambda _s, d: _schedule(d),
    "recompute": lambda _s, d: recompute_words(d.plan.recompute),
    "recompute_num_layers": lambda _s, d: d.plan.recompute_num_layers or 0,
    "offload_num_layers": lambda _s, d: d.plan.offload_num_layers or 0,
    "overlap_pp": lambda _s, d: (np.greater(d.vp, 1) if d.plan.overlap_pp is None else d.plan.overlap_pp),
    **{name: _of_plan(name) for name in ("sharding", "offload", "cp_comm", "tp_kind", "sequence_parallel")},
    **{name: _of_plan(name) for name in ("overlap_tp", "overlap_dp", "overlap_ep")},
    "accelerators": lambda s, _d: s.num_accelerators,
    "scale_up": lambda s, _d: _scale_up(s),
    "sequence_length": lambda s, _d: s.job.sequence_length,
    "global_batch_size": lambda s, _d: s.job.global_batch_size,
    "vendor": lambda s, _d: s.cluster.accelerator.vendor,
    "generation": lambda s, _d: s.cluster.accelerator.generation,
    "precision": lambda s, _d: s.job.precision,
    "optimizer": lambda s, _d: s.job.optimizer,
    "base_weights": lambda s, _d: s.job.base_weights,
    "grad_dtype": lambda s, _d: s.job.grad_dtype,
    "quantised_weights": lambda s, _d: s.job.software.quantised_weights,
    **{name: _of_software(name) for name in (*CHOICES, *CHOSEN)},
    "layers": lambda s, _d: s.model.num_hidden_layers,
    "kv_heads": lambda s, _d: gcd(*s.kv_heads),
    "num_experts": lambda s, _d: gcd(*s.num_experts),
    "experts": lambda s, _d: s.model.is_moe,
    "dense": lambda s, _d: any(isinstance(kind.mlp, MLP) for kind in s.model.layer_kinds),
    "mtp_layers": lambda s, _d: s.model.num_mtp_layers,
    "tied": lambda s, _d: s.model.tie_word_embeddings,
}  # fmt: skip
"""What conditions may name. ``recompute`` is a list of modules (``"moe" in recompute``); ``kv_heads`` and
``num_experts`` are the greatest common divisor of the layers' numbers, 0 where there are none; a number of layers is 0
where none is given; ``experts`` and ``dense``: whether layers have them; ``mtp_layers``:
blocks of multi-token prediction; ``tied``: whether input and output embeddings
are one table; ``vendor``, ``generation``: the accelerator's maker
and its generation (``hopper``); ``scale_up``: accelerators of a scale-up domain, or those that the
job uses of each where it uses several alike; ``grad_dtype`` and ``quantised_weights``: the job's; ``replicas``: dp cp;
``uneven``: whether model chunks differ in their layers. ``overlap_pp``, ``sharding_degree`` and
``microbatch_group_size`` are what holds where the plan leaves them open. Fields of the software that have named
values are facts too (``moe_dispatcher``), and ``fused_loss``."""


def _is_in(value: Any, options: Any) -> Flags:
    return np.isin(value, options) if isinstance(value, np.ndarray) else value in options


READS: Final[Mapping[str, tuple[str, ...]]] = {
    "dp": ("tp", "cp", "pp"),
    "replicas": ("tp", "pp"),
    "sharding_degree": ("tp", "pp", "sharding_degree"),
    "microbatch_group_size": ("pp", "microbatch_group_size"),
    "uneven": ("pp", "vp", "stage_layers"),
    "microbatches": ("tp", "cp", "pp", "micro_batch_size"),
    "schedule": ("schedule", "vp"),
    "overlap_pp": ("overlap_pp", "vp"),
    **dict.fromkeys(("accelerators", "scale_up", "sequence_length", "global_batch_size"), ()),
    **dict.fromkeys(("vendor", "generation", "precision", "optimizer", "base_weights", "layers"), ()),
    **dict.fromkeys(("grad_dtype", "quantised_weights"), ()),
    **{name: () for name in CHOICES if name not in CHOSEN},
    **dict.fromkeys(("kv_heads", "num_experts", "experts", "dense", "mtp_layers", "tied"), ()),
}
"""Fields of a plan that decide a fact; where it is not listed, the field of its name."""


def plan_fields(facts: Iterable[str]) -> tuple[str, ...]:
    """Fields of a plan that decide some facts."""
    return tuple(dict.fromkeys(field for fact in facts for field in READS.get(fact, (fact,))))


SWITCHES: Final = ("sequence_parallel", "overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep", "fused_loss")
"""Fields that are on or off."""
_FLAGS: Final = (*SWITCHES, "experts", "dense", "tied", "uneven", "short_ends", "hybrid")
_TEXTS: Final = (
    "schedule", "sharding", "offload", "cp_comm", "tp_kind", "placement", "precision", "optimizer", "vendor",
    "generation", "layout", "hybrid_pattern",
    "base_weights", *CHOICES,
)  # fmt: skip
_LISTS: Final = ("recompute", "chunk_layers")


def _sample(name: str) -> Any:
    """A value of the kind that a fact has: what cannot be calculated with it is found when a condition is read."""
    return "" if name in _TEXTS else False if name in _FLAGS else () if name in _LISTS else 1


_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: np.floor_divide,
    ast.Div: np.true_divide,
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


class _Text(NamedTuple):
    """What is read, and what its errors say."""

    text: str
    label: str
    facts: Mapping[str, Fact]


@dataclass(frozen=True)
class Condition:
    """A parsed condition, or a parsed value."""

    text: str
    """As the record has it."""
    names: tuple[str, ...]
    """Facts that it reads."""
    test: Term
    facts: Mapping[str, Fact] = field(default_factory=lambda: FACTS, repr=False)
    """Every fact that it may read."""

    def holds(self, s: Setting, d: Degrees) -> Flags:
        """Whether it is so, for one plan or for each of many."""
        found: Flags = self.value(s, d)
        return found

    def value(self, s: Setting, d: Degrees) -> Any:
        """What it comes to, for one plan or for each of many."""
        return self.of({name: self.facts[name](s, d) for name in self.names})

    def of(self, found: Facts) -> Any:
        """The same from values of the facts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.test(found)


class KnownFacts(dict[str, Any]):
    """Facts of one plan, or of many, each worked out when a condition first reads it."""

    def __init__(self, facts: Mapping[str, Fact], s: Setting, d: Degrees) -> None:
        super().__init__()
        self._of = facts, s, d

    def __missing__(self, name: str) -> Any:
        facts, s, d = self._of
        found = self[name] = facts[name](s, d)
        return found


def parse_condition(text: object, label: str, facts: Mapping[str, Fact] = FACTS) -> Condition:
    """The condition in ``text``; ``label`` names it in errors. Raises ``InputError``."""
    if not isinstance(text, str) or not text.strip() or len(text) > MOST_CHARACTERS:
        raise _wrong(text, label, f"it is a text of at most {MOST_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})
        condition = Condition(text, tuple(names), _term(tree, _Text(text, label, facts)), facts)
        condition.of({name: _sample(name) for name in names})
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise _wrong(text, label, "it cannot be read as a comparison") from None
    return condition


def _term(node: ast.expr, of: _Text) -> Term:
    """The value of a part of a condition."""
    match node:
        case ast.Name(id=name) if name in of.facts:
            return operator.itemgetter(name)
        case ast.Name(id=name):
            raise UnknownNameError(f"fact in {of.label}", name, of.facts, hint=f"one of {', '.join(of.facts)}")
        case ast.Constant(value=constant) if _is_plain(constant):
            return lambda _: constant
        case ast.UnaryOp(op=ast.Not(), operand=part):
            negated = _term(part, of)
            return lambda facts: np.logical_not(negated(facts))
    return _joined(node, of) or _operation(node, of)


def _is_plain(constant: object) -> bool:
    return isinstance(constant, str) or (isinstance(constant, int) and constant <= MOST_NUMBER)


def _joined(node: ast.expr, of: _Text) -> Term | None:
    """A list, or conditions joined by ``and`` or ``or``; None for anything else."""
    match node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            terms = [_term(part, of) for part in parts]
            return lambda facts: tuple(term(facts) for term in terms)
        case ast.BoolOp(op=op, values=parts):
            terms = [_term(part, of) for part in parts]
            join = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return lambda facts: reduce(join, [term(facts) for term in terms])
    return None


def _operation(node: ast.expr, of: _Text) -> Term:
    """Arithmetic of two numbers, or one comparison."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            apply = _ARITHMETIC[type(op)]
        case ast.Compare(left=left, ops=[compared], comparators=[right]) if type(compared) in _COMPARISONS:
            apply = _COMPARISONS[type(compared)]
        case _:
            known = "comparisons, and, or, not, whole numbers, texts, lists and + - * // / %"
            raise _wrong(of.text, of.label, f"it may have {known}")
    first, second = _term(left, of), _term(right, of)
    return lambda facts: apply(first(facts), second(facts))


def _wrong(text: object, label: str, why: str) -> InputError:
    return InputError(
        f"{label} is {shown(text)}: {why}",
        rule="a condition compares facts of plan, job and model",
        hint='write it like overlap_ep and pp > 1 and vp == 1, or "moe" in recompute',
    )


def fields_of(raw: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """The fields in ``raw``, all of which are among ``known``. Raises ``InputError``."""
    if not isinstance(raw, Mapping):
        raise wrong(where, raw, f"it has the fields {', '.join(known[:4])} ...", f"write fields: {few(known)}")
    for name in raw:
        if name not in known:
            raise UnknownNameError(f"field of {where}", str(name)[:60], known, hint=f"one of {', '.join(known)}")
    return raw


def origin_of(entry: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Source of an entry, and whether it is from memory. Raises ``InputError``."""
    source, remembered = entry.get("source"), entry.get("from_memory", False)
    if not isinstance(source, str) or not source.strip():
        raise wrong(
            f"source of {where}", source, "every entry has a source", "source: path in the repository, or paper"
        )
    if not isinstance(remembered, bool):
        raise wrong(f"from_memory of {where}", remembered, "from_memory is true or false", "from_memory: true")
    return source, remembered


def list_in(raw: object, name: str, label: str, sample: str) -> list[Any]:
    """The list under ``name``. Raises ``InputError``."""
    if not isinstance(raw, list):
        raise wrong(f"{name} of {label}", raw, f"{name} is a list", f"{name}: [{{{sample}}}]")
    return raw


def few(known: tuple[str, ...] | None) -> str:
    """Some of the known names, as a hint shows them."""
    return ", ".join((known or ("1f1b",))[:3])


def wrong(what: str, value: object, rule: str, hint: str) -> InputError:
    """The error of a value that breaks a rule."""
    return InputError(f"{what} is {shown(value)}", rule=rule, hint=hint)
