"""Arithmetic of the shell on 64-bit integers (Bash Reference Manual, section 6.5)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

from shardplan.launch.read.trees import MOST_LEVELS

_TOKEN: Final = re.compile(
    r"\s*(?:(\d+#[0-9a-zA-Z@_]+|0[xX][0-9a-fA-F]+|\d+)|([A-Za-z_]\w*(?:\[[^\]\[]*\])?)"
    r"|(\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:,()]))"
)
_BINARY: Final[dict[str, int]] = {
    "||": 3, "&&": 4, "|": 5, "^": 6, "&": 7, "==": 8, "!=": 8, "<": 9, ">": 9, "<=": 9, ">=": 9,
    "<<": 10, ">>": 10, "+": 11, "-": 11, "*": 12, "/": 12, "%": 12, "**": 13,
}  # fmt: skip
_ASSIGNMENTS: Final = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="})


class ArithmeticUndecidedError(Exception):
    """The value depends on something that is not known; ``needs`` names it."""

    def __init__(self, *needs: str) -> None:
        super().__init__(*needs)
        self.needs = needs


def _wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise ArithmeticUndecidedError("code:division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _power(left: int, right: int) -> int:
    if right < 0:
        raise ArithmeticUndecidedError("code:negative exponent")
    return pow(left, right, 2**64)


_OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "|": operator.or_, "^": operator.xor, "&": operator.and_, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    ">": operator.gt, "<=": operator.le, ">=": operator.ge, "+": operator.add, "-": operator.sub, "*": operator.mul,
    "<<": lambda left, right: left << (right & 63), ">>": lambda left, right: left >> (right & 63),
    "/": _quotient, "%": lambda left, right: left - right * _quotient(left, right), "**": _power,
    "&&": lambda left, right: left != 0 and right != 0, "||": lambda left, right: left != 0 or right != 0,
}  # fmt: skip


class Arithmetic:
    """Evaluates one expression; ``look_up`` gives the value of a name, ``assign`` sets it."""

    def __init__(self, source: str, look_up: Callable[[str], int], assign: Callable[[str, int], None]) -> None:
        self._tokens, self._at, self._depth = _tokens(source), 0, 0
        self._look_up, self._assign, self._skips = look_up, assign, 0

    def value(self) -> int:
        """The number. Raises ``ArithmeticUndecidedError``."""
        if not self._tokens:
            return 0
        number = self._comma()
        if self._at != len(self._tokens):
            raise ArithmeticUndecidedError("code:arithmetic that cannot be read")
        return number

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        found = self._peek() == token
        self._at += found
        return found

    def _comma(self) -> int:
        number = self._assignment()
        while self._take(","):
            number = self._assignment()
        return number

    def _assignment(self) -> int:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            raise ArithmeticUndecidedError("code:arithmetic that is nested too deep")
        name, sign = self._peek(), self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
        if _is_name(name) and sign in _ASSIGNMENTS:
            self._at += 2
            number = self._assignment()
            number = number if sign == "=" else _wrapped(int(_OPERATIONS[sign[:-1]](self._name(name), number)))
            self._set(name, number)
        else:
            number = self._ternary()
        self._depth -= 1
        return number

    def _ternary(self) -> int:
        condition = self._binary(3)
        if not self._take("?"):
            return condition
        left = self._unless(not condition, self._assignment)
        if not self._take(":"):
            raise ArithmeticUndecidedError("code:arithmetic that cannot be read")
        right = self._unless(bool(condition), self._assignment)
        return left if condition else right

    def _unless(self, skip: bool, parse: Callable[[], int]) -> int:  # noqa: FBT001 - how the shell skips an operand
        self._skips += skip
        number = parse()
        self._skips -= skip
        return number

    def _binary(self, least: int) -> int:
        left = self._unary()
        while (sign := self._peek()) in _BINARY and _BINARY[sign] >= least:
            self._at += 1
            level = _BINARY[sign]
            skip = (sign == "&&" and not left) or (sign == "||" and bool(left))
            right = self._unless(skip, lambda level=level, sign=sign: self._binary(level + (sign != "**")))  # type: ignore[misc]
            is_skipped = self._skips and sign in ("/", "%", "**")
            left = 0 if is_skipped else _wrapped(int(_OPERATIONS[sign](left, right)))
        return left

    def _unary(self) -> int:
        self._depth += 1
        if self._depth > MOST_LEVELS:
            raise ArithmeticUndecidedError("code:arithmetic that is nested too deep")
        first = self._peek()
        self._at += 1
        if first in ("+", "-", "!", "~"):
            number = self._unary()
            number = {"+": number, "-": _wrapped(-number), "!": int(not number), "~": ~number}[first]
        elif first in ("++", "--") and _is_name(self._peek()):
            name = self._peek()
            self._at += 1
            number = _wrapped(self._name(name) + (1 if first == "++" else -1))
            self._set(name, number)
        elif first == "(":
            number = self._comma()
            if not self._take(")"):
                raise ArithmeticUndecidedError("code:arithmetic that cannot be read")
        elif _is_name(first):
            number = self._postfix(first)
        else:
            number = _number(first)
        self._depth -= 1
        return number

    def _postfix(self, name: str) -> int:
        number = self._name(name)
        if self._peek() in ("++", "--"):
            self._set(name, _wrapped(number + (1 if self._peek() == "++" else -1)))
            self._at += 1
        return number

    def _name(self, name: str) -> int:
        return 0 if self._skips else self._look_up(name)

    def _set(self, name: str, number: int) -> None:
        if not self._skips:
            self._assign(name, number)


def _tokens(source: str) -> list[str]:
    tokens, position, source = [], 0, source.strip()
    while position < len(source):
        found = _TOKEN.match(source, position)
        if not found:
            raise ArithmeticUndecidedError("code:arithmetic that cannot be read")
        tokens.append(found[1] or found[2] or found[3])
        position = found.end()
    return tokens


def _is_name(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"


def _number(token: str) -> int:
    if len(token) > 18:
        raise ArithmeticUndecidedError("code:a number of more than 18 digits")
    try:
        if "#" in token:
            base, digits = token.split("#", 1)
            return _wrapped(int(digits, int(base)))
        if token[:2].lower() == "0x":
            return _wrapped(int(token, 16))
        return _wrapped(int(token, 8 if token[:1] == "0" and len(token) > 1 else 10))
    except ValueError:
        raise ArithmeticUndecidedError("code:arithmetic that cannot be read") from None
