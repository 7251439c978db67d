"""Changes that an answer suggests, as questions that are one click away."""

from __future__ import annotations

import re
from typing import Final

from shardplan.web.state import JOB, PageQuestion

FLAG: Final = re.compile(r"--([a-z-]+) ([^\s,;()]+)")
SPELT: Final = re.compile(r" \(--[^)]*\)|: plan with --software [\w=]+|:(?: --[a-z-]+ [^\s,]+)+")
FREED: Final = re.compile(r"leave (.+?) free")


def changed(question: PageQuestion, text: str) -> PageQuestion:
    """``question`` with the change that ``text`` says in flags of the command line: ``--gpus 1024``."""
    freed = FREED.match(text)
    names = freed[1].split(", ") if freed else []
    made = question.with_values(locks={name: value for name, value in question.locks.items() if name not in names})
    for flag, value in FLAG.findall(text):
        made = _with_flag(made, flag.replace("-", "_"), value.rstrip("."))
    return made


def without_flags(text: str) -> str:
    """What ``text`` offers without the flags that ask for it: a page has a button next to it."""
    return SPELT.sub("", text)


def _with_flag(question: PageQuestion, name: str, value: str) -> PageQuestion:
    if name == "gpus":
        return question.with_values(gpus=value)
    if name in JOB:
        return question.with_values(job={**question.job, name: value})
    if name == "software":
        given = [each.strip() for each in question.software.split(",") if each.strip()]
        kept = [each for each in given if each.partition("=")[0].strip() != value.partition("=")[0]]
        return question.with_values(software=", ".join([*kept, value]))
    if name == "fix":
        field, _, wanted = value.partition("=")
        return question.with_values(locks={**question.locks, field: wanted})
    return question
