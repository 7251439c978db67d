"""Fields of a Hugging Face ``config.json``: one meaning, many spellings, and values that may be wrong.

Families differ in how they spell a dimension (``n_embd``, ``d_model`` and ``hidden_size`` mean the same);
:data:`SPELLINGS` is the one table of that. :class:`ConfigFields` reads values by meaning, checks their type and range,
and names the spelling in the file when it refuses one.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.counts import MAX_DIMENSION, MAX_NUM_LAYERS

SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    meaning: (meaning, *others.split())
    for meaning, others in {
        "hidden_size": "n_embd n_embed d_model emb_size",
        "num_hidden_layers": "n_layer n_layers num_layers",
        "num_attention_heads": "n_head n_heads num_heads num_q_heads",
        "num_key_value_heads": "num_kv_heads n_head_kv",
        "intermediate_size": "n_inner ffn_dim ffn_hidden_size",
        "max_position_embeddings": "n_positions max_seq_len seq_length model_max_length sequence_len",
        "num_experts": "num_local_experts n_routed_experts moe_num_experts",
        "num_experts_per_tok": "experts_per_token num_experts_per_token top_k_experts "
        "moe_k moe_topk num_selected_experts",
        "n_shared_experts": "num_shared_experts num_shared_expert moe_num_shared_experts",
        "head_dim": "key_size",
        "n_group": "num_expert_group",
        "num_nextn_predict_layers": "num_mtp_modules mtp_num_hidden_layers",
        "sliding_window_pattern": "_sliding_window_pattern",
        "n_groups": "mamba_n_groups",
        "conv_kernel": "mamba_d_conv",
        "chunk_size": "mamba_chunk_size",
        "use_conv_bias": "mamba_conv_bias",
        "mamba_num_heads": "mamba_n_heads",
        "mamba_head_dim": "mamba_d_head",
        "ssm_state_size": "state_size mamba_d_state",
        "time_step_rank": "mamba_dt_rank",
        "expand": "mamba_expand",
    }.items()
}
"""Meaning to the names in files, the usual one first. A meaning that is not listed has only its own name."""


class _Found(NamedTuple):
    spelling: str
    value: object


@dataclass(frozen=True, kw_only=True)
class ConfigFields:
    """The fields of one model in a configuration file."""

    name: str
    """Name of the model."""
    model_type: str
    """Family, as the file spells it."""
    values: Mapping[str, object]
    """Content of the file."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Defaults of the family's class in ``transformers``, for files that hold only differences."""
    prefix: str = ""
    """Position of the fields in the file, for messages."""
    taken: dict[str, object] = field(default_factory=dict)
    """Defaults that were used."""
    read: set[str] = field(default_factory=set)
    """Names in the file that were read, or that the family knows and these layers do not need."""
    parts: dict[str, ConfigFields] = field(default_factory=dict)
    """Objects in the file whose fields were read, by their keys."""

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return self.count("num_hidden_layers", maximum=MAX_NUM_LAYERS)

    def has(self, key: str) -> bool:
        """Whether the file gives ``key``, under any spelling, a value other than null."""
        return self._given(key) is not None

    def word(self, key: str) -> object:
        """The value of ``key`` itself; None if it is absent."""
        self.read.add(key)
        return self.values.get(key)

    def understood(self, *keys: str) -> None:
        """Marks ``keys`` as read under every spelling: the family knows them, and these layers do not need them."""
        for key in keys:
            self.read.update(SPELLINGS.get(key, (key,)))

    def count(self, key: str, default: int | None = None, *, minimum: int = 1, maximum: int = MAX_DIMENSION) -> int:
        """Whole number under ``key``; ``default`` if it is absent or null, and an error without one."""
        if (found := self._given(key)) is not None:
            return self._whole(found, minimum, maximum)
        if default is not None:
            return default
        raise self._missing(key, self._find(key))

    def same_count(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """Whole number under ``key``, or a list of one number for every layer."""
        found = self._find(key)
        if found is None or not isinstance(found.value, list | tuple):
            return self.count(key, default, minimum=minimum)
        listed = self.counts(key, maximum=MAX_DIMENSION, length=self.num_layers)
        if len(set(listed)) != 1 or listed[0] < minimum:
            raise self.error(
                f"{found.spelling} is {shown(found.value)}",
                rule=f"{found.spelling} of {self.model_type} is the same in every layer, and {minimum} at least",
                hint=f"give {found.spelling} as one number; layers that differ in it are not supported",
            )
        return listed[0]

    def optional_count(self, key: str, default: int | None = None, *, minimum: int = 1) -> int | None:
        """Whole number under ``key``; null is None, absent is ``default``."""
        found = self._find(key)
        if found is None:
            return default
        return None if found.value is None else self._whole(found, minimum, MAX_DIMENSION)

    def flag(self, key: str, default: bool) -> bool:  # noqa: FBT001 - reads as the file does: key, then what holds without it
        """Truth value under ``key``; ``default`` if it is absent or null."""
        if (found := self._given(key)) is None:
            return default
        if not isinstance(found.value, bool):
            raise self.error(
                f"{found.spelling} is {shown(found.value)}",
                rule=f"{found.spelling} is true or false",
                hint=f"write true or false without quotes for {found.spelling}",
            )
        return found.value

    def ratio(self, key: str, default: int) -> int | float:
        """Positive finite number under ``key``; ``default`` if it is absent or null."""
        if (found := self._given(key)) is None:
            return default
        value = found.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_DIMENSION:
            raise self.error(
                f"{found.spelling} is {shown(value)}",
                rule=f"{found.spelling} is a positive number",
                hint=f"correct {found.spelling}",
            )
        return value

    def counts(self, key: str, *, maximum: int, length: int | None = None) -> tuple[int, ...]:
        """List of whole numbers from 0 under ``key``; empty if it is absent, null or empty."""
        if (found := self._given(key)) is None:
            return ()
        if not isinstance(found.value, list | tuple):
            raise self._not_a_list(found)
        if found.value:
            self._check_length(found, len(found.value), length)
        return tuple(self._whole(_Found(f"{found.spelling}[{i}]", v), 0, maximum) for i, v in enumerate(found.value))

    def kinds(self, key: str, known: Collection[str], *, length: int | None = None) -> tuple[str, ...] | None:
        """List under ``key`` with one of the ``known`` words per layer; None if it is absent or null."""
        if (found := self._given(key)) is None:
            return None
        if not isinstance(found.value, list | tuple):
            raise self._not_a_list(found)
        self._check_length(found, len(found.value), length)
        for position, word in enumerate(found.value):
            if not isinstance(word, str) or word not in known:
                raise self.error(
                    f"{found.spelling}[{position}] is {shown(word)}",
                    rule=f"{found.spelling} of {self.model_type} holds {', '.join(sorted(known))}",
                    hint=f"correct {found.spelling}; layers of another kind are not supported",
                )
        return tuple(found.value)

    def letters(self, key: str, known: Mapping[str, str]) -> tuple[str, ...] | None:
        """Text under ``key``, one letter per layer, translated by ``known``; None if absent or null."""
        if (found := self._given(key)) is None:
            return None
        if not isinstance(found.value, str):
            raise self.error(
                f"{found.spelling} is {shown(found.value)}",
                rule=f"{found.spelling} is a text of one letter per layer",
                hint=f"write it in quotes, from the letters {' '.join(known)}",
            )
        if not 1 <= len(found.value) <= MAX_NUM_LAYERS:
            raise self._not_as_many(found, f"{len(found.value):,} letters")
        for position, letter in enumerate(found.value):
            if letter not in known:
                raise self.error(
                    f"letter {position + 1} of {found.spelling} is {shown(letter)}",
                    rule=f"{found.spelling} holds the letters {' '.join(known)}",
                    hint=f"correct {found.spelling}: " + ", ".join(f"{k} is {v}" for k, v in known.items()),
                )
        return tuple(known[letter] for letter in found.value)

    def part(self, key: str) -> ConfigFields:
        """Fields of the object under ``key``; none if it is absent or null."""
        if key in self.parts:
            return self.parts[key]
        found = self._given(key)
        values = {} if found is None else found.value
        if not isinstance(values, Mapping):
            raise self.error(
                f"{key} is {shown(values)}",
                rule=f"{key} is an object with fields of its own",
                hint=f"correct {key} in the configuration",
            )
        part = ConfigFields(name=self.name, model_type=self.model_type, values=values, prefix=f"{self.prefix}{key}.")
        self.parts[key] = part
        return part

    def require(self, key: str, expected: object) -> None:
        """Refuses a file whose ``key`` is present and not ``expected``: a variant of the family with other layers."""
        value = self.word(key)
        if value is not None and value != expected:
            raise self.error(
                f"{key} is {shown(value)}",
                rule=f"{self.model_type} is supported with {key} {shown(expected)}",
                hint=f"set {key} to {shown(expected)} to plan the usual layers of the family",
            )

    def error(self, message: str, *, rule: str, hint: str) -> InputError:
        """An error about this file."""
        return InputError(f"{self.name}: {self.prefix}{message}", rule=rule, hint=hint)

    def _find(self, key: str) -> _Found | None:
        present = [_Found(name, self.values[name]) for name in SPELLINGS.get(key, (key,)) if name in self.values]
        self.read.update(found.spelling for found in present)
        given = [found for found in present if found.value is not None]
        for other in given[1:]:
            self._check_agree(given[0], other)
        if given or present:
            return (given or present)[0]
        if key in self.defaults:
            self.taken[key] = self.defaults[key]
            return _Found(key, self.defaults[key])
        return None

    def _given(self, key: str) -> _Found | None:
        """Like ``_find``, but None if the value is null."""
        found = self._find(key)
        return None if found is None or found.value is None else found

    def _check_agree(self, first: _Found, other: _Found) -> None:
        nested = isinstance(first.value, list | dict)  # wrong anyway; comparing it may not end
        if not nested and first.value != other.value:
            raise self.error(
                f"{first.spelling} is {shown(first.value)} and {other.spelling} is {shown(other.value)}",
                rule=f"{first.spelling} and {other.spelling} mean the same and agree",
                hint=f"remove {other.spelling} or {first.spelling}",
            )

    def _whole(self, found: _Found, minimum: int, maximum: int) -> int:
        spelling, value = found
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
            return value
        raise self.error(
            f"{spelling} is {shown(value)}",
            rule=f"{spelling} is a whole number from {minimum:,} to {maximum:,}",
            hint=f"write {spelling} as a number without quotes and without a decimal point",
        )

    def _missing(self, key: str, found: _Found | None) -> InputError:
        names = SPELLINGS.get(key, (key,))
        what = f"{found.spelling} is null" if found else f"{key} is missing"
        also = f" (or {', '.join(names[1:])})" if names[1:] else ""
        return self.error(what, rule=f"a {self.model_type} model states {key}", hint=f"add {key}{also} to the file")

    def _not_as_many(self, found: _Found, what: str) -> InputError:
        return self.error(
            f"{found.spelling} has {what}",
            rule=f"a model has 1 to {MAX_NUM_LAYERS:,} layers",
            hint=f"give {found.spelling} one entry per layer",
        )

    def _not_a_list(self, found: _Found) -> InputError:
        return self.error(
            f"{found.spelling} is {shown(found.value)}",
            rule=f"{found.spelling} is a list",
            hint=f"write {found.spelling} in brackets, one entry per layer",
        )

    def _check_length(self, found: _Found, length: int, expected: int | None) -> None:
        if expected is None and length > MAX_NUM_LAYERS:
            raise self._not_as_many(found, f"{length:,} entries")
        if expected is not None and length != expected:
            raise self.error(
                f"{found.spelling} names {length} layers of {expected}",
                rule=f"{found.spelling} names every layer",
                hint=f"give {found.spelling} {expected} entries, or change num_hidden_layers to {length}",
            )


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 60
        self.maxlevel = 2

    def repr_int(self, x: int, level: int) -> str:
        """Text of a number; Python refuses to write huge ones."""
        return super().repr_int(x, level) if x.bit_length() <= 200 else "a number of more than 60 digits"


def shown(value: object) -> str:
    """``value`` in a message: short, and safe for values of any size."""
    return "null" if value is None else _Short().repr(value)
