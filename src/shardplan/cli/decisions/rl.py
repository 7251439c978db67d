"""``shardplan rl``: an RL step planned, trainer and generation."""

from __future__ import annotations

from dataclasses import fields

from shardplan.ask.forms import QuestionForm, SpaceForm
from shardplan.ask.rl_forms import RlForm
from shardplan.base.fields import replace
from shardplan.cli.decisions.files import ChartFlags
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.inputs.readers.typed import pairs_of


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
    pools are given, and a range or a list (16..128) to compare sizes.
    """
    files = charts.files(output)
    files.check(*flags.reads)
    from shardplan.answers.rl import More, rl_document
    from shardplan.ask.questions import record_of
    from shardplan.cli.decisions.sizes import are_several, sizes_of
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import given_by_user
    from shardplan.rl.asked import ask_rl
    from shardplan.rl.observed import differences
    from shardplan.rl.search import search_rl
    from shardplan.rl.variants import changed, run_of, sensitivities, sizes, with_change

    record, counts = record_of(replace(flags, num_accelerators=None), space), [flags.num_accelerators]
    if are_several(flags) and flags.num_accelerators:
        counts = [str(size) for size in sizes_of(flags.num_accelerators, "--gpus")]
    if counts[-1] is not None:
        record["num_accelerators"] = counts[-1]
    given = {each.name: getattr(step, each.name) for each in fields(step)}
    changes, run = pairs_of("--change", step.change or ()), run_of(step.steps, step.days)
    asked = ask_rl(record, given)
    for change in changes:
        ask_rl(*with_change(record, given, *change))  # so that a wrong one is refused before the search
    with progress_bar("planning each placement") as progress:
        found = search_rl(asked.task, asked.searches, progress)
    with progress_bar("planning other steps") as progress:
        more = More(
            sizes=sizes(record, given, [int(each or 0) for each in counts], progress) if len(counts) > 1 else (),
            changed=changed(record, given, changes, found.best, progress),
            parameters=sensitivities(record, given, asked, progress) if step.sensitivity else (),
            run=run,
            observed=differences(step.observed, found.best) if step.observed and found.best else (),
        )
    return files.show(rl_document(found, (*given_by_user(flags, space), *asked.warnings), asked.assumptions, more))
