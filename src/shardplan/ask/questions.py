"""From a record of values to a question: the same defaults, names, units and errors for every caller.

A record holds values by field: ``model``, ``cluster``, ``accelerator``, ``overrides``, ``num_accelerators``, ``nodes``,
``stack``, ``profile``, the fields of a job and its ``software``, or ``job`` with these; and what limits a search:
``fix``, ``limit``, ``exclude``, ``without``. Flags, forms and files give texts, which :func:`record_of` reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from shardplan.ask.forms import LISTED, QuestionForm, Replaced, SpaceForm
from shardplan.ask.names import cluster_of, companions_of_job, model_of, profile_of, stack_of, wrong
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import described, in_our_words
from shardplan.estimation.question import PosedQuestion, Question, posed_question
from shardplan.estimation.written import estimate_written
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.companions import NONE, GivenModels
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job, in_full
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.overrides import doubts_of, override
from shardplan.inputs.readers.typed import assigned, grid, model_argument, named_once, pairs_of, values_of, whole
from shardplan.inputs.software import Software
from shardplan.inputs.words import field_meant
from shardplan.physics.frameworks.defaults import job_in_stack
from shardplan.physics.frameworks.usual_stack import USUAL, stack_for, stack_of_label

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.planner.result import SearchResult
    from shardplan.planner.stopping import Stop

Record = Mapping[str, Any]
CHOICES: Final = ("fix", "limit", "exclude")
OWN: Final = (
    *("model", "cluster", "accelerator", "overrides", "num_accelerators", "nodes", "job", "stack", "profile"),
    *(*CHOICES, "without"),
)
"""Keys of a record that are not fields of the job."""


def ask(record: Record, *, reads_files: bool = True) -> PosedQuestion:
    """The question of a record. Raises InputError, which names the field.

    ``reads_files``: whether a name that is not built in may be the path of a file.
    """
    posed, of_size, warnings = _question_and_notes(record, reads_files=reads_files)
    return posed._replace(assumptions=(*of_size, *posed.assumptions), warnings=warnings)


def ask_search(record: Record, *, reads_files: bool = True, stop: Stop | None = None) -> PosedQuestion:
    """The question of a search, with the fastest framework that can run it if the usual one cannot."""
    from shardplan.planner.related.frameworks import under_fastest  # an estimate needs no planner

    posed, of_size, warnings = _question_and_notes(record, reads_files=reads_files)
    posed = under_fastest(posed, **choices_in(record), stop=stop)
    return posed._replace(assumptions=(*of_size, *posed.assumptions), warnings=warnings)


def _question_and_notes(record: Record, *, reads_files: bool) -> tuple[PosedQuestion, tuple[str, ...], tuple[str, ...]]:
    """The question with the defaults of its framework; notes on its size; and what the answer says first."""
    _check_all_given(record)
    model = model_of(record["model"], reads_files=reads_files)
    cluster = _cluster_from(record, reads_files=reads_files)
    count, of_size = world_of(cluster, record.get("num_accelerators"), record.get("nodes"))
    stack = stack_of(record.get("stack", USUAL), reads_files=reads_files)
    fields, job, software = _job_from(record)
    _check_trains_adapters(fields, job)
    fields, companions = _companions_from(fields, job, reads_files=reads_files)
    profile = profile_of(record.get("profile"), reads_files=reads_files)
    how: Any = {"job": job, "software": software, "stack": stack, "profile": profile, "companions": companions}
    posed = posed_question(model, cluster, count, fields, **how)
    return posed, of_size, (*_notes_on_profile(profile, cluster), *_doubtful_input(cluster, count))


def searched(record: Record, *, reads_files: bool = True, stop: Stop | None = None, **how: Any) -> SearchResult:
    """The answer of a search, with all assumptions; ``how`` are arguments of :func:`search_question`."""
    from shardplan.planner.search import search_question

    choices, posed = choices_in(record), ask_search(record, reads_files=reads_files, stop=stop)
    found = search_question(posed.question, stack=posed.stack, stop=stop, **how, **choices)
    return found.assuming(posed.restricted(choices).assumptions)


def estimated(
    record: Record, plan: Plan, given: Collection[str], *, reads_files: bool = True
) -> tuple[Question, Estimate]:
    """The question, and the estimate of a plan with these given fields, with all assumptions."""
    posed = ask(record, reads_files=reads_files)
    found = estimate_written(posed.question, plan, posed.stack, given)
    return posed.question, replace(found, assumptions=(*posed.assumptions, *found.assumptions))


def ask_again(before: Question, record: Record, framework: str | None, *, is_outdated: bool = False) -> PosedQuestion:
    """A question of a plan file with values of the record replacing its own. Raises InputError.

    ``framework`` is the one that the file's plan is for. Plan and job are the file's, unless a new stack is named.
    ``is_outdated``: whether the file has constants of another version of shardplan.
    """
    stack = stack_of(record.get("stack", USUAL))
    hardware = before.cluster
    if record.get("cluster") is not None or record.get("accelerator") is not None:
        hardware = _cluster_from(record)
    elif record.get("overrides"):
        hardware = override(hardware, record["overrides"])
    count, of_size = world_of(hardware, record.get("num_accelerators"), record.get("nodes"))
    fields, _, software = _job_from(record)
    fields, companions = _companions_from(fields, None)
    fields = in_full(fields, before.job)
    named = stack_for(stack, hardware.accelerator.vendor) if "stack" in record else None
    job, of_stack = job_in_stack(replace(before.job, **fields), named, fields, software)
    profile = profile_of(record.get("profile"))
    of_profile = _notes_on_profile(profile, hardware)
    if profile is None:
        profile, of_profile = _profile_of_file(before, hardware)
    changed = replace(
        before,
        cluster=hardware,
        num_accelerators=count or before.num_accelerators,
        num_idle=0 if count else before.num_idle,
        job=job,
        given_profile=profile,
        given_companions=companions if "companion" in fields else before.given_companions,
    )
    other = "the file has constants of another version of shardplan: this version's are taken"
    outdated = (other,) if is_outdated and profile is None else ()
    known = named if "stack" in record else stack_of_label(framework)
    assumed = (*of_size, *outdated, *of_stack, *of_profile)
    doubts = _doubtful_input(hardware, changed.num_accelerators) if record else ()
    return PosedQuestion(changed, known, assumed, warnings=(*outdated, *of_profile, *doubts))


def choices_in(record: Record) -> dict[str, Any]:
    """``fix``, ``limit`` and ``exclude``, each a mapping or None; libraries ``without`` which plans must run.

    Raises InputError.
    """
    choices = {name: record.get(name) for name in CHOICES}
    for name, value in choices.items():
        if not isinstance(value, Mapping | None):
            raise wrong(name, value, "a mapping of fields of the plan to values", '{"tp": 4}')
    without = record.get("without")
    if without is not None:
        from shardplan.planner.restrictions import LIBRARY

        names = without.split(",") if isinstance(without, str) else without
        choices["exclude"] = {**(choices["exclude"] or {}), LIBRARY: tuple(names)}
    return choices


def known_fields(given: Mapping[str, Any], record: type[Any], what: str, also: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields, after checking that the record has all of them. Raises InputError."""
    names = (*described(record), *also)
    for name in given:
        if name not in names:
            raise UnknownNameError(what, str(name)[:60], names, hint=f"see shardplan.{record.__name__}")
    return dict(given)


def _check_all_given(record: Record) -> None:
    """Checks that a question is complete; all missing values are named at once. Raises InputError."""
    needed = (
        ("a model", ("model",), "MODEL: a name (see `shardplan models`) or the path of a config.json"),
        (
            "a cluster or an accelerator",
            ("cluster", "accelerator"),
            "--cluster NAME (see `shardplan clusters`) or --accelerator NAME (see `shardplan accelerators`)",
        ),
        ("the number of accelerators", ("num_accelerators", "nodes"), "--gpus N or --nodes N"),
    )
    missing = [(what, how) for what, names, how in needed if not any(name in record for name in names)]
    if missing:
        raise InputError(
            f"missing: {', '.join(what for what, _ in missing)}",
            rule="a model, a cluster and the number of accelerators are given",
            hint=f"add {'; '.join(how for _, how in missing)}",
        )


def _cluster_from(record: Record, *, reads_files: bool = True) -> Cluster:
    given = record.get("cluster"), record.get("accelerator"), record.get("overrides")
    return cluster_of(*given, reads_files=reads_files)


def world_of(cluster: Cluster, count: Any, nodes: int | None) -> tuple[Any, tuple[str, ...]]:
    """The number of accelerators, if given, and how it follows from the number of nodes. Raises InputError."""
    size = cluster.accelerators_per_node
    if isinstance(count, str):
        count = size_of(count, cluster)
    if nodes is None:
        return count, ()
    number = nodes * size
    if count not in (None, number):
        raise InputError(
            f"--nodes is {nodes} and --gpus {count}; a node of {cluster.name} has {size}, so that "
            f"{nodes} have {number}",
            rule="--nodes and --gpus agree",
            hint=f"leave one of them out, or set --gpus {number}",
        )
    text = f"{nodes:,} node{'s' * (nodes > 1)}"
    return number, (f"{text} of {size} accelerators ({cluster.name}): {number:,} accelerators",)


def size_of(text: str, cluster: Cluster) -> int:
    """The number of accelerators in a text: 64, or 8x8 for 8 nodes of 8. Raises InputError."""
    found, size = grid(text), cluster.accelerators_per_node
    if found is None:
        return _count(text, "--gpus")
    nodes, each = found
    if each != size:
        raise InputError(
            f"--gpus is {shown(text)}, {nodes:,} nodes of {each}; a node of {cluster.name} has {size}",
            rule="--gpus NxM is the number of nodes times the accelerators of one",
            hint=f"write --gpus {nodes * each} for that many accelerators, or --gpus {nodes}x{size}",
        )
    return _count(str(nodes * each), "--gpus")


def _check_trains_adapters(fields: Mapping[str, Any], job: Job | None) -> None:
    """Refuses settings of adapters if none are trained. Raises InputError."""
    train = fields.get("train", "full" if job is None else job.train)
    for name in ("lora_rank", "lora_targets"):
        field = described(Job)[name]
        if train == "full" and fields.get(name, field.default) != field.default:
            raise InputError(
                f"{name} is {shown(fields[name])} with train full",
                rule=f"{name} is of adapters, which train lora has",
                hint=f"set --train lora, or leave {field.flag} out",
            )


def _doubtful_input(cluster: Cluster, count: object) -> tuple[str, ...]:
    """Questionable input that an answer mentions first: a bandwidth with a doubtful unit, a partly empty node."""
    size, doubts = cluster.accelerators_per_node, doubts_of(cluster)
    if type(count) is not int or count < 1 or count % size == 0:
        return doubts
    return (
        *doubts,
        f"{size - count % size} of the {size} places in {'the last' if count > size else 'a'} node stay empty",
    )


def _job_from(record: Record) -> tuple[dict[str, Any], Job | None, dict[str, Any]]:
    """Given fields of the job, the job whose values they replace, and the software. Raises InputError."""
    job = record.get("job")
    if not isinstance(job, Job | Mapping | None):
        raise wrong("job", job, "a mapping of its fields, or a Job", '{"global_batch_size": 512}')
    others = {name: value for name, value in record.items() if name not in OWN}
    fields = known_fields(others, Job, "keyword", also=("software",))
    if isinstance(job, Mapping):
        fields, job = known_fields(job, Job, "field of the job", also=("software",)) | fields, None
    software = fields.pop("software", {})
    if not isinstance(software, Software | Mapping):
        raise wrong("software", software, "a mapping of its fields, or a Software", '{"kernels": "eager"}')
    stated = asdict(software) if isinstance(software, Software) else software
    return in_our_words(Job, fields), job, known_fields(stated, Software, "field of software")


def _companions_from(
    fields: dict[str, Any], job: Job | None, *, reads_files: bool = True
) -> tuple[dict[str, Any], GivenModels]:
    """Fields of the job, with companions as text, and the models of these that are not built in. Raises InputError."""
    stated = fields.get("companion", NONE if job is None else job.companion)
    text, models = companions_of_job(stated, reads_files=reads_files)
    return {**fields, "companion": text} if "companion" in fields else fields, models


def _notes_on_profile(profile: Profile | None, cluster: Cluster) -> tuple[str, ...]:
    """Notes on constants that replace those of the accelerator's generation."""
    if profile is None:
        return ()
    ours, theirs = profile.generation, cluster.accelerator.generation
    other = "" if ours == theirs else f", which is made for {ours}, not for {theirs}"
    return (f"constants of the profile {profile.name}{other}",)


def _profile_of_file(before: Question, cluster: Cluster) -> tuple[Profile | None, tuple[str, ...]]:
    """The constants with which a plan file was made; they hold for accelerators of their generation."""
    given, part = before.given_profile, cluster.accelerator
    if given is None:
        return None, ()
    if part.generation == before.cluster.accelerator.generation:
        return given, (f"constants of the profile {given.name}, as in the file",)
    return None, (f"the file's profile {given.name} is for another generation: constants of {part.generation}",)


def record_of(form: QuestionForm, space: SpaceForm | None = None) -> dict[str, Any]:
    """The record of a form's texts. Raises InputError, which names the flag of the field."""
    named = {name: getattr(form, name) for name in ("model", "cluster", "accelerator", "stack", "profile")}
    record = {name: value for name, value in named.items() if value is not None}
    if form.num_accelerators is not None:
        is_grid = grid(form.num_accelerators) is not None  # a grid of nodes, whose size the cluster knows
        record["num_accelerators"] = form.num_accelerators if is_grid else _count(form.num_accelerators, "--gpus")
    if form.nodes is not None:
        record["nodes"] = _count(form.nodes, "--nodes")
    record |= {"overrides": overrides_of(form.overrides), **values_of(Job, form.job)}
    record |= {"software": software_of(form.software)} | ({} if space is None else space_of(space))
    if form.model is not None:
        record["model"] = model_argument(form.model)
    return record


def _count(text: str, flag: str) -> int:
    return whole(text, flag, most=MAX_NUM_ACCELERATORS)


def overrides_of(texts: Mapping[str, str]) -> dict[str, Any]:
    """Values of the cluster to replace; quantities stay texts with their units. Raises InputError."""
    values = values_of(Replaced, texts)
    if "peak_flops" in values:
        values["peak_flops"] = named_once("--peak-flops", values["peak_flops"].split(","))
    return values


def software_of(texts: Sequence[str] | None) -> dict[str, Any]:
    """Settings of the framework by field from ``--software``; switches are parsed. Raises InputError."""
    pairs = [pair for text in texts or () for pair in text.split(",")]
    return dict(assigned(Software, name, text) for name, text in named_once("--software", pairs).items())


def space_of(space: SpaceForm) -> dict[str, Any]:
    """Values of ``--fix``, ``--limit`` and ``--exclude`` by field, and the libraries of ``--without``."""
    found: dict[str, Any] = {name: choices(f"--{name}", getattr(space, name)) for name in CHOICES}
    missing = tuple(name for text in space.without or () for name in text.split(","))
    return found | ({"without": missing} if missing else {})


def choices(flag: str, texts: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Values by field from ``field=value[,value...]``, possibly several fields (``tp=4,pp=2``).

    One field is fixed to one value, so the commas of ``--fix recompute=layernorm,activation`` join a set and
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


def _each_field(text: str) -> list[str]:
    """``tp=4,pp=2`` as its two fields; a part without ``=`` continues the values of the field before."""
    parts: list[str] = []
    for part in text.split(","):
        if "=" in part or not parts:
            parts.append(part)
        else:
            parts[-1] += f",{part}"
    return parts
