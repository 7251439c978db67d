"""Collectives between the processes that torchrun started: NCCL on GPUs, gloo on CPUs."""

from __future__ import annotations

from typing import Any

from shardplan.calibration.microbench.cases import Ranks
from shardplan.calibration.microbench.records import Exchange
from shardplan.calibration.microbench.torch_kernels import Call
from shardplan.errors import InputError

VOLUME = 2**28
"""Bytes after which a series of calls ends."""


class Exchanges:
    """Groups of processes and the calls in them."""

    def __init__(self, torch: Any, device: Any, ranks: Ranks) -> None:
        self._torch, self._device, self._ranks = torch, device, ranks
        self._dist = torch.distributed
        self._is_own = not self._dist.is_initialized()
        if self._is_own:
            self._join()
        self._groups = {group: self._own_group(*group) for group in ranks.groups}

    def _join(self) -> None:
        try:
            self._dist.init_process_group(backend="nccl" if self._device.type == "cuda" else "gloo")
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"the processes cannot join: {str(error).splitlines()[0]:.200}",
                rule="collectives are timed between processes that reach each other",
                hint="start with torchrun; see its --rdzv-endpoint for several nodes",
            ) from error

    def _own_group(self, size: int, stride: int) -> Any:
        """The group of this process; all processes make all groups, in the same order."""
        own = None
        for first in range(self._ranks.total):
            if (first // stride) % size == 0:
                members = [first + position * stride for position in range(size)]
                group = self._dist.new_group(members)
                if self._dist.get_rank() in members:
                    own = (group, members)
        assert own is not None
        return own

    def call_of(self, case: Exchange) -> tuple[Call, int]:
        """A call, and how many of them make a series."""
        group, members = self._groups[case.size, case.stride]
        self._dist.barrier()
        num_calls = max(2, min(40, VOLUME // case.bytes))
        return self._call(case, group, members), num_calls

    def _call(self, case: Exchange, group: Any, members: list[int]) -> Call:
        dist = self._dist
        whole = self._tensor(case.bytes, case.size)
        part = whole[: whole.numel() // case.size].clone()
        match case.operation:
            case "all_gather":
                gather = _either(dist, "all_gather_single", "all_gather_into_tensor")
                return lambda: gather(whole, part, group=group)
            case "reduce_scatter":
                scatter = _either(dist, "reduce_scatter_single", "reduce_scatter_tensor")
                return lambda: scatter(part, whole, group=group)
            case "all_reduce":
                return lambda: dist.all_reduce(whole, group=group)
            case "all_to_all":
                received = self._torch.empty_like(whole)
                return lambda: dist.all_to_all_single(received, whole, group=group)
            case "p2p":
                return self._ring(whole, group, members)

    def _ring(self, sent: Any, group: Any, members: list[int]) -> Call:
        """Every process sends to the next one and receives from the one before."""
        dist, received = self._dist, self._torch.empty_like(sent)
        place = members.index(dist.get_rank())
        after, before = members[(place + 1) % len(members)], members[place - 1]

        def call() -> None:
            both = [dist.P2POp(dist.isend, sent, after, group), dist.P2POp(dist.irecv, received, before, group)]
            for work in dist.batch_isend_irecv(both):
                work.wait()

        return call

    def _tensor(self, num_bytes: int, size: int) -> Any:
        """Zeros, so that repeated sums stay finite."""
        kind = self._torch.bfloat16 if self._device.type == "cuda" else self._torch.float32
        return self._torch.zeros(max(num_bytes // kind.itemsize // size, 1) * size, device=self._device, dtype=kind)

    def close(self) -> None:
        """Leaves the group that was joined here."""
        if self._is_own and self._dist.is_initialized():
            self._dist.destroy_process_group()


def _either(dist: Any, name: str, older_name: str) -> Any:
    """A function of torch by its name, or by the one it had in older versions."""
    return getattr(dist, name, None) or getattr(dist, older_name)
