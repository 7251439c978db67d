"""What a configuration must keep to, whether a search considers it or a user gives it."""

from __future__ import annotations

from shardplan.errors import InputError
from shardplan.published.subramanian2024.inputs import System, Transformer
from shardplan.published.subramanian2024.iteration import Configuration
from shardplan.published.subramanian2024.strategies import Strategy


def check_configuration(
    model: Transformer, system: System, strategy: Strategy, configuration: Configuration, *, global_batch_size: int
) -> None:
    """Refuses degrees that do not divide what they divide. Raises ``InputError``."""
    c = configuration
    per_replica = global_batch_size // c.dp
    inside = c.nv_tp1 * c.nv_tp2 * c.nv_dp * c.nv_pp
    rules = {
        "tp1 divides heads and embedding": model.h % c.tp1 == 0 and model.e % c.tp1 == 0,
        "tp2 is at most the sequence length": c.tp2 <= model.l,
        "tp2 divides the embedding under SUMMA": not strategy.has_blocks or model.e % c.tp2 == 0,
        "nb is at most the embedding": c.nb <= model.e,
        "pp divides the layers": model.depth % c.pp == 0,
        "dp divides the global batch": global_batch_size % c.dp == 0,
        "mbs divides the batch of a replica": per_replica % c.mbs == 0,
        "ranks that share a sequence divide the tokens of a micro-batch": (c.mbs * model.l)
        % int(strategy.sequence_divisor(c.tp1, c.tp2))
        == 0,
        "members inside a scale-up domain divide their degree": c.tp1 % c.nv_tp1 == 0
        and c.tp2 % c.nv_tp2 == 0
        and c.dp % c.nv_dp == 0
        and c.pp % c.nv_pp == 0,
        "members inside a scale-up domain are at most nvs": inside <= system.nvlink_size,
    }
    for rule, holds in rules.items():
        if not holds:
            raise InputError(
                f"{strategy.name} on {model.name}, batch {global_batch_size:,}, nvs {system.nvlink_size}: "
                f"{words(c)} breaks a rule",
                rule=rule,
                hint="correct the degree that the rule names",
            )


def words(c: Configuration) -> str:
    """Degrees and places as text."""
    return (
        f"dp {c.dp} (nv {c.nv_dp}), tp {c.tp1} x {c.tp2} (nv {c.nv_tp1} x {c.nv_tp2}), pp {c.pp} (nv {c.nv_pp}), "
        f"mbs {c.mbs}, nb {c.nb}"
    )
