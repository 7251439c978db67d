"""What a view of the web app is, a page of its own in the navigation; and all of them."""

from __future__ import annotations

from typing import Final

from shardplan.base.fields import dataclass


@dataclass(frozen=True, kw_only=True)
class View:
    """A page, and its place in the navigation."""

    path: str
    """Address of the page: ``/step``. The answer alone is at ``/step/answer``."""
    title: str
    """One or two words for the navigation."""
    summary: str
    """One sentence: what the page answers."""

    @property
    def module(self) -> str:
        """Module of :mod:`shardplan.web.pages` that has its routes: imported when it is first asked for."""
        return f"shardplan.web.pages.{self.path.strip('/') or 'plan'}"

    @property
    def answer_path(self) -> str:
        """Address of the answer without the page around it."""
        return f"{self.path.rstrip('/')}/answer"


PLAN: Final = View(path="/", title="Plan", summary="the plan to take for a model on a cluster, and the plans around it")
STEP: Final = View(
    path="/step",
    title="Step",
    summary="one step of a plan: its timeline, memory, operators, traffic, and its schedules side by side",
)
DECIDE: Final = View(
    path="/decide",
    title="Decide",
    summary="how many accelerators pay, what fits, what else could be trained, which hardware matters, and what a run "
    "costs",
)
RL: Final = View(
    path="/rl",
    title="RL",
    summary="how many accelerators train and how many generate in a step of reinforcement learning, and which wait",
)
TRUST: Final = View(
    path="/trust",
    title="Trust",
    summary="predicted against measured for every published run, with the reasons for the errors",
)
AUDIT: Final = View(
    path="/audit",
    title="Audit",
    summary="what a launch script runs, which rules it breaks, what it takes, and what would be better",
)
EXPORT: Final = View(path="/export", title="Export", summary="the launch files of the plan for any framework")
PUBLISHED: Final = View(
    path="/published",
    title="Published models",
    summary="what four published models say to the question, next to our own estimate, and the figures of two papers",
)
VIEWS: Final = (PLAN, STEP, DECIDE, RL, TRUST, AUDIT, EXPORT, PUBLISHED)
"""In the order of the navigation."""
