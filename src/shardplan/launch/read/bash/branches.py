"""Control flow: which branch runs, and what holds where that is not decidable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shardplan.base.errors import shortened
from shardplan.launch.read.bash.conditions import FAILS, HOLDS, Conditions, Truth
from shardplan.launch.read.bash.expansion import Expansion
from shardplan.launch.read.bash.state import Context, State, Variable, merge
from shardplan.launch.read.bash.text import Text, undecided, unique
from shardplan.launch.read.facts import Command
from shardplan.launch.read.trees import MOST_ITERATIONS

_MOST_LABEL: Final = 120


_RUNS: Final = re.compile(r"(?:^|/)(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun|composer|sbatch)$")
"""Commands that start programs: a branch that ends after one is no message about how to use the script."""


class Branches:
    """Runs one of two courses, or both."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.expansion = Expansion(context)
        self.conditions = Conditions(self.expansion)
        self.commands: list[Command] = []
        self.when: list[str] = []
        self.status = HOLDS
        self.pending: list[tuple[str, State]] = []
        """States that left a function or a loop in a branch that is not decidable."""

    @property
    def state(self) -> State:
        """Variables at this point."""
        return self.context.state

    def branch(
        self, outcome: Truth, label: str, line: int, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """Runs ``then`` or ``otherwise``, or both where the outcome is not decidable."""
        courses = (then, otherwise) if outcome.value is not False else (otherwise, then)
        if outcome.value is None:
            self._both(outcome.needs, label, line, then, otherwise)
        elif not outcome.assumes:
            courses[0]()
        else:
            self._assumed(outcome, line, *courses)

    def _assumed(self, outcome: Truth, line: int, likely: Callable[[], None], other: Callable[[], None]) -> None:
        """Runs the course that defaults lead to; the other one where that ends the script."""
        before, mark, status = self.state.fork(self.context.budget), len(self.commands), self.status
        likely()
        if self.state.flow == "exit" and not any(_RUNS.search(each.words[0].shown) for each in self.commands[mark:]):
            del self.commands[mark:]
            self.context.state, self.status = before, status
            needed = outcome.needs or outcome.assumes
            self.context.note(f"line {line}: the script ends here unless these are given: {', '.join(needed)}")
            other()
            return
        for name, value in self.state.variables.items():
            if value is not before.variables.get(name) and isinstance(value, Text):
                self.state.variables[name] = Text(value.pieces, unique((*value.assumes, *outcome.assumes)))
        self.context.budget.spend(1 + len(before.variables) // 16)

    def _both(
        self, needs: tuple[str, ...], label: str, line: int, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        label = shortened(" ".join(label.split()), _MOST_LABEL)
        before = self.state.fork(self.context.budget)
        ends: list[State] = []
        for course, name in ((then, label), (otherwise, f"not: {label}")):
            self.when.append(name)
            course()
            self.when.pop()
            ends.append(self.state)
            self.context.state = before
        self.context.state = self._joined(ends, needs, line)
        self.status = Truth(None, needs)

    def _joined(self, ends: list[State], needs: tuple[str, ...], line: int) -> State:
        going = [state for state in ends if not state.flow]
        if not going:
            return next((state for state in ends if state.flow != "exit"), ends[0])
        self.pending.extend((state.flow, state) for state in ends if state.flow not in ("", "exit"))
        return merge(going, needs, line, self.context.file, self.context.given, self.context.budget)

    def catch(self, kinds: tuple[str, ...], outer: list[tuple[str, State]], line: int) -> None:
        """Ends a function or a loop: states that left it early join the one that ran to its end."""
        caught = [state for kind, state in self.pending if kind in kinds]
        self.pending = outer + [each for each in self.pending if each[0] not in kinds]
        if self.state.flow in kinds:
            self.state.flow = ""
        if caught:
            for state in caught:
                state.flow = ""
            states = [self.state, *caught] if not self.state.flow else caught
            needs = ("code:an early end that is not decidable",)
            self.context.state = merge(states, needs, line, self.context.file, self.context.given, self.context.budget)

    def loop(self, test: Callable[[], Truth], body: Callable[[], None], label: str, line: int) -> None:
        """``while``: as often as the test holds; once, with what it changes undecided, where that is not decidable."""
        before, mark, outer = self.state.fork(self.context.budget), len(self.commands), self.pending
        self.pending = []
        for _ in range(MOST_ITERATIONS):
            outcome = test()
            if outcome.value is False or self.state.flow:
                break
            if outcome.value is None:
                self._maybe(body, label, outcome.needs, line)
                break
            body()
            self.catch(("continue",), [], line)
            if self.state.flow:
                break
        else:
            self.context.note(f"line {line}: a loop that runs more than {MOST_ITERATIONS:,} times is read once")
            del self.commands[mark:]
            self.context.state, self.pending = before, []
            self._maybe(body, label, (f"code:{shortened(label, 60)}",), line)
        self.catch(("break", "continue"), outer, line)

    def _maybe(self, body: Callable[[], None], label: str, needs: tuple[str, ...], line: int) -> None:
        """Runs a body that may run any number of times: what it changes is undecided in it and after it."""
        start, mark = self.state.fork(self.context.budget), len(self.commands)
        body()
        changed: dict[str, Variable | None] = {
            name: value for name, value in self.state.variables.items() if value is not start.variables.get(name)
        }
        del self.commands[mark:]
        self.context.state, self.pending = start, []
        open_needs = needs or (f"code:{shortened(label, 60)}",)
        for name in changed:
            self._forget(name, open_needs, line)
        self.branch(Truth(None, open_needs), label, line, body, lambda: None)
        for name in changed:
            self._forget(name, open_needs, line)

    def _forget(self, name: str, needs: tuple[str, ...], line: int) -> None:
        self.context.assign(name, undecided(needs, line, self.context.file))


def as_outcome(number: int) -> Truth:
    """The status of ``(( ))`` and ``let``: it holds where the number is not zero."""
    return HOLDS if number else FAILS
