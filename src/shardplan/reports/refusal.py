"""What pydantic found wrong in a file, in the words of our errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from shardplan.errors import nearest_names

if TYPE_CHECKING:
    from pydantic import ValidationError


NOT_A_FIELD = ("extra_forbidden", "unexpected_keyword_argument")


def first_problem(error: ValidationError, root: str, *, known: Iterable[str] = ()) -> tuple[str, str]:
    """Place and reason of the first problem; ``root`` names the whole, ``known`` fields are guessed from."""
    problems = error.errors(include_url=False)
    first = problems[0]
    place = ".".join((root, *(str(part) for part in first["loc"]))).strip(".")
    if first["type"] in NOT_A_FIELD:
        guess = nearest_names(str(first["loc"][-1]), known)
        why = "is not a field" + (f": did you mean {' or '.join(guess)}?" if guess else "")
    elif first["type"] == "missing":
        why = "is missing"
    else:
        why = f"is {str(first['input'])[:60]!r}: {first['msg'].removeprefix('Value error, ')}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return place, why + more
