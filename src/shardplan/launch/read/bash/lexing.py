"""Where quotes, braces and brackets end in the source of a word."""

from __future__ import annotations

from itertools import pairwise

from shardplan.launch.read.limits import MOST_LEVELS, refuse


def end_of_single(source: str, start: int) -> int:
    """Index after the quote that closes the single quote at ``start``."""
    end = source.find("'", start + 1)
    return len(source) if end < 0 else end + 1


def end_of_ansi(source: str, start: int) -> int:
    """Index after the quote that closes ``$'`` whose quote is at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != "'":
        position += 2 if source[position] == "\\" else 1
    return min(position + 1, len(source))


def end_of_double(source: str, start: int, depth: int = 0) -> int:
    """Index after the quote that closes the double quote at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != '"':
        position = _after(source, position, depth, in_double=True)
    return min(position + 1, len(source))


def end_of_backticks(source: str, start: int) -> int:
    """Index after the backtick that closes the one at ``start``."""
    position = start + 1
    while position < len(source) and source[position] != "`":
        position += 2 if source[position] == "\\" else 1
    return min(position + 1, len(source))


def end_of_braces(source: str, start: int, depth: int = 0, *, in_double: bool = False) -> int:
    """Index after the brace that closes ``${`` at ``start``."""
    position = start + 2
    while position < len(source) and source[position] != "}":
        position = _after(source, position, depth, in_double=in_double)
    return min(position + 1, len(source))


def end_of_parentheses(source: str, start: int, depth: int = 0) -> int:
    """Index after the bracket that closes the one at ``start``, which is ``(``."""
    position, level = start + 1, 1
    while position < len(source):
        char = source[position]
        level += (char == "(") - (char == ")")
        if level == 0:
            return position + 1
        position = position + 1 if char in "()" else _after(source, position, depth, in_double=False)
    return len(source)


def _after(source: str, position: int, depth: int, *, in_double: bool) -> int:
    """Index after the character, escape, quote or expansion at ``position``."""
    if depth > MOST_LEVELS:
        refuse("the script", f"has expansions nested deeper than {MOST_LEVELS} levels", "a launch script is shallow")
    char, following = source[position], source[position + 1 : position + 2]
    end = position + 1
    if char == "\\":
        end = position + 2
    elif char == "`":
        end = end_of_backticks(source, position)
    elif char == '"' and not in_double:
        end = end_of_double(source, position, depth + 1)
    elif char == "'" and not in_double:
        end = end_of_single(source, position)
    elif char == "$" and following == "{":
        end = end_of_braces(source, position, depth + 1, in_double=in_double)
    elif char == "$" and following == "(":
        end = end_of_parentheses(source, position + 1, depth + 1)
    elif char == "$" and following == "'" and not in_double:
        end = end_of_ansi(source, position + 1)
    elif char == '"':  # quotes in ${...} in quotes
        end = end_of_double(source, position, depth + 1)
    return end


def split_words(source: str, operators: frozenset[str] = frozenset()) -> list[str]:
    """The words of a line as written, without looking into quotes and expansions; ``operators`` stand alone."""
    words: list[str] = []
    position, start = 0, -1
    longest = max((len(operator) for operator in operators), default=0)
    while position < len(source):
        found = next(
            (
                source[position : position + n]
                for n in range(longest, 0, -1)
                if source[position : position + n] in operators
            ),
            "",
        )
        if source[position].isspace() or source.startswith("\\\n", position) or found:
            if start >= 0:
                words.append(source[start:position])
            if found:
                words.append(found)
            start, position = -1, position + (len(found) or (2 if source[position] == "\\" else 1))
            continue
        start = position if start < 0 else start
        position = _after(source, position, 0, in_double=False)
    return [*words, source[start:]] if start >= 0 else words


def braces(source: str) -> list[str] | None:
    """The words that ``a{b,c}d`` or ``{1..3}`` stands for, as written; None where there is nothing to expand."""
    position = 0
    while position < len(source):
        if source[position] == "{" and (made := _expanded_brace(source, position)):
            return made
        position = _after(source, position, 0, in_double=False)
    return None


def _expanded_brace(source: str, start: int) -> list[str]:
    commas, level, position = [start], 1, start + 1
    while position < len(source) and level:
        char = source[position]
        level += (char == "{") - (char == "}")
        if char == "," and level == 1:
            commas.append(position)
        if level:
            position = position + 1 if char in "{}," else _after(source, position, 0, in_double=False)
    if level:
        return []
    head, tail, ends = source[:start], source[position + 1 :], [*commas, position]
    if len(commas) > 1:
        choices = [source[left + 1 : right] for left, right in pairwise(ends)]
    else:
        choices = _sequence(source[start + 1 : position])
    return [head + choice + tail for choice in choices]


def _sequence(inner: str) -> list[str]:
    parts = inner.split("..")
    if len(parts) not in (2, 3) or not all(part.lstrip("-").isdecimal() and len(part) < 10 for part in parts):
        return []
    first, last = int(parts[0]), int(parts[1])
    step = max(1, abs(int(parts[2]))) if len(parts) == 3 else 1
    if abs(last - first) // step > 10_000:
        return []
    digits = [part.lstrip("-") for part in parts[:2]]
    width = max(map(len, parts[:2])) if any(len(d) > 1 and d[0] == "0" for d in digits) else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [str(number).zfill(width) for number in numbers]
