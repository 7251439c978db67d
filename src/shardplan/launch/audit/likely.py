"""Values that an audit assumes for what a file leaves open; its answer states each of them."""

from __future__ import annotations

from math import lcm, prod
from typing import Final

from shardplan.inputs.cluster import Cluster
from shardplan.launch.audit.question import Posed
from shardplan.launch.dialects.reading import Reading, Taken

LAUNCH_LINE: Final = "the launch line"
"""How a configuration says that its sharding is decided where it is started."""


def likely(reading: Reading, asked: Posed, cluster: Cluster | None) -> Taken:
    """Values for all that is open; none where one of them has no usual value, or where the file may contradict it."""
    if cluster is None or asked.model is None or not asked.missing:
        return {}
    from shardplan.launch.audit.wording import doubted  # it comes with the search, which few audits need

    found = dict[str, tuple[object, str]]()
    if "num_accelerators" in asked.missing:
        found["num_accelerators"] = _world(reading, cluster)
    if LAUNCH_LINE in asked.missing.get("sharding", ""):
        found["sharding"] = "ddp", "plain data parallelism, unless the launch line has FSDP or DeepSpeed"
    if "recompute" in asked.missing:
        found["recompute"] = "full", "it needs the least memory"
    if "precision" in asked.missing:
        found["precision"] = "bf16", "as in most launch files"
    is_batch_open = "global_batch_size" in asked.missing and reading.value("micro_batch_size") is not None
    if is_batch_open and "gradient_accumulation" not in reading.facts:
        found["gradient_accumulation"] = 1, "nothing accumulates"
    has_all = asked.missing.keys() <= {*found, "global_batch_size"}
    return found if has_all and {*found}.isdisjoint(doubted(reading)) else {}


def _world(reading: Reading, cluster: Cluster) -> tuple[int, str]:
    """The nodes that are stated, or as few whole ones as the degrees fill."""
    node, nodes = cluster.accelerators_per_node, reading.value("nodes")
    if isinstance(nodes, int):
        return nodes * node, f"{nodes} nodes of the cluster"
    tp, cp, pp, ep, etp = (max(int(str(reading.value(key) or 1)), 1) for key in ("tp", "cp", "pp", "ep", "etp"))
    total = lcm(node, prod((tp, cp, pp)), prod((ep, etp, pp)))
    return total, "one node of the cluster" if total == node else "as few whole nodes as the degrees fill"
