"""Audits of launch files, each a whole process: processor time and peak memory by framework.

The files are exports of one plan for each of three models to every framework, so that they can be made anywhere. Every
audit is answered in full: the plan, its estimate, and the search for what would be better. Where a framework's file
names its model by a path alone, the model is given.
"""

from __future__ import annotations

import statistics
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from commands import Run, run_process
from measure import Record, parser, table, write_record

SHARED: Final = ("--tp", "4", "--pp", "2", "--recompute", "full")
SHARDED: Final = ("--sharding", "zero3", "--recompute", "full")
PLANS: Final[Mapping[str, Sequence[str]]] = {
    "megatron-lm": SHARED,
    "megatron-bridge": SHARED,
    "nemo": SHARED,
    "nanotron": SHARED,
    "torchtitan": SHARDED,
    "maxtext": SHARDED,
    "deepspeed": SHARDED,
    "accelerate": SHARDED,
}
"""A plan that each framework can run."""
UNNAMED: Final = ("nemo", "deepspeed", "accelerate")
"""Frameworks whose files name the model by a path."""
QUESTIONS: Final = (("llama-3.1-8b", "64"), ("llama-3.1-70b", "512"), ("qwen3-30b-a3b", "64"))
CLUSTER: Final = ("--cluster", "dgx-h100")
MARK_S: Final = 0.5
"""What an audit of an ordinary script may take."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What was measured for one framework, or for all."""

    framework: str
    num_scripts: int
    cpu_s: float
    """Middle of the scripts, each the middle of its runs."""
    worst_cpu_s: float
    """Slowest of the scripts."""
    num_within: int
    """Scripts within the mark."""
    peak_memory_bytes: int
    """Largest of all runs."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=9).parse_args()
    program = str(Path(sysconfig.get_path("scripts")) / "shardplan")
    names, questions = (("megatron-lm",), QUESTIONS[:1]) if flags.tiny else (tuple(PLANS), QUESTIONS)
    with tempfile.TemporaryDirectory() as folder:
        audits = {
            (name, model): _written(program, Path(folder), name, model, number)
            for name in names
            for model, number in questions
        }
        runs = {key: list[Run]() for key in audits}
        for number in range(flags.runs + 1):
            for key, words in audits.items():
                run = run_process(words)
                if number:  # the first round fills the caches of the file system
                    runs[key].append(run)
    summaries = [_summary(name, [each for (of, _), each in runs.items() if of == name]) for name in names]
    summaries.append(_summary("all", [*runs.values()]))
    record: Record = {"runs": flags.runs, "mark_s": MARK_S, "frameworks": [asdict(each) for each in summaries]}
    print(report(record))
    write_record(flags.json, "audits", **record)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("framework", "scripts", "CPU s", "slowest", f"within {record['mark_s']:g} s", "peak MB")
    return table(header, [_row(Summary(**each)) for each in record["frameworks"]])


def _written(program: str, folder: Path, framework: str, model: str, number: str) -> list[str]:
    """Writes the launch file of a framework; the words of its audit."""
    plan, script = folder / f"{framework}-{model}.json", folder / f"{framework}-{model}" / "launch.sh"
    script.parent.mkdir()
    stack = "any" if framework == "accelerate" else framework
    question = (model, *CLUSTER, "--gpus", number, "--stack", stack)
    run_process([program, "estimate", *question, *PLANS[framework], "--json", str(plan)])
    run_process([program, "export", str(plan), "--to", framework, "--out", str(script)])
    named = ("--model", model) if framework in UNNAMED else ()
    return [program, "audit", str(script), *CLUSTER, *named]


def _summary(name: str, scripts: Sequence[Sequence[Run]]) -> Summary:
    times = [statistics.median(run.cpu_s for run in runs) for runs in scripts]
    return Summary(
        framework=name,
        num_scripts=len(times),
        cpu_s=statistics.median(times),
        worst_cpu_s=max(times),
        num_within=sum(time <= MARK_S for time in times),
        peak_memory_bytes=max(run.peak_memory_bytes for runs in scripts for run in runs),
    )


def _row(each: Summary) -> tuple[str, ...]:
    return (
        each.framework,
        f"{each.num_scripts}",
        f"{each.cpu_s:.3f}",
        f"{each.worst_cpu_s:.3f}",
        f"{each.num_within}",
        f"{each.peak_memory_bytes / 1e6:.0f}",
    )


if __name__ == "__main__":
    main()
