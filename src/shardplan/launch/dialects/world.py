"""Nodes and processes of a launch line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import Option, state
from shardplan.launch.dialects.values import degree
from shardplan.launch.read.facts import Script, Word

SLICE: Final = r"(v\d[a-z]*|v5litepod|tpu7x)-(\d+(?:x\d+)*)"
TWO_CORES: Final = ("v2", "v3", "v4", "v5p")
"""Generations of TPUs whose slices are named by cores, two of a chip."""
NODES: Final = ("nnodes", "nnode", "num_nodes", "nodes", "N", "num_machines", "num-nodes")
PROCESSES: Final = ("nproc_per_node", "nproc-per-node")
"""Processes that a launcher, one in the manner of torchrun included, starts for every task of a scheduler."""
PER_NODE: Final = (
    *PROCESSES,
    "num_gpus",
    "gpus-per-node",
    "local_worker_num",
)
TOTAL: Final = ("num_processes", "worker_num")
SCHEDULERS: Final = frozenset({"srun", "mpirun"})
TASKS_PER_NODE: Final = ("ntasks-per-node", "npernode")
TASKS: Final = ("ntasks", "n", "np")
"""Tasks of a scheduler, which are ranks where no other launcher starts more of them."""


def world(facts: Facts, launch: Launch | None, script: Script) -> None:
    """Nodes and processes: of the launcher, else of the scheduler's directives, else of the variables that it reads."""
    options = {} if launch is None else launch.options
    starts_more = _first(options, PROCESSES) is not None
    are_ranks = launch is None or (set(launch.launchers) <= SCHEDULERS and not starts_more)
    total = _first(options, TASKS if are_ranks else TOTAL)
    for key in ("nodes", "per_node", "num_accelerators") if launch is not None and launch.open else ():
        facts.miss(key, launch.open if launch is not None else ())
    _included(facts, options)
    _nodes(facts, options, script)
    if total is not None:
        state(facts, "num_accelerators", total, degree)
        state(facts, "per_node", _first(options, ("local_worker_num", *(TASKS_PER_NODE if are_ranks else ()))), degree)
        _share(facts)
    _per_node(facts, options, script, are_ranks=are_ranks)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")
    slices(facts, options)


def _included(facts: Facts, options: Mapping[str, Option]) -> None:
    """``deepspeed --include host:0,1@other:2,3`` names every process."""
    option = _first(options, ("include", "i"))
    hosts = [] if option is None or option.value is None else option.value.split("@")
    slots = [host.partition(":")[2].split(",") for host in hosts]
    if option is not None and slots and all(each != [""] for each in slots):
        facts.derive("num_accelerators", sum(map(len, slots)), f"{option.place} {option.value}", option.name)


def slices(facts: Facts, options: Mapping[str, Option]) -> None:
    """Chips of the slices that xpk is asked for. A chip of tpu7x has two devices: what counts is asked for."""
    kind, number = _first(options, ("device-type", "tpu-type")), _first(options, ("num-slices",))
    found = None if kind is None or kind.value is None else re.fullmatch(SLICE, kind.value)
    count = 1 if number is None else degree(number.value)
    if kind is None or found is None or count is None:
        return
    size = prod(int(each) for each in found[2].split("x"))
    if found[1] == "tpu7x":
        facts.miss("num_accelerators", (f"{kind.place} {kind.value}: {count * size} chips of two devices",))
    else:
        chips = size // 2 if found[1] in TWO_CORES else size
        facts.derive("num_accelerators", count * chips, f"{kind.place} {kind.value}: {count} x {chips} chips")


def _share(facts: Facts) -> None:
    """Processes of a node where the total is given."""
    total, nodes = facts.number("num_accelerators"), facts.number("nodes")
    if total and nodes and total % nodes == 0:
        facts.derive("per_node", total // nodes, f"{total} processes / {nodes} nodes")
    each = facts.number("per_node")
    if total and each and total % each == 0:
        facts.derive("nodes", total // each, f"{total} processes / {each} of a node")


def _first(options: Mapping[str, Option], names: Sequence[str]) -> Option | None:
    return next((options[name] for name in names if name in options), None)


def _nodes(facts: Facts, options: Mapping[str, Option], script: Script) -> None:
    if state(facts, "nodes", _first(options, NODES), degree):
        return
    directive = script.directives.get("nodes")
    if directive is not None:
        _directive(facts, "nodes", directive)
    elif "standalone" in options:
        facts.derive("nodes", 1, "--standalone")


def _per_node(facts: Facts, options: Mapping[str, Option], script: Script, *, are_ranks: bool) -> None:
    tasks = TASKS_PER_NODE if are_ranks else ()
    if state(facts, "per_node", (each := _first(options, (*PER_NODE, *tasks))), degree):
        if are_ranks and each is not None:
            facts.miss("nodes", (f"{each.place}: the nodes of the allocation",))
        elif "nodes" not in facts:
            facts.assume_because("nodes", 1, "the launcher runs on one node where none are given")
        return
    for name in (*tasks, "gpus-per-node", "gres"):
        if name in script.directives and _directive(facts, "per_node", script.directives[name]):
            return


def _directive(facts: Facts, key: str, word: Word) -> bool:
    """A value of the scheduler's directives; ``gpu:h100:8`` ends in the number."""
    value = None if word.text is None else degree(word.text.rsplit(":", 1)[-1])
    if value is None:
        facts.miss(key, word.needs or (f"{word.file}:{word.line} {word.shown}",))
        return False
    facts.state(key, value, f"{word.file}:{word.line} #SBATCH")
    return True
