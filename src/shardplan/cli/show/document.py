"""An answer with its record: written where ``--json`` says, and on the terminal unless that is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument


def show_answer(target: JsonTarget, document: AnswerDocument) -> int:
    """Writes the record and prints the answer; the exit code. Raises ``InputError``."""
    from shardplan.render.record import document_record

    target.write(document_record(document))
    print_answer(target, document)
    return 0 if document.is_yes else 1


def print_answer(target: JsonTarget, document: AnswerDocument) -> None:
    """Prints the answer unless standard output is taken."""
    if target.is_stdout:
        return
    from shardplan.render.page import Page
    from shardplan.render.terminal import show

    show(Page(), document)
