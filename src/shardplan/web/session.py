"""A session as a file: a plan file that also holds the address of its page, and the uploaded model if there is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl

from shardplan.errors import InputError
from shardplan.estimation.question import Question
from shardplan.fields import described
from shardplan.files import parse_json
from shardplan.frameworks.stack import list_stacks
from shardplan.frameworks.usual_stack import ANY
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_cluster
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.reports.texts.plan import field_text
from shardplan.units import Kind, parse_quantity
from shardplan.web.state import PageQuestion, names_of

PAGE: Final = "page"
"""Key of a plan file that only pages read."""


def session_record(question: PageQuestion, file: PlanFile) -> dict[str, Any]:
    """The plan file with its page."""
    return plan_file_record(file) | {PAGE: {"query": question.query(), "config": question.config}}


def session_in(text: str) -> PageQuestion:
    """The question of a session, or of a plan file that the command line wrote. Raises InputError."""
    record = parse_json(text, "the session")
    if not isinstance(record, Mapping):
        raise InputError("the session is not a JSON object", rule="a session is a plan file", hint="open a plan file")
    file = plan_file_from_record(record)
    page = record.get(PAGE)
    if isinstance(page, Mapping) and isinstance(page.get("query"), str):
        config = page.get("config")
        return PageQuestion.of([*parse_qsl(page["query"]), ("config", config if isinstance(config, str) else "")])
    return _of_plan_file(file)


def _of_plan_file(file: PlanFile) -> PageQuestion:
    """The question of a plan file as a page puts it. Raises InputError for one that no fields of a page put."""
    asked = file.question
    if asked.model.name not in names_of("model"):
        raise _beyond_a_page(f"the model of the plan file, {asked.model.name[:80]}, is not built in")
    framework = next((each.framework for each in file.estimates if each.framework), "")
    found = PageQuestion(
        model=asked.model.name,
        gpus=str(asked.num_accelerators),
        stack=next((name for name in list_stacks() if framework.partition(" ")[0] == name), ANY),
        job=_differing(asked.job, {name: field.default for name, field in described(Job).items()}),
        **_hardware(asked.cluster),
    )
    usual = found.put().question.job
    software = _differing(asked.job.software, vars(usual.software))
    made = found.with_values(
        job={**found.job, **_differing(asked.job, vars(usual))},
        software=", ".join(f"{name}={text}" for name, text in software.items()),
    )
    _check_is_same(made.put().question, asked)
    return made


def _differing(record: Any, usual: Mapping[str, Any]) -> dict[str, str]:
    """Fields that are not as usual, as they are typed."""
    values = {name: value for name in described(type(record)) if (value := getattr(record, name)) != usual.get(name)}
    return {name: f"{value:.0f}" if name == "tokens" else field_text(value) for name, value in values.items()}


def _hardware(cluster: Cluster) -> dict[str, Any]:
    """The fields of a page that give the cluster: names, and the values that are not those of the named one."""
    part = cluster.accelerator.name
    if part not in names_of("accelerator"):
        raise _beyond_a_page(f"the accelerator of the plan file, {part[:80]}, is not built in")
    name = cluster.name if cluster.name in names_of("cluster") else ""
    usual = load_cluster(name) if name else cluster_of_accelerator(part)
    other = "" if name and usual.accelerator.name == part else part
    if name and other:
        usual = load_cluster(name, accelerator=part)
    sets = {each: text for each, text in _values(cluster).items() if text != _values(usual).get(each)}
    price = cluster.accelerator.price_per_hour
    is_given = price is not None and cluster.accelerator_price != usual.accelerator_price
    return {"cluster": name, "accelerator": other, "sets": sets, "price": str(price) if is_given else ""}


def _values(cluster: Cluster) -> dict[str, str]:
    """The values of a cluster that a page replaces, as they are typed, exactly."""
    part, inner = cluster.accelerator, cluster.innermost
    outer = next((tier for tier in cluster.tiers[1:] if (tier.size or math.inf) > cluster.accelerators_per_node), None)
    found = {
        "node_size": str(inner.size),
        "memory": _typed(part.memory_bytes, "bytes", "GB", "B"),
        "memory_bandwidth": _typed(part.memory_bandwidth, "bandwidth", "GB/s", "B/s"),
    }
    for where, tier in (("intra_node", inner), ("inter_node", outer)):
        if tier is not None:
            found[f"{where}_bandwidth"] = _typed(tier.bandwidth, "bandwidth", "GB/s", "B/s")
            found[f"{where}_latency"] = _typed(tier.latency, "time", "us", "s")
    return found


def _typed(value: float, kind: Kind, unit: str, si: str) -> str:
    """A quantity as people type it, 50 GB/s, where that is all of it; in SI units otherwise."""
    short = f"{value / parse_quantity(f'1 {unit}', kind, field=kind):g} {unit}"
    return short if parse_quantity(short, kind, field=kind) == value else f"{value!r} {si}"


def _check_is_same(put: Question, asked: Question) -> None:
    """Raises InputError where the page puts another question than the file: its numbers would not be the file's."""
    pairs = {
        "the model": (put.model, asked.model),
        "the cluster": (replace(put.cluster, assumptions=()), replace(asked.cluster, assumptions=())),
        "the job": (put.job, asked.job),
        "its profile of constants": (put.given_profile, asked.given_profile),
    }
    others = [name for name, (ours, theirs) in pairs.items() if ours != theirs]
    if others:
        raise _beyond_a_page(f"{' and '.join(others)} of the plan file cannot be given in a page's fields")


def _beyond_a_page(message: str) -> InputError:
    return InputError(
        message,
        rule="a page puts the question of a plan file by names and fields",
        hint="save the session from its page, or use the command line: shardplan estimate --from FILE",
    )
