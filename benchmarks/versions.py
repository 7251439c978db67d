"""Searches of this version and of an earlier one, by turns: what does it cost that software is searched too?

    python benchmarks/versions.py [--before COMMIT] [--runs 3] [--json FILE]    some minutes

Each version answers all questions in a process of its own, the earlier one from a worktree that git makes. A search
uses all accelerators that are given; the fastest and the recommended plan are read. A time is the processor time of
the least of five searches, after one that is not counted; of several rounds, the least. [s]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import Record, parser, table, write_record

ROOT = Path(__file__).parent.parent
BEFORE = "76e71388"
"""The last version that held software at one default."""
CHILD = """
import gc, inspect, json, sys, time
import shardplan
try:
    from shardplan.physics.frameworks.stack import load_stack
except ModuleNotFoundError:  # an earlier version, with its folders side by side
    from shardplan.frameworks.stack import load_stack
from shardplan.planner.search import search_question
stack = load_stack("megatron-lm")
known = inspect.signature(search_question).parameters
all_used = {"use_all": True} if "use_all" in known else {}
for model, cluster, count, job in json.loads(sys.argv[1]):
    question = shardplan.question(model, cluster, count, stack="megatron-lm", **job)
    times = []
    for _ in range(6):
        gc.collect()
        started = time.process_time()
        found = search_question(question, stack=stack, suggestions=False, **all_used)
        assert found.recommended.step_time and found.estimates[0].step_time
        times.append(time.process_time() - started)
    print(min(times[1:]), found.num_plans_evaluated, flush=True)
"""
Asked = tuple[str, str, int, dict[str, Any]]
QUESTIONS: tuple[Asked, ...] = (
    ("llama-3.1-8b", "dgx-h100", 64, {"global_batch_size": 512}),
    ("llama-3.1-70b", "dgx-h100", 512, {"global_batch_size": 512}),
    ("llama-3.1-405b", "dgx-h100", 16_384, {"global_batch_size": 2048}),
    ("llama-3.1-405b", "gb200-nvl72", 2304, {"global_batch_size": 2048, "precision": "fp8"}),
    ("gpt-oss-120b", "dgx-h100", 64, {"global_batch_size": 512}),
    ("qwen3-235b-a22b", "dgx-h100", 256, {"global_batch_size": 2048, "precision": "fp8"}),
    ("deepseek-v3", "dgx-h100", 1024, {"global_batch_size": 8192, "precision": "fp8", "sequence_length": 4096}),
    ("deepseek-v3", "dgx-h100", 2048, {"global_batch_size": 4096, "sequence_length": 4096}),
    ("kimi-k2", "hgx-h200", 2048, {"global_batch_size": 4096, "precision": "fp8"}),
    ("glm-5", "gb300-nvl72", 1152, {"global_batch_size": 4096, "precision": "mxfp8", "sequence_length": 4096}),
)
"""Batches are stated, as defaults differ between versions."""


def times_of(source: Path, questions: tuple[Asked, ...]) -> list[tuple[float, int]]:
    """Seconds and plans of every question in one process of the version at ``source``."""
    code = f"import sys; sys.path.insert(0, {str(source / 'src')!r})\n{CHILD}"
    done = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", code, json.dumps(questions)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the version at {source} fails:\n{done.stderr}")
    rows = (line.split() for line in done.stdout.splitlines())
    return [(float(seconds), int(plans)) for seconds, plans in rows]


def measured(before: Path, questions: tuple[Asked, ...], runs: int) -> list[dict[str, Any]]:
    """A row for every question: the least of all rounds, versions by turns."""
    rounds = [(times_of(before, questions), times_of(ROOT, questions)) for _ in range(runs)]
    rows = []
    for place, (model, cluster, count, job) in enumerate(questions):
        then, now = (min(each[version][place] for each in rounds) for version in (0, 1))
        title = f"{model}, {count:,} in {cluster}" + (f", {job['precision']}" if "precision" in job else "")
        rows.append({"question": title, "before_s": then[0], "now_s": now[0], "plans": now[1]})
    return rows


def report(record: Record) -> str:
    """The record as a Markdown table."""
    rows = [
        [
            row["question"],
            f"{row['plans']:,}",
            f"{row['before_s'] * 1e3:.0f}",
            f"{row['now_s'] * 1e3:.0f}",
            f"{row['now_s'] / row['before_s']:.2f}",
        ]
        for row in record["rows"]
    ]
    return table(["question", "plans", "before, ms", "now, ms", "ratio"], rows)


def main() -> None:
    """Measures, prints and writes."""
    flags = parser(__doc__ or "", runs=3)
    flags.add_argument("--before", default=BEFORE, help=f"commit of the earlier version (default: {BEFORE})")
    given = flags.parse_args()
    questions = QUESTIONS[:1] if given.tiny else QUESTIONS
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(before), given.before], check=True)  # noqa: S603
        try:
            rows = measured(before, questions, given.runs)
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)  # noqa: S603
    print(report({"rows": rows}))
    write_record(given.json, "versions", before=given.before, rows=rows)


if __name__ == "__main__":
    main()
