"""What a launch file says: words, commands, documents, each with the line where it stands.

A value is either decided by the file alone, or it names what it needs: ``env:NODES`` (an environment variable),
``arg:2`` (a positional argument), ``cmd:hostname -s`` (the output of a command), ``file:PATH`` (a file that was not
read), ``key:a.b`` (a key that is not there), ``code:TEXT`` (an expression that only running it decides).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, NamedTuple

from shardplan.base.fields import dataclass

Scalar = str | int | float | bool | None
DocumentKind = Literal["yaml", "json", "jsonc", "toml", "ini", "python"]


UNREAD: Final = "which was not read; variables that it sets are asked for"
"""The end of a note about a sourced file."""
ENDS: Final = "the script ends here"
"""In a note about an ``exit``."""


class Word(NamedTuple):
    """A word of a command, as the shell would pass it."""

    text: str | None
    """The characters after expansion; None where they are not decidable."""
    shown: str
    """``text``; what is not decidable in it is in angle brackets: ``--data=<env:DATA>``."""
    line: int
    """Counted from 1."""
    file: str
    """The file that holds it."""
    needs: tuple[str, ...] = ()
    """What decides the text where the file does not."""
    assumes: tuple[str, ...] = ()
    """Defaults that were taken, since the environment or an argument was not given: ``env:NODES=8``."""
    splits: bool = False
    """Whether an undecided word is unquoted, so that it may become several words or none."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A simple command that may run."""

    words: tuple[Word, ...]
    """The name of the command first."""
    assignments: Mapping[str, Word] = field(default_factory=dict)
    """``NAME=value`` in front of the name: environment of this command only."""
    line: int
    """Counted from 1."""
    file: str
    """The file that holds it."""
    when: tuple[str, ...] = ()
    """Conditions that are not decidable and that it depends on, as written; empty where it runs in any case."""
    exported: Mapping[str, Word] = field(default_factory=dict)
    """Exported variables of the script when the command runs."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """Something that the file leaves open."""

    name: str
    """As in :attr:`Word.needs`."""
    file: str
    """The file that uses it."""
    line: int
    """First line that uses it, counted from 1."""
    why: str
    """What is open, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """A value of a document, with its place."""

    value: Scalar | tuple[object, ...]
    """A sequence is a tuple; None is a null, or a value that is not decidable (then ``needs`` says why)."""
    line: int
    """Counted from 1; 0 where the format does not give it."""
    file: str
    """The file that holds it: another one than the document's where it was included."""
    needs: tuple[str, ...] = ()
    """What decides the value where the file does not."""
    assumes: tuple[str, ...] = ()
    """Defaults that were taken: ``env:NODES=8``."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A configuration as nested keys."""

    kind: DocumentKind
    """How it is written."""
    file: str
    """Where it was read."""
    values: Mapping[str, Stated]
    """By dotted key: ``training.seq_len``. A sequence of scalars is one value; mappings go by number: ``a.0.b``."""
    tree: Mapping[str, object]
    """The same as nested plain values; None where a value is not decidable."""
    needs: tuple[Need, ...] = ()
    """What is not decidable."""
    notes: tuple[str, ...] = ()
    """What a reader should know: placeholders, repeated keys, includes that were not followed."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a shell script runs."""

    file: str
    """The file that was read."""
    commands: tuple[Command, ...]
    """Those that may run, in order; what is after ``exit`` or in a branch that is not taken is left out."""
    environment: Mapping[str, Word]
    """Every variable at the end; the elements of an array are joined by blanks."""
    exported: frozenset[str] = frozenset()
    """Names of the variables that commands inherit."""
    directives: Mapping[str, Word] = field(default_factory=dict)
    """Options of Slurm (``#SBATCH``) by long name: ``nodes``, ``ntasks-per-node``, ``gpus-per-node``."""
    documents: Mapping[str, Document] = field(default_factory=dict)
    """Here-documents that hold JSON, YAML or TOML, by the name of the file that they are written to."""
    texts: Mapping[str, Word] = field(default_factory=dict)
    """All text that the script writes to files by here-documents, by name of the file."""
    asked: frozenset[str] = frozenset()
    """Variables that the script reads from its environment, given or not."""
    needs: tuple[Need, ...] = ()
    """What the commands and variables need, each once."""
    notes: tuple[str, ...] = ()
    """Placeholders, unset and unused variables, what is not read."""
