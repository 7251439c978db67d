"""Nodes and processes of a launch line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from shardplan.launch.dialects.launches import Launch
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.settings import NamedSetting, Option, state
from shardplan.launch.dialects.values import degree
from shardplan.launch.read.bash.slurm import accelerators, count
from shardplan.launch.read.facts import Script, Word

SLICE: Final = r"(v\d[a-z]*|v5litepod|tpu7x)-(\d{1,6}(?:x\d{1,6}){0,3})"
TWO_CORES: Final = ("v2", "v3", "v4", "v5p")
"""Generations of TPUs whose slices are named by cores, two of a chip."""
TWO_DEVICES: Final = ("tpu7x",)
"""Generations whose chips are two devices, by which slices are named."""
NODES: Final = ("nnodes", "nnode", "num_nodes", "nodes", "N", "num_machines", "num-nodes")
PROCESSES: Final = ("nproc_per_node", "nproc-per-node")
"""Processes that a launcher, one in the manner of torchrun included, starts for every task of a scheduler."""
PER_NODE: Final = (
    *PROCESSES,
    "num_gpus",
    "local_worker_num",
)
OF_NODE: Final = ("gpus-per-node", "gres", "tres-per-node")
"""What a scheduler is asked for on every node."""
ALL_OF_NODE: Final = ("gpu", "auto")
"""Words of torchrun for as many processes as a node has accelerators."""
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
    _named(facts, options, script)
    _included(facts, options)
    _nodes(facts, options, script)
    if total is not None:
        state(facts, "num_accelerators", total, degree)
        state(facts, "per_node", _first(options, ("local_worker_num", *(TASKS_PER_NODE if are_ranks else ()))), degree)
        _share(facts)
    _per_node(facts, options, script, are_ranks=are_ranks)
    _tasks(facts, script, are_ranks=are_ranks)
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"{nodes} nodes x {each} processes")
    slices(facts, options)


def _named(facts: Facts, options: Mapping[str, Option], script: Script) -> None:
    """What the scheduler is asked for by name: ``gpu:h100:8``, or a constraint on the kind of nodes."""
    of_line = {name: options[name].words[0] for name in OF_NODE if name in options and options[name].words}
    for name, word in {**script.directives, **of_line}.items():
        asked = accelerators(word.text or "") if name in OF_NODE else None
        if asked is not None and asked.name:
            facts.state("accelerator", asked.name, _place(word, name), name)
    if "constraint" in script.directives and script.directives["constraint"].text:
        facts.state("accelerator", script.directives["constraint"].text, _place(script.directives["constraint"], "-C"))


def _tasks(facts: Facts, script: Script, *, are_ranks: bool) -> None:
    """Tasks of the job, which are ranks or one for each node, and one node where a job asks for none."""
    tasks, each = count(script.directives, "ntasks"), count(script.directives, "ntasks-per-node")
    per_task = count(script.directives, "gpus-per-task")
    total = tasks if are_ranks and per_task in (None, 1) else tasks * per_task if tasks and per_task else None
    if tasks and each and "nodes" not in facts and tasks % each == 0:
        facts.derive("nodes", tasks // each, f"#SBATCH --ntasks {tasks} / --ntasks-per-node {each}")
    elif total and "nodes" not in facts and "num_accelerators" not in facts:
        facts.derive("num_accelerators", total, f"#SBATCH --ntasks {tasks} x {per_task or 1} accelerators")
        _share(facts)
    is_alone = script.directives and tasks is None and script.asked.isdisjoint(OF_NODES)
    if is_alone and "nodes" not in facts and "num_accelerators" not in facts and "per_node" in facts.facts:
        facts.assume_because("nodes", 1, "a job that asks for no number of nodes has one")


OF_NODES: Final = frozenset({"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NODELIST", "SLURM_JOB_NODELIST", "NNODES"})
"""Variables of a script that may run on several nodes, as ``sbatch`` is told outside of it."""


def _included(facts: Facts, options: Mapping[str, Option]) -> None:
    """``deepspeed --include host:0,1@other:2,3`` names every process."""
    option = _first(options, ("include", "i"))
    hosts = [] if option is None or option.value is None else option.value.split("@")
    slots = [host.partition(":")[2].split(",") for host in hosts]
    if option is not None and slots and all(each != [""] for each in slots):
        facts.derive("num_accelerators", sum(map(len, slots)), f"{option.place} {option.value}", option.name)


def slices(facts: Facts, options: Mapping[str, Option]) -> None:
    """Devices of the slices that xpk is asked for."""
    kind, number = _first(options, ("device-type", "tpu-type")), _first(options, ("num-slices",))
    if kind is not None:
        slices_named(facts, kind, 1 if number is None else degree(number.value))


def slices_named(facts: Facts, kind: Option | NamedSetting, count: int | None) -> None:
    """Devices of ``count`` slices of a kind: a number counts cores, two of a chip in some generations.

    A shape counts chips, which are two devices in others (``maxtext/utils/accelerator_to_spec_map.py``).
    """
    found = re.fullmatch(SLICE, str(kind.value))
    if found is None or count is None:
        return
    size, is_shape = prod(int(each) for each in found[2].split("x")), "x" in found[2]
    if found[1] in TWO_DEVICES:
        devices, what = size * 2 if is_shape else size, "devices, two of a chip"
    else:
        devices, what = size // 2 if found[1] in TWO_CORES and not is_shape else size, "chips"
    facts.state("accelerator", found[1], kind.place, kind.name)
    facts.derive("num_accelerators", count * devices, f"{kind.place} {kind.value}: {count} x {devices} {what}")


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
    if "nodes" in script.directives:
        _directive(facts, "nodes", "nodes", script)
    elif "standalone" in options:
        facts.derive("nodes", 1, "--standalone")


def _per_node(facts: Facts, options: Mapping[str, Option], script: Script, *, are_ranks: bool) -> None:
    tasks = TASKS_PER_NODE if are_ranks else ()
    all_of = next((options[name] for name in PROCESSES if name in options and options[name].value in ALL_OF_NODE), None)
    each = _first(options, (*PER_NODE, *tasks, *OF_NODE) if all_of is None else OF_NODE)
    if each is not None:
        state(facts, "per_node", each, _on_node if each.name in OF_NODE else degree)
        if are_ranks:
            facts.miss("nodes", (f"{each.place}: the nodes of the allocation",))
        elif "nodes" not in facts:
            facts.assume_because("nodes", 1, "the launcher runs on one node where none are given")
        return
    for name in (*tasks, *OF_NODE):
        if name in script.directives and _directive(facts, "per_node", name, script):
            return
    if all_of is not None:
        facts.miss("per_node", (f"{all_of.place} {all_of.value}: the accelerators of a node",))


def _on_node(value: object) -> int | None:
    asked = accelerators(str(value))
    return None if asked is None else asked.number


def _directive(facts: Facts, key: str, name: str, script: Script) -> bool:
    """A value of the scheduler's directives; whether it is a number."""
    word, value = script.directives[name], count(script.directives, name)
    if not value:
        facts.miss(key, word.needs or (f"{word.file}:{word.line} {word.shown}",))
        return False
    facts.state(key, value, _place(word, "#SBATCH"))
    return True


def _place(word: Word, name: str) -> str:
    return f"{word.file}:{word.line} {name}"
