"""Methods as other packages would bring them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.methods.base import Case, Method, MethodAnswer, MethodRow


class Mine(Method):
    """A method of another package, right or wrong."""

    name, title, source, counts, leaves_out = "mine", "one line", "a paper", ("time",), ("memory",)

    def answer(self, case: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"step_s": 1 / case["rate"], "infinite": float("inf"), "nested": {"rows": [{"a": 1}, {"a": 2}]}}

    def cases(self, text: str) -> Iterator[Case] | None:
        return None if "mine" not in text else iter([Case(name="one", expected={"t": 1.0}, computed={"t": 1.0})])

    def plan(self, *_: Any, top: int = 10) -> MethodAnswer:
        row = MethodRow(degrees={"dp": 64, "tp": 1, "pp": 1}, step_time=1.0)
        return MethodAnswer(method=self.name, rows=(row,)[:top], mapped=("as it is",), ignored=())


class Broken(Mine):
    name = "broken"

    def cases(self, text: str) -> Iterator[Case] | None:
        return 1 // 0 if "ours" in text else None  # type: ignore[return-value]  # it fails

    def plan(self, *_: Any, top: int = 10) -> MethodAnswer:
        raise KeyError(top)
