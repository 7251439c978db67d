"""An answer that is a document: its JSON, its text and the exit code of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardplan.answers.document import AnswerDocument
    from shardplan.base.outputs import JsonTarget


def show_document(document: AnswerDocument, target: JsonTarget) -> int:
    """Writes the record where it is asked for and prints the answer; the exit code. Raises InputError."""
    if target.where is not None:
        from shardplan.render.record import document_record

        target.write(document_record(document))
    print_document(document, target)
    return 0 if document.is_yes else 1


def print_document(document: AnswerDocument, target: JsonTarget) -> None:
    """Prints the answer, unless its record takes the place of the text."""
    if target.is_stdout:
        return
    from shardplan.render.page import Page
    from shardplan.render.terminal import show

    show(Page(), document)
