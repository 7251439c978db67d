"""A session as a file: a plan file that also holds the address of its page, and the uploaded model if there is one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl

from shardplan.base.errors import InputError
from shardplan.base.fields import described
from shardplan.base.files import parse_json
from shardplan.base.units import Kind, parse_quantity
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_cluster, load_model
from shardplan.physics.frameworks.stack import list_stacks
from shardplan.physics.frameworks.usual_stack import ANY
from shardplan.reports.plan_file import PlanFile, inputs_record, plan_file_from_record, plan_file_record
from shardplan.reports.texts.plan import field_text
from shardplan.web.state import CONFIG, PageQuestion, names_of, plan_code, typed

PAGE: Final = "page"
"""Key of a plan file that only pages read."""
MODEL_KEYS: Final = frozenset({"model_type", "architectures", "hidden_size", "n_embd", "d_model"})
"""Keys of which a ``config.json`` has one."""
ANSWERS: Final = {
    "ask on Decide": ("scale", "fit", "whatif", "pareto", "pareto-sizes", "sensitivity", "budget", "sweep"),
    "look at Step": ("trace", "simulation", "timeline"),
    "paste the launch file on Audit": ("audit",),
}
"""Where the answers of other commands are on pages, by the names in their schemas."""


def session_record(question: PageQuestion, file: PlanFile) -> dict[str, Any]:
    """The plan file with its page."""
    return plan_file_record(file) | {PAGE: {"query": question.query(), "config": question.config}}


def session_in(text: str) -> PageQuestion:
    """The question of a session, of a plan file that the command line wrote, or of a model. Raises InputError."""
    record = parse_json(text, "the file")
    if not isinstance(record, Mapping):
        raise InputError("the file is not a JSON object", rule="a page opens plan files", hint="open a plan file")
    if "schema" not in record and not MODEL_KEYS.isdisjoint(record):
        return PageQuestion(model=CONFIG, config=text)
    _check_kind(str(record.get("schema", "")))
    file = plan_file_from_record(record)
    page = record.get(PAGE)
    if isinstance(page, Mapping) and isinstance(page.get("query"), str):
        config = page.get("config")
        return PageQuestion.of([*parse_qsl(page["query"]), ("config", config if isinstance(config, str) else "")])
    return _of_plan_file(file)


def _check_kind(schema: str) -> None:
    """Raises InputError for an answer that another page gives: it has no whole question in it."""
    kind = schema.removeprefix("shardplan/").partition("/")[0]
    page = next((page for page, kinds in ANSWERS.items() if kind in kinds), None)
    if page is not None:
        raise InputError(
            f"this is an answer of another kind ({kind}), and not a plan file",
            rule="a page opens plan files, which hold the whole question",
            hint=f"open a plan file of `shardplan plan --json FILE`, then {page}",
        )


def _of_plan_file(file: PlanFile) -> PageQuestion:
    """The question of a plan file as a page puts it; the plan of an estimate is looked at. Raises InputError."""
    asked = file.question
    known = (*file.estimates, *(() if file.search is None else file.search.lightest))
    framework = next((each.framework for each in known if each.framework), "")
    found = PageQuestion(
        gpus=str(asked.num_given),
        stack=next((name for name in list_stacks() if framework.partition(" ")[0] == name), ANY),
        job=_differing(asked.job, {name: field.default for name, field in described(Job).items()}),
        show=plan_code(file.estimates[0].plan) if file.search is None and file.estimates else "",
        **_subject(asked),
    )
    usual = found.posed().question.job
    software = _differing(asked.job.software, vars(usual.software))
    made = found.with_values(
        job={**found.job, **_differing(asked.job, vars(usual))},
        software=", ".join(f"{name}={text}" for name, text in software.items()),
    )
    _check_is_same(made.posed().question, asked)
    return made


def _subject(asked: Question) -> dict[str, Any]:
    """Model, cluster and constants: names and fields of a page that give them, and what none gives in full."""
    model, cluster = asked.model, asked.cluster
    is_built_in = model.name in names_of("model") and load_model(model.name) == model
    fields = _hardware(cluster)
    is_given = bool(fields) and _unassumed(PageQuestion(**fields).cluster_asked()) == _unassumed(cluster)
    own = inputs_record(
        model=None if is_built_in else model, cluster=None if is_given else cluster, profile=asked.given_profile
    )
    config = json.dumps(own) if own.keys() - {"schema"} else ""
    return {
        "model": typed(model.name),
        "config": config,
        **(fields if is_given else {"cluster": typed(cluster.name)}),
    }


def _unassumed(cluster: Cluster) -> Cluster:
    return replace(cluster, assumptions=())


def _differing(record: Any, usual: Mapping[str, Any]) -> dict[str, str]:
    """Fields that are not as usual, as they are typed."""
    values = {name: value for name in described(type(record)) if (value := getattr(record, name)) != usual.get(name)}
    return {name: f"{value:.0f}" if name == "tokens" else field_text(value) for name, value in values.items()}


def _hardware(cluster: Cluster) -> dict[str, Any]:
    """The fields of a page that are nearest to the cluster: names, and the values that are not the named one's."""
    part = cluster.accelerator.name
    if part not in names_of("accelerator"):
        return {}
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


def _check_is_same(posed: Question, asked: Question) -> None:
    """Raises InputError where the page puts another question than the file: its numbers would not be the file's."""
    pairs = {
        "the model": (posed.model, asked.model),
        "the cluster": (_unassumed(posed.cluster), _unassumed(asked.cluster)),
        "the job": (posed.job, asked.job),
        "its profile of constants": (posed.given_profile, asked.given_profile),
    }
    others = [name for name, (ours, theirs) in pairs.items() if ours != theirs]
    if others:
        raise InputError(
            f"{' and '.join(others)} of the plan file cannot be given in a page's fields",
            rule="a page puts the question of a plan file by names and fields",
            hint="use the command line: shardplan estimate --from FILE",
        )
