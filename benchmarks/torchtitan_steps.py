"""Training steps of torchtitan 0.2.2 on one GPU: measured step times and memory, a JSON line for each case.

    python benchmarks/torchtitan_steps.py --out steps.jsonl [--only NAME ...] [--minutes 9] [--trace FOLDER]

A case of one accelerator trains on random tokens, and its time and memory are those of a real run. A case of more runs
one rank of it with PyTorch's fake process group: kernels, shards, buffers and the allocator are those of the real run,
and only the collectives move nothing. Its memory is therefore a measurement, and its time is that of the rank's own
kernels. Needs torch, torchtitan 0.2.2 and what that imports; nothing is downloaded. ``benchmarks/torchtitan_rows.py``
makes measured runs of the lines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

WARM_UP_STEPS = 3
PROFILED_STEPS = 3


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama model, by the names of torchtitan."""

    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int = 8
    ffn: int
    vocab_size: int = 128256

    @property
    def multiple_of(self) -> int:
        """Of the feed-forward width: itself, with the factor below, gives exactly ``ffn``."""
        return self.ffn

    @property
    def ffn_dim_multiplier(self) -> float:
        """Any factor whose product is at most ``ffn``, which is then rounded up to it."""
        return self.ffn / (8 * self.dim / 3) * 0.999


EIGHT_B = Shape(dim=4096, n_layers=32, n_heads=32, ffn=14336)
SEVENTY_B = Shape(dim=8192, n_layers=80, n_heads=64, ffn=28672)
SHAPES = {
    "llama-1.5b": Shape(dim=2048, n_layers=16, n_heads=32, ffn=8192),
    "llama-3.6b": Shape(dim=3072, n_layers=28, n_heads=24, ffn=8192),
    "llama-8b-of-8-layers": replace(EIGHT_B, n_layers=8),
    "llama-3.1-8b": EIGHT_B,
    "llama-3.1-70b": SEVENTY_B,
    "llama-3.1-405b": Shape(dim=16384, n_layers=126, n_heads=128, ffn=53248),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration."""

    model: str
    seq: int
    batch: int = 1
    """Sequences of a micro-batch."""
    accumulate: int = 1
    """Micro-batches of a step on each data-parallel rank."""
    recompute: str = "op"
    """none, op, full, or every n-th layer as a number."""
    compiled: bool = True
    fsdp: int = 1
    replicas: int = 1
    tp: int = 1
    pp: int = 1
    schedule: str = "1F1B"
    layers_per_stage: int | None = None
    reshard: str = "default"
    steps: int = 8
    extra: tuple[str, ...] = field(default=())

    @property
    def world(self) -> int:
        """Accelerators."""
        return self.fsdp * self.replicas * self.tp * self.pp

    @property
    def name(self) -> str:
        """Unique, and short enough for a table."""
        degrees = "".join(
            f"-{key}{value}"
            for key, value in (("fsdp", self.fsdp), ("x", self.replicas), ("tp", self.tp), ("pp", self.pp))
            if value > 1
        )
        pipeline = f"-{self.schedule.lower()}" if self.pp > 1 else ""
        steps = f"x{self.accumulate}" if self.accumulate > 1 else ""
        reshard = "" if self.reshard == "default" else f"-reshard-{self.reshard}"
        kernels = "" if self.compiled else "-eager"
        return f"{self.model}-s{self.seq}-b{self.batch}{steps}-{self.recompute}{degrees}{pipeline}{reshard}{kernels}"

    def flags(self, folder: Path) -> list[str]:
        """The command line of torchtitan."""
        local = self.batch * (self.accumulate if self.pp > 1 else 1)
        ac = ["none"] if self.recompute == "none" else ["full"] if self.recompute == "full" else ["selective"]
        given = {
            "job.dump_folder": folder,
            "model.name": "measured",
            "model.flavor": "shape",
            "training.seq_len": self.seq,
            "training.local_batch_size": local,
            "training.global_batch_size": self.batch * self.accumulate * self.fsdp * self.replicas,
            "training.steps": self.steps + PROFILED_STEPS,
            "parallelism.data_parallel_shard_degree": self.fsdp,
            "parallelism.data_parallel_replicate_degree": self.replicas,
            "parallelism.tensor_parallel_degree": self.tp,
            "parallelism.pipeline_parallel_degree": self.pp,
            "parallelism.pipeline_parallel_microbatch_size": self.batch,
            "parallelism.pipeline_parallel_schedule": self.schedule,
            "parallelism.fsdp_reshard_after_forward": self.reshard,
            "activation_checkpoint.mode": ac[0],
            "metrics.log_freq": 10_000,
        }
        if ac[0] == "selective":
            given["activation_checkpoint.selective_ac_option"] = self.recompute
        if self.layers_per_stage:
            given["parallelism.pipeline_parallel_layers_per_stage"] = self.layers_per_stage
        if self.pp > 1:  # as many layers on every stage
            given["parallelism.pipeline_parallel_first_stage_less_layers"] = 0
            given["parallelism.pipeline_parallel_last_stage_less_layers"] = 0
        if self.world > 1:
            given["comm.mode"] = "fake_backend"
        words = [f"--{key}={value}" for key, value in given.items()]
        return [*words, *(["--compile.enable"] if self.compiled else []), *self.extra]


def _cases() -> list[Case]:
    """In the order of their worth: what does not fit into the time is left out at the end."""
    eight, small, middle = "llama-8b-of-8-layers", "llama-1.5b", "llama-3.6b"
    alone = [
        Case(model=eight, seq=8192),
        Case(model=eight, seq=8192, compiled=False),
        Case(model=eight, seq=8192, recompute="full"),
        Case(model=eight, seq=4096, recompute="none"),
        Case(model=small, seq=4096, batch=2, recompute="none", compiled=False),
        Case(model=small, seq=4096, batch=4),
        Case(model=small, seq=2048, batch=8, recompute="none"),
        Case(model=middle, seq=4096, recompute="op"),
        Case(model=middle, seq=4096, batch=2, recompute="full"),
        Case(model=small, seq=16384, recompute="full"),
        Case(model=small, seq=4096, batch=2, accumulate=4),
        Case(model=eight, seq=4096, batch=2, recompute="2", compiled=False),
    ]
    full8, big = "llama-3.1-8b", "llama-3.1-70b"
    ranks = [
        Case(model=full8, seq=8192, fsdp=8),
        Case(model=full8, seq=8192, fsdp=8, recompute="full"),
        Case(model=full8, seq=4096, fsdp=8, recompute="none"),
        Case(model=full8, seq=8192, fsdp=8, compiled=False),
        Case(model=full8, seq=8192, batch=2, fsdp=64, recompute="full"),
        Case(model=full8, seq=8192, fsdp=64, reshard="never", recompute="full"),
        Case(model=full8, seq=8192, batch=2, fsdp=4, tp=2),
        Case(model=full8, seq=8192, batch=4, fsdp=8, tp=4, recompute="full"),
        Case(model=full8, seq=8192, batch=2, fsdp=4, replicas=2, recompute="full"),
        Case(model=full8, seq=4096, accumulate=8, fsdp=4, pp=2, recompute="full"),
        Case(model=full8, seq=4096, accumulate=8, fsdp=4, pp=4, recompute="op"),
        Case(
            model=full8, seq=4096, accumulate=8, fsdp=4, pp=4, schedule="Interleaved1F1B", layers_per_stage=4,
            recompute="full",
        ),
        Case(model=big, seq=8192, fsdp=8, tp=8, recompute="full"),
        Case(model=big, seq=8192, fsdp=64, recompute="full"),
        Case(model=big, seq=4096, fsdp=32, tp=8, recompute="op"),
        Case(model=big, seq=8192, accumulate=16, fsdp=8, tp=8, pp=4, recompute="full"),
        Case(model="llama-3.1-405b", seq=8192, accumulate=16, fsdp=8, tp=8, pp=8, recompute="full"),
    ]  # fmt: skip
    return [*alone, *(replace(case, steps=5) for case in ranks)]


class RandomTokens:
    """Batches of random tokens, for ever; what torchtitan asks of a data loader."""

    def __init__(self, vocab_size: int, batch: int, seq: int) -> None:
        self.shape = (batch, seq + 1)
        self.vocab_size = vocab_size

    def __iter__(self) -> Iterator[Any]:
        import torch

        generator = torch.Generator().manual_seed(0)
        while True:
            tokens = torch.randint(self.vocab_size, self.shape, generator=generator)
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to go on from."""


def _register(case: Case) -> None:
    """The model of the case as torchtitan's own Llama 3, with random tokens in place of a data set."""
    from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec
    from torchtitan.protocols.train_spec import register_train_spec

    shape = SHAPES[case.model]
    args = TransformerModelArgs(
        dim=shape.dim,
        n_layers=shape.n_layers,
        n_heads=shape.n_heads,
        n_kv_heads=shape.n_kv_heads,
        vocab_size=shape.vocab_size,
        multiple_of=shape.multiple_of,
        ffn_dim_multiplier=shape.ffn_dim_multiplier,
        rope_theta=500000,
    )

    def tokens(**given: Any) -> RandomTokens:
        batch = given["job_config"].training.local_batch_size
        return RandomTokens(shape.vocab_size, batch, case.seq)

    spec = replace(
        get_train_spec(),
        model_args={"shape": args},
        build_tokenizer_fn=None,
        build_dataloader_fn=tokens,
        build_validator_fn=None,
    )
    register_train_spec("measured", spec)


def measure(case: Case, folder: Path, trace: Path | None) -> dict[str, Any]:
    """Step times and memory of one case, in this process."""
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "NGPU": str(case.world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    import torch
    from torchtitan.config import ConfigManager
    from torchtitan.train import Trainer

    _register(case)
    trainer = Trainer(ConfigManager().parse_args(case.flags(folder)))
    cuda = torch.cuda
    times: list[float] = []
    states_before = cuda.memory_allocated()
    original = trainer.train_step

    def timed(data: Any) -> None:
        if len(times) == WARM_UP_STEPS - 1:
            cuda.synchronize()
            cuda.reset_peak_memory_stats()
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        original(data)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3)

    trainer.train_step = timed
    trainer.should_continue_training = lambda: trainer.step < case.steps
    trainer.train()
    free, total = cuda.mem_get_info()
    record = {
        "name": case.name,
        "case": asdict(case),
        "world": case.world,
        "step_times_s": [round(one, 6) for one in times],
        "step_time_s": statistics.median(times[WARM_UP_STEPS - 1 :]),
        "weights_bytes": states_before,
        "allocated_after_bytes": cuda.memory_allocated(),
        "peak_allocated_bytes": cuda.max_memory_allocated(),
        "peak_reserved_bytes": cuda.max_memory_reserved(),
        "device_used_bytes": total - free,
        "parameters_of_rank": sum(
            getattr(one, "_local_tensor", one).numel() for part in trainer.model_parts for one in part.parameters()
        ),
        "software": f"torch {torch.__version__}, torchtitan 0.2.2",
        "device": cuda.get_device_name(),
    }
    if trace is not None:
        _profile(trainer, original, trace / f"{case.name}.json.gz")
    return record


def _profile(trainer: Any, step: Any, file: Path) -> None:
    """Two more steps under the profiler of torch."""
    from torch.profiler import ProfilerActivity, profile, schedule

    data = trainer.batch_generator(trainer.dataloader)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=1, active=PROFILED_STEPS - 1, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
    ) as profiler:
        for _ in range(PROFILED_STEPS):
            step(data)
            profiler.step()


def _run_all(cases: list[Case], out: Path, minutes: float, trace: Path | None, traced: int) -> None:
    """Every case in a process of its own, forked so that torch is imported once; results are kept as they come."""
    import torch  # noqa: F401  # imported once, before the fork; torchtitan touches CUDA and is left to the children

    deadline = time.monotonic() + 60 * minutes
    for number, case in enumerate(cases):
        if time.monotonic() > deadline:
            print(f"time is up: {len(cases) - number} cases left out", flush=True)
            return
        start, pid = time.monotonic(), os.fork()
        if pid == 0:
            _child(case, out, trace if number < traced else None)
        os.waitpid(pid, 0)
        print(f"  {time.monotonic() - start:.0f} s", flush=True)


def _child(case: Case, out: Path, trace: Path | None) -> None:
    """Never returns: a forked process ends here, whatever happened."""
    record: dict[str, Any] = {"name": case.name}
    try:
        if "SHOW" not in os.environ:
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
        with TemporaryDirectory() as folder:
            record = measure(case, Path(folder), trace)
        memory = record["peak_allocated_bytes"] / 1e9
        print(f"{case.name}: {record['step_time_s']:.4f} s, {memory:.2f} GB", end="", flush=True)
    except BaseException as error:  # noqa: BLE001  # a case that fails is a line of its own
        lines = [line for line in str(error).splitlines() if line.strip()]
        record["failed"] = f"{type(error).__name__}: {lines[0] if lines else ''}"[:400]
        print(f"{case.name}: {record['failed']}", end="", flush=True)
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    with suppress(BaseException):
        sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="file of JSON lines, which is added to")
    parser.add_argument("--only", nargs="*", help="parts of the names of cases")
    parser.add_argument("--skip", type=int, default=0, help="cases to leave out at the beginning")
    parser.add_argument("--minutes", type=float, default=60, help="start no case after this long")
    parser.add_argument("--trace", type=Path, help="folder for profiler traces of the first cases")
    parser.add_argument("--traced", type=int, default=1, help="how many cases are traced")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    given = parser.parse_args()
    cases = [case for case in _cases() if not given.only or any(part in case.name for part in given.only)]
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    _run_all(cases[given.skip :], given.out, given.minutes, given.trace, given.traced)


if __name__ == "__main__":
    main()
