"""Tables that the documentation draws from the code and its data."""

from __future__ import annotations

import csv
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import yaml
from docstrings import markdown

from shardplan.base import units
from shardplan.base.fields import described
from shardplan.base.words import folded
from shardplan.calibrate.runs.columns import COLUMN_NAMES, COLUMNS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers import catalog, hardware_files
from shardplan.inputs.readers.hf import config as hf_config
from shardplan.inputs.readers.hf import refusals as hf_refusals
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.inputs.software import Software
from shardplan.inputs.words import FIELD_NAMES, LORA_MATRICES, RECOMPUTE_WORDS
from shardplan.inputs.words import SCHEDULES as SCHEDULE_WORDS
from shardplan.physics import validity
from shardplan.physics.frameworks.capabilities import Capabilities
from shardplan.physics.frameworks.conditions import FACTS
from shardplan.physics.frameworks.option_entries import VALUES
from shardplan.physics.frameworks.stack import Stack, list_stacks, load_stack
from shardplan.physics.schedules.base import PipelineSchedule
from shardplan.physics.schedules.registry import SCHEDULES
from shardplan.physics.workload.passes import TRAFFIC, Traffic
from shardplan.rl.measured import KINDS

ROOT = Path(__file__).parent.parent


@cache
def _package() -> griffe.Object | griffe.Alias:
    return griffe.load("shardplan", search_paths=[str(ROOT / "src")])


def fields_of(path: str) -> str:
    """Markdown table of the fields of a dataclass: name, type, default and the text beneath each."""
    record = _package()[path.removeprefix("shardplan.")]
    module, _, name = path.rpartition(".")
    loaded = getattr(importlib.import_module(module), name)
    declared = {field.name: field for field in fields(loaded)} if is_dataclass(loaded) else None
    rows = [
        [f"`{field.name}`", _type(field), _default(field, (declared or {}).get(field.name)), _one_line(field.docstring)]
        for field in record.attributes.values()
        if "property" not in field.labels and not field.name.startswith("_")
        if declared is None or field.name in declared
    ]
    return _rows(["field", "type", "default", "meaning"], rows)


def instances(path: str) -> str:
    """Markdown table of the dataclass instances that a mapping holds: a column for each, a row for each field."""
    module, _, name = path.rpartition(".")
    records: dict[str, Any] = getattr(importlib.import_module(module), name)
    first = next(iter(records.values()))
    texts = _package()[f"{type(first).__module__}.{type(first).__name__}".removeprefix("shardplan.")].attributes
    columns = [" ", *(f"`{name}`" for name in records)]
    rows = [
        [_one_line(texts[field.name].docstring), *(_value(getattr(record, field.name)) for record in records.values())]
        for field in fields(first)
    ]
    return _rows(columns, rows)


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    """Constants of every calibration profile by generation, the defaults first."""
    files = sorted(
        (ROOT / "src/shardplan/data/profiles").glob("*.yaml"), key=lambda path: (path.stem != "default", path.stem)
    )
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}


def constants(*names: str) -> str:
    """Markdown table of constants: meaning, unit once, value and source of each generation that has its own."""
    rows = [row for name in names for row in _constant_rows(name)]
    return _rows(["constant", "accelerators", "value", "source"], rows)


def _constant_rows(name: str) -> Iterator[list[str]]:
    meaning = _one_line(_package()["inputs.profile.Profile"].attributes[name].docstring)
    title, shown = f"`{name}`<br>{meaning}", None
    for generation, profile in _profiles().items():
        if name in profile:
            constant = profile[name]
            whose = "all" if generation == "default" else generation
            unit = "" if constant["unit"] == shown else f" [{constant['unit']}]"
            yield [title, whose, f"{_constant(constant['value'])}{unit}", str(constant["source"])]
            title, shown = "", constant["unit"]


def _constant(value: float | dict[str, float]) -> str:
    return (
        ", ".join(f"{key} {float(part):g}" for key, part in value.items())
        if isinstance(value, dict)
        else f"{float(value):g}"
    )


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _type(field: griffe.Attribute) -> str:
    """The annotation; the choices where it is a ``Literal``, what is inside ``Annotated``, under a name or not."""
    names = [name.strip() for name in str(field.annotation).split("|")]
    return " or ".join(_named_type(name, _resolved(name, field)) for name in names if name != "None")


def _named_type(name: str, meaning: str) -> str:
    bounded = re.match(r"Annotated\[(\w+),", meaning)
    return _choices(meaning) or f"`{bounded[1] if bounded else name}`"


def _choices(annotation: str) -> str:
    literal = re.fullmatch(r"Literal\[(.*)\]", annotation, re.DOTALL)
    return ", ".join(f"`{choice}`" for choice in re.findall(r"""["']([^"']+)["']""", literal[1])) if literal else ""


def _default(field: griffe.Attribute, declared: Field[Any] | None) -> str:
    if declared is not None and declared.default is not MISSING:
        return "" if declared.default in (None, ()) else f"`{declared.default}`"
    if declared is not None:
        return "required" if declared.default_factory is MISSING else ""
    if field.value is None:
        return "required"
    value = _resolved(str(field.value), field).strip("'\"")
    return "" if value in ("None", "()") or "default_factory" in value else f"`{value}`"


def _resolved(name: str, field: griffe.Attribute) -> str:
    """The value of ``name`` where the field's module defines or imports it, else ``name``."""
    defined = field.module.members.get(name)
    if isinstance(defined, griffe.Alias):
        own, _, path = defined.target_path.partition(".")
        defined = _package()[path] if own == "shardplan" else None
    if not isinstance(defined, griffe.Attribute) or defined.value is None:
        return name
    return str(defined.value)


def _one_line(docstring: griffe.Docstring | None) -> str:
    return "" if docstring is None else " ".join(markdown(docstring.value).split())


def families() -> str:
    """Model families that are read: every ``model_type`` with what its layers are."""
    readers: dict[str, list[str]] = {}
    for model_type, family in hf_config.FAMILIES.items():
        readers.setdefault(family.about, []).append(f"`{model_type}`")
    return _rows(["`model_type`", "layers"], [[", ".join(types), about] for about, types in readers.items()])


def unsupported() -> str:
    """Model families that are refused, and why."""
    return _rows(["`model_type`", "why"], [[f"`{name}`", why] for name, why in hf_refusals.UNSUPPORTED.items()])


def models() -> str:
    """The models that are shipped."""
    header = ["name", "parameters", "active", "layers", "hidden size", "longest sequence"]
    return _rows(header, [_model_cells(name) for name in catalog.list_models()])


def _model_cells(name: str) -> list[str]:
    model = catalog.load_model(name)
    active = units.format_count(model.num_active_parameters) if model.is_moe else ""
    sizes = (model.num_hidden_layers, model.hidden_size, model.max_position_embeddings)
    counts = [units.format_count(model.num_parameters), active, *(f"{size:,}" for size in sizes)]
    return [f"`{name}`", *counts]


def accelerators() -> str:
    """The accelerators that are shipped."""
    header = ["name", "full name", "generation", "memory", "bandwidth", "dense peaks [TFLOP/s]"]
    return _rows(header, [_accelerator_cells(name) for name in catalog.list_accelerators()])


def _accelerator_cells(name: str) -> list[str]:
    part = catalog.load_accelerator(name)
    shown = [name for name in ("bf16", "fp8", "nvfp4") if name in part.peak_flops] or list(part.peak_flops)
    peaks = ", ".join(f"{precision} {part.peak_flops[precision] / 1e12:g}" for precision in shown)
    memory, bandwidth = units.format_bytes(part.memory_bytes), units.format_rate(part.memory_bandwidth)
    return [f"`{name}`{_star(part.marks)}", part.full_name, part.generation, memory, bandwidth, peaks]


def clusters() -> str:
    """The clusters that are shipped."""
    header = ["name", "full name", "accelerator", "network tiers, inner to outer"]
    return _rows(header, [_cluster_cells(name) for name in catalog.list_clusters()])


def _cluster_cells(name: str) -> list[str]:
    cluster = catalog.load_cluster(name)
    tiers = "<br>".join(
        f"{tier.size or 'any number'} x {tier.kind}, {units.format_rate(tier.bandwidth)}" for tier in cluster.tiers
    )
    return [f"`{name}`{_star(cluster.marks)}", cluster.full_name, f"`{cluster.accelerator.name}`", tiers]


def _star(marks: Mapping[str, str]) -> str:
    """A star where a peak or a bandwidth of the accelerator or its network has low confidence."""
    return " \\*" if any(re.search(r"peak_flops|memory_bandwidth|^tiers.*bandwidth", name) for name in marks) else ""


def rules() -> str:
    """Every rule of validity, in the order in which they are checked."""
    return "\n".join(f"1. {rule.name}" for rule in validity.RULES)


def schedules() -> str:
    """Every pipeline schedule: what it needs, what it holds, and where it comes from."""
    header = ["`schedule`", "name", "chunks per rank", "copies of the model", "gradients apart", "source"]
    shipped = (SCHEDULES[name] for name in BUILT_IN)  # pages that show how to add one run in the same process
    return _rows(header, [_schedule_cells(schedule) for schedule in shipped])


def _schedule_cells(schedule: PipelineSchedule) -> list[str]:
    chunks = f"{schedule.least_vp}" + (" or more" if schedule.most_vp is None else "")
    apart = "yes" if schedule.splits_backward else "no"
    return [f"`{schedule.name}`", schedule.title, chunks, str(schedule.parameter_copies), apart, schedule.source]


def frameworks() -> str:
    """What every framework can run, in one line each."""
    header = ["stack", "version", "schedules", "sharding with a pipeline", "recomputes", "layers", "context exchange"]
    return _rows(header, [_framework_cells(load_stack(name)) for name in list_stacks()])


def _framework_cells(stack: Stack) -> list[str]:
    can = stack.can_run or Capabilities(version="", date="")
    lists = (can.schedules, can.pipelined_shardings, can.recompute, can.layers, can.cp_comm)
    return [f"`{stack.name}`", can.version, *(_listed(names) for names in lists)]


def _listed(names: Iterable[str] | None) -> str:
    return "not stated" if names is None else ", ".join(names) or "none"


def features() -> str:
    """What else a plan or a job can ask of every framework."""
    header = ["stack", "experts", "overlap tp, dp, pp, ep", "precisions", "offload", "adapters", "packed documents"]
    return _rows(header, [_feature_cells(load_stack(name)) for name in list_stacks()])


def _feature_cells(stack: Stack) -> list[str]:
    can = stack.can_run or Capabilities(version="", date="")
    switches = (can.overlap_tp, can.overlap_dp, can.overlap_pp, can.overlap_ep)
    overlaps = ", ".join(switch or "-" for switch in switches)
    lists = (_listed(can.precisions), _listed(can.offload))
    return [
        f"`{stack.name}`",
        ANSWERS[can.expert_parallel],
        overlaps,
        *lists,
        ANSWERS[can.lora],
        ANSWERS[can.packed_documents],
    ]


ANSWERS = {None: "not stated", True: "yes", False: "no"}


def values() -> str:
    """Names that only the text of an option may use."""
    return ", ".join(f"`{name}`" for name in VALUES if name not in FACTS)


def conditions() -> str:
    """Names that a condition of a record may use."""
    return ", ".join(f"`{name}`" for name in FACTS)


def passes() -> str:
    """Memory-bound kernels: what they read and write of an element."""
    header = ["pass", "forward", "backward", "kernels forward", "kernels backward"]
    return _rows(header, [_pass_cells(row) for row in TRAFFIC.values()])


def _pass_cells(row: Traffic) -> list[str]:
    sizes = [f"{size:g} {row.unit}" for size in (row.forward, row.backward)]
    return [row.of, *sizes, row.forward_kernels, row.backward_kernels]


def latencies() -> str:
    """Default latencies by kind of link."""
    rows = hardware_files.networks()["latency"].items()
    header = ["link", "latency of a hop", "source", "low confidence"]
    return _rows(
        header, [[f"`{link}`", f"{v['value']} {v['unit']}", v["source"], v.get("mark", "")] for link, v in rows]
    )


def words_of_fields() -> str:
    """Markdown table of the other names of values: a row for each value of each field of a job, a plan and a stack."""
    rows = []
    for record in (Job, Plan, Software):
        for field in described(record).values():
            table = field.about.words or OWN_WORDS.get(field.name)
            for value, names in getattr(table, "names", {}).items():
                others = [name for name in names.split() if folded(name) != folded(str(value))]
                if others:
                    rows.append([f"`{field.name}`", f"`{value}`", ", ".join(f"`{name}`" for name in others)])
    return _rows(["field", "value", "also called"], rows)


OWN_WORDS = {"recompute": RECOMPUTE_WORDS, "schedule": SCHEDULE_WORDS, "lora_targets": LORA_MATRICES}
"""Words of the fields that are lists, or names that packages add to."""


def names_of_fields() -> str:
    """Markdown table of the other names of fields and columns."""
    merged: dict[str, list[str]] = {}
    for table in (FIELD_NAMES, COLUMN_NAMES):
        for field, names in table.names.items():
            merged.setdefault(field, []).extend(name for name in names.split() if folded(name) != folded(field))
    rows = [[f"`{field}`", ", ".join(f"`{name}`" for name in dict.fromkeys(names))] for field, names in merged.items()]
    return _rows(["field", "also called"], rows)


def columns_of_runs() -> str:
    """Markdown table of the columns of a file of measured runs."""
    rows = [[f"`{column.name}`", column.kind.values, column.meaning] for column in COLUMNS.values()]
    return _rows(["column", "unit, values", "meaning"], rows)


def columns_of_rl_steps() -> str:
    """Markdown table of the columns of a file of measured RL steps."""
    texts = _package()["rl.measured.MeasuredRlStep"].attributes
    rows = [[f"`{name}`", kind.values, _one_line(texts[name].docstring)] for name, kind in KINDS.items()]
    return _rows(["column", "values", "meaning"], rows)


def names_of_devices() -> str:
    """Markdown table of the names of accelerators in which no part of ours stands, and of clusters in clouds."""
    return f"{_written('accelerator')}\n\n{_written('cluster')}"


def _written(what: str) -> str:
    with (ROOT / f"src/shardplan/data/{what}s/names.csv").open(encoding="utf-8", newline="") as file:
        rows = [[f"`{row['written']}`", f"`{row['name']}`", row["source"]] for row in csv.DictReader(file)]
    return _rows(["written", what, "why"], rows)


def names_of_stacks() -> str:
    """Markdown table of the other names of stacks."""
    stacks = [load_stack(name) for name in list_stacks()]
    rows = [[f"`{stack.name}`", ", ".join(f"`{alias}`" for alias in stack.aliases)] for stack in stacks]
    return _rows(["stack", "also called"], [row for row in rows if row[1]])


def keys_of_rows(answer: str) -> str:
    """The keys of an answer's rows, in the order of records and of CSV."""
    columns = importlib.import_module(f"shardplan.answers.decisions.{answer}").COLUMNS
    keys = [key for each in columns for key in (each.record(None) if each.record else filter(None, [each.key]))]
    return ", ".join(f"`{key}`" for key in keys)


def _rows(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


DIRECTIVES: dict[str, Callable[..., str]] = {
    "accelerators": accelerators,
    "clusters": clusters,
    "columns": columns_of_runs,
    "rlcolumns": columns_of_rl_steps,
    "conditions": conditions,
    "values": values,
    "constants": constants,
    "devicenames": names_of_devices,
    "fieldnames": names_of_fields,
    "families": families,
    "features": features,
    "fields": fields_of,
    "frameworks": frameworks,
    "instances": instances,
    "keys": keys_of_rows,
    "latencies": latencies,
    "models": models,
    "passes": passes,
    "rules": rules,
    "schedules": schedules,
    "stacknames": names_of_stacks,
    "unsupported": unsupported,
    "words": words_of_fields,
}
"""Name of a directive to the table it draws."""
