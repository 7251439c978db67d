"""Files that are given with a launch file and that it does not name: their word joins that of the first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.files import printable, read_text
from shardplan.inputs.readers.names import shape_within
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import ONE_NODE, Fact, Facts
from shardplan.launch.dialects.settings import batch_of, world_of
from shardplan.launch.read import read_document
from shardplan.launch.read.places import Places
from shardplan.launch.read.trees import LONG_FILE

SCRIPTS: Final = (".sh", ".bash", ".slurm", ".sbatch")
CONFIG: Final = "config.json"
_OF_MODEL: Final = ("model_type", "architectures")
"""Keys of a ``config.json``."""


def join_companions(facts: Facts, ask: Ask, read: Callable[[Ask], Facts]) -> None:
    """Adds what configurations say that no file names. Raises InputError where two files contradict each other."""
    for path in ask.places.companions:
        if path in ask.places.used or is_model(path):
            continue
        if path.suffix.lower() in SCRIPTS:
            _check_order(ask.path, path)
            continue
        other = read(replace(ask, path=path, arguments=(), places=Places(), given={}))
        _join(facts, other)
        facts.note(f"{path.name}, which {ask.path.name} does not name, holds as well: {other.framework}")


def _check_order(first: Path, script: Path) -> None:
    """Raises InputError for a script that comes after a configuration, which it may start."""
    if first.suffix.lower() not in SCRIPTS and first.suffix:
        raise InputError(
            f"{printable(str(script))} is a script, and {printable(str(first))} is no script that starts it",
            rule="the first file is the one that is launched",
            hint=f"give the script first: shardplan audit {printable(script.name)} {printable(first.name)}",
        )


def _join(facts: Facts, other: Facts) -> None:
    for key, fact in other.facts.items():
        own = facts.facts.get(key)
        if own is not None and own.origin == fact.origin == "stated" and own.value != fact.value:
            raise InputError(
                f"{own.why} says {own.value} and {fact.why} of {printable(other.file)} says {fact.value}",
                rule="files that are given together say the same",
                hint=f"correct one of the two, or leave its file out ({key})",
            )
        if own is None or (own.origin == "assumed" and fact.origin != "assumed"):
            facts.replace(key, fact)
            if key in other.options:
                facts.options[key] = other.options[key]
    facts.priced_by = facts.priced_by or other.priced_by
    for text in other.not_understood:
        facts.doubt(text)
    facts.names |= other.names
    facts.asked |= other.asked
    _worked_out_again(facts)


def _worked_out_again(facts: Facts) -> None:
    """Data parallelism and the batch, where what they follow from was added."""
    world_of(facts)
    batch_of(facts)


def note_no_shards(facts: Facts) -> None:
    """Says that a trainer's file alone shards nothing: how it is started may."""
    known = facts.facts.get("sharding")
    if facts.framework == "llama-factory" and known is not None and (known.value, known.origin) == ("ddp", "assumed"):
        facts.note("neither deepspeed nor fsdp: plain data parallelism, unless accelerate starts it; give its file too")


def take_one_node(facts: Facts, ask: Ask) -> None:
    """The accelerators of nodes of the cluster, where the launcher takes all, counts them, or nothing sets how many."""
    decides, nodes = facts.missing.get("per_node", ()), facts.number("nodes")
    is_of_node = bool(decides) and nodes is not None and all(map(_OF_NODE.search, decides))
    if ask.node is None or not (is_of_node or facts.missing.get("num_accelerators") == (ONE_NODE,)):
        return
    unset = ", ".join(each.removeprefix("env:") for each in decides if each.startswith("env:"))
    number = f"{nodes} node{'' if nodes == 1 else 's'} of the cluster"
    whole = f"{number}, as nothing sets {unset}" if unset else f"{number}, whose accelerators are counted"
    what = whole if is_of_node else "the launcher takes one node"
    total = ask.node * (nodes or 1) if is_of_node else ask.node
    why = f"{what}, where nothing says how many: {total}; --gpus says otherwise"
    facts.replace("num_accelerators", Fact(value=total, origin="assumed", why=why))
    facts.note(f"{total} accelerators: {what} where nothing says how many; --gpus N for another number")
    _worked_out_again(facts)


def take_comment(facts: Facts, ask: Ask) -> None:
    """Processes of the line in a configuration's comments that starts it, where all of them say the same."""
    if not {"num_accelerators", "per_node"} & facts.missing.keys() or ask.world is not None:
        return
    lines = enumerate(read_text(ask.path, LONG_FILE).splitlines(), 1)
    comments = [(number, line) for number, line in lines if line.lstrip().startswith("#") and len(line) < MOST_OF_LINE]
    found = [(number, each) for number, line in comments for each in _PROCESSES.finditer(line)]
    counts = {int(each[1] or 1) for _, each in found}
    if len(counts) == 1 and not any(_SEVERAL.search(line) for _, line in comments):
        why = f"{ask.path.name}:{found[0][0]}, a comment"
        facts.replace("num_accelerators", Fact(value=counts.pop(), origin="assumed", why=why))
        facts.note(f"{facts.value('num_accelerators')} accelerators: {why}; --gpus N for another number")
        facts.missing.pop("per_node", None)
        _worked_out_again(facts)


MOST_OF_LINE: Final = 1000
"""Characters of a comment that is looked at."""
_PROCESSES: Final = re.compile(
    r"--?(?:nproc[-_]per[-_]node|num_processes|num_gpus)[ =](\d{1,5})\b|tune run \w+_single_device"
)
_SEVERAL: Final = re.compile(r"(?:nnodes|num_machines)[ =](?!1\b)")
_OF_NODE: Final = re.compile(
    r"^cmd:.*(?:nvidia-smi|rocm-smi|amd-smi|npu-smi|hl-smi|device_count)"
    r"|^env:(?!.*(?:node_?rank|nnodes|num_nodes))\w*(?:gpu|npu|proc|device|local_world|worker_num)\w*$",
    re.IGNORECASE,
)
"""Commands that count the accelerators of a node, and variables that say how many of them are used."""
_WITH_IMAGES: Final = re.compile(
    r"(?:^|[-_/])vl(?:[-_]|$)|vision|-text$|llava|internvl|ovis\d|minicpm-[ov]|omni|videollama|ui-tars|os-atlas|nvila|longva|showui|aguvis",
    re.IGNORECASE,
)
"""Names of models of which the text model alone is priced, without what sees or hears."""


def is_model(path: Path) -> bool:
    """Whether a file is the ``config.json`` of a model."""
    if path.suffix.lower() != ".json":
        return False
    try:
        return all(key in read_document(path).tree for key in _OF_MODEL)
    except ShardplanError:
        return False


def model_file(facts: Facts, ask: Ask) -> Path | None:
    """The ``config.json`` that was given, or that lies in the folder that the file names as its model."""
    given = [path for path in ask.places.companions if is_model(path)]
    if len(given) > 1:
        raise InputError(
            f"{printable(str(given[0]))} and {printable(str(given[1]))} are both files of a model",
            rule="one model is trained",
            hint="leave one of them out",
        )
    name = facts.value("model")
    known = named_model(name)
    found = None
    if known is None and not given and isinstance(name, str):
        found = ask.places.find(f"{name.rstrip('/')}/{CONFIG}", ask.path.parent, is_exact=True)
        within = shape_within(name) if found is None else None
        if within is not None:
            why = f"{name} is not in the catalogue, and its name holds {within}"
            facts.replace("model", Fact(value=within, origin="assumed", why=why))
            facts.note(f"the model is taken as {within}: {why}; --model says otherwise")
            name, known = within, named_model(within)
    if known is not None and _WITH_IMAGES.search(f"{name} {known.name}"):
        facts.doubt(f"{name}: its text model alone is priced, without what reads images, videos or sound")
    if found is not None:
        facts.note(f"the model is that of {printable(str(found))}")
    return given[0] if given else found
