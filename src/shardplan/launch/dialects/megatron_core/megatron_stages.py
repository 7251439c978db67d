"""Virtual stages and uneven stages in Megatron's options, and the patterns that they write as text."""

from __future__ import annotations

import ast
import re
from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Option, Options, state
from shardplan.launch.dialects.values import degree, whole

MOST: Final = 100_000
"""Elements of a pattern that are accepted."""


def layer_pattern(text: str) -> int | tuple[int, ...] | None:
    """A number, or a list written as ``[0]*3+[1]*58``; None where it is neither.

    >>> layer_pattern("([0]*2+[1]*3)")
    (0, 0, 1, 1, 1)
    """
    if len(text) > MOST:
        return None
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tuple(found) if isinstance(found, list) else found


def _value(node: ast.expr, depth: int) -> int | list[int]:
    """A sum or product of lists and whole numbers."""
    if depth > 50:
        raise ValueError
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [each for part in node.elts for each in _numbers(_value(part, depth + 1))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        return _combined(node.op, _value(node.left, depth + 1), _value(node.right, depth + 1))
    raise ValueError


def _numbers(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _combined(operator: ast.operator, left: int | list[int], right: int | list[int]) -> int | list[int]:
    if isinstance(operator, ast.Add):
        if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= MOST:
            return left + right
    elif isinstance(left, list) and isinstance(right, int) and 0 <= right * len(left) <= MOST:
        return left * right
    elif isinstance(left, int) and isinstance(right, list) and 0 <= left * len(right) <= MOST:
        return right * left
    raise ValueError


_REPEATED: Final = r"\(([^()]*)\)\*(\d{1,4})|([A-Za-z])\*(\d{1,4})"


def pipeline_layout(text: str) -> tuple[int, ...] | None:
    """Layers of each virtual stage in Megatron's layout string: ``E`` embedding, ``t`` layer, ``m`` MTP, ``L`` loss.

    >>> pipeline_layout("Et*3|(tt|)*2tL")
    (3, 2, 2, 1)
    """
    pattern = text.strip().strip("'\"").replace(",", "")
    while re.search(_REPEATED, pattern) and len(pattern) <= MOST:
        pattern = re.sub(_REPEATED, lambda m: (m[1] if m[1] is not None else m[3]) * int(m[2] or m[4]), pattern)
    if len(pattern) > MOST or not re.fullmatch(r"[EtmL|]+", pattern):
        return None
    return tuple(stage.count("t") for stage in pattern.split("|"))


def stages(facts: Facts, options: Options) -> None:
    """``vp`` and ``stage_layers``, from layers per virtual stage, a number of them, or a layout."""
    layout, pattern = options.first("pipeline-model-parallel-layout"), options.first("hybrid-layer-pattern")
    chunk = options.first("num-layers-per-virtual-pipeline-stage")
    if "pp" not in facts:
        facts.assume("pp", 1)
    if layout is not None:
        _layout(facts, layout, None if layout.value is None else pipeline_layout(layout.value))
    elif pattern is not None and "|" in (pattern.value or ""):
        _layout(facts, pattern, _segments(pattern.value or ""))
    elif chunk is not None:
        _layers_per_chunk(facts, options)
    else:
        state(
            facts,
            "vp",
            options.first("num-virtual-stages-per-pipeline-rank", "virtual-pipeline-model-parallel-size"),
            degree,
        )
    facts.assume("vp", 1)
    _uneven(facts, options)
    _even(facts)


def _segments(pattern: str) -> tuple[int, ...]:
    """Layers of every virtual stage of a hybrid: letters between bars, in front of those of prediction blocks."""
    return tuple(map(len, pattern.split("/", maxsplit=1)[0].split("|")))


def _layout(facts: Facts, option: Option, counts: tuple[int, ...] | None) -> None:
    """Stages of the layout over pipeline ranks are virtual stages per rank."""
    pp = facts.number("pp")
    if counts is None or pp is None or len(counts) % pp:
        facts.miss("vp", option.needs or (option.place,))
        facts.miss("stage_layers", option.needs or (option.place,))
        if counts is not None and pp is not None:
            facts.breaks_rule(
                "a pipeline layout has a multiple of pp stages",
                f"{option.place} has {len(counts)} stages for pp {pp}",
                "change the layout or --pipeline-model-parallel-size",
            )
        elif option.value is not None:
            facts.doubt(f"{option.place} {option.value}")
        return
    facts.derive("vp", len(counts) // pp, f"{option.place}: {len(counts)} stages / pp {pp}", option.name)
    facts.derive("stage_layers", counts, option.place, option.name)


def _layers_per_chunk(facts: Facts, options: Options) -> None:
    """Layers over pipeline ranks over layers of a virtual stage."""
    option = options.given["num-layers-per-virtual-pipeline-stage"]
    size, layers, pp = whole(option.value), facts.number("num_hidden_layers"), facts.number("pp")
    if not size or not layers or not pp:
        facts.miss("vp", option.needs or ("num_hidden_layers", "pp"))
        return
    if layers % (pp * size):
        facts.breaks_rule(
            "layers of a virtual stage divide those of a stage",
            f"{option.place} {size} with {layers} layers on pp {pp}",
            f"choose a divisor of {layers // pp}" if layers % pp == 0 else "choose a pp that divides the layers first",
        )
        facts.miss("vp", (f"another number at {option.place}",))
        return
    rule = f"{option.place}: {layers} layers / pp {pp} / {size}"
    facts.derive("vp", layers // pp // size, rule, option.name)


def _uneven(facts: Facts, options: Options) -> None:
    """Fewer layers on the first or last rank, or places for embedding and loss."""
    first, last = options.first("decoder-first-pipeline-num-layers"), options.first("decoder-last-pipeline-num-layers")
    embedding, loss = "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split"
    layers, pp, vp = facts.number("num_hidden_layers"), facts.number("pp"), facts.number("vp")
    ends = [each for each in (first, last) if each is not None]
    if "stage_layers" in facts or not (ends or embedding in options or loss in options):
        return
    needs = [need for each in ends for need in each.needs]
    if layers is None or pp is None or vp is None or needs:
        facts.miss("stage_layers", needs or ("num_hidden_layers",))
        return
    known = [None if each is None else whole(each.value) for each in (first, last)]
    counts = (
        _with_ends(layers, pp, vp, known[0], known[1])
        if ends
        else _with_places(layers, pp, vp, at_start=embedding in options, at_end=loss in options)
    )
    place = " ".join(each.place for each in ends) or "room for embedding and loss"
    if counts is None:
        facts.breaks_rule(
            "the other stages share the layers evenly",
            f"{place}: {layers} layers on pp {pp}, vp {vp}",
            "change them or pp",
        )
        facts.miss("stage_layers", (place,))
    else:
        facts.derive("stage_layers", counts, place, ends[0].name if ends else embedding)


def _with_ends(layers: int, pp: int, vp: int, first: int | None, last: int | None) -> tuple[int, ...] | None:
    """Layers of the virtual stages where the first or last rank holds a number of its own."""
    others = pp - sum(each is not None for each in (first, last))
    rest = layers - (first or 0) - (last or 0)
    if rest < 0 or (others and rest % others) or (not others and rest):
        return None
    each = rest // others if others else 0
    ranks = [each] * pp
    if first is not None:
        ranks[0] = first
    if last is not None:
        ranks[-1] = last
    if any(rank % vp for rank in ranks):
        return None
    return tuple(rank // vp for _ in range(vp) for rank in ranks)


def _with_places(layers: int, pp: int, vp: int, *, at_start: bool, at_end: bool) -> tuple[int, ...] | None:
    """Layers of the virtual stages where embedding and loss count as a layer."""
    total, chunks = layers + at_start + at_end, pp * vp
    if total % chunks:
        return None
    counts = [total // chunks] * chunks
    counts[0] -= at_start
    counts[-1] -= at_end
    return tuple(counts)


def _even(facts: Facts) -> None:
    """Without a layout of its own every virtual stage holds as many layers."""
    layers, pp, vp = facts.number("num_hidden_layers"), facts.number("pp"), facts.number("vp")
    if "stage_layers" in facts or not layers or not pp or not vp or layers % (pp * vp) == 0:
        return
    facts.breaks_rule(
        "layers divide into equal stages",
        f"{layers} layers on pp {pp}" + (f" x vp {vp}" if vp > 1 else ""),
        "choose pp and vp whose product divides the layers, or uneven stages (--decoder-first-pipeline-num-layers, "
        "--pipeline-model-parallel-layout)",
    )
