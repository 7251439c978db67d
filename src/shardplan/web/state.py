"""What a page was given in full and not by name: a ``config.json``, or the model, cluster and constants of a plan file.

It is one text, which travels in the body of requests. The Model and Cluster fields say by name whether it is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request

from shardplan.ask.forms import LISTED, MOST_TYPED, Replaced
from shardplan.base.errors import InputError, NotRunnableError, ShardplanError, UnknownNameError
from shardplan.base.fields import dataclass, described
from shardplan.base.files import parse_document
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.catalog import (
    cluster_of_accelerator,
    list_accelerators,
    list_clusters,
    list_models,
    load_model,
)
from shardplan.inputs.readers.names import names_meant, relative_meant
from shardplan.inputs.readers.overrides import override
from shardplan.inputs.readers.typed import assigned, values_of
from shardplan.inputs.words import field_meant
from shardplan.physics.frameworks.stack import list_stacks
from shardplan.physics.frameworks.usual_stack import ANY, USUAL

if TYPE_CHECKING:
    from shardplan.estimation.question import PosedQuestion
    from shardplan.planner.stopping import Stop

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
    record = parse_document(text, label="the config.json", is_json=True)
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


def _not_a_model(why: str) -> InputError:
    return InputError(
        f"the config.json {why}",
        rule="a pasted model is the JSON object of a config.json",
        hint="paste the whole file, from { to }",
    )


MOST_ACCELERATORS: Final = MOST_TYPED
JOB: Final = tuple(described(Job))
SETS: Final = tuple(name for name, field in described(Replaced).items() if field.about.in_form)
LOCK, SET = "lock.", "set."
"""What the keys of locked fields of the plan, and of replaced values of the cluster, begin with."""
MOST_PINS: Final = 8


class FieldError(InputError):
    """A question that cannot be posed, and the field of the form that it concerns."""

    def __init__(self, error: ShardplanError, name: str) -> None:
        """``name``: of the field; ``error``: what is wrong with it."""
        super().__init__(in_words(error.message), rule=in_words(error.rule), hint=in_words(error.hint))
        self.field = name
        self.offered = error.hint
        """The hint with flags of the command line, from which a page makes changes."""
        self.is_refusal = isinstance(error, NotRunnableError)
        self.settings: tuple[tuple[str, str], ...] | None = None
        """What mends it, as texts and settings of fields, where these are not those of the Plan page."""
        self.shows_rule = False
        """Whether the rule says more than the message."""


def in_words(text: str) -> str:
    """A text that names flags of the command line, with the fields of a form in their place."""
    return FLAG.sub(lambda found: NAMES.get(found[1], found[1].replace("-", " ")), text)


FLAG: Final = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
NAMES: Final = {"gpus": "the number of accelerators", "fix": "lock", "limit": "lock", "stack": "the framework"}


@contextmanager
def about_field(name: str) -> Iterator[None]:
    """What goes wrong inside concerns this field."""
    try:
        yield
    except FieldError:
        raise
    except ShardplanError as error:
        raise FieldError(error, name) from None


@dataclass(frozen=True, kw_only=True)
class PageQuestion:
    """What the fields of a form hold. A first visit has these."""

    model: str = "llama-3.1-70b"
    config: str = ""
    """What is uploaded, as :mod:`shardplan.web.state` reads it."""
    cluster: str = "dgx-h100"
    accelerator: str = ""
    """Another accelerator in the network of the cluster."""
    gpus: str = "512"
    stack: str = USUAL
    job: Mapping[str, str] = field(default_factory=dict)
    """Given fields of the job."""
    software: str = ""
    """Given behaviour of the framework: ``kernels=eager, cuda_graphs=none``."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Replaced values of the cluster."""
    locks: Mapping[str, str] = field(default_factory=dict)
    """Values of fields of the plan: one, several with commas, or a range."""
    price: str = ""
    """USD per accelerator-hour."""
    pins: tuple[str, ...] = ()
    """Plans that are compared, as :func:`plan_code` writes them."""
    show: str = ""
    """The plan that is looked at."""

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> PageQuestion:
        """From the keys and values of a query; what is not known is left out, empty fields too."""
        given = [(key, value.strip()) for key, value in pairs if value.strip() or key in ALWAYS]
        values = dict(given)
        own = {name: values[name] for name in OWN if name in values}
        return cls(
            **own,
            job={name: values[name] for name in JOB if name in values},
            sets={key.removeprefix(SET): value for key, value in values.items() if key.startswith(SET)},
            locks={key.removeprefix(LOCK): value for key, value in values.items() if key.startswith(LOCK)},
            pins=tuple(dict.fromkeys(value for key, value in given if key == "pin"))[:MOST_PINS],
        )

    def pairs(self, *, with_view: bool = True) -> list[tuple[str, str]]:
        """Keys and values; ``with_view``: also what is only looked at. Uploaded models are no part of it."""
        own = [(name, getattr(self, name)) for name in OWN if name not in ("config", "show")]
        usual = PageQuestion()
        found = [(name, value) for name, value in own if value != getattr(usual, name) or name in ALWAYS]
        found += [*self.job.items(), *((SET + name, value) for name, value in self.sets.items())]
        found += [(LOCK + name, value) for name, value in self.locks.items()]
        if with_view:
            found += [("pin", pin) for pin in self.pins]
            found += [("show", self.show)] if self.show else []
        return found

    def query(self, *, with_view: bool = True) -> str:
        """The query of an address that puts this question."""
        return urlencode(self.pairs(with_view=with_view), safe=":,;=")

    def key(self, *more: object) -> tuple[object, ...]:
        """What answers are kept under."""
        return (self.query(with_view=False), self.config, *more)

    def cluster_asked(self) -> Cluster:
        """The cluster with what is replaced. Raises FieldError."""
        from shardplan.ask.names import cluster_of

        own = self.uploaded.clusters.get(self.cluster)
        with about_field("cluster"):
            is_named = self.cluster or not self.accelerator
            known = own or (cluster_of(named("cluster", self.cluster)) if is_named else None)
        with about_field("accelerator"):
            if own and self.accelerator:
                raise InputError(
                    f"{self.cluster[:80]} is a cluster of the uploaded file, with an accelerator of its own",
                    rule="another accelerator is put into a built-in cluster",
                    hint="leave the accelerator empty, or choose a built-in cluster",
                )
            found = self._of_accelerator(known) if known is None or self.accelerator else known
        for name, text in self.sets.items():
            with about_field(SET + name):
                if name not in SETS:
                    raise UnknownNameError("value of the cluster", name, SETS, hint=f"one of {', '.join(SETS)}")
                values: Any = values_of(Replaced, {name: text})
                found = override(found, values)
        with about_field("price"):
            return override(found, {"price": self.price or None})

    def _of_accelerator(self, cluster: Cluster | None) -> Cluster:
        from shardplan.inputs.readers.catalog import load_cluster

        part = named("accelerator", self.accelerator)
        return cluster_of_accelerator(part) if cluster is None else load_cluster(self.cluster, accelerator=part)

    @property
    def uploaded(self) -> Uploaded:
        """What is given in full. Raises FieldError."""
        with about_field("config"):
            return uploaded_in(self.config)

    def model_asked(self) -> ModelConfig | str:
        """The uploaded model where it is the one that is named, or the name of a built-in one. Raises FieldError."""
        own = self.uploaded.models.get(self.model)
        if own is None and self.model == CONFIG and not self.config:
            raise FieldError(_not_a_model("is empty"), "config")
        with about_field("model"):
            return own or named("model", self.model)

    @property
    def uses_file(self) -> bool:
        """Whether a plan file gives what no name does. Raises FieldError."""
        own = self.uploaded
        return self.cluster in own.clusters or own.profile is not None or self.model in own.models.keys() - {CONFIG}

    def profile_asked(self, cluster: Cluster) -> Profile | None:
        """The uploaded constants, for accelerators of their generation."""
        own = self.uploaded.profile
        return own if own is not None and own.generation == cluster.accelerator.generation else None

    def posed(self) -> PosedQuestion:
        """The question. Raises FieldError where a field cannot be read, InputError where they do not go together."""
        from shardplan.ask.questions import ask, size_of

        record = self.record()
        with about_field("gpus"):
            if not self.gpus:
                raise InputError("no number of accelerators is given", rule="a question gives it", hint="give 512, say")
            count = size_of(self.gpus, record["cluster"])
        try:
            return ask({**record, "num_accelerators": count}, reads_files=False)
        except ShardplanError as error:
            raise FieldError(error, blamed(error, (*self.job, "gpus", "model"))) from None

    def record(self) -> dict[str, Any]:
        """What is asked but for the number of accelerators, as :mod:`shardplan.ask.questions` takes it.

        Raises FieldError.
        """
        from shardplan.ask.questions import software_of

        model, cluster = self.model_asked(), self.cluster_asked()
        fields: dict[str, Any] = {}
        for name, text in self.job.items():
            with about_field(name):
                fields |= values_of(Job, {name: switched(name, text)})
        with about_field("software"):
            software = software_of([each.strip() for each in self.software.split(",") if each.strip()])
        with about_field("stack"):
            stack = None if self.stack == ANY else named("stack", self.stack)
        record = {"model": model, "cluster": cluster, "stack": stack, "software": software}
        return {**record, **fields, "profile": self.profile_asked(cluster)}

    def posed_search(self, stop: Stop) -> PosedQuestion:
        """The question of a search, with its framework chosen. Raises as :meth:`posed`."""
        from shardplan.planner.related.frameworks import under_fastest

        return under_fastest(self.posed(), limit=self.restrictions(), stop=stop)

    def restrictions(self) -> dict[str, tuple[str, ...]]:
        """The candidates of locked fields of the plan, for ``limit``. Raises FieldError."""
        found = {}
        for name, text in self.locks.items():
            meant = field_meant(name) or name
            values = [text] if meant in LISTED else text.split(",")
            found[meant] = tuple(value.strip() for value in values if value.strip())
        return found

    def with_lock(self, name: str, value: str) -> PageQuestion:
        """The same with a field of the plan locked, or free where ``value`` is empty. ``name``: with ``lock.``."""
        field = name.removeprefix(LOCK)
        others = {each: text for each, text in self.locks.items() if each != field}
        return self.with_values(locks={**others, **({field: value} if value else {})})

    def with_values(self, **changes: Any) -> PageQuestion:
        """The same but for some fields."""
        return replace(self, **changes)


OWN: Final = ("model", "config", "cluster", "accelerator", "gpus", "stack", "software", "price", "show")
ALWAYS: Final = ("model", "cluster", "gpus")
"""Fields that an address names even where they are the usual ones."""


BOTH: Final = ("GET", "POST")
"""Methods of what shows something of a question: an uploaded model comes in the body, all else in the address."""


async def given_in(request: Request) -> list[tuple[str, str]]:
    """The fields of a form: in the address and, with an uploaded model, in the body of a request."""
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    if request.method == "POST":
        pairs += parse_qsl((await request.body()).decode("utf-8", errors="replace"), keep_blank_values=True)
    return pairs


async def question_of(request: Request) -> PageQuestion:
    """The question of a page."""
    return PageQuestion.of(await given_in(request))


@cache
def names_of(what: str) -> tuple[str, ...]:
    """Names that a form knows."""
    known: Mapping[str, Any] = {
        "model": list_models,
        "cluster": list_clusters,
        "accelerator": list_accelerators,
        "stack": lambda: [USUAL, ANY, *list_stacks()],
    }
    return tuple(known[what]())


def named(what: str, text: str) -> str:
    """The name that is meant. Raises ``InputError`` for one that nothing shipped has: a path is none."""
    known = names_of(what)
    if not text:
        rule = f"a question names its {what}"
        raise InputError(f"no {what} is named", rule=rule, hint=f"choose one of the {len(known)} in the list")
    lower = text.lower()
    if lower in known:
        return lower
    meant = names_meant(what, text) if what != "stack" else ()
    relative = relative_meant(text) if what == "model" and not meant else None
    if relative is not None or len(meant) == 1:
        return meant[0] if relative is None else relative.name
    near = ", ".join(meant[:5])
    hint = f"one of {near}" if near else f"choose one of the {len(known)} in the list"
    raise UnknownNameError("framework" if what == "stack" else what, text[:100], known, hint=hint)


def switched(name: str, text: str) -> object:
    """A switch as it is; other values stay text. Raises InputError."""
    if described(Job)[name].kind.base is not bool:
        return text
    return assigned(Job, name, text)[1]


def blamed(error: ShardplanError, names: Iterable[str]) -> str:
    """The first of the fields that an error speaks of; empty where it speaks of none."""
    text = f"{error.rule} {error.message} {error.hint}"
    return next((name for name in names if name in text or name.replace("_", " ") in text), "")


def plan_code(plan: Plan) -> str:
    """A plan of an answer in an address: the fields that are not at their default, and that the others are."""
    from shardplan.reports.texts.plan import changed_fields, field_text

    return ";".join([*(f"{name}={field_text(value)}" for name, value in changed_fields(plan).items()), REST])


def plan_in(code: str) -> tuple[Plan, Collection[str]]:
    """A plan that :func:`plan_code` or a person wrote, and which of its fields are given. Raises ``InputError``."""
    pairs = [each.partition("=") for each in code.split(";") if each != REST]
    given: dict[str, Any] = {}
    for name, _, text in pairs:
        if name not in described(Plan):
            raise UnknownNameError(
                "field of a plan", name[:60], described(Plan), hint="write fields and values: tp=4;pp=4"
            )
        is_switch = described(Plan)[name].kind.base is bool
        given[name] = text in ("on", "true", "yes") if is_switch else text
    plan = Plan(**values_of(Plan, {name: value for name, value in given.items() if value != "none" or name in NONES}))
    return plan, {*described(Plan)} if REST in code.split(";") else {*given}


REST: Final = "rest=default"
"""Says that a plan has its other fields at their default, as an answer's has; otherwise the framework fills them."""
NONES: Final = ("recompute", "sharding", "offload")
"""Fields of which none is a value."""
