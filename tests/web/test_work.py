"""The place of work: bounded, fair, cut off when nobody waits, and no question worked on twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from shardplan.planner.stopping import check
from shardplan.web.workplace import AnswerCache, Busy, Cancelled, Gone, TookTooLong, Workplace, size_of


async def _stays() -> None:
    await asyncio.Event().wait()


class _Place:
    """A place of work in a loop of its own, with questions that end when they are let go."""

    def __init__(self, *, workers: int = 1, queue_length: int = 8, time_limit: float = 60.0) -> None:
        self.place = Workplace(workers=workers, queue_length=queue_length, time_limit=time_limit, cache_bytes=10_000)
        self.gates: dict[str, threading.Event] = {}
        self.begun: list[str] = []

    def ask(
        self, name: str, *, client: str = "a", key: str | None = None, gone: Callable[[], Awaitable[None]] = _stays
    ) -> asyncio.Task[str]:
        gate = self.gates.setdefault(name, threading.Event())

        def work(cancelled: Cancelled) -> str:
            self.begun.append(name)
            while not gate.wait(0.005):
                check(cancelled)
            return name

        return asyncio.ensure_future(self.place.answer(work, client=client, gone=gone, key=key))

    async def settled(self, number: int) -> None:
        """Until so many questions have begun."""
        while len(self.begun) < number:
            await asyncio.sleep(0.001)

    def let_go(self, *names: str) -> None:
        for name in names or tuple(self.gates):
            self.gates[name].set()


def _run(test: Callable[[], Awaitable[Any]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_so_many_at_once_and_the_others_wait() -> None:
    async def test() -> None:
        at = _Place(workers=2)
        asked = [at.ask(name) for name in "abcd"]
        await at.settled(2)
        assert (at.place.num_running, at.place.num_waiting) == (2, 2)
        at.let_go()
        assert await asyncio.gather(*asked) == list("abcd")
        assert (at.place.num_running, at.place.num_waiting) == (0, 0)

    _run(test)


def test_clients_take_turns_however_many_questions_one_has() -> None:
    async def test() -> None:
        at = _Place()
        greedy = [at.ask(f"a{number}", client="a") for number in range(6)]
        modest = at.ask("b", client="b")
        await at.settled(1)
        at.let_go()
        await asyncio.gather(*greedy, modest)
        assert at.begun.index("b") <= 2, "in turn, though six came before"

    _run(test)


def test_a_full_queue_sends_away_the_newest_of_who_has_most() -> None:
    async def test() -> None:
        at = _Place(queue_length=3)
        greedy = [at.ask(f"a{number}", client="a") for number in range(4)]  # one is worked on, three wait
        await at.settled(1)
        with pytest.raises(Busy):
            await at.ask("a4", client="a")
        modest = at.ask("b", client="b")
        with pytest.raises(Busy) as sent_away:
            await greedy[3]
        assert sent_away.value.retry_after >= 1
        at.let_go()
        assert await modest == "b"
        assert await asyncio.gather(*greedy[:3]) == ["a0", "a1", "a2"]

    _run(test)


def test_no_queue_at_all_answers_what_it_can_at_once() -> None:
    async def test() -> None:
        at = _Place(queue_length=0)
        first = at.ask("a")
        await at.settled(1)
        with pytest.raises(Busy):
            await at.ask("b")
        at.let_go()
        assert await first == "a"

    _run(test)


def test_work_stops_when_its_client_goes() -> None:
    async def test() -> None:
        at, left = _Place(), asyncio.Event()

        async def leaves() -> None:
            await left.wait()

        asked = at.ask("a", gone=leaves, key="k")
        await at.settled(1)
        left.set()
        with pytest.raises(Gone):
            await asked
        while at.place.num_running:
            await asyncio.sleep(0.001)
        assert len(at.place.cache) == 0
        at.let_go()
        assert await at.ask("a", key="k") == "a", "the next one who asks is answered"

    _run(test)


def test_a_question_that_waits_is_forgotten_when_its_client_goes() -> None:
    async def test() -> None:
        at, left = _Place(), asyncio.Event()

        async def leaves() -> None:
            await left.wait()

        first, second = at.ask("a"), at.ask("b", gone=leaves)
        await at.settled(1)
        left.set()
        with pytest.raises(Gone):
            await second
        assert at.place.num_waiting == 0
        at.let_go()
        await first
        assert at.begun == ["a"]

    _run(test)


def test_one_of_two_who_ask_the_same_may_go() -> None:
    async def test() -> None:
        at, left = _Place(), asyncio.Event()

        async def leaves() -> None:
            await left.wait()

        first, second = at.ask("a", key="k", gone=leaves), at.ask("a", key="k", client="b")
        await at.settled(1)
        left.set()
        with pytest.raises(Gone):
            await first
        at.let_go()
        assert await second == "a"
        assert at.begun == ["a"], "worked on once"

    _run(test)


def test_finished_answers_are_kept() -> None:
    async def test() -> None:
        at = _Place()
        at.gates["a"] = threading.Event()
        at.let_go()
        assert await at.ask("a", key="k") == await at.ask("a", key="k") == "a"
        assert at.begun == ["a"]
        await at.ask("a", key="another")
        await at.ask("a")
        assert at.begun == ["a"] * 3

    _run(test)


def test_an_answer_takes_limited_time_waiting_included() -> None:
    async def test() -> None:
        at = _Place(time_limit=0.05)
        asked = [at.ask("a"), at.ask("b")]
        for each in asked:
            with pytest.raises(TookTooLong):
                await each
        while at.place.num_running:
            await asyncio.sleep(0.001)
        assert at.place.num_waiting == 0

    _run(test)


def test_what_work_raises_reaches_all_who_ask_and_is_not_kept() -> None:
    async def test() -> None:
        place = Workplace(workers=1, queue_length=1, time_limit=60, cache_bytes=1000)

        def wrong(_: Cancelled) -> str:
            raise KeyError("wrong")

        asked = [asyncio.ensure_future(place.answer(wrong, client="a", gone=_stays, key="k")) for _ in range(2)]
        for each in asked:
            with pytest.raises(KeyError):
                await each
        assert await place.answer(lambda _: "right", client="a", gone=_stays, key="k") == "right"
        place.close()

    _run(test)


def test_the_cache_keeps_what_was_asked_last_within_its_bytes() -> None:
    cache = AnswerCache(100)
    cache.put("a", 1, 40)
    cache.put("b", 2, 40)
    assert cache.get("a") is not None
    cache.put("c", 3, 40)
    assert cache.get("b") is None
    assert (len(cache), cache.num_bytes) == (2, 80)
    cache.put("a", 4, 10)
    assert cache.num_bytes == 50
    cache.put("too large", 5, 101)
    assert cache.get("too large") is None
    cache.put("all", 6, 100)
    assert (len(cache), cache.num_bytes) == (1, 100)


def test_the_size_of_an_answer_counts_its_arrays_once() -> None:
    array = np.zeros(100_000)
    alone = size_of({"of": array})
    assert alone == pytest.approx(array.nbytes, rel=0.01)
    assert size_of({"of": array, "again": array, "view": array[:10]}) == pytest.approx(alone, rel=0.01)
    assert size_of(lambda: array) == pytest.approx(alone, rel=0.01), "what a function is bound to"
    assert size_of(array[::2]) == pytest.approx(alone, rel=0.01), "a view keeps all of its array"
