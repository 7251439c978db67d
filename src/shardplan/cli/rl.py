"""``shardplan rl``: an RL step planned, trainer and generation."""

from __future__ import annotations

from dataclasses import fields

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import replace
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import OutputFlags, with_flags


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
    Fields are fixed by pool: --fix train.pp=16 --fix rollout.tp=32.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.rl import rl_document
    from shardplan.ask.questions import record_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user
    from shardplan.rl.asked import ask_rl
    from shardplan.rl.observed import differences
    from shardplan.rl.search import search_rl

    record = {**record_of(replace(flags, num_accelerators=None), space), "num_accelerators": flags.num_accelerators}
    if flags.num_accelerators is None:
        del record["num_accelerators"]
    asked = ask_rl(record, {each.name: getattr(step, each.name) for each in fields(step)})
    with progress_bar("planning each placement") as progress:
        found = search_rl(asked.task, asked.searches, progress)
    observed = differences(step.observed, found.best) if step.observed and found.best else ()
    given = (*given_by_user(flags, space), *asked.warnings)
    return files.show(rl_document(found, given, asked.assumptions, observed))
