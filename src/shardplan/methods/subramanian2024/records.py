"""Configurations and operators as plain records, in the words of the published files, and what they must keep to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from shardplan.base.errors import InputError
from shardplan.methods.subramanian2024.inputs import Corrections, System
from shardplan.methods.subramanian2024.iteration import STATISTICS, Configuration, PaperSetting, pass_time, price
from shardplan.methods.subramanian2024.operators import Operator, VectorPass, collective_time
from shardplan.methods.subramanian2024.strategies import Split, Strategy


def check_configuration(setting: PaperSetting, configuration: Configuration) -> None:
    """Refuses degrees that do not divide what they divide. Raises ``InputError``."""
    model, strategy, c = setting.model, setting.strategy, configuration
    system, global_batch_size = setting.system, setting.global_batch_size
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


DEGREES: Final = ("dp", "tp", "tp1", "tp2", "pp", "mbs", "nb", "nv_tp", "nv_tp1", "nv_tp2", "nv_dp", "nv_pp")
"""Columns of a configuration; those that a strategy does not know are None."""


def configuration_records(setting: PaperSetting, configurations: Sequence[Configuration]) -> list[dict[str, Any]]:
    """Degrees, throughput [samples/s], memory and all statistics of every configuration."""
    if not configurations:
        return []
    priced = price(setting, configurations)
    columns = {"throughput": priced.throughput, "memory_GB": priced.memory.total / 1e9, **priced.statistics()}
    rows = {name: np.broadcast_to(column, len(configurations)).tolist() for name, column in columns.items()}
    return [
        {
            **{name: rows[name][number] for name in ("throughput", "memory_GB")},
            **degrees_record(setting.strategy, configuration),
            **{name: rows[name][number] for name in STATISTICS},
        }
        for number, configuration in enumerate(configurations)
    ]


def degrees_record(strategy: Strategy, configuration: Configuration) -> dict[str, int | None]:
    """Degrees and placement in the columns of the published results."""
    c, is_grid = configuration, strategy.has_second_degree
    return {
        "dp": c.dp,
        "tp": c.tp,
        "tp1": c.tp1 if is_grid else None,
        "tp2": c.tp2 if is_grid else None,
        "pp": c.pp,
        "mbs": c.mbs,
        "nb": c.nb if strategy.has_blocks else None,
        "nv_tp": None if is_grid else c.nv_tp1,
        "nv_tp1": c.nv_tp1 if is_grid else None,
        "nv_tp2": c.nv_tp2 if is_grid else None,
        "nv_dp": c.nv_dp,
        "nv_pp": c.nv_pp,
    }


def operator_records(setting: PaperSetting, configuration: Configuration) -> list[dict[str, Any]]:
    """Every operator of a layer: work, traffic, collectives, times of both directions, weights and what is kept."""
    c, system, corrected = configuration, setting.system, setting.corrected
    split = Split(m1=c.tp1, m2=c.tp2, b=float(c.mbs), blocks=c.nb, t1=c.nv_tp1, t2=c.nv_tp2)
    return [
        {
            "operator": operator.name,
            "engine": operator.engine,
            "weight_bytes": float(operator.weight_bytes),
            "kept_bytes": float(operator.kept_bytes),
            "forward": _pass_record(operator, operator.forward, system, corrected),
            "backward": _pass_record(operator, operator.backward, system, corrected),
        }
        for operator in setting.strategy.operators(setting.model, system, split, corrected)
    ]


def _pass_record(operator: Operator, work: VectorPass, system: System, corrected: Corrections) -> Mapping[str, Any]:
    time = pass_time(operator, work, system, corrected)
    blocks = 1 if operator.blocks is None else operator.blocks
    return {
        "flops": float(work.flops),
        "memory_bytes": float(work.traffic),
        "compute_s": float(time.compute),
        "exposed_memory_s": float(time.memory),
        "communication_s": float(time.communication),
        "time_s": float(time.total),
        "collectives": [
            {
                "kind": call.kind,
                "group": call.group,
                "size": int(call.size),
                "inside_domain": int(call.inside),
                "volume_bytes": float(call.volume),
                "rounds": int(blocks),
                "round_s": float(collective_time(call, system, corrected, blocks=blocks)),
            }
            for call in work.calls
            if int(call.size) > 1
        ],
    }
