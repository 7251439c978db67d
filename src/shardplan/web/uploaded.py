"""What a page was given in full and not by name: a ``config.json``, or the model, cluster and constants of a plan file.

It is one text, which travels in the body of requests. The Model and Cluster fields say by name whether it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.catalog import load_model

CONFIG: Final = "config.json"
"""Name of a pasted model in the Model field."""
PLAN_FILES: Final = "shardplan/plan-file/"


class Uploaded(NamedTuple):
    """What is known under names of its own."""

    models: Mapping[str, ModelConfig] = {}
    clusters: Mapping[str, Cluster] = {}
    profile: Profile | None = None
    """Constants for accelerators of its generation."""


@lru_cache(maxsize=4)
def uploaded_in(text: str) -> Uploaded:
    """What the text holds. Raises InputError."""
    if not text:
        return Uploaded()
    record = _object_in(text)
    if not is_plan_file(record):
        return Uploaded(models={CONFIG: load_model(record)})
    from shardplan.reports.plan_file import inputs_from_record

    model, cluster, profile = inputs_from_record(record)
    return Uploaded(
        models={} if model is None else {typed(model.name): model},
        clusters={} if cluster is None else {typed(cluster.name): cluster},
        profile=profile,
    )


def is_plan_file(record: Mapping[str, Any]) -> bool:
    """Whether it is a plan file, or a part of one; a ``config.json`` is not."""
    return str(record.get("schema", "")).startswith(PLAN_FILES)


def typed(name: str) -> str:
    """A name as a field of one line holds it."""
    return " ".join(name.split()) or "unnamed"


def _object_in(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_a_model(f"is not JSON: {str(error)[:120]}") from None
    if not isinstance(found, dict):
        raise _not_a_model("is not a JSON object")
    return found


def _not_a_model(why: str) -> InputError:
    return InputError(
        f"the config.json {why}",
        rule="a pasted model is the JSON object of a config.json",
        hint="paste the whole file, from { to }",
    )
