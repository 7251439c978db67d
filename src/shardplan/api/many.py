"""``shardplan.search_many``: many questions at once, which share what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, Final, NamedTuple

from shardplan.api.answers import PlanAnswer, SearchAnswer
from shardplan.ask.names import StackLike
from shardplan.ask.questions import ask, choices_in
from shardplan.base.errors import InputError, ShardplanError, check_kind, shown
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import PosedQuestion, Question
from shardplan.physics.frameworks.defaults import stated
from shardplan.physics.frameworks.usual_stack import USUAL, Wanted, chosen_stack, without_prediction_blocks
from shardplan.planner.family import KnownPipelines
from shardplan.planner.related.frameworks import under_fastest
from shardplan.planner.related.side_by_side import in_groups
from shardplan.planner.related.together import AnsweredTogether, FoundPlan, best_together
from shardplan.planner.restrictions import Given
from shardplan.planner.scope import Scope
from shardplan.planner.search import check_top, search_question
from shardplan.planner.stopping import Stop

NEEDED = ("model", "cluster", "num_accelerators")
"""Required arguments of every question."""
MOST_AHEAD: Final = 1024
"""Questions that are read at a time, so that those with common parts are answered together."""


class ManyAnswer(SearchAnswer):
    """The answer to one of many questions: two plans at once, and everything else when it is read.

    The fastest plan (``found_fastest``) and the recommended one (``found_recommended``) are known, with step time and
    memory; both are None if nothing fits. Their estimates (``fastest``, ``recommended``) are made when they are read.
    Everything else, such as ties, counts of plans that fit and further plans, comes from a separate search of the
    question, which runs once. All values equal those of :func:`search`.
    """

    found_fastest: FoundPlan | None
    found_recommended: FoundPlan | None
    _asked: _Asked
    _not_searched: tuple[str, ...]

    @classmethod
    def of_found(cls, found: AnsweredTogether, asked: _Asked) -> ManyAnswer:
        """The answer with its two plans."""
        made = object.__new__(cls)
        known = {"question": asked.posed.question, "num_plans_evaluated": found.num_plans, "num_plans_pruned": 0}
        nothing: dict[str, Any] = {"offers": (), "suggestions": (), "smallest": None}
        plans = {"found_fastest": found.fastest, "found_recommended": found.recommended}
        vars(made).update(known | nothing | plans | {"_asked": asked, "_not_searched": found.not_searched})
        return made

    @cached_property
    def searched(self) -> SearchAnswer:
        """A separate search of the question."""
        return self._asked.searched()

    @cached_property
    def estimates(self) -> Sequence[Estimate]:
        """The fastest plans, as many as were asked for."""
        if self.found_fastest is None or self._asked.top > 1:
            return () if self.found_fastest is None else self.searched.estimates
        return (self._estimate(self.found_fastest),)

    @cached_property
    def recommended(self) -> PlanAnswer | None:
        """The plan that ``search`` recommends; None if nothing fits."""
        if self.found_recommended is None:
            return None
        return self.fastest if self.found_recommended == self.found_fastest else self._estimate(self.found_recommended)

    def _estimate(self, found: FoundPlan) -> PlanAnswer:
        """A plan in the form of a search's answer."""
        posed, assumptions = self._asked.posed, (*self._asked.assumptions, *self._not_searched)
        answer = estimate_plan(posed.question, found.plan)
        told = replace(answer, assumptions=(*assumptions, *answer.assumptions))
        return PlanAnswer.of(
            told if posed.stack is None else replace(told, framework=posed.stack.label), posed.question
        )


def _from_own_search(name: str) -> cached_property[Any]:
    """A field that is read from a search of the question."""
    later = cached_property(lambda answer: getattr(answer.searched, name))
    later.__set_name__(ManyAnswer, name)
    return later


for _field in fields(SearchAnswer):
    if _field.name not in vars(ManyAnswer):
        setattr(ManyAnswer, _field.name, _from_own_search(_field.name))


class _Asked(NamedTuple):
    """A question with the restrictions of its plans."""

    posed: PosedQuestion
    choices: dict[str, Any]
    top: int
    scope: Scope

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions made when it was read."""
        return self.posed.restricted(self.choices).assumptions

    def searched(self) -> SearchAnswer:
        """The answer of a separate search."""
        how: dict[str, Any] = {"suggestions": False, "use_all": True} | vars(self.scope)
        found = search_question(self.posed.question, top=self.top, **how)
        return SearchAnswer.of(found.assuming(self.assumptions))


def search_many(
    questions: Iterable[Question | Mapping[str, Any]],
    *,
    top: int = 1,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stop: Stop | None = None,
    stack: StackLike = USUAL,
) -> Iterator[ManyAnswer]:
    """The answer to every question, in their order; the same as that of :func:`search` with ``use_all``.

    A question is a mapping of arguments of :func:`search`, such as ``{"model": "llama-3.1-70b", "cluster": "dgx-h100",
    "num_accelerators": 512, "global_batch_size": 512}``, or a :func:`question`, whose job stays as it is. Plans are
    those that a framework can run: that of the mapping, ``stack``, or the usual one of the accelerator; with
    ``stack=None`` no framework limits them.

    Questions that differ only in memory and rates of the accelerator and bandwidths and latencies of the network are
    answered together, in a small part of the time of separate searches; for that, up to 1,024 questions are read ahead.
    An answer holds its fastest and its recommended plan, and makes the rest when it is read (:class:`ManyAnswer`). It
    suggests no changes if nothing fits (``SearchAnswer.suggestions`` stay empty). ``stop`` is called between pieces of
    work; if it returns true, ``SearchStopped`` is raised after all earlier answers.
    """
    check_kind("questions", questions, Iterable, hint="a list of mappings or questions")
    check_top(top)
    choices = choices_in({"fix": fix, "limit": limit, "exclude": exclude})
    source, known = iter(questions), KnownPipelines()
    while True:
        asked, wrong = _read(source, partial(_asked, choices=choices, stack=stack, top=top, known=known))
        yield from _answers(asked, stop)
        if wrong is not None:
            raise wrong
        if not asked:
            return


def _read(source: Iterator[object], posed: Callable[[object], _Asked]) -> tuple[list[_Asked], ShardplanError | None]:
    """The next questions, up to the first one with an error, and that error."""
    found: list[_Asked] = []
    try:
        found.extend(posed(each) for each in islice(source, MOST_AHEAD))
    except ShardplanError as error:
        return found, error
    return found, None


def _answers(asked: Sequence[_Asked], stop: Stop | None) -> Iterator[ManyAnswer]:
    """The answers to some questions in their order; those of a group when its first one is due."""
    groups = in_groups([each.posed.question for each in asked], [each.posed.stack for each in asked])
    group_of = {number: group for group in groups for number in group}
    found: dict[int, AnsweredTogether] = {}
    for number, each in enumerate(asked):
        if number not in found:
            group = [asked[other].posed.question for other in group_of[number]]
            answers = best_together(group, replace(each.scope, stop=stop), with_recommended=True)
            found |= dict(zip(group_of[number], answers, strict=True))
        yield ManyAnswer.of_found(found.pop(number), each)


def _asked(each: object, *, choices: dict[str, Any], stack: StackLike, top: int, known: KnownPipelines) -> _Asked:
    posed = under_fastest(_question_and_stack(each, stack), **choices)
    return _Asked(posed, choices, top, Scope.of(stack=posed.stack, known=known, **choices))


def _question_and_stack(asked: object, stack: StackLike) -> PosedQuestion:
    """The question and the framework of its plans. Raises InputError."""
    if isinstance(asked, Question):
        wanted = Wanted.of(asked.model, stated(asked.job))
        known, chosen = chosen_stack(stack, asked.cluster.accelerator.vendor, wanted)
        model, left_out = without_prediction_blocks(asked.model, known)
        return PosedQuestion(
            asked if model is asked.model else replace(asked, model=model), known, (*chosen, *left_out)
        )
    check_kind("each of questions", asked, Mapping, Question, hint="a mapping of arguments of search")
    assert isinstance(asked, Mapping)
    missing = [name for name in NEEDED if name not in asked]
    if missing or not all(isinstance(name, str) for name in asked):
        raise InputError(
            f"a question has no {', '.join(missing)}" if missing else f"a question has the keys {shown([*asked])}",
            rule=f"every question names {', '.join(NEEDED)}",
            hint='{"model": "llama-3.1-70b", "cluster": "dgx-h100", "num_accelerators": 512}',
        )
    return ask({"stack": stack, **asked})
