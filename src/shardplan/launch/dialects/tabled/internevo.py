"""InternEvo: configurations in Python, mappings at the top of a module."""

from __future__ import annotations

from typing import Final

from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import Settings, state
from shardplan.launch.dialects.values import degree, number, whole


def _rules(facts: Facts, config: Settings) -> None:
    """Degrees whose meaning the mode decides, and layers."""
    _tensor(facts, config)
    _sharding(facts, config)
    facts.miss("intermediate_size", ("model.mlp_ratio and the code's rounding",))
    if "num_experts" in facts:
        facts.miss("ep", ("the code, from the data-parallel degree",))
    if config.has("adam"):
        facts.derive("optimizer", "adam", "the section adam")


def _tensor(facts: Facts, config: Settings) -> None:
    """``mtp``, ``msp`` and ``fsp`` split weights; ``isp`` splits the sequence alone."""
    size, mode = (
        config.first("parallel.tensor.size", "parallel.tensor"),
        str(config.value("parallel.tensor.mode") or "mtp"),
    )
    if mode == "isp" and size is not None:
        state(facts, "cp", size, degree)
        facts.derive("tp", 1, f"{size.place}: mode isp splits the sequence, not the weights")
        facts.derive("cp_comm", "a2a", f"{size.place}: mode isp")
        facts.derive("sequence_parallel", value=True, rule="mode isp")
    elif mode in {"mtp", "msp", "fsp"}:
        state(facts, "tp", size, degree)
        facts.derive("sequence_parallel", mode != "mtp", f"tensor mode {mode}")
    else:
        facts.miss("tp", (f"parallel.tensor.mode = {mode}",))


def _sharding(facts: Facts, config: Settings) -> None:
    """Optimizer states over ``zero1``; weights over ``weight``."""
    zero, weight = config.first("parallel.zero1.size", "parallel.zero1"), whole(config.value("parallel.weight.size"))
    if weight is not None and weight > 1:
        facts.miss("sharding", (f"parallel.weight.size = {weight}: weights are sharded over fewer ranks than states",))
    elif zero is not None and whole(zero.value) == 1:
        facts.derive("sharding", "ddp", f"{zero.place} = 1", zero.name)
    elif zero is not None and (size := whole(zero.value)) is not None:
        facts.derive("sharding", "zero1", f"{zero.place} = {size}", zero.name)
        if size > 1:
            facts.derive("sharding_degree", size, zero.place)


def _recompute(value: object) -> str | None:
    """A switch, or a share of the layers; a share between none and all has no counterpart."""
    if isinstance(value, bool):
        return "full" if value else "none"
    return {0.0: "none", 1.0: "full"}.get(-1.0 if (share := number(value)) is None else share)


INTERNEVO: Final = Dialect(
    name="internevo",
    rule=_rules,
    converts={"recompute": _recompute, "experts": lambda value: None if (n := degree(value)) == 1 else n},
)
