"""What Slurm sets for a job, and how many accelerators its options ask for.

Manual page of sbatch of Slurm 25.05: Options, Output Environment Variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from shardplan.launch.read.facts import Word

VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "SLURM_NNODES": ("nodes", "ntasks / ntasks-per-node"),
    "SLURM_JOB_NUM_NODES": ("nodes", "ntasks / ntasks-per-node"),
    "SLURM_NTASKS": ("ntasks", "nodes * ntasks-per-node"),
    "SLURM_NPROCS": ("ntasks", "nodes * ntasks-per-node"),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_GPUS": ("gpus", "nodes * gpus-per-node"),
    "SLURM_GPUS_ON_NODE": ("gpus-per-node", "gres"),
    "SLURM_CPUS_PER_TASK": ("cpus-per-task",),
    "SLURM_JOB_NAME": ("job-name",),
    "SLURM_JOB_PARTITION": ("partition",),
}
"""Variables that follow from options of the script: the first of those, or of those quotients, that are given."""

OF_JOBS: Final = frozenset(VARIABLES) - {"SLURM_GPUS_PER_TASK", "SLURM_GPUS", "SLURM_GPUS_PER_NODE"} | {
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST",
    "SLURM_CLUSTER_NAME", "SLURM_JOB_USER", "SLURM_JOB_UID", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS", "SLURM_NODEID",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_ON_NODE", "SLURMD_NODENAME", "SLURM_TASK_PID",
}  # fmt: skip
"""Variables that every job has: whoever tests for them in a job finds them set."""
ABSENT: Final = frozenset({"SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK"})
"""Those that a job has only where it asks for them."""

SHORT: Final = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "J": "job-name", "p": "partition", "t": "time",
    "A": "account", "w": "nodelist", "o": "output", "e": "error", "C": "constraint",
}  # fmt: skip
_OPTION: Final = re.compile(r"--([a-z][\w-]*+)(?:[=\s]++([^\s-]\S*+))?+|-([A-Za-z])\s*+=?\s*+([^\s-]\S*+)")


def options_in(text: str) -> Mapping[str, str]:
    """Options of a line of ``#SBATCH`` or of ``sbatch``, by long name; an empty text where one has no value."""
    return {
        found[1] or SHORT.get(found[3], found[3]): (found[2] or found[4] or "").strip("\"'")
        for found in _OPTION.finditer(text)
    }


class Accelerators(NamedTuple):
    """What an option asks for on a node, or in all."""

    number: int
    name: str = ""
    """As the site calls them: ``h100``; empty where the option names none."""


_KINDS: Final = "gpu|gcd|npu|dcu|mlu|hpu|xpu"
_OF_GRES: Final = re.compile(
    rf"(?:gres[/:])?(?:(?P<kind>{_KINDS})(?::|$))?(?:(?P<name>[A-Za-z][\w.-]{{0,60}})(?::|$))?(?P<number>\d{{1,9}})?(?:\([^()]*\))?",
    re.IGNORECASE,
)


def accelerators(text: str) -> Accelerators | None:
    """What ``--gres`` or ``--gpus-per-node`` asks for; None where it is no accelerators.

    >>> accelerators("mi250:8"), accelerators("gpu:a100_80gb:4,nvme:100G"), accelerators("tmpfs:10G")
    (Accelerators(number=8, name='mi250'), Accelerators(number=4, name='a100_80gb'), None)
    """
    parts = [_OF_GRES.fullmatch(part.strip()) for part in text.split(",")]
    found = [part for part in parts if part is not None and part[0]]
    named = [part for part in found if part["kind"]]
    chosen = next(iter(named), found[0] if len(parts) == 1 and found else None)
    if chosen is None or not (chosen["kind"] or chosen["number"]):
        return None
    return Accelerators(int(chosen["number"] or 1), chosen["name"] or "")


def count(directives: Mapping[str, Word], option: str) -> int | None:
    """The number that an option of the job states; None where it states none."""
    word = directives.get(option)
    if word is None or word.text is None:
        return None
    if option in ("gres", "gpus-per-node", "gpus-per-task", "gpus"):
        asked = accelerators(word.text)
        return None if asked is None else asked.number
    low, _, high = word.text.partition("-")
    return int(low) if re.fullmatch(r"\d{1,9}", low) and high in ("", low) else None


def devices_of_node(directives: Mapping[str, Word]) -> tuple[int, Word] | None:
    """Accelerators that a node of the job has, and the option that asks for them."""
    for option in ("gpus-per-node", "gres"):
        if number := count(directives, option):
            return number, directives[option]
    return None


COUNTS: Final = re.compile(
    r"\s*(?:nvidia-smi\s+(?:-L|--list-gpus|--query-gpu=[\w,]+\s+--format=csv,noheader)\s*(?:2>\s*/dev/null\s*)?\|\s*wc\s+-l"
    r"|python3?\s+-c\s+[\"']import torch; ?print\(torch\.cuda\.device_count\(\)\);?[\"'])\s*"
)
"""Commands that count the accelerators of a node."""
MOST_VISIBLE: Final = 1024
"""Accelerators of a node that are listed."""


def value_of(directives: Mapping[str, Word], variable: str) -> tuple[str, Word, str] | None:
    """What the job's options say of a variable: its text, the option's word, and what was read as what."""
    devices = devices_of_node(directives) if variable == "CUDA_VISIBLE_DEVICES" else None
    if devices is not None and devices[0] <= MOST_VISIBLE:
        return ",".join(map(str, range(devices[0]))), devices[1], f"sbatch:{devices[1].text} on a node"
    for option in VARIABLES.get(variable, ()):
        names = option.split()
        numbers = [count(directives, name) for name in names[::2]]
        word = directives.get(names[0])
        if word is None or word.text is None or (None in numbers and len(names) > 1):
            continue
        text = word.text if numbers[0] is None else str(numbers[0])
        if len(names) > 1:
            first, second = numbers[0] or 0, numbers[1] or 0
            if names[1] == "/" and (not second or first % second):
                continue
            text = str(first // second if names[1] == "/" else first * second)
        elif numbers[0] is None and (":" in text or not text or option == "gres"):
            continue
        return text, word, f"sbatch:{option.replace(' ', '')}={'x'.join(directives[n].text or '' for n in names[::2])}"
    return None
