"""The meaning of names in a question: built-in names, paths of files, or the objects themselves.

Callers that may not read files (pages, requests) get names only: ``/etc/passwd`` is an unknown name there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.files import looks_like_path
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import SELF, GivenModels, as_text, companions_of
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile, generations, load_profile, read_profile
from shardplan.inputs.readers.catalog import (
    cluster_of_accelerator,
    is_shipped,
    load_cluster,
    load_model,
    names_accelerator,
    shipped_name,
)
from shardplan.inputs.readers.cluster_record import cluster_from_record
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.physics.frameworks.stack import Stack, shipped_stack
from shardplan.physics.frameworks.usual_stack import ALL, ANY, USUAL

ModelLike = ModelConfig | Mapping[str, Any] | str | os.PathLike[str]
"""A model, a name, the path of a ``config.json`` or of its folder, or the content of one."""
ClusterLike = Cluster | str | os.PathLike[str]
"""A cluster, a name or the path of a file."""
ProfileLike = Profile | str | os.PathLike[str]
"""A profile, the name of a generation or the path of a file."""
StackLike = Stack | str | None
"""Name of a framework, ``usual`` for that of the accelerator, or None for no framework."""


def model_of(model: ModelLike, *, reads_files: bool = True) -> ModelConfig:
    """The model of a question; callers that read files may have a hub repository fetched. Raises InputError."""
    if isinstance(model, ModelConfig):
        return model
    if isinstance(model, str) and not reads_files:
        return load_model(shipped_name("model", model))
    if isinstance(model, str | os.PathLike | Mapping):
        return _fetched(model)
    raise wrong("model", model, "a name, the path or the content of a config.json, or a ModelConfig", '"llama-3.1-70b"')


def _fetched(model: str | os.PathLike[str] | Mapping[str, Any]) -> ModelConfig:
    """The model; its ``config.json`` is fetched from the hub if it is of a repository that is not local."""
    from shardplan.inputs.readers.hub import NotFetchedError, fetch

    try:
        return load_model(model)
    except NotFetchedError as missing:
        fetch(missing.repository)
    return load_model(model)


def companions_of_job(given: object, *, reads_files: bool = True) -> tuple[object, GivenModels]:
    """``companion`` of a job as a text, and its models that are not built in, by their names in the text.

    Anything that is neither a text nor a mapping of roles to models is left for the job to refuse. Raises InputError.
    """
    models: dict[str, ModelConfig] = {}
    if isinstance(given, Mapping):
        whole = {role: model for role, model in given.items() if isinstance(model, ModelConfig | Mapping)}
        read = {role: model_of(model, reads_files=reads_files) for role, model in whole.items()}
        models = {model.name: model for model in read.values()}
        given = as_text({**given, **{role: model.name for role, model in read.items()}})
    if isinstance(given, str):
        named = (each.model for each in companions_of(given) if each.model not in (SELF, *models))
        models |= {name: model_of(name, reads_files=reads_files) for name in named if not is_shipped("model", name)}
    return given, tuple(models.items())


def cluster_of(
    cluster: ClusterLike | Mapping[str, Any] | None,
    accelerator: str | None = None,
    overrides: Overrides | None = None,
    *,
    reads_files: bool = True,
) -> Cluster:
    """The cluster of a question, with single values replaced; a mapping is a cluster record, as in plan files.

    ``accelerator`` alone stands for its usual cluster; with a named cluster, for that one's network. Raises InputError.
    """
    replaced: Overrides = overrides or {}
    if not reads_files:
        accelerator = None if accelerator is None else shipped_name("accelerator", accelerator)
        if accelerator is None and names_accelerator(cluster):
            accelerator, cluster = shipped_name("accelerator", cluster), None
        cluster = shipped_name("cluster", cluster) if isinstance(cluster, str) else cluster
    if isinstance(cluster, str | os.PathLike):
        return load_cluster(cluster, accelerator=accelerator, **replaced)
    if cluster is not None and accelerator is not None:
        raise InputError(
            "both a cluster in full and an accelerator are given",
            rule="a cluster in full has its accelerator",
            hint="leave accelerator out, or give the name of a cluster",
        )
    if accelerator is not None:
        return cluster_of_accelerator(accelerator, **replaced)
    if isinstance(cluster, Mapping) and not reads_files:
        cluster = cluster_from_record(cluster)
    if isinstance(cluster, Cluster):
        return override(cluster, replaced)
    if cluster is None and not reads_files:
        raise InputError(
            "neither cluster nor accelerator is given",
            rule="a question is about a cluster",
            hint='give cluster, such as "dgx-h100", or accelerator alone for its usual cluster',
        )
    raise wrong("cluster", cluster, "a name, the path of a file, or a Cluster", '"dgx-h100"')


def profile_of(profile: ProfileLike | None, *, reads_files: bool = True) -> Profile | None:
    """The constants of a question; None for those of the accelerator's own generation. Raises InputError."""
    return None if profile is None else profile_named(profile, reads_files=reads_files)


def profile_named(profile: ProfileLike, *, reads_files: bool = True) -> Profile:
    """The constants of a generation or of a file. Raises InputError."""
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str) and profile.lower() in ("default", *generations()):
        return load_profile(profile.lower())
    if not isinstance(profile, str | os.PathLike):
        raise wrong("profile", profile, "a generation, the path of a file, or a Profile", '"hopper"')
    if isinstance(profile, str) and not (reads_files and (looks_like_path(profile) or _exists(profile))):
        ways = "give a generation (see `shardplan profiles`) or the path of a file"
        hint = ways if reads_files else "see `shardplan profiles`"
        raise UnknownNameError("profile", profile[:100], ("default", *generations()), hint=hint)
    return read_profile(profile)


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def stack_of(stack: StackLike, *, reads_files: bool = True) -> StackLike:
    """The framework of a question, ``usual``, or None for none. Raises InputError for ``all``, and for other types."""
    if not isinstance(stack, Stack | str | None):
        raise wrong("stack", stack, "the name of a framework, a Stack or None", '"megatron-lm"')
    word = stack.lower() if isinstance(stack, str) else ""
    if word == ALL:
        raise InputError(
            "--stack is all, which compares the best plans of all frameworks",
            rule="one question is about one framework",
            hint="name one (see `shardplan stacks`), or ask `shardplan plan --stack all`",
        )
    if word == ANY:
        return None
    return shipped_stack(word) if word not in ("", USUAL) and not reads_files else stack


def wrong(name: str, value: object, rule: str, example: str) -> InputError:
    """The error for an argument of another type than a question takes."""
    return InputError(
        f"{name} is {shown(value)}; it must be {rule}", rule=f"{name} is {rule}", hint=f"write {name}={example}"
    )
