"""Our dataclasses behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, Literal

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import about, check
from shardplan.base.fields import dataclass as ours


def made(decorator: Any) -> Any:
    """A class with every kind of field that the package uses."""

    @decorator(frozen=True, kw_only=True)
    class Sample:
        size: int
        rate: float = 1.5
        names: list[str] = field(default_factory=list, hash=False)
        hidden: str = field(default="x", repr=False, compare=False)
        derived: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("size is negative")

    return Sample


Ours, Standard = made(ours), made(dataclasses.dataclass)


@ours(frozen=True, kw_only=True)
class Top:
    """One that pickle finds."""

    size: int
    name: str = "a"


@pytest.mark.parametrize("given", [{"size": 1}, {"size": 2, "names": ["a"], "rate": 3.0, "hidden": "y"}])
def test_values_and_text_are_the_same(given: dict[str, Any]) -> None:
    mine, theirs = Ours(**given), Standard(**given)
    assert asdict(mine) == asdict(theirs)
    assert repr(mine) == repr(theirs).replace("Standard", "Ours")
    assert [each.name for each in fields(mine)] == [each.name for each in fields(theirs)]
    assert hash(mine) == hash(Ours(**given))
    assert replace(mine, size=5) == Ours(**{**given, "size": 5})


def test_fields_that_are_not_compared_do_not_count() -> None:
    assert Ours(size=1, hidden="a") == Ours(size=1, hidden="b")
    assert Ours(size=1) != Ours(size=2)
    assert Ours(size=1) != Standard(size=1)
    assert hash(Ours(size=1, names=["a"])) == hash(Ours(size=1))


@pytest.mark.parametrize("given", [{}, {"size": 1, "other": 2}])
def test_wrong_fields_are_refused(given: dict[str, Any]) -> None:
    for kind in (Ours, Standard):
        with pytest.raises(TypeError, match="other" if given else "size"):
            kind(**given)


def test_objects_are_checked_and_frozen() -> None:
    with pytest.raises(ValueError, match="negative"):
        Ours(size=-1)
    one = Ours(size=1)
    with pytest.raises(FrozenInstanceError):
        one.size = 2
    with pytest.raises(FrozenInstanceError):
        del one.size
    assert one.size == 1
    assert Ours(size=1).names is not Ours(size=1).names


def test_copies_and_pickles_are_equal() -> None:
    assert pickle.loads(pickle.dumps(Top(size=3))) == Top(size=3)  # noqa: S301  # our own
    assert copy.deepcopy(Ours(size=1, names=["a"])) == Ours(size=1, names=["a"])


def test_a_class_may_extend_another() -> None:
    @ours(frozen=True, kw_only=True)
    class Wider(Top):
        width: float = 2.0

    assert asdict(Wider(size=1)) == {"size": 1, "name": "a", "width": 2.0}
    assert Wider(size=1) != Top(size=1)


@ours(frozen=True, kw_only=True)
class Checked:
    """One field of each kind."""

    degree: int = field(default=1, metadata=about("A degree.", least=1, most=8))
    share: float | None = field(default=None, metadata=about("A share.", least=0, most=1))
    form: Literal["round", "square"] = field(default="round", metadata=about("A form:"))
    is_on: bool = field(default=False, metadata=about("A switch."))
    layers: tuple[int, ...] | None = field(default=None, metadata=about("Layers.", least=0, most=8))

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    "given", [{"degree": 8}, {"share": 1}, {"share": None}, {"form": "square"}, {"is_on": True}, {"layers": [0, 8]}]
)
def test_values_within_bounds_are_taken(given: dict[str, Any]) -> None:
    assert Checked(**given) == Checked(**given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"degree": 0}, "a whole number from 1 to 8"),
        ({"degree": True}, "a whole number"),
        ({"degree": 2.0}, "a whole number"),
        ({"degree": None}, "a whole number"),
        ({"share": 0}, "a number above 0 and at most 1"),
        ({"share": float("nan")}, "a number above 0"),
        ({"share": "1"}, "a number above 0"),
        ({"form": 3}, "one of round, square"),
        ({"is_on": 1}, "true or false"),
        ({"layers": ()}, "a list such as"),
        ({"layers": (9,)}, "each a whole number from 0 to 8"),
    ],
)
def test_other_values_are_refused_in_words(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(InputError) as caught:
        Checked(**given)
    assert wanted in caught.value.message
    assert caught.value.hint.startswith(f"set --{next(iter(given)).replace('_', '-')} to ")


def test_a_name_that_is_no_choice_is_guessed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean square"):
        Checked(form="squire")  # type: ignore[arg-type]  # what it refuses


def test_fields_may_be_given_by_place() -> None:
    @ours(frozen=True)
    class Point:
        x: int
        y: int = 2

    assert Point(1) == Point(x=1, y=2)
    for given, named in [((1, 2, 3), {}), ((1,), {"x": 1})]:
        with pytest.raises(TypeError, match="too many values"):
            Point(*given, **named)
    assert repr(Point(3, 4)).endswith("Point(x=3, y=4)")
