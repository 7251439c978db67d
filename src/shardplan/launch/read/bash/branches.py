"""Control flow: which branch runs, and what holds where that is not decidable."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from shardplan.base.errors import shortened
from shardplan.launch.read.bash import slurm
from shardplan.launch.read.bash.conditions import HOLDS, Conditions, Truth
from shardplan.launch.read.bash.expansion import Expansion
from shardplan.launch.read.bash.state import Context, State, merge
from shardplan.launch.read.bash.text import Text, literal, undecided, unique
from shardplan.launch.read.facts import Command
from shardplan.launch.read.trees import MOST_ITERATIONS, MOST_STEPS

_MOST_LABEL: Final = 120


_RUNS: Final = re.compile(r"(?:^|/)(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun|composer|sbatch)$")
"""Commands that start programs: a branch that ends after one is no message about how to use the script."""


_SUBMITS: Final = re.compile(r"(?:^|/)(?:sbatch|qsub|bsub)$")
MOST_OF_LOOP: Final = MOST_STEPS // 8
"""Steps of one loop; in a loop half of them, since loops that are read once run what is in them again."""


class Branches:
    """Runs one of two courses, or both."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.expansion = Expansion(context)
        self.conditions = Conditions(self.expansion)
        self.commands: list[Command] = []
        self.when: list[str] = []
        self.status = HOLDS
        self.loops = 0
        """Loops that are running."""
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
        ran = self.commands[mark:]
        submitted = next((each for each in ran if self._submits_itself(each)), None)
        if self.state.flow == "exit" and (submitted or not any(_RUNS.search(each.words[0].shown) for each in ran)):
            del self.commands[mark:]
            self.context.state, self.status = before, status
            needed = outcome.needs or outcome.assumes
            if submitted is None:
                self.context.note(f"line {line}: the script ends here unless these are given: {', '.join(needed)}")
            else:
                self._submit(submitted)
            other()
            return
        for name, value in self.state.variables.items():
            if value is not before.variables.get(name) and isinstance(value, Text):
                self.state.variables[name] = Text(value.pieces, unique((*value.assumes, *outcome.assumes)))
        self.context.budget.spend(1 + len(before.variables) // 16)

    def _submits_itself(self, command: Command) -> bool:
        """Whether a command of a scheduler is given this script."""
        if _SUBMITS.search(command.words[0].shown) is None:
            return False
        own = ("$0", "BASH_SOURCE", self.context.script.rpartition("/")[2])
        return any(name in word.shown for word in command.words[1:] for name in own)

    def _submit(self, command: Command) -> None:
        """What follows runs in the job that the script asks for, with the options of that command."""
        self.context.note(f"line {command.line}: the script submits itself; what it does in that job is read")
        options = slurm.options_in(" ".join(word.shown for word in command.words[1:]))
        words = {name: literal(text, command.line, command.file).word(command.line, command.file)
                 for name, text in options.items() if "<" not in text}  # fmt: skip
        self.context.directives = {**self.context.directives, **words}

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

    def loop(
        self,
        test: Callable[[], Truth],
        body: Callable[[], None],
        label: str,
        line: int,
        *,
        ends_when_idle: bool = False,
    ) -> None:
        """As often as the test holds; once, with what it changes undecided, where that is not decidable.

        ``ends_when_idle``: the test sees variables alone, so that a round which changes none would come for ever.
        """
        before, mark, outer = self.state.fork(self.context.budget), len(self.commands), self.pending
        self.pending, steps, most = [], self.context.budget.steps, MOST_OF_LOOP // 2**self.loops
        self.loops += 1
        for _ in range(MOST_ITERATIONS):
            start = self.state.fork(self.context.budget) if ends_when_idle else None
            outcome = test()
            if outcome.value is False or self.state.flow:
                break
            if outcome.value is None:
                self._maybe(body, label, outcome.needs, line)
                break
            body()
            self.catch(("continue",), [], line)
            if self.state.flow or (start is not None and self._is_like(start)):
                break
            if steps - self.context.budget.steps > most:
                self._read_once(before, mark, body, label, line)
                break
        else:
            self._read_once(before, mark, body, label, line)
        self.loops -= 1
        self.catch(("break", "continue"), outer, line)

    def _read_once(self, before: State, mark: int, body: Callable[[], None], label: str, line: int) -> None:
        """What to say of a loop of very many rounds."""
        self.context.note(f"line {line}: a loop that runs very often is read once")
        changed = self._changed(before)
        del self.commands[mark:]
        self.context.state, self.pending = before, []
        self._any_number(body, changed, label, (f"code:{shortened(label, 60)}",), line)

    def _is_like(self, before: State) -> bool:
        """Whether nothing that a test may see has changed."""
        return self.state.variables == before.variables and (self.state.positional, self.state.input) == (
            before.positional,
            before.input,
        )

    def wait(self, test: Callable[[], Truth], body: Callable[[], None], label: str, line: int) -> None:
        """A loop that waits: its first round, and what a second one would change again is undecided after it."""
        outcome, outer = test(), self.pending
        if outcome.value is False or self.state.flow:
            return
        if outcome.value is None:
            self._maybe(body, label, outcome.needs, line)
            self.catch(("break", "continue"), outer, line)
            return
        self.pending = []
        body()
        self.catch(("continue",), [], line)
        if not self.state.flow:
            first, pending, mark = self.state.fork(self.context.budget), self.pending, len(self.commands)
            test()
            body()
            changed = [name for name, value in self.state.variables.items() if value != first.variables.get(name)]
            del self.commands[mark:]
            self.context.state, self.pending = first, pending
            for name in changed:
                self._forget(name, (f"code:{shortened(label, 60)}",), line)
        self.catch(("break", "continue"), outer, line)

    def _maybe(self, body: Callable[[], None], label: str, needs: tuple[str, ...], line: int) -> None:
        """Runs a body that may run any number of times: what it changes is undecided in it and after it."""
        start, mark = self.state.fork(self.context.budget), len(self.commands)
        body()
        changed = self._changed(start)
        del self.commands[mark:]
        self.context.state, self.pending = start, []
        self._any_number(body, changed, label, needs or (f"code:{shortened(label, 60)}",), line)

    def _changed(self, before: State) -> list[str]:
        """Variables that are not as they were."""
        return [name for name, value in self.state.variables.items() if value is not before.variables.get(name)]

    def _any_number(
        self, body: Callable[[], None], changed: list[str], label: str, needs: tuple[str, ...], line: int
    ) -> None:
        """Runs a body of which is known what it changes."""
        for name in changed:
            self._forget(name, needs, line)
        self.branch(Truth(None, needs), label, line, body, lambda: None)
        for name in changed:
            self._forget(name, needs, line)

    def _forget(self, name: str, needs: tuple[str, ...], line: int) -> None:
        self.context.assign(name, undecided(needs, line, self.context.file))
