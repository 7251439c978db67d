"""Submissions to MLPerf Training: scripts that export settings, which a configuration of NeMo next to them takes.

The names as in ``config_*.sh`` and ``conf/*.yaml`` of ``mlcommons/training_results_v4.1`` and ``v5.1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shardplan.base.errors import ShardplanError
from shardplan.launch.dialects.ask import Ask, begin, take_notes
from shardplan.launch.dialects.configurations import finish_batch
from shardplan.launch.dialects.megatron_core.nemo import NEMO
from shardplan.launch.dialects.models import named_model
from shardplan.launch.dialects.reading import Facts
from shardplan.launch.dialects.records import Dialect
from shardplan.launch.dialects.settings import NamedSetting, Settings
from shardplan.launch.dialects.values import degree
from shardplan.launch.read import Document, Script, read_document
from shardplan.launch.read.places import is_inside

RECORD: Final = Dialect(name="mlperf")
MARKS: Final = ("DGXNNODES", "DGXNGPU", "DGXSYSTEM", "MINIBS", "WALLTIME_RUNANDTIME")
LEAST_MARKS: Final = 2
FOLDER: Final = "conf"
MOST_FILES: Final = 20
"""Configurations of the folder that are looked at."""
_SIZES: Final = re.compile(r"llama(\d)(\d)?_(\d+b)(_lora)?")
"""Folders of benchmarks: ``llama31_405b``, ``llama2_70b_lora``."""


def is_mlperf(script: Script) -> bool:
    """Whether a script only exports settings of a submission."""
    return sum(name in script.environment for name in MARKS) >= LEAST_MARKS


def mlperf_facts(ask: Ask, script: Script) -> Facts:
    """What the configuration next to the script says with these settings, or the settings alone."""
    facts = begin(ask, RECORD.name, RECORD.version)
    settings = Settings({
        name: NamedSetting(name=name, value=word.text, place=f"{Path(word.file).name}:{word.line} {name}",
                           needs=word.needs, shown=word.shown)
        for name, word in script.environment.items()
    })  # fmt: skip
    RECORD.state_section(facts, settings, "world")
    facts.assume("per_node", 8, "DGXNGPU")
    nodes, each = facts.number("nodes"), facts.number("per_node")
    if nodes and each:
        facts.derive("num_accelerators", nodes * each, f"DGXNNODES {nodes} x DGXNGPU {each}")
    _named_by_folder(facts, ask.path)
    documents = list(_configurations(ask, script))
    if documents:
        document = documents[0]
        facts.note(f"{Path(document.file).name} takes the settings of {ask.path.name}")
        take_notes(facts, document)
        NEMO.read(facts, Settings.of(document))
    else:
        _alone(facts, settings)
    finish_batch(facts)
    return facts


def _configurations(ask: Ask, script: Script) -> Iterator[Document]:
    """Files in the folder of configurations that NeMo reads, with the settings in their places."""
    env = {name: word.text for name, word in script.environment.items() if word.text is not None}
    folder = ask.path.parent / FOLDER
    try:
        paths = sorted(path for path in folder.glob("*.y*ml") if is_inside(path, ask.path.parent))[:MOST_FILES]
    except (OSError, RuntimeError, ValueError):
        return
    for path in paths:
        try:
            document = read_document(path, env={**env, **ask.env}, places=ask.places)
        except ShardplanError:
            continue
        if Settings.of(document).has("model.tensor_model_parallel_size"):
            yield document


def _alone(facts: Facts, settings: Settings) -> None:
    """The settings by their usual names; what they do not say is asked for, as the program's defaults are not known."""
    RECORD.state(facts, settings)
    RECORD.assume(facts)
    steps = settings.first("MINIBS")
    dp = _ranks(facts)
    number = None if steps is None else degree(steps.value)
    if steps is not None and number and dp:
        facts.derive("global_batch_size", number * dp, f"{steps.place} {number} x dp {dp}", "MINIBS")
    for key in RECORD.words("asked"):
        facts.miss(key, ("the program's configuration, which is not next to the script",))


def _ranks(facts: Facts) -> int | None:
    total = facts.number("num_accelerators")
    tp, pp, cp = (facts.number(key) for key in ("tp", "pp", "cp"))
    if not (total and tp and pp and cp) or total % (tp * pp * cp):
        return None
    facts.derive("dp", total // (tp * pp * cp), "DGXNNODES x DGXNGPU / (tp x pp x cp)")
    return total // (tp * pp * cp)


def _named_by_folder(facts: Facts, path: Path) -> None:
    """The model and whether adapters train, as the folder of the benchmark says."""
    for part in reversed(path.resolve().parts[:-1]):
        found = _SIZES.fullmatch(part)
        name = "" if found is None else f"llama-{found[1]}{'.' + found[2] if found[2] else ''}-{found[3]}"
        if found is not None and named_model(name) is not None:
            facts.derive("model", name, f"the folder {part}")
            if found[4]:
                facts.derive("train", "lora", f"the folder {part}")
            return
