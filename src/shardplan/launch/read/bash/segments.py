"""Stretches of a word between which quoting changes."""

from __future__ import annotations

from typing import NamedTuple

from shardplan.launch.read.bash.text import Text, TextPiece, Undecided, unique


class Segment(NamedTuple):
    """Characters, or something undecided, of an expanded word."""

    text: str
    quoted: bool
    line: int
    file: str
    splits: bool = False
    """Whether it comes from an unquoted expansion, so that blanks end the word."""
    undecided: Undecided | None = None
    assumes: tuple[str, ...] = ()
    is_break: bool = False
    """Between two elements of ``"$@"`` or ``"${A[@]}"``: the next word begins."""
    is_gone: bool = False
    """Where ``"$@"`` has no elements: quotes around it alone make no word."""

    @property
    def piece(self) -> TextPiece:
        """The text as a piece of a word."""
        return TextPiece(self.text, self.line, self.file, self.undecided)


BREAK = Segment("", quoted=False, line=0, file="", is_break=True)
GONE = Segment("", quoted=False, line=0, file="", is_gone=True)


def of_text(text: Text, *, quoted: bool, splits: bool = False) -> list[Segment]:
    """The segments of expanded text."""
    found = [
        Segment(
            piece.text,
            quoted=quoted,
            splits=splits,
            line=piece.line,
            file=piece.file,
            undecided=piece.undecided,
            assumes=text.assumes,
        )
        for piece in text.pieces
    ]
    return found or [Segment("", quoted=False, line=0, file="", assumes=text.assumes)]


def to_text(segments: list[Segment]) -> Text:
    """All segments as one text, elements of arrays joined by blanks."""
    pieces = [
        TextPiece(" ", 0, "") if segment.is_break else segment.piece
        for segment in segments
        if segment.text or segment.undecided or segment.is_break
    ]
    return Text(tuple(pieces), unique(each for segment in segments for each in segment.assumes))
