"""Frozen models that run forward next to the trained one: a reference, a teacher, a reward model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.inputs.model import ModelConfig

NONE, SELF, TOP_K = "none", "self", ":top-k="
ROLES: Final[Mapping[str, str]] = {
    "reference": "log-probabilities of the same tokens (DPO, arXiv 2305.18290)",
    "teacher": "logits of the same tokens, all or the top k (distillation, arXiv 1503.02531)",
    "reward": "a score for every sequence",
}
"""Output of a companion. A reference and a teacher use the vocabulary of the model."""
GivenModels = tuple[tuple[str, ModelConfig], ...]
"""Models that are not built in, by the name in a text."""
WANTED: Final = "none, or a comma list of ROLE=MODEL, such as reference=self or teacher=llama-3.1-70b:top-k=64"


@dataclass(frozen=True, kw_only=True)
class Companion:
    """One frozen model."""

    role: str
    model: str
    """Name of a model, the path of its ``config.json``, or ``self``."""
    top_k: int | None = None
    """Logits of each token that a teacher keeps; None for all."""

    def config(self, model: ModelConfig, given: GivenModels = ()) -> ModelConfig:
        """Its dimensions: those of the trained ``model``, ``given`` ones, or a built-in model's. No user file is read.

        Raises ``InputError``.
        """
        from shardplan.inputs.readers.catalog import load_model, shipped_name

        known = {SELF: model} | dict(given)
        return known[self.model] if self.model in known else load_model(shipped_name("model", self.model))


def as_text(companion: object) -> object:
    """A mapping of roles to models as a text; anything else unchanged."""
    if not isinstance(companion, Mapping):
        return companion
    return ",".join(f"{role}={model}" for role, model in companion.items()) or NONE


@lru_cache(maxsize=256)
def companions_of(text: str) -> tuple[Companion, ...]:
    """Companions in a text, one for each role. Raises ``InputError``."""
    if text.strip().lower() in ("", NONE):
        return ()
    found = [_companion(part.strip(), text) for part in text.split(",")]
    roles = [each.role for each in found]
    for role in roles:
        if roles.count(role) > 1:
            raise InputError(
                f"companion is {shown(text)}: {role} is named twice",
                rule="a role has one companion",
                hint=f"name one {role}",
            )
    return tuple(found)


def _companion(part: str, text: str) -> Companion:
    role, _, rest = part.partition("=")
    name, sep, number = rest.strip().partition(TOP_K)
    role = role.strip().lower()
    if not rest.strip() or not name.strip():
        raise _malformed(text)
    if role not in ROLES:
        raise UnknownNameError("companion", role[:60], ROLES, hint=f"one of {', '.join(ROLES)}")
    if sep and (role != "teacher" or not number.isdecimal() or not 1 <= int(number[:10]) < 2**31):
        raise _malformed(text)
    own = name.strip().lower() == SELF
    return Companion(role=role, model=SELF if own else name.strip(), top_k=int(number) if sep else None)


def _malformed(text: str) -> InputError:
    return InputError(
        f"companion is {shown(text)}; it must be {WANTED}",
        rule="companion names roles and models; top-k is a whole number, 1 or more, and for a teacher",
        hint=f"set --companion to {WANTED}",
    )


def check_companion(companion: Companion, config: ModelConfig, model: ModelConfig) -> None:
    """Refuses a companion whose tokens are not those of the model. Raises ``InputError``."""
    wanted = model.vocab_size
    if companion.role != "reward" and config.vocab_size != wanted:
        raise InputError(
            f"{companion.role} {config.name} has a vocabulary of {config.vocab_size:,}, {model.name} one of {wanted:,}",
            rule=f"a {companion.role} has the vocabulary of the model, as the two are compared token by token",
            hint=f"choose a {companion.role} with a vocabulary of {wanted:,}; if only padding makes the difference, "
            f"give its config.json with vocab_size {wanted}",
        )
    if companion.top_k is not None and companion.top_k > wanted:
        raise InputError(
            f"top-k is {companion.top_k:,} of a vocabulary of {wanted:,}",
            rule="a teacher keeps at most as many logits as the vocabulary has",
            hint=f"set top-k to at most {wanted}, or leave it out",
        )
