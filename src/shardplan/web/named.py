"""What the names in a request mean. Names are names: no path is followed, no file but those of shardplan is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardplan.errors import InputError, UnknownNameError
from shardplan.frameworks.stack import Stack, shipped_stack
from shardplan.frameworks.usual_stack import ALL, ANY, USUAL
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile, generations, load_profile
from shardplan.inputs.readers.catalog import (
    cluster_of_accelerator,
    load_accelerator,
    load_cluster,
    load_model,
    names_accelerator,
    shipped_name,
)
from shardplan.inputs.readers.cluster_record import cluster_from_record
from shardplan.inputs.readers.overrides import Overrides, override


def model_meant(model: str | Mapping[str, Any]) -> ModelConfig:
    """A built-in model by name, or that of the content of a ``config.json``. Raises InputError."""
    return load_model(shipped_name("model", model) if isinstance(model, str) else model)


def accelerator_meant(name: str) -> Accelerator:
    """A built-in accelerator. Raises InputError."""
    return load_accelerator(shipped_name("accelerator", name))


def cluster_meant(
    cluster: str | Mapping[str, Any] | None, accelerator: str | None = None, overrides: Overrides | None = None
) -> Cluster:
    """A built-in cluster by name, or the record of one as in plan files, with what replaces values of it.

    ``accelerator`` alone: its usual cluster; with a cluster by name: in that one's network. Raises InputError.
    """
    replaced: Overrides = overrides or {}
    part = None if accelerator is None else shipped_name("accelerator", accelerator)
    if part is None and names_accelerator(cluster):
        part, cluster = shipped_name("accelerator", cluster), None
    if isinstance(cluster, str):
        return load_cluster(shipped_name("cluster", cluster), accelerator=part, **replaced)
    if cluster is not None and part is not None:
        raise InputError(
            "both a cluster in full and an accelerator are given",
            rule="a cluster in full has its accelerator",
            hint="leave accelerator out, or give the name of a cluster",
        )
    if cluster is not None:
        return override(cluster_from_record(cluster), replaced)
    if part is None:
        raise InputError(
            "neither cluster nor accelerator is given",
            rule="a question is about a cluster",
            hint='give cluster, such as "dgx-h100", or accelerator alone for its usual cluster',
        )
    return cluster_of_accelerator(part, **replaced)


def stack_meant(name: str | None) -> Stack | str | None:
    """A built-in framework, ``usual``, or None for no framework (``any``). Raises InputError."""
    word = ANY if name is None else name.lower()
    if word == ALL:
        raise InputError(
            "stack is all, which compares the best plans of all frameworks",
            rule="one question is about one framework",
            hint="name a framework, or any for none",
        )
    if word in (USUAL, ANY):
        return USUAL if word == USUAL else None
    return shipped_stack(word)


def profile_meant(name: str | None) -> Profile | None:
    """The constants of a generation; None for those of the accelerator's own. Raises InputError."""
    if name is None:
        return None
    if name not in generations():
        raise UnknownNameError("profile", name, generations(), hint="see `shardplan profiles`")
    return load_profile(name)
