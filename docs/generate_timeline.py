"""Draws the step in ``docs/simulation.md``: a small plan of a large model, for light pages and for dark ones.

python docs/generate_timeline.py           write the pictures
python docs/generate_timeline.py --check   exit with 1 where they are not what the program would draw now

The check bears one unit of the last decimal of a number, which rounding can differ by between machines.
"""

from __future__ import annotations

import sys

from generate_accuracy import DOCS, is_current

from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.timeline.picture import Theme, timeline_svg
from shardplan.simulation.plan import simulate_plan, timeline_of

THEMES: tuple[Theme, ...] = ("light", "dark")
PLAN = Plan(tp=8, pp=4, vp=2, recompute="full")


def files() -> dict[str, str]:
    """Pictures by path."""
    question = Question(
        model=load_model("llama-3.1-70b"),
        cluster=load_cluster("dgx-h100"),
        num_accelerators=64,
        job=Job(sequence_length=8192, global_batch_size=16),
    )
    step = timeline_of(simulate_plan(question, PLAN, load_schedule(PLAN.effective_schedule)))
    return {f"assets/timeline-{theme}.svg": timeline_svg(step, theme=theme) for theme in THEMES}


def main(arguments: list[str]) -> int:
    """Writes or checks the pictures; returns the exit status."""
    drawn = files()
    if "--check" in arguments:
        return int(not is_current(drawn))
    for path, text in drawn.items():
        (DOCS / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
