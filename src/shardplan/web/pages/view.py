"""What a view of the web app is: a page of its own in the navigation."""

from __future__ import annotations

from shardplan.fields import dataclass


@dataclass(frozen=True, kw_only=True)
class View:
    """A page, and its place in the navigation."""

    path: str
    """Address of the page: ``/step``. The answer alone is at ``/step/answer``."""
    title: str
    """One or two words for the navigation."""
    summary: str
    """One sentence: what the page answers."""
    keeps_question: bool = True
    """Whether a link to it carries the question of the page one comes from."""

    @property
    def answer_path(self) -> str:
        """Address of the answer without the page around it."""
        return f"{self.path.rstrip('/')}/answer"
