"""Decide: sizes, other jobs and networks, trade-offs, hardware, budgets: each is many searches and can be stopped."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from shardplan.base.errors import UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.decide.scale import LEAST_GAIN
from shardplan.web.budgets import OPERATIONS, budget
from shardplan.web.decisions import (
    CHANGES,
    MOST_CHANGES,
    SOUGHT_NAMES,
    VARIED,
    Decide,
    fit,
    pareto,
    pareto_sizes,
    scale,
    sensitivity,
    vary,
    whatif,
)
from shardplan.web.pages import DECIDE as VIEW
from shardplan.web.pages.form import question_context
from shardplan.web.pages.rendering import fragment, page
from shardplan.web.state import BOTH, PageQuestion, given_in, question_of
from shardplan.web.workplace import answer as answered


class DecisionKind(NamedTuple):
    """A decision."""

    title: str
    hint: str
    """What it would answer."""
    reads: tuple[str, ...]
    """What the names of the fields begin with that it reads: an answer is kept whatever the others hold."""
    answer: Decide


DECISIONS: Final = {
    "scale": DecisionKind(
        "How many accelerators pay", "Step time and efficiency at each size", ("sizes", "least_gain"), scale
    ),
    "pareto_sizes": DecisionKind("Time, accelerators and money", "Sizes that no other beats", ("sizes",), pareto_sizes),
    "fit": DecisionKind(
        "What fits at most",
        "The longest sequence, the largest micro-batch or model, the fewest accelerators",
        ("sought",),
        fit,
    ),
    "vary": DecisionKind(
        "Other sequences, batches or networks", "One field at several values", ("over", "values"), vary
    ),
    "whatif": DecisionKind(
        "What if hardware or job change",
        "Another network, memory, precision or cluster: say which",
        ("change.", "to."),
        whatif,
    ),
    "pareto": DecisionKind(
        "Time, memory and robustness", "Plans that no other beats in time, memory and robustness", (), pareto
    ),
    "sensitivity": DecisionKind(
        "Which hardware parameter pays", "What a faster part of the hardware would bring", ("factor",), sensitivity
    ),
    "budget": DecisionKind("Budget of a whole run", "Days, money, energy and failures", ("budget_", "ops."), budget),
}
FIELDS: Final[dict[str, str]] = {
    "sizes": "",
    "least_gain": f"{100 * LEAST_GAIN:.0f}",
    "over": "sequence_length",
    "values": "4k,8k,16k,32k",
    "factor": "1.25",
    "budget_tokens": "15T",
    "budget_limit": "gpus",
    "budget_value": "",
    "budget_price": "",
    "budget_clusters": "",
    "sought": "sequence_length",
    "change.1": "inter_node_bandwidth",
    "to.1": "100 GB/s",
    "change.2": "",
    "to.2": "",
    "change.3": "",
    "to.3": "",
}
"""Own fields of the form, with what they hold at first."""
OWN: Final = ("decide", *FIELDS, *(f"ops.{name}" for name in OPERATIONS), "ticket")
PATIENCE: Final = 10.0
"""A decision takes several searches: it may take this many times the limit of one."""
TICKET: Final = re.compile(r"[0-9a-f]{16,40}")
MOST_TICKETS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What is asked."""

    question: PageQuestion
    name: str
    values: dict[str, str]

    @classmethod
    async def of(cls, request: Request) -> Decision:
        """From the address. Raises UnknownNameError."""
        question, given = await question_of(request), dict(await given_in(request))
        name = given.get("decide", "scale")
        if name not in DECISIONS:
            raise UnknownNameError("decision", f"{name:.40}", DECISIONS, hint="choose one of the list")
        values = {key: given.get(key, usual).strip()[:300] for key, usual in FIELDS.items()}
        values["budget_tokens"] = given.get("budget_tokens") or question.job.get("tokens") or FIELDS["budget_tokens"]
        values["budget_price"] = given.get("budget_price") or question.price
        values |= {key: given[key].strip()[:60] for key in OWN if key.startswith("ops.") and given.get(key, "").strip()}
        return cls(question=question, name=name, values=values)

    def own(self) -> dict[str, str]:
        """Parameters of the address that are its own: those that are not as at first."""
        changed = {key: value for key, value in self.values.items() if value != FIELDS.get(key, "")}
        return {"decide": self.name, **changed}

    def address(self) -> str:
        """Of the page with this decision."""
        return f"/decide?{self.question.query()}&{urlencode(self.own())}"

    def key(self) -> tuple[object, ...]:
        """What the answer is kept under."""
        read = DECISIONS[self.name].reads
        own = sorted((name, value) for name, value in self.values.items() if name.startswith(read))
        return self.question.key("decide", self.name, self.question.show, *own)


async def whole(request: Request) -> HTMLResponse:
    """The page."""
    asked = await Decision.of(request)
    shown = {**cards(request, asked), "varied": VARIED, "operations": OPERATIONS, "sought": SOUGHT_NAMES}
    return await page(
        request,
        VIEW,
        "decide.html",
        the_answer,
        asked=asked,
        changes=CHANGES,
        most_changes=MOST_CHANGES,
        **shown,
        **question_context(asked.question),
    )


async def the_answer(request: Request) -> HTMLResponse:
    """The answer of one decision."""
    asked = await Decision.of(request)
    noted = await noting(request)
    shown = await answered(
        request,
        lambda stop: DECISIONS[asked.name].answer(asked.question, asked.values, stop, noted.progress),
        key=asked.key(),
        patience=PATIENCE,
    )
    noted.end()
    context = {**cards(request, asked), **shown}
    return fragment(
        request, "document_answer.html", address=asked.address(), asked=asked, question=asked.question, **context
    )


def cards(request: Request, asked: Decision) -> dict[str, Any]:
    """Every decision on this question: its address, and its answer in a line where it is known already."""
    others = {name: replace(asked, name=name) for name in DECISIONS}
    kept = {name: request.app.state.workplace.cache.get(each.key()) for name, each in others.items()}
    return {
        "decisions": {name: each.title for name, each in DECISIONS.items()},
        "hints": {name: each.hint for name, each in DECISIONS.items()},
        "addresses": {name: each.address() for name, each in others.items()},
        "card_lines": {name: answer.value["verdict"] for name, answer in kept.items() if answer is not None},
    }


class Noting(NamedTuple):
    """How far one answer has come, which its page asks for by a ticket."""

    board: OrderedDict[str, tuple[int, int]]
    ticket: str

    def progress(self, done: int, of: int) -> None:
        """Notes it."""
        if TICKET.fullmatch(self.ticket):
            self.board[self.ticket] = (done, of)
            while len(self.board) > MOST_TICKETS:
                self.board.popitem(last=False)

    def end(self) -> None:
        """The answer is there."""
        self.board.pop(self.ticket, None)


async def noting(request: Request) -> Noting:
    """Where the answer to a request notes how far it has come."""
    return Noting(_board(request), dict(await given_in(request)).get("ticket", ""))


def _board(request: Request) -> OrderedDict[str, tuple[int, int]]:
    """How far the answers that are under way have come, by the ticket of their page."""
    if not hasattr(request.app.state, "decisions"):
        request.app.state.decisions = OrderedDict()
    found: OrderedDict[str, tuple[int, int]] = request.app.state.decisions
    return found


async def progress(request: Request) -> JSONResponse:
    """How far an answer has come."""
    done, of = _board(request).get(request.query_params.get("ticket", ""), (0, 0))
    return JSONResponse({"done": done, "of": of})


ROUTES: Final = (
    Route("/decide", whole),
    Route("/decide/answer", the_answer, methods=BOTH),
    Route("/decide/progress", progress),
)
