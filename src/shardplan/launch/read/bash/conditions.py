"""``[ ]``, ``test`` and ``[[ ]]``: whether a condition holds, where reading alone decides it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from shardplan.launch.read.bash.arithmetic import ArithmeticUndecidedError
from shardplan.launch.read.bash.expansion import Expansion
from shardplan.launch.read.bash.syntax import split_words
from shardplan.launch.read.bash.text import Text, pattern_atoms, pattern_matches, unique

_NUMERIC: Final = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_FILES: Final = frozenset("-" + letter for letter in "abcdefghkprstuwxGLNOS")
_BINARY: Final = frozenset({"=", "==", "!=", "<", ">", "=~", "-nt", "-ot", "-ef"}) | _NUMERIC
_OPERATORS: Final = frozenset({"&&", "||", "(", ")"})
_MOST_SUBJECT: Final = 200


class Truth(NamedTuple):
    """Whether something holds."""

    value: bool | None
    """None where it is not decidable."""
    needs: tuple[str, ...] = ()
    """What would decide it."""
    assumes: tuple[str, ...] = ()
    """What was assumed to decide it."""
    expected: bool = False
    """Whether it is the status of a command that is expected to succeed, so that what follows ``&&`` runs."""

    def negated(self) -> Truth:
        """The opposite."""
        return self if self.value is None else self._replace(value=not self.value)


HOLDS: Final = Truth(value=True)
FAILS: Final = Truth(value=False)


def both(left: Truth, right: Truth) -> Truth:
    """``left && right``."""
    if left.value is False:
        return left
    if right.value is False:
        return right
    value = None if left.value is None or right.value is None else True
    return Truth(value, unique((*left.needs, *right.needs)), unique((*left.assumes, *right.assumes)))


class _Operand(NamedTuple):
    text: Text
    source: str
    line: int


class Conditions:
    """Evaluates conditions of one evaluation."""

    def __init__(self, expansion: Expansion) -> None:
        self._expansion, self._context = expansion, expansion.context
        self._operands: list[_Operand] = []
        self._at = 0
        self._is_double = False

    def single(self, texts: list[Text], line: int) -> Truth:
        """``test words`` and ``[ words ]``."""
        return self._evaluate([_Operand(text, text.known or "", line) for text in texts], is_double=False)

    def double(self, source: str, line: int) -> Truth:
        """``[[ source ]]``."""
        operands = []
        for word in split_words(source, _OPERATORS if "=~" not in source else frozenset({"&&", "||"})):
            text = Text(()) if word in _OPERATORS else self._expansion.single(word, line)
            operands.append(_Operand(text, word, line))
        return self._evaluate(operands, is_double=True)

    def _evaluate(self, operands: list[_Operand], *, is_double: bool) -> Truth:
        saved = self._operands, self._at, self._is_double
        self._operands, self._at, self._is_double = operands, 0, is_double
        self._context.budget.enter()
        outcome = self._either() if operands else FAILS
        if self._at < len(operands):
            outcome = Truth(None, ("code:a condition that cannot be read",))
        self._context.budget.leave()
        self._operands, self._at, self._is_double = saved
        return outcome

    def _sign(self, offset: int = 0) -> str:
        """The operator at a place: its source, which a quoted word is not."""
        position = self._at + offset
        return self._operands[position].source if position < len(self._operands) else ""

    def _either(self) -> Truth:
        outcome = self._all()
        while self._sign() == ("||" if self._is_double else "-o"):
            self._at += 1
            outcome = both(outcome.negated(), self._all().negated()).negated()
        return outcome

    def _all(self) -> Truth:
        outcome = self._primary()
        while self._sign() == ("&&" if self._is_double else "-a"):
            self._at += 1
            outcome = both(outcome, self._primary())
        return outcome

    def _primary(self) -> Truth:
        left = len(self._operands) - self._at
        if left >= 3 and self._sign(1) in _BINARY and not (self._sign() in ("(", "!") and self._is_double):
            self._at += 3
            return self._binary(self._operands[self._at - 3], self._sign(-2), self._operands[self._at - 1])
        if self._sign() == "!" and left > 1:
            self._at += 1
            self._context.budget.enter()
            outcome = self._primary().negated()
            self._context.budget.leave()
            return outcome
        if self._sign() == "(" and left > 2:
            self._at += 1
            self._context.budget.enter()
            outcome = self._either()
            self._context.budget.leave()
            if self._sign() != ")":
                return Truth(None, ("code:a condition that cannot be read",))
            self._at += 1
            return outcome
        if left >= 2 and re.fullmatch(r"-[a-zA-Z]", self._sign()):
            self._at += 2
            return self._unary(self._sign(-2), self._operands[self._at - 1])
        if not left:
            return Truth(None, ("code:a condition that cannot be read",))
        self._at += 1
        return self._is_empty(self._operands[self._at - 1].text).negated()

    def _is_empty(self, text: Text) -> Truth:
        if text.known is not None:
            return Truth(text.known == "", (), text.assumes)
        if text.is_unset:
            return Truth(value=True, needs=text.needs, assumes=(*(need + "=" for need in text.needs), *text.assumes))
        if text.is_not_empty:
            return Truth(value=False, assumes=text.assumes)
        return Truth(None, text.needs, text.assumes)

    def _unary(self, sign: str, operand: _Operand) -> Truth:
        text = operand.text
        if sign in ("-z", "-n"):
            outcome = self._is_empty(text)
            return outcome if sign == "-z" else outcome.negated()
        if sign == "-v" and text.known is not None:
            found = self._context.is_set(text.known)
            self._context.used.add(text.known)
            return Truth(bool(found), (), (f"env:{text.known}=",) if found is None else ())
        if sign in _FILES:
            return Truth(None, text.needs or (f"file:{text.shown}",), text.assumes)
        return Truth(None, text.needs or (f"code:{sign}",), text.assumes)

    def _binary(self, left: _Operand, sign: str, right: _Operand) -> Truth:
        assumes = unique((*left.text.assumes, *right.text.assumes))
        if sign in _NUMERIC:
            return self._numeric(left, sign, right)._replace(assumes=assumes)
        if sign in ("=", "==", "!="):
            outcome = self._equal(left, right)
            return outcome.negated() if sign == "!=" else outcome
        if sign == "=~":
            return self._regex(left, right)
        needs = unique((*left.text.needs, *right.text.needs))
        if sign in ("<", ">") and left.text.known is not None and right.text.known is not None:
            is_less = left.text.known < right.text.known
            return Truth(is_less if sign == "<" else left.text.known > right.text.known, (), assumes)
        return Truth(None, needs or (f"file:{right.text.shown}",), assumes)

    def _numeric(self, left: _Operand, sign: str, right: _Operand) -> Truth:
        a, b = self._number(left), self._number(right)
        if isinstance(a, int) and isinstance(b, int):
            table = {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}
            return Truth(table[sign])
        needs = unique(need for number in (a, b) if isinstance(number, tuple) for need in number)
        if needs == ("code:not a number",):
            return FAILS  # the shell prints an error and the condition does not hold
        return Truth(None, needs)

    def _number(self, operand: _Operand) -> int | tuple[str, ...]:
        known = operand.text.known
        if known is None:
            return operand.text.needs
        if not self._is_double:
            known = known.strip()
            is_number = re.fullmatch(r"[+-]?\d{1,18}", known)
            return int(known) if is_number else ("code:not a number",)
        try:
            return self._context.number(known, operand.line)
        except ArithmeticUndecidedError as error:
            return error.needs

    def _equal(self, left: _Operand, right: _Operand) -> Truth:
        assumes = unique((*left.text.assumes, *right.text.assumes))
        if right.text.known == "" and not left.text.known:
            return self._is_empty(left.text)
        if left.text.known == "" and right.text.known is None:
            return self._is_empty(right.text)
        needs = unique((*left.text.needs, *right.text.needs))
        if left.text.known is None or right.text.known is None:
            return Truth(None, needs, assumes)
        if not self._is_double:
            return Truth(left.text.known == right.text.known, (), assumes)
        return self.match(left.text, right.source, right.line)

    def match(self, subject: Text, source: str, line: int) -> Truth:
        """Whether a text matches the pattern ``source``, as in ``case`` and ``[[ == ]]``."""
        self._context.budget.spend(2)
        parts = self._expansion.pattern(source, line)
        pattern = self._expansion.single(source, line)
        atoms = None if parts is None else pattern_atoms(parts)
        assumes = unique((*subject.assumes, *pattern.assumes))
        if atoms is not None and atoms and all(atom.kind == "star" for atom in atoms):
            return HOLDS
        if atoms == [] and subject.known is None:
            return self._is_empty(subject)
        if atoms is None or subject.known is None:
            return Truth(None, unique((*subject.needs, *pattern.needs)) or (f"code:{source}",), assumes)
        self._context.budget.spend(1 + len(subject.known) * len(atoms) // 256)
        return Truth(pattern_matches(atoms, subject.known), (), assumes)

    def _regex(self, left: _Operand, right: _Operand) -> Truth:
        text, source = left.text.known, right.source
        if text is None:
            return Truth(None, left.text.needs, left.text.assumes)
        quantifiers = sum(source.count(char) for char in "*+?{")
        if (
            len(text) > _MOST_SUBJECT
            or quantifiers > 3
            or re.search(r"[()|\\$]|\[\[|'|\"", source[:-1])
            or len(source) > 100
        ):
            return Truth(None, (f"code:=~ {source}",), left.text.assumes)
        try:
            return Truth(re.search(source, text) is not None, (), left.text.assumes)
        except re.error:
            return Truth(None, (f"code:=~ {source}",), left.text.assumes)
