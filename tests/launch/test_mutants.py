"""Mutated launch files: each is read and priced, or refused with a rule; no traceback, and no file takes a second.

``SHARDPLAN_FUZZ=100000 python -m pytest tests/launch/test_mutants.py`` tries that many files for every reader.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.launch.dialects import test_callers, test_newer_frameworks, test_programs, test_strangers
from tests.rl import test_launch

from shardplan.base.errors import ShardplanError
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.launch.audit.question import posed, violations
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.callers import started
from shardplan.launch.dialects.read import read_launch
from shardplan.rl.launches.audit import audit_rl
from shardplan.rl.launches.reading import read_rl_launch

pytest.importorskip("tree_sitter_bash")

BUDGET: Final = int(os.environ.get("SHARDPLAN_FUZZ", "0")) or 12
"""Files of each reader; few in every run of the tests."""
SEEDS: Final = {
    **test_newer_frameworks.FILES,
    "openrlhf.sh": test_programs.OPENRLHF.format(more=""),
    "verl_sft.sh": test_programs.VERL.format(more="data.micro_batch_size_per_gpu=2"),
    "nemo_rl.yaml": test_programs.NEMO_RL.replace("DTENSOR", "true").replace("MEGATRON", "false"),
    "blocks.yaml": test_programs.BLOCKS.format(mixer=test_programs.MIXER, mixer2="{}", mlp=test_programs.MLP),
    "llama_factory.sh": test_strangers.BY_OPTIONS,
    "trainer.sh": test_strangers.LINE.format(front="--nproc_per_node $N", model=test_strangers.MODEL, more=""),
    "template.yaml": test_strangers.TEMPLATE.replace("{{", "{").replace("}}", "}"),
    **{f"rl_{name}_{file}": text for name, (file, text) in test_launch.FILES.items()},
}
"""A file of ours for each reader that came last."""
HOSTILE: Final = (
    "0", "-1", "1", "3", "1e999", "nan", "99999999999999999999", "2147483648", "0.5", "true", "false", "null", "none",
    "auto", "''", '"', "'", "[]", "{}", "[1, 2]", "{a: 1}", "{x}", "${x}", "$X", "$((1/0))", "$(id)", "${A:-8}", "???",
    "../x", "/etc/passwd", "Qwen/Qwen3-8B", "é\u202e", "a" * 3000, "--", "-", "=", ":", "|", "&", "\\", "#", "\t",
    "\x07",
)  # fmt: skip
"""What takes the place of a word."""


def mutant(text: str, rng: random.Random) -> str:
    """``text`` with one to six lines or words changed."""
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at = rng.randrange(len(lines)) if lines else 0
        kind = rng.randrange(8)
        if not lines or kind == 0:
            lines.insert(at, rng.choice(HOSTILE))
        elif kind == 1:
            del lines[at]
        elif kind == 2:
            lines.insert(rng.randrange(len(lines)), lines[at])
        else:
            words = lines[at].replace("=", "= ").replace(",", " , ").split(" ")
            words[rng.randrange(len(words))] = rng.choice((*HOSTILE, *text.split()[:40]))
            lines[at] = " ".join(words).replace("= ", "=").replace(" , ", ",")
    return "\n".join(lines)


def judge(path: Path) -> None:
    """Reads the file and puts it to the estimate, as an audit does before it looks for what would be better."""
    cluster = load_cluster("dgx-h100")
    ask = Ask(path=path, given={"response_mean": "100"} if path.name.startswith("rl_") else {}, node=8)
    if read_rl_launch(ask) is not None:
        audit_rl(ask, cluster=cluster)
        return
    reading = read_launch(replace(ask, node=cluster.accelerators_per_node))
    violations(reading, posed(reading, None, cluster))


@pytest.mark.parametrize("name", SEEDS)
def test_mutants_are_read_or_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(SEEDS[name])
    with contextlib.suppress(ShardplanError):
        judge(path)  # what is imported at first takes its time
    slow: list[tuple[float, int]] = []
    for seed in range(BUDGET):
        path.write_text(mutant(SEEDS[name], random.Random(seed)))  # noqa: S311  # the same files at every run
        start = time.process_time()
        found = "read"
        try:
            judge(path)
        except ShardplanError as error:
            found = error.rule
        except Exception as error:  # a traceback: says which file
            raise AssertionError((seed, path.read_text())) from error
        assert found, (seed, path.read_text())  # a refusal has a rule
        slow.append((time.process_time() - start, seed))
    assert max(slow)[0] < 5, max(slow)  # [s] of the processor: a hundredth is usual, and a busy machine counts more


STARTS: Final = """# Train
Run `LENGTH=4096 bash scripts/run.sh 4 Qwen/Qwen3-8B` or
```bash
export LENGTH=512 N=8
for n in 2 4; do sbatch --nodes=$n scripts/run.sh $n Qwen/Qwen3-8B; done
accelerate launch --config_file zero3.yaml --num_processes $N sft.py --config scripts/sft.yaml --deepspeed ds.json
```
"""


def test_mutants_of_a_readme_start_files_or_do_not(tmp_path: Path) -> None:
    test_callers.repository(tmp_path, STARTS, callers={"scripts/sft.yaml": test_callers.ARGUMENTS.format(model="gpt2")})
    for seed in range(BUDGET):
        (tmp_path / "README.md").write_text(mutant(STARTS, random.Random(seed)))  # noqa: S311  # as above
        for name in ("run.sh", "sft.yaml"):
            start = time.process_time()
            with contextlib.suppress(ShardplanError):
                read_launch(started(Ask(path=tmp_path / "scripts" / name, node=8)))
            assert time.process_time() - start < 10, (seed, name)
