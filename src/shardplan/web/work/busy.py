"""Why a question was not answered, though it could be."""

from __future__ import annotations


class Busy(Exception):  # noqa: N818  # what happened, not a fault
    """Too many questions wait: this one was sent away."""

    def __init__(self, retry_after: int = 1) -> None:
        """``retry_after``: when to ask again. [s]"""
        super().__init__(f"the server has more questions than it can answer; ask again in {retry_after} s")
        self.retry_after = retry_after


class TookTooLong(Exception):  # noqa: N818  # as Busy
    """The answer was not there in time."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: the limit."""
        super().__init__(f"the answer took longer than {seconds:g} s, the limit of this server")
        self.seconds = seconds


class Gone(Exception):  # noqa: N818  # as Busy
    """Nobody waits for the answer any more."""
