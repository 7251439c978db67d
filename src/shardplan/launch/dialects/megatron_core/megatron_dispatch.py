"""How Megatron's options exchange tokens between experts.

``megatron/core/transformer/transformer_config.py`` of 2026-08-22 (d98e8a64): ``moe_flex_dispatcher_backend`` is read
with ``moe_token_dispatcher_type`` ``flex`` alone, ``moe_enable_deepep`` and the backend ``ncclep`` stop without it.
"""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Option, Options, state

KEY: Final = "software.moe_dispatcher"
TYPES: Final = {"allgather": "alltoall", "alltoall": "alltoall", "alltoall_seq": "alltoall"}
"""Types besides ``flex``, and what they are priced as."""
BACKENDS: Final = {"deepep": "deepep", "hybridep": "hybridep"}


def dispatch(facts: Facts, options: Options) -> None:
    """The type decides; ``flex`` runs on a backend. A line over a recipe may name the backend alone."""
    kind, deep = options.first("moe-token-dispatcher-type"), options.first("moe-enable-deepep")
    backend = options.first("moe-flex-dispatcher-backend")
    over_recipe = kind is None and facts.framework not in ("megatron-lm", "megatron-deepspeed")
    if kind is not None and kind.value is None:
        facts.miss(KEY, kind.needs or (kind.place,))
    elif (kind is not None and kind.value == "flex") or (over_recipe and (deep or backend)):
        _flex(facts, deep or backend or kind, backend if deep is None else None)
    else:
        state(facts, KEY, kind, lambda value: TYPES.get(str(value)))
        facts.assume(KEY, "alltoall", "allgather, priced as alltoall")
        _without_flex(facts, deep, backend)


def _flex(facts: Facts, named: Option | None, backend: Option | None) -> None:
    """DeepEP where no other backend is named."""
    if backend is None and named is not None:
        facts.derive(KEY, "deepep", f"{named.place}: the backend of flex where no other is named", named.name)
    else:
        state(facts, KEY, backend, lambda value: BACKENDS.get(str(value)))


def _without_flex(facts: Facts, deep: Option | None, backend: Option | None) -> None:
    """Options of ``flex`` next to another type: without effect, or the end of the run."""
    stops = deep or (backend if backend is not None and backend.value == "ncclep" else None)
    each = stops or backend
    if each is not None:
        facts.breaks_rule(
            "a backend of the flex dispatcher needs --moe-token-dispatcher-type flex",
            f"{each.place} {each.value or ''}".rstrip() + ": the dispatcher is of another type"
            + ("" if stops else ", and the backend has no effect"),
            "set --moe-token-dispatcher-type flex, or leave the option out",
            "stops" if stops else "notice",
        )  # fmt: skip
