"""Text to facts, by reading only: shell scripts, YAML, JSON, TOML, INI and Python configurations.

Nothing that is read is executed. No process is started, no socket is opened, nothing is written, and no file outside
the folder of the file that the user names is opened. The reader of Python is imported where a file is Python.
"""

from shardplan.launch.read.documents import parse_document, read_document
from shardplan.launch.read.facts import Command, Document, Need, Scalar, Script, Stated, Word
from shardplan.launch.read.shell import parse_script, read_script

__all__ = [
    "Command",
    "Document",
    "Need",
    "Scalar",
    "Script",
    "Stated",
    "Word",
    "parse_document",
    "parse_script",
    "read_document",
    "read_script",
]
