"""The framework that runs an RL step: what its trainer can run, and what its program does around the kernels.

Costs of a program are counted from its sources (``programs`` in ``data/generation.yaml``); of most frameworks nobody
has counted them. Measured steps, launch files and questions all get them here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import DATA
from shardplan.base.words import joined
from shardplan.rl.engine import generation_data

FRAMEWORKS: Final = tuple(sorted(path.stem for path in (DATA / "dialects" / "rl").glob("*.yaml")))
"""Names of the frameworks whose launch files are read."""


class ProgramFacts(NamedTuple):
    """What a program does around the trainer's kernels."""

    pass_bytes: float = 0.0
    """Moved for every logit of a pass without gradients."""
    loss_bytes: float = 0.0
    """The same in training."""
    answer_bytes: float = 0.0
    """Moved for every logit of a packed sequence, for each answer in it."""
    answer_time: float = 0.0
    """Of the host, for the loss of an answer, while the device waits. [s]"""
    swaps: float = 0.0
    """Times that the weights of an accelerator cross to its host or back for a pass of the reference."""
    sent_bytes: float = 0.0
    """Of a token, padding included, that the driver sends to the ranks for a pass without gradients."""
    sent_more: float = 0.0
    """Beyond that for training."""
    sent_once: bool = False
    """Whether the ranks that share sequences get them in one copy, not in one each."""
    fresh_bytes: float = 0.0
    """Of a trained parameter that leave for memory of the host that is new each time, where engines share it."""
    fused_loss: bool = False
    """Whether log-probabilities of 16-bit logits are one kernel, forward and backward."""
    loops: bool = False
    """Whether the optimizer goes through the tensors one by one."""


@dataclass(frozen=True, kw_only=True)
class Framework:
    """A framework, as far as it is named; without a name it may be any."""

    name: str = ""
    release: str = ""
    """As ``0.6``; empty: the newest that is known."""
    backend: str = ""
    """Of the trainer; empty: any."""

    @cached_property
    def facts(self) -> ProgramFacts | None:
        """What its program does around the kernels; None where nobody has counted it."""
        row = generation_data()["programs"].get(self.name, {}).get(self.backend)
        if row is None:
            return None
        later = [
            more for since, more in row["since"].items() if not self.release or _number(self.release) >= _number(since)
        ]
        known = {name: value for each in (row, *later) for name, value in each.items()}
        return ProgramFacts(**{name: known[name] for name in ProgramFacts._fields if name in known})

    @property
    def plan(self) -> dict[str, tuple[Any, ...]]:
        """Values that its trainer runs of the fields of a plan, where nothing else is said."""
        known = generation_data()["backends"].get(self.backend, {})
        found = {**known.get("plan", {}), **known.get(self.name, {})}
        return {name: tuple(value) if isinstance(value, tuple | list) else (value,) for name, value in found.items()}

    @property
    def transfer(self) -> str:
        """How weights go from one pool to the other."""
        return str(generation_data()["between"].get(self.name, "sharded"))

    @property
    def runs(self) -> dict[str, tuple[str, ...]]:
        """Of fields of a step, the values that it runs and its launch files can say; of other fields all."""
        return {name: tuple(values) for name, values in generation_data()["runs"].get(self.name, {}).items()}

    def check_step(self, step: Mapping[str, Any]) -> None:
        """Refuses fields of a step that the framework does not run. Raises InputError."""
        for name, known in self.runs.items():
            given = str(step.get(name) or known[0]).replace("_", "-").split(",")
            self._refuse(self.name, name, known, [each.strip().partition(":")[0].lower() for each in given])

    def check_plan(self, choices: Mapping[str, Any]) -> None:
        """Refuses chosen fields of a plan that the trainer never runs otherwise. Raises InputError."""
        known = generation_data()["backends"].get(self.backend, {})
        who = f"{self.name or 'a trainer'} with {self.backend}"
        never = {*known.get("never", ()), *known.get(self.name, {}), *(known.get("written", ()) if self.runs else ())}
        for name in (name for name in choices if name in never):
            runs = [str(value).lower() for value in self.plan[name]]
            self._refuse(who, f"train.{name}", runs, [str(value).lower() for value in choices[name]])

    @staticmethod
    def _refuse(who: str, name: str, known: Sequence[str], given: Sequence[str]) -> None:
        """Refuses the first of the given values that is not among those that are known. Raises InputError."""
        wrong = next((value for value in given if value not in known), None)
        if wrong is not None:
            is_fixed, text = "." in name, name if "." in name else name.replace("_", " ")
            fix = f"--fix {name}={known[0]}" if is_fixed else f"--{name.replace('_', '-')} {known[0]}"
            fix = f"--placement {','.join(known)}" if name == "placement" else fix
            value = shown(int(wrong) if wrong.isdecimal() else wrong)
            rule = f"{who} runs {text} {joined(known, last='or')} alone"
            raise InputError(f"{text} is {value}; {rule}", rule=rule, hint=f"set {fix}, or leave it out")

    def over(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A question's record with the software of the trainer, where the record says nothing else."""
        if not self.backend:
            return {**record}
        known = generation_data()["backends"][self.backend]
        software = {**known.get("software", {}), **(record.get("software") or {})}
        own = {"stack": record.get("stack", known["stack"])}
        return {**record, **own, **({"software": software} if software else {})}

    @property
    def label(self) -> str | None:
        """As ``framework_of`` takes it; None: none is named."""
        return ":".join(filter(None, (self.name, self.release))) or None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.release)))


def backends() -> tuple[str, ...]:
    """Trainers that are known: Megatron Core, and FSDP2 around modules of Hugging Face transformers."""
    return tuple(generation_data()["backends"])


def framework_of(given: Any, backend: Any = None, stack: Any = None) -> Framework:
    """The framework that ``nemo-rl`` or ``nemo-rl:0.6`` means; its trainer is that of ``stack``. Raises InputError."""
    name, _, release = str(given or "").strip().lower().partition(":")
    if str(given or "").strip() and name not in FRAMEWORKS:
        raise UnknownNameError("--framework", name or release, FRAMEWORKS, hint=f"one of {', '.join(FRAMEWORKS)}")
    if release:
        _check_release(name, release)
    trainer = str(backend or "").lower()
    if trainer and trainer not in backends():
        raise UnknownNameError("--backend", trainer, backends(), hint=f"one of {', '.join(backends())}")
    if name and not trainer:
        of_stack = (each for each, row in generation_data()["backends"].items() if row["stack"] == stack)
        trainer = next(of_stack, backends()[0])
    return Framework(name=name, release=release, backend=trainer)


def _check_release(name: str, release: str) -> None:
    """Refuses what is no number, or before the first release that is known, or after the last. Raises InputError."""
    first, last = generation_data()["releases"].get(name) or ("", "")
    near, rule = last, f"releases {first} to {last} of {name} are known"
    if re.fullmatch(r"\d+(\.\d+)*", release) is None:
        rule = "a release is a number"
    elif not first:
        rule = f"releases of {name} are not told apart"
    elif _number(release) < _number(first):
        near = first
    elif _number(release)[:2] <= _number(last):
        return
    hint = f"write --framework {':'.join(filter(None, (name, near)))}"
    raise InputError(f"--framework is {shown(f'{name}:{release}')}; {rule}", rule=rule, hint=hint)


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
