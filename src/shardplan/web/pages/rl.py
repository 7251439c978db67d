"""RL: a step of reinforcement learning, both pools planned, and decisions about it. Its fields are those of forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shardplan.api.rl import RlAnswer, planned
from shardplan.ask.questions import choices
from shardplan.ask.rl_forms import RlDecisionForm, RlForm
from shardplan.base.errors import ShardplanError, UnknownNameError
from shardplan.base.fields import Described, dataclass, described
from shardplan.decide.scale import checked_sizes
from shardplan.decide.searching import Progress
from shardplan.inputs.readers.typed import values_of
from shardplan.inputs.readers.typed import whole as whole_number
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.rl.engine import WEIGHT_BYTES, generation_data
from shardplan.rl.programs import FRAMEWORKS, backends
from shardplan.rl.question import RlQuestion
from shardplan.rl.search import Move, RlPlan
from shardplan.rl.task import ALGORITHMS, PLACEMENTS
from shardplan.rl.transfer import transfer_methods
from shardplan.web.decisions import Shown, asked_of, listed, shown
from shardplan.web.pages import RL as VIEW
from shardplan.web.pages.decide import PATIENCE, noting
from shardplan.web.pages.form import FormField, clusters, models, question_context
from shardplan.web.pages.rendering import fragment, page
from shardplan.web.state import (
    BOTH,
    LOCK,
    MOST_ACCELERATORS,
    FieldError,
    PageQuestion,
    about_field,
    blamed,
    given_in,
    in_words,
    named,
    plan_code,
    question_of,
)
from shardplan.web.workplace import answer as answered

OWN: Final = "rl."
"""What the keys of the page's own fields begin with."""
FIRST: Final = ("prompts", "samples", "prompt_tokens", "response_tokens", "algorithm", "placement", "framework")
"""Fields that most people set; the others are folded away."""
VALUES: Final = {"prompts": "128", "samples": "16", "response_tokens": "mean=2k,max=4k"}
"""What fields hold at first."""
LISTS: Final = {"observed": ",", "change": ";"}
"""Fields of which several may be given, with what is between them."""
NAMED: Final = {"critic": "model", "rollout_cluster": "cluster"}
FOLLOWING: Final = ("sequence_length", "global_batch_size")
"""Fields of the question's job that the answers give."""
GENERATING: Final = FormField(
    OWN + "generating",
    "Accelerators that generate",
    "Empty: the split is searched. Otherwise those above train, and these generate",
    "searched",
    (),
)
SIZES: Final = FormField(OWN + "sizes", "Sizes", "Numbers of accelerators to compare, with commas", "none", ())
FIXED: Final = FormField(OWN + "fix", "Lock", "By pool: train.pp=16,rollout.tp=32", "none", ())
OTHERS: Final = ("generating", "sizes", "fix")
FORMS: Final = {**described(RlForm), **described(RlDecisionForm)}
"""The fields of both forms."""
MOST_CHARACTERS: Final = 300
USUAL: Final = re.compile(r"\s*Default: (.*)\.$")
"""The end of a field's text."""


@cache
def fields() -> tuple[tuple[FormField, ...], tuple[FormField, ...]]:
    """Those that most people set, and the others."""
    known = FORMS
    others = [_field(each) for name, each in known.items() if name not in FIRST]
    place = next(at for at, each in enumerate(others) if each.name == OWN + "rollout_cluster")
    return tuple(_field(known[name]) for name in FIRST), (
        *others[:place],
        GENERATING,
        SIZES,
        *others[place:],
        FIXED,
    )


def _field(field: Described) -> FormField:
    text = field.about.in_json.help or field.about.help
    found, names = USUAL.search(text), _names(field)
    usual = found[1] if found else ""
    choice = (("", f"default ({usual})"), *((name, name) for name in names)) if names else ()
    label, about = (
        field.name.replace("_", " ").capitalize(),
        in_words(USUAL.sub("", text)).removesuffix(" Can be repeated.").rstrip("."),
    )
    is_switch = field.kind.base is bool
    return FormField(
        OWN + field.name, about if is_switch else label, "" if is_switch else about, usual, choice, is_switch
    )


def _names(field: Described) -> tuple[str, ...]:
    """Names of which a field has one."""
    if field.about.takes == "yes or no":
        return ("yes", "no")
    known: dict[str, tuple[str, ...]] = {
        "backend": backends(),
        "algorithm": (*ALGORITHMS,),
        "engine": (*generation_data()["engines"],),
        "rollout_precision": (*WEIGHT_BYTES,),
        "cache_precision": (*WEIGHT_BYTES,),
        "transfer": transfer_methods(),
    }
    return known.get(field.name, ())


@cache
def suggested() -> Mapping[str, Any]:
    """Names that are suggested while one types, by field."""
    placements = [{"value": name, "label": facts.text} for name, facts in PLACEMENTS.items()]
    frameworks = [{"value": name, "label": ""} for name in FRAMEWORKS]
    return {
        OWN + "framework": frameworks,
        OWN + "placement": placements,
        OWN + "critic": models(),
        OWN + "rollout_cluster": clusters(),
    }


@dataclass(frozen=True, kw_only=True)
class PageRlQuestion:
    """What is asked."""

    question: PageQuestion
    values: Mapping[str, str]
    """What the page's own fields hold."""

    @classmethod
    async def of(cls, request: Request) -> PageRlQuestion:
        """From the address, and from the body where a model was uploaded."""
        given = dict(await given_in(request))
        known = (*FORMS, *OTHERS)
        values = {name: given.get(OWN + name, VALUES.get(name, "")).strip()[:MOST_CHARACTERS] for name in known}
        return cls(question=await question_of(request), values=values)

    def address(self) -> str:
        """The page with this question."""
        own = {OWN + name: text for name, text in self.values.items() if text != VALUES.get(name, "")}
        return f"/rl?{self.question.query()}{'&' if own else ''}{urlencode(own, safe=':,=+')}".replace("+", "%2B")

    @property
    def pools(self) -> str:
        """Accelerators, of each pool where both are given."""
        generating = self.values["generating"]
        if generating:
            with about_field(OWN + "generating"):
                whole_number(generating, GENERATING.label, most=MOST_ACCELERATORS)
        return f"{self.question.gpus}+{generating}" if generating else self.question.gpus

    def sizes(self) -> list[int]:
        """Sizes to compare. Raises FieldError."""
        text = self.values["sizes"]
        with about_field(OWN + "sizes"):
            return (
                checked_sizes([whole_number(each, "sizes", most=MOST_ACCELERATORS) for each in listed(text)])
                if text
                else []
            )

    def fields(self, form: type[Any]) -> dict[str, Any]:
        """The fields of a form that are given. Raises FieldError."""
        found: dict[str, Any] = {}
        for name in described(form):
            text = self.values[name]
            if text:
                with about_field(OWN + name):
                    found[name] = _value(name, text)
        return found

    def record(self) -> tuple[dict[str, Any], list[str]]:
        """The question of the trainer, and what of the page's question does not hold for it. Raises FieldError."""
        record = self.question.record()
        left = [f"{name.replace('_', ' ')} {self.question.job[name]}" for name in FOLLOWING if name in record]
        with about_field(OWN + "fix"):
            text = self.values["fix"]
            fix = choices("--fix", [text] if text else None)
        asked = {name: value for name, value in record.items() if name not in FOLLOWING}
        limit = self.question.restrictions()
        return {**asked, "num_accelerators": self.pools, "fix": fix or None, "limit": limit or None}, left


def _value(name: str, text: str) -> Any:
    """The value that was typed. Raises InputError."""
    if name in NAMED:
        return named(NAMED[name], text)
    if FORMS[name].kind.base is bool:
        return text in ("on", "yes", "true")
    if name in LISTS:
        return [each.strip() for each in text.split(LISTS[name]) if each.strip()]
    return values_of(RlForm if name in described(RlForm) else RlDecisionForm, {name: text})[name]


def plan(asked: PageRlQuestion, stop: Stop, progress: Progress) -> RlAnswer:
    """The best plan of every placement. Raises FieldError."""
    step, besides = asked.fields(RlForm), asked.fields(RlDecisionForm)
    record, left = asked.record()
    question = RlQuestion(record=record, step=step, reads_files=False, stop=stop)
    try:
        found = planned(question, besides=besides, sizes=asked.sizes(), progress=progress)
    except (FieldError, SearchStopped):
        raise
    except ShardplanError as error:
        raise _refusal(error, asked) from None
    notes = [f"{text} of the question does not hold here: it follows from the answers" for text in left]
    return replace(found, assumptions=(*notes, *found.assumptions))


def _refusal(error: ShardplanError, asked: PageRlQuestion) -> FieldError:
    """The error with its field, and with its rule unless that says what the message does."""
    found = FieldError(error, _about(error, asked))
    found.settings = (*_settings(error.hint),)
    found.shows_rule = not isinstance(error, UnknownNameError)
    return found


def _settings(hint: str) -> Iterator[tuple[str, str]]:
    """What a hint with flags says to set, as texts and settings of fields of the page."""
    fields_by_flag = {each.flag: OWN + name for name, each in FORMS.items()} | {"--fix": FIXED.name, "--gpus": "gpus"}
    for flag, value in re.findall(r"(--[a-z-]+) ([\w.,=-]*\w)(?!\+)", hint):
        if flag in fields_by_flag and (flag != "--fix" or "=" in value) and (flag != "--gpus" or value.isdecimal()):
            yield value if flag == "--fix" else f"{flag[2:]} {value}", f"{fields_by_flag[flag]}={value}"


def _about(error: ShardplanError, asked: PageRlQuestion) -> str:
    """The field that an error speaks of: the first whose flag or name is in it."""
    known = {name: each.flag for name, each in FORMS.items()}
    flags = {**{flag: OWN + name for name, flag in known.items()}, "--fix": OWN + "fix", "--gpus": "gpus"}
    locks = [LOCK + name for name in asked.question.locks if f"'{name}'" in error.message]
    for text in () if locks else (error.message, error.rule, error.hint):
        found = [(text.find(flag), name) for flag, name in flags.items() if flag in text]
        if found:
            return min(found)[1]
    own = locks[0] if locks else blamed(error, (*known, *asked.question.job))
    others = OWN + "change" if asked.values["change"] else blamed(error, ("gpus", "model"))
    return OWN + own if own in known else own or others


def answer_of(asked: PageRlQuestion, stop: Stop, progress: Progress) -> Shown:
    """What the template shows."""
    found = plan(asked, stop, progress)
    document, best = found.document(), found.best
    link = None if best is None else ("See the trainer's step", trainer_address(asked.question, best))

    def address(row: Any) -> str:
        """The page of a split next to the best one."""
        if not isinstance(row, Move):
            return ""
        values = {**asked.values, "generating": str(row.num_rollout), "sizes": ""}
        return PageRlQuestion(question=asked.question.with_values(gpus=str(row.num_train)), values=values).address()

    return {**shown(document, address), **asked_of(document), "link": link}


def trainer_address(question: PageQuestion, best: RlPlan) -> str:
    """The trainer's optimizer step on its own page."""
    job = best.trained.priced.question.job
    trained = {"sequence_length": str(job.sequence_length), "global_batch_size": str(job.global_batch_size)}
    documents = {} if job.documents is None else {"documents": ",".join(map(str, job.documents))}
    asked = question.with_values(
        gpus=str(best.num_train),
        job={**question.job, **trained, **documents},
        show=plan_code(best.trained.estimate.plan),
        locks={},
    )
    return f"/step?{asked.query()}"


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    asked = await PageRlQuestion.of(request)
    first, others = fields()
    return await page(
        request,
        VIEW,
        "rl.html",
        the_answer,
        first=first,
        others=others,
        suggested=suggested(),
        values={OWN + name: text for name, text in asked.values.items()},
        is_open=any(asked.values[each.name.removeprefix(OWN)] for each in others),
        **question_context(asked.question),
    )


async def the_answer(request: Request) -> HTMLResponse:
    """The answer alone."""
    asked, noted = await PageRlQuestion.of(request), await noting(request)
    key = asked.question.key("rl", *sorted(asked.values.items()))
    found = await answered(request, lambda stop: answer_of(asked, stop, noted.progress), key=key, patience=PATIENCE)
    noted.end()
    return fragment(request, "document_answer.html", address=asked.address(), **found)


ROUTES: Final = (Route("/rl", whole), Route("/rl/answer", the_answer, methods=BOTH))
