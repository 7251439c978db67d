"""Jobs of a scheduler: what its options say, variables that every job has, scripts that submit themselves, waiting."""

# ruff: noqa: PT018 - texts stand as they are written

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.read.truth import BASH, words_of_bash
from tests.launch.scripts import read

from shardplan.launch.read import Script, parse_script
from shardplan.launch.read.bash.slurm import accelerators

JOB = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\n#SBATCH --gres=gpu:h100:8,nvme:100G\n"


def _runs(script: Script) -> list[list[str]]:
    return [[word.shown for word in each.words] for each in script.commands if each.words[0].text == "run"]


@pytest.mark.skipif(BASH is None, reason="bash is the truth here")
@pytest.mark.parametrize(
    "script",
    [
        'if [ -z "$SLURM_JOB_ID" ]; then sbatch "$0"; exit; fi; run a',
        "[ -z $SLURM_JOB_ID ] && { sbatch $0; exit 0; }; run a",
        "[[ -n ${SLURM_JOBID:-} ]] || exit 1; run ${SLURM_JOB_ID:+in} ${SLURM_JOBID+set}",
        "test -v SLURM_JOB_ID && run job || run none",
        'if [[ "$SLURM_SUBMIT_DIR" != "" ]]; then run a; else run b; fi',
        "case $SLURM_JOB_ID in '') run out;; *) run in;; esac",
        "run $SLURM_NNODES $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) $SLURM_NTASKS ${SLURM_JOB_NUM_NODES:-1}",
    ],
)
def test_a_script_with_directives_is_read_as_the_job_that_it_is(script: str, tmp_path: Path) -> None:
    """Truth: bash with the variables that Slurm sets in a job of these directives."""
    of_slurm = {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_SUBMIT_DIR": "/x", "SLURM_NNODES": "4"}
    counts = {"SLURM_JOB_NUM_NODES": "4", "SLURM_GPUS_ON_NODE": "8", "SLURM_NTASKS": "32"}
    truth = words_of_bash(script, tmp_path, env={**of_slurm, **counts})
    assert truth and _runs(parse_script(JOB + script, "job.sh")) == truth


@pytest.mark.parametrize(
    "submit",
    [
        'sbatch -N 16 --gpus-per-node=mi250:8 "$0" "$@"; exit 0',
        "exec sbatch --nodes=16 --gpus-per-node mi250:8 $(realpath $0)",
        'echo submitting; sbatch --nodes 16 --gpus-per-node=mi250:8 "${BASH_SOURCE[0]}"\n exit $?',
        "sbatch --nodes=16 --gpus-per-node=8 train.sh; exit",
    ],
)
def test_a_script_that_submits_itself_is_read_as_the_job_that_it_asks_for(submit: str) -> None:
    script = f'if [ -z "$SLURM_JOB_ID" ]; then\n {submit}\nfi\nrun $SLURM_NNODES $SLURM_GPUS_ON_NODE'
    found = parse_script(script, "jobs/train.sh")
    assert _runs(found) == [["run", "16", "8"]] and any("submits itself" in note for note in found.notes)


def test_a_script_that_submits_another_one_ends_there() -> None:
    found = parse_script('if [ -z "$SLURM_JOB_ID" ]; then sbatch other.sh; exit; fi; run a', "train.sh")
    assert _runs(found) == []


def test_variables_of_a_job_are_set_but_not_known() -> None:
    found = parse_script(JOB + 'run --id $SLURM_JOB_ID "${SLURM_NODEID:-0}" "$SLURM_ARRAY_TASK_ID"', "a.sh")
    assert _runs(found) == [["run", "--id", "<env:SLURM_JOB_ID>", "<env:SLURM_NODEID>", "<env:SLURM_ARRAY_TASK_ID>"]]
    assert not any(word.splits for word in found.commands[0].words)


def test_hosts_of_a_job_are_as_many_as_its_nodes() -> None:
    found = parse_script(
        JOB + "nodes=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )\nH=${nodes[0]}\n"
        "mapfile -t L < <(scontrol show hostnames)\nN=$(scontrol show hostnames $SLURM_NODELIST | wc -l)\n"
        'run ${#nodes[@]} $H ${#L[@]} $N "$(scontrol show hostnames | head -n 1)" ${nodes[4]:-none}',
        "a.sh",
    )
    host = "<cmd:scontrol show hostnames>"
    assert _runs(found) == [["run", "4", host, "4", "4", host, "none"]]


@pytest.mark.parametrize(
    "loop",
    [
        "while ! nc -z $HEAD 6379; do sleep 5; done",
        "until [ -f /scratch/ready ]; do sleep 1; N=$((N+1)); done",
        "while true; do if [ -f ready ]; then break; fi; sleep 10; done",
        "while :; do C=$(squeue -u me | wc -l); if (( C < 4 )); then break; fi; sleep 60; done",
        "N=0; while [ $N -lt 100000 ]; do [ -e ready ] && break; N=$((N+1)); done",
        "while true; do [ -e ready ] && break; done",
        "for ((i=0;i<100000;i++)); do if ping -c1 host; then break; fi; done",
    ],
)
def test_loops_that_wait_are_read_once(loop: str) -> None:
    found = parse_script(f"TP=8\n{loop}\nrun $TP\n" + f"{loop}\n" * 3 + "run end", "a.sh")
    assert _runs(found) == [["run", "8"], ["run", "end"]] and found.commands[-1].when == ()


def test_what_waiting_changes_is_not_decided_and_what_it_sets_is() -> None:
    found = parse_script(
        "N=0; while true; do N=$((N+1)); TP=4; [ -e ready ] && break; sleep 1; done; run $N $TP", "a.sh"
    )
    assert found.commands[-1].words[1].text is None and found.commands[-1].words[2].text == "4"


def test_a_launch_that_is_tried_again_runs_in_any_case() -> None:
    found = parse_script("while true; do run a && break; sleep 60; done", "a.sh")
    assert _runs(found) == [["run", "a"]] and found.commands[0].when == ()


def test_what_is_read_from_undecided_text_is_asked_for() -> None:
    found = parse_script('IFS=, read -r A B <<< "$X"; read -ra L <<< "$Y"; run $A ${#L[@]} "${L[0]}"', "a.sh")
    needs = [word.needs for word in found.commands[-1].words[1:]]
    assert needs == [("env:X",), ("cmd:read L", "env:Y"), ("cmd:read L", "env:Y")]


def test_accelerators_of_a_node_are_counted_by_what_the_job_asks_for() -> None:
    count = 'run $(nvidia-smi -L | wc -l) $(python -c "import torch; print(torch.cuda.device_count())")'
    visible = "run $(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)"
    assert _runs(parse_script(f"{JOB}{count}\n{visible}", "a.sh")) == [["run", "8", "8"], ["run", "8"]]
    assert all("<" in word for word in _runs(parse_script(count, "a.sh"))[0][1:])


def test_folders_that_are_not_decided_are_whole_words() -> None:
    found = parse_script('IFS=, read -ra L <<< "$D/wiki:1,$D/code:2"; run ${#L[@]} "${L[1]}"', "a.sh")
    assert _runs(found) == [["run", "2", "<env:D>/code:2"]]


@pytest.mark.parametrize(
    ("text", "number", "name"),
    [
        ("gpu:8", 8, ""), ("gpu:h100:8", 8, "h100"), ("mi250:8", 8, "mi250"), ("8", 8, ""), ("gpu", 1, ""),
        ("gpu:a100-sxm4-80gb:4(S:0-1)", 4, "a100-sxm4-80gb"), ("nvme:1,gpu:v100:4", 4, "v100"),
        ("gres/gpu:4", 4, ""), ("gres:gpu:2", 2, ""), ("dcu:4", 4, ""), ("lustre:1,nvme:1", None, None),
    ],
)  # fmt: skip
def test_accelerators_of_a_node(text: str, number: int | None, name: str | None) -> None:
    found = accelerators(text)
    assert (found and found.number, found and found.name) == (number, name)


LINE = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --tensor-model-parallel-size 2 --micro-batch-size 1 --lr 1"


@pytest.mark.parametrize(
    ("directives", "line", "world"),
    [
        ("--nodes=4 --gres=gpu:h100:8,nvme:1T", "srun torchrun --nproc_per_node gpu", 32),
        ("--nodes=4 --gpus-per-node=mi250:8", "srun torchrun --nproc-per-node $SLURM_GPUS_ON_NODE", 32),
        ("-N 2 --gpus-per-node=4", "srun --ntasks-per-node=4 python", 8),
        ("-N 2 --ntasks-per-node=4 --gres=gpu:4", "srun python", 8),
        ("--ntasks=16 --ntasks-per-node=4 --gpus-per-task=1", "srun python", 16),
        ("--ntasks=16 --gpus-per-task=1", "srun python", 16),
        ("--gres=gpu:a100:4", "torchrun --standalone --nproc_per_node auto", 4),
        ("--ntasks-per-node=4 --gres=gpu:4", "srun python", 4),
        ("--gres=gpu:4", "torchrun --nnodes $SLURM_NNODES --nproc_per_node 4", None),
        ("--time=1:00", "srun --nodes=2 --gres=gpu:h100:8 torchrun --nproc_per_node=gpu", 16),
    ],
)
def test_the_world_of_a_job(tmp_path: Path, directives: str, line: str, world: int | None) -> None:
    found = read(tmp_path, "job.sh", f"#!/bin/bash\n#SBATCH {directives}\n{line} {LINE}\n")
    assert found.value("num_accelerators") == world
