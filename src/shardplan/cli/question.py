"""From flags to a question, a plan and the choices of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from shardplan.cli.flags.plan import ClusterFlags, OverrideFlags, QuestionFlags, SoftwareFlags, SpaceFlags
from shardplan.cli.flags.records import Given
from shardplan.cli.model_argument import model_argument
from shardplan.errors import InputError, UnknownNameError
from shardplan.fields import dataclass, described
from shardplan.files import looks_like_path
from shardplan.frameworks.defaults import job_in_stack
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import ALL, USUAL, stack_for, stack_of_label
from shardplan.inputs.job import Job, in_full
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile, generations, load_profile, read_profile
from shardplan.inputs.readers.catalog import cluster_of_accelerator, load_cluster, load_model
from shardplan.inputs.readers.overrides import Overrides, override
from shardplan.inputs.readers.typed import assigned, pairs_of, values_of, whole
from shardplan.inputs.software import Software
from shardplan.inputs.words import field_meant
from shardplan.words import switch_word

if TYPE_CHECKING:
    from shardplan.decisions.searching import Searches
    from shardplan.estimation.question import Question
    from shardplan.inputs.cluster import Cluster
    from shardplan.reports.plan_file import PlanFile


MOST: Final = 2**31


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question, and what was assumed in putting it."""

    question: Question
    assumptions: tuple[str, ...] = ()
    stack: Stack | None = None
    """The framework that plans are for; None where they are for none."""
    warnings: tuple[str, ...] = ()
    """Those of the assumptions that an answer says first: constants that are not the usual ones."""
    is_stack_named: bool = True
    """Whether its defaults fill what is not given; otherwise it only says what it cannot run."""


def given(flags: OverrideFlags) -> dict[str, Any]:
    """The values of the cluster that were given, the whole number read. Raises InputError."""
    values = {name: value for name, value in asdict(flags).items() if value is not None}
    if "node_size" in values:
        values["node_size"] = whole(values["node_size"], "--node-size", most=MOST)
    return values


def ask(flags: QuestionFlags, space: SpaceFlags | None = None) -> Asked:
    """The question that the flags put; ``space``: that of the searches that answer it. Raises InputError."""
    from shardplan.estimation.question import put_question

    _check_all_given(flags.model, flags.cluster)
    assert flags.model is not None
    stated = _stated_world(flags.cluster)
    config, hardware = load_model(model_argument(flags.model)), _cluster(flags.cluster, flags.overrides)
    num_accelerators, of_nodes = _world(hardware, stated)
    assert num_accelerators is not None
    fields = values_of(Job, flags.job)
    _check_one_stack(flags.stack)
    profile, of_profile = _profile(flags.profile, hardware)
    software, stack = software_of(flags.software), USUAL if flags.stack is None else flags.stack
    put = put_question(config, hardware, num_accelerators, fields, software=software, stack=stack, profile=profile)
    if space is not None and put.under:
        from shardplan.planner.related.frameworks import under_fastest

        put = under_fastest(put, **restrictions(space))
    assumed = (*of_nodes, *put.assumptions, *of_profile)
    return Asked(question=put.question, assumptions=assumed, warnings=of_profile, stack=put.stack)


def ask_again(file: PlanFile, flags: QuestionFlags, framework: str | None) -> Asked:
    """The question of a plan file, with the given flags in place of what it has. Raises InputError.

    ``framework``: the one that the file's plan is for. Its plan and job are the file's, unless a stack is named anew.
    """
    _check_one_stack(flags.stack)
    before, hardware = file.question, file.question.cluster
    if flags.cluster.cluster is not None or flags.cluster.accelerator is not None:
        hardware = _cluster(flags.cluster, flags.overrides)
    elif given(flags.overrides):
        hardware = override(hardware, _overrides(flags.overrides))
    num_accelerators, of_nodes = _world(hardware, _stated_world(flags.cluster))
    fields = in_full(values_of(Job, flags.job), before.job)
    named = None if flags.stack is None else stack_for(flags.stack, hardware.accelerator.vendor)
    job, of_stack = job_in_stack(replace(before.job, **fields), named, fields, software_of(flags.software))
    profile, of_profile = _profile(flags.profile, hardware) if flags.profile else _profile_of_file(before, hardware)
    changed = replace(
        before,
        cluster=hardware,
        num_accelerators=num_accelerators or before.num_accelerators,
        num_idle=0 if num_accelerators else before.num_idle,
        job=job,
        given_profile=profile,
    )
    other = "the file has constants of another version of shardplan: this version's are taken"
    outdated = (other,) if file.has_other_constants and profile is None else ()
    stack = named if flags.stack is not None else stack_of_label(framework)
    return Asked(
        question=changed,
        assumptions=(*of_nodes, *outdated, *of_stack, *of_profile),
        warnings=(*outdated, *of_profile),
        stack=stack,
        is_stack_named=named is not None,
    )


def given_by_user(flags: QuestionFlags, search: SpaceFlags | None = None) -> tuple[str, ...]:
    """What is not the cluster's, the framework's or the search's own: as text, for the first lines of an answer."""
    values = {name.replace("_", " "): value for name, value in asdict(flags.overrides).items() if value is not None}
    texts = [f"{name} {value}" for name, value in values.items()]
    texts += [f"{name.replace('_', ' ')} {switch_word(value)}" for name, value in software_of(flags.software).items()]
    rare = [name for name in flags.job if described(Job)[name].about.is_rare]
    texts += [f"{name.replace('_', ' ')} {switch_word(flags.job[name])}" for name in rare]
    if search is not None:
        for name in ("fix", "limit", "exclude"):
            texts += [f"{name} {text}" for text in getattr(search, name) or ()]
    return tuple(texts)


def software_of(flags: SoftwareFlags) -> dict[str, Any]:
    """Behaviour of the framework by field from ``--software``; switches are read. Raises InputError."""
    pairs = [pair for text in flags.software or () for pair in text.split(",")]
    return dict(assigned(Software, name, text) for name, text in pairs_of("--software", pairs))


def _profile_of_file(before: Question, cluster: Cluster) -> tuple[Profile | None, tuple[str, ...]]:
    """The constants that a plan file was made with, which hold for parts of their generation."""
    given, part = before.given_profile, cluster.accelerator
    if given is None:
        return None, ()
    if part.generation == before.cluster.accelerator.generation:
        return given, (f"constants of the profile {given.name}, as in the file",)
    return None, (f"the file's profile {given.name} is for another generation: constants of {part.generation}",)


def _check_one_stack(stack: str | None) -> None:
    """Raises InputError for ``--stack all``."""
    if (stack or "").lower() == ALL:
        raise InputError(
            "--stack is all, which compares the best plans of all frameworks",
            rule="one question is about one framework",
            hint="name one (see `shardplan stacks`), or ask `shardplan plan --stack all`",
        )


def _profile(name: str | None, cluster: Cluster) -> tuple[Profile | None, tuple[str, ...]]:
    """Constants that take the place of the accelerator's generation's, and what there is to say about them."""
    if name is None:
        return None, ()
    profile, generation = profile_named(name)
    part = cluster.accelerator
    other = "" if generation == part.generation else f", which is made for {generation}, not for {part.generation}"
    return profile, (f"constants of the profile {profile.name}{other}",)


def profile_named(name: str) -> tuple[Profile, str]:
    """A profile by generation or from a file, and the generation that it is made for. Raises InputError."""
    known = ("default", *generations())
    if name.lower() in known:
        return load_profile(name.lower()), name.lower()
    if not (looks_like_path(name) or _exists(name)):
        hint = "give a generation (see `shardplan profiles`) or the path of a file"
        raise UnknownNameError("profile", name[:100], known, hint=hint)
    from shardplan.answers.profiles import generation_of

    return read_profile(name), generation_of(name)


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long, or with a null character
        return False


class World(NamedTuple):
    """How many accelerators the flags state."""

    accelerators: int | None
    nodes: int | None


def _stated_world(flags: ClusterFlags) -> World:
    """The numbers of accelerators and of nodes, where they are given. Raises InputError."""
    from shardplan.estimation.question import MAX_NUM_ACCELERATORS

    return World(
        *(
            None if text is None else whole(text, flag, most=MAX_NUM_ACCELERATORS)
            for text, flag in ((flags.num_accelerators, "--gpus"), (flags.nodes, "--nodes"))
        )
    )


def _world(cluster: Cluster, stated: World) -> tuple[int | None, tuple[str, ...]]:
    """The number of accelerators, where it is given, and how it follows from that of nodes. Raises InputError."""
    if stated.nodes is None:
        return stated.accelerators, ()
    size = cluster.accelerators_per_node
    number = stated.nodes * size
    if stated.accelerators not in (None, number):
        raise InputError(
            f"--nodes is {stated.nodes} and --gpus {stated.accelerators}; a node of {cluster.name} has {size}, so that "
            f"{stated.nodes} have {number}",
            rule="--nodes and --gpus agree",
            hint=f"leave one of them out, or set --gpus {number}",
        )
    nodes = f"{stated.nodes:,} node{'s' * (stated.nodes > 1)}"
    return number, (f"{nodes} of {size} accelerators ({cluster.name}): {number:,} accelerators",)


def _check_all_given(model: str | None, flags: ClusterFlags) -> None:
    """All that a question needs; what is missing is named at once. Raises InputError."""
    needed = (
        ("a model", model, "MODEL: a name (see `shardplan models`) or the path of a config.json"),
        (
            "a cluster or an accelerator",
            flags.accelerator if flags.cluster is None else flags.cluster,
            "--cluster NAME (see `shardplan clusters`) or --accelerator NAME (see `shardplan accelerators`)",
        ),
        (
            "the number of accelerators",
            flags.nodes if flags.num_accelerators is None else flags.num_accelerators,
            "--gpus N or --nodes N",
        ),
    )
    missing = [(what, how) for what, value, how in needed if value is None]
    if missing:
        raise InputError(
            f"missing: {', '.join(what for what, _ in missing)}",
            rule="a model, a cluster and the number of accelerators are given",
            hint=f"add {'; '.join(how for _, how in missing)}",
        )


def _cluster(flags: ClusterFlags, overrides: OverrideFlags) -> Cluster:
    """The cluster named, or the usual one of the accelerator named."""
    values = _overrides(overrides)
    if flags.cluster is not None:
        return load_cluster(flags.cluster, accelerator=flags.accelerator, **values)
    if flags.accelerator is not None:
        return cluster_of_accelerator(flags.accelerator, **values)
    raise AssertionError("one of the two is given")  # ask checks it, and ask_again asks for it


def _overrides(flags: OverrideFlags) -> Overrides:
    values = given(flags)
    if "peak_flops" in values:
        values["peak_flops"] = dict(pairs_of("--peak-flops", values["peak_flops"].split(",")))
    return cast(Overrides, values)  # the flags are named like its keys


def plan_from(flags: Given, base: Plan | None) -> Plan:
    """The plan that the flags describe, on top of ``base``. Raises InputError."""
    return replace(base or Plan(), **values_of(Plan, flags))


def restrictions(space: SpaceFlags) -> dict[str, Any]:
    """Values of ``--fix``, ``--limit`` and ``--exclude`` by field, and what ``--without`` names. Raises InputError."""
    from shardplan.planner.restrictions import LIBRARY

    found = {name: choices(f"--{name}", getattr(space, name)) for name in ("fix", "limit", "exclude")}
    missing = tuple(name for text in space.without or () for name in text.split(","))
    return found | ({"exclude": {**found["exclude"], LIBRARY: missing}} if missing else {})


def searches_of(asked: Asked, space: SpaceFlags) -> tuple[Searches, tuple[str, ...]]:
    """How the questions of a decision are searched, and all that was assumed so far. Raises InputError."""
    from shardplan.decisions.searching import Searches
    from shardplan.frameworks.defaults import switches_in_stack

    restricted = restrictions(space)
    of_stack = switches_in_stack(asked.stack, {name for each in restricted.values() for name in each})
    return Searches(stack=asked.stack, **restricted), (*asked.assumptions, *of_stack)


def choices(flag: str, texts: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Values by field from ``field=value[,value...]``, of several fields if need be (``tp=4,pp=2``).

    One field is fixed to one value, so that the commas of ``--fix recompute=layernorm,activation`` join a set and
    those of ``stage_layers=3,4`` a list. The search checks fields and values. Raises InputError.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs_of(flag, [part for text in texts or () for part in _each_field(text)]):
        field = field_meant(name) or name.strip("-").replace("-", "_")
        if field in found:
            raise InputError(
                f"{flag} names {field} twice",
                rule="a field is named once",
                hint=f"{'--limit' if flag == '--fix' else flag} {field}=value,value",
            )
        is_one = flag == "--fix" and field in LISTED
        found[field] = (value,) if is_one else tuple(part.strip() for part in value.split(","))
    return found


LISTED: Final = ("recompute", "stage_layers")
"""Fields whose values may have commas."""


def _each_field(text: str) -> list[str]:
    """``tp=4,pp=2`` as its two fields; a part without ``=`` goes on with the values of the field before."""
    parts: list[str] = []
    for part in text.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    return parts
