"""Programs that come before or after a training: they convert, prepare or evaluate."""

from __future__ import annotations

import re
from typing import Final

BESIDES: Final = re.compile(
    r"convert|conversion|to_huggingface|to_maxtext|preprocess|prepare|inference|generat|eval|benchmark_lm|decode"
    r"|logit_checker|hub[-_]sync|download|upload|merge|plot|tokeniz|(?<![a-z])sampl(?:e|ing)(?![a-z])"
)
"""Names of programs that come before or after a training, and do not train."""


TRAINS: Final = re.compile(r"train|tun(?:e|ing)|sft")
"""What the name of a program that trains may hold besides."""


EVALUATES: Final = frozenset({"eval", "evals", "evaluation"})
"""Folders of programs that do not train."""


def is_beside(program: str) -> bool:
    """Whether a program does not train, by its name or its folder."""
    *folders, name = program.lower().split("/")
    return BESIDES.search(name) is not None or not EVALUATES.isdisjoint(folders)
