"""``shardplan rl``, and decisions about the question of its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardplan.ask.forms import QuestionForm, Replaced, SpaceForm
from shardplan.ask.rl_forms import RlForm
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import described, replace
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.inputs.job import Job

if TYPE_CHECKING:
    from shardplan.api.rl import AskedAgain


@with_flags
def rl(
    *,
    flags: QuestionForm,
    step: RlForm,
    space: SpaceForm,
    output: OutputFlags,
    charts: ChartFlags,
) -> int:
    """Plan a step of reinforcement learning: how many accelerators train, how many generate, and which wait.

    The trainer's plans, the layouts of the engine, the split of the accelerators and their placement are searched.
    Fields are fixed by pool: --fix train.pp=16 --fix rollout.tp=32. --gpus takes trainer+generation (64+128) where the
    pools are given. The answer (--json rl.json) can be asked again: scale, budget, whatif and sensitivity take it.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.api.rl import planned
    from shardplan.ask.questions import record_of
    from shardplan.cli.decisions.sizes import are_several
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user
    from shardplan.rl.question import RlQuestion

    if are_several(flags):
        raise InputError(
            f"--gpus is {shown(flags.num_accelerators or flags.nodes)}",
            rule="an RL step is planned on one number of accelerators; sizes are compared by `shardplan scale`",
            hint="plan one size with --json rl.json, then run: shardplan scale rl.json --gpus 8..64",
        )
    pools = flags.num_accelerators
    are_apart = pools is not None and not pools.isdecimal()
    record = record_of(replace(flags, num_accelerators=None) if are_apart else flags, space)
    record |= {"num_accelerators": pools} if are_apart else {}
    asked = RlQuestion(record=record, step={each.name: getattr(step, each.name) for each in fields(step)})
    with progress_bar("planning each placement") as progress:
        found = planned(asked, given_by_user(flags, space), progress=progress)
    return files.show(found.document())


def rl_question(path: str | Path | None, *forms: object, but: Collection[str] = ()) -> AskedAgain | None:
    """The question of the answer of ``shardplan rl``; None where the path is of something else.

    ``forms``: what is given besides, of which fields other than ``but`` are of another question. Raises InputError.
    """
    from shardplan.rl.question import is_rl_file

    if not is_rl_file(path):
        return None
    from shardplan.api.rl import load_rl

    given = next((flag for form in forms for name, flag in _given_flags(form) if name not in but), None)
    if given is not None:
        raise InputError(
            f"{given} is given with {path}, which holds a whole question",
            rule="the answer of `shardplan rl` is asked again as it was",
            hint=f"leave {given} out, or give it to `shardplan rl` and save that answer",
        )
    return load_rl(str(path))


def _given_flags(form: Any) -> Iterator[tuple[str, str]]:
    """Names and flags of the fields of a form that are given."""
    known, records = described(type(form)), {"job": Job, "overrides": Replaced}
    for each in fields(form):
        value = getattr(form, each.name)
        if each.name in records:
            yield from ((name, described(records[each.name])[name].flag) for name in value)
        elif value and each.name in known and value != known[each.name].default:
            yield each.name, known[each.name].flag
