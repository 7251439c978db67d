"""The place of work: few questions run at once, few wait, each client in turn; finished answers are kept."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from threading import Thread
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

from starlette.requests import Request

MOST_ANSWERS: Final = 1024


class KeptAnswer(NamedTuple):
    """An answer and the memory that it takes."""

    value: Any
    num_bytes: int


class AnswerCache:
    """Answers by the question's key, within a limit in bytes."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: of all answers together; 0 keeps none."""
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._kept: OrderedDict[Hashable, KeptAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> KeptAnswer | None:
        """The answer to a question, which is now the last to go; None where it is not kept."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Any, num_bytes: int) -> None:
        """Keeps an answer, if there is room for it at all."""
        self._forget(key)
        if num_bytes > self.most_bytes:
            return
        self._kept[key] = KeptAnswer(value, num_bytes)
        self.num_bytes += num_bytes
        while self.num_bytes > self.most_bytes or len(self._kept) > MOST_ANSWERS:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        self.num_bytes -= 0 if gone is None else gone.num_bytes


SHARED: Final = frozenset((type, ModuleType, BuiltinFunctionType))
"""Kinds of what an answer refers to and does not own."""
MOST_OBJECTS: Final = 100_000


def size_of(value: Any) -> int:
    """Memory that an answer keeps alive, at least: its objects, arrays included. [bytes]

    Objects are followed to :data:`MOST_OBJECTS`, those that are bound in functions included; arrays hold nearly all of
    the memory of a search, and come first.
    """
    seen: set[int] = set()
    total, level = 0, [value]
    while level and len(seen) < MOST_OBJECTS:
        fresh = {id(each): each for each in level if type(each) not in SHARED}
        for known in seen.intersection(fresh):
            del fresh[known]
        seen.update(fresh)
        total += sum(map(sys.getsizeof, fresh.values()))  # an array that is a view counts with the one that it shows
        level = _inside(fresh.values())
    return total


def _inside(values: Iterable[Any]) -> list[Any]:
    """What objects refer to; functions without the module that they stand in."""
    plain = [each for each in values if type(each) is not FunctionType]
    functions = [each for each in values if type(each) is FunctionType]
    bound = [part for each in functions for part in (each.__closure__, each.__defaults__, each.__kwdefaults__)]
    shown = [getattr(each, "base", None) for each in plain if type(each).__module__ == "numpy"]
    return [part for part in (*gc.get_referents(*plain), *bound, *shown) if part is not None]


T = TypeVar("T")
Cancelled = Callable[[], bool]
"""Whether nobody waits for an answer any more, or its time is over: what searches take as ``stop``."""
LONGEST_RETRY = 60
"""Seconds after which a client is asked to come back, at most."""


class Busy(Exception):  # noqa: N818  # what happened, not a fault
    """Too many questions wait: this one was sent away."""

    def __init__(self, retry_after: int = 1) -> None:
        """``retry_after``: when to ask again. [s]"""
        super().__init__(f"the server has more questions than it can answer; ask again in {retry_after} s")
        self.retry_after = retry_after


class TookTooLong(Exception):  # noqa: N818  # as Busy
    """The answer was not there in time."""

    def __init__(self, seconds: float) -> None:
        """``seconds``: the limit."""
        super().__init__(f"the answer took longer than {seconds:g} s, the limit of this server")
        self.seconds = seconds


class Gone(Exception):  # noqa: N818  # as Busy
    """Nobody waits for the answer any more."""


@dataclass(eq=False)
class Flight:
    """A question under way, and how many wait for its answer."""

    client: str
    work: Callable[[Cancelled], Any]
    key: Hashable
    deadline: float
    time_limit: float
    """From when it came to the deadline. [s]"""
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    num_waiting: int = 0
    is_cancelled: bool = False
    num_bytes: int = 0
    started: float = 0.0

    def cancelled(self) -> bool:
        """Whether to stop; asked from the thread that works."""
        return self.is_cancelled or time.monotonic() >= self.deadline

    def run(self) -> Any:
        """The answer; raises as the work does."""
        value = self.work(self.cancelled)
        self.num_bytes = 0 if self.key is None else size_of(value)
        return value


class Workplace:
    """Threads that answer questions. All methods are called in the event loop.

    A free thread takes the question of the client with the fewest under way, of several that which waits longest. Where
    the queue is full, the newest question of the client with most waiting goes: one client alone may fill it, but
    cannot keep others out.
    """

    def __init__(self, *, workers: int, queue_length: int, time_limit: float, cache_bytes: int) -> None:
        """``time_limit``: of a question, waiting included. [s]"""
        self.workers, self.queue_length, self.time_limit = workers, queue_length, time_limit
        self.cache = AnswerCache(cache_bytes)
        self.usual_time = 0.2
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="shardplan-work")
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[Flight]] = {}
        self._flights: dict[Hashable, Flight] = {}
        self._under_way: set[Flight] = set()

    @property
    def num_running(self) -> int:
        """Questions that threads work on."""
        return len(self._under_way)

    @property
    def num_waiting(self) -> int:
        """Questions that wait for a thread."""
        return sum(map(len, self._waiting.values()))

    async def answer(
        self,
        work: Callable[[Cancelled], T],
        *,
        client: str,
        gone: Callable[[], Awaitable[None]],
        key: Hashable | None = None,
        patience: float = 1.0,
    ) -> T:
        """What ``work`` returns. Raises as it does, and ``Busy``, ``TookTooLong`` and ``Gone``.

        What ``gone`` returns ends when the client has gone. Of questions with one ``key`` that come together, one is
        worked on. ``patience``: how many times the limit of time it may take.
        """
        kept = None if key is None else self.cache.get(key)
        if kept is not None:
            return kept.value
        flight = self._flights.get(key) or self._started(work, client, key, self.time_limit * patience)
        flight.num_waiting += 1
        leaving = asyncio.ensure_future(gone())
        try:
            left = max(flight.deadline - time.monotonic(), 0.0)
            await asyncio.wait({flight.done, leaving}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if flight.done.done():
                return flight.done.result()
            raise Gone if leaving.done() else TookTooLong(flight.time_limit)
        finally:
            leaving.cancel()
            flight.num_waiting -= 1
            if flight.num_waiting == 0 and not flight.done.done():
                self._abandon(flight)

    def close(self) -> None:
        """Stops all work that can be stopped."""
        for flight in (*self._under_way, *(each for line in self._waiting.values() for each in line)):
            self._abandon(flight)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _started(
        self, work: Callable[[Cancelled], Any], client: str, key: Hashable | None, time_limit: float
    ) -> Flight:
        """A new question in the queue. Raises Busy."""
        flight = Flight(
            client=client, work=work, key=key, deadline=time.monotonic() + time_limit, time_limit=time_limit
        )
        self._waiting.setdefault(client, deque()).append(flight)
        self._dispatch()
        if self.num_waiting > self.queue_length:
            self._send_away(max(self._waiting.values(), key=len).pop())
        if flight.done.done():
            flight.done.result()
        if key is not None:
            self._flights[key] = flight
        return flight

    def _send_away(self, flight: Flight) -> None:
        """Ends a question that has not begun."""
        busy_for = ceil(self.usual_time * (self.num_waiting + 1) / self.workers)
        self._leave(flight)
        flight.done.set_exception(Busy(min(max(busy_for, 1), LONGEST_RETRY)))
        flight.done.exception()  # it may be that nobody waits

    def _leave(self, flight: Flight) -> None:
        """Takes a question out of the books."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        line = self._waiting.get(flight.client)
        if line is not None:
            if flight in line:
                line.remove(flight)
            if not line:
                del self._waiting[flight.client]

    def _abandon(self, flight: Flight) -> None:
        """Stops a question that nobody waits for."""
        flight.is_cancelled = True
        self._leave(flight)
        if flight not in self._under_way and not flight.done.done():
            flight.done.cancel()

    def _dispatch(self) -> None:
        """Gives questions to free threads."""
        while self._waiting and len(self._under_way) < self.workers:
            client = min(self._waiting, key=lambda each: self._running[each])
            flight = self._waiting[client].popleft()
            rest = self._waiting.pop(client)
            if rest:
                self._waiting[client] = rest  # behind all others
            self._under_way.add(flight)
            self._running[client] += 1
            flight.started = time.monotonic()
            begun = asyncio.get_running_loop().run_in_executor(self._threads, flight.run)
            begun.add_done_callback(partial(self._ended, flight))

    def _ended(self, flight: Flight, ended: asyncio.Future[Any]) -> None:
        """Hands over the answer, and the thread to the next question."""
        self._under_way.discard(flight)
        self._running[flight.client] -= 1
        self._running += Counter()  # forgets who has none
        self._leave(flight)
        error = None if ended.cancelled() else ended.exception()
        if not (flight.is_cancelled or ended.cancelled()):
            self.usual_time += (time.monotonic() - flight.started - self.usual_time) / 8
        if not flight.done.done():
            self._hand_over(flight, ended, error)
        self._dispatch()

    def _hand_over(self, flight: Flight, ended: asyncio.Future[Any], error: BaseException | None) -> None:
        if ended.cancelled() or flight.is_cancelled:
            flight.done.cancel()
        elif error is not None:
            late = TookTooLong(flight.time_limit) if flight.cancelled() else error
            flight.done.set_exception(late)
            flight.done.exception()
        else:
            if flight.key is not None:
                self.cache.put(flight.key, ended.result(), flight.num_bytes)
            flight.done.set_result(ended.result())


async def answer(
    request: Request, work: Callable[[Cancelled], T], *, key: Hashable | None = None, patience: float = 1.0
) -> T:
    """What ``work`` returns, worked out in a thread of the place of work.

    ``work`` gets a function to ask whether to stop, which searches take as ``stop``. ``key``: finished answers are
    kept under it, and questions that come together are worked on once; the answer is not to be changed then.
    ``patience``: how many times the limit of time it may take, for what is many questions in one.

    Raises as ``work`` does; and ``Busy``, ``TookTooLong`` or ``Gone``, which the app turns into responses.
    """
    place: Workplace = request.app.state.workplace
    return await place.answer(work, client=client_of(request), gone=lambda: _gone(request), key=key, patience=patience)


def client_of(request: Request) -> str:
    """Who asks, as far as fairness goes: an address, of IPv6 its network of 64 bits."""
    host = request.client.host if request.client is not None else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else host


async def _gone(request: Request) -> None:
    """Ends when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


FIRST_VISIT: Final = 0.5
"""Seconds that a first page has the processor to itself."""


@cache
def warm_up(*, has_pages: bool) -> Thread:
    """Starts to fetch it, in a thread of its own; once in a process."""
    thread = Thread(target=_fetch, args=(has_pages,), name="shardplan-warming", daemon=True)
    thread.start()
    return thread


def _fetch(has_pages: bool) -> None:  # noqa: FBT001  # an argument of a thread
    """What is asked for first comes first."""
    if has_pages:
        _first_page()
        time.sleep(FIRST_VISIT)
        import shardplan.web.pages.plan_answers  # noqa: F401  # imported ahead of the first question
    from shardplan.answers.search import search_document
    from shardplan.api.calls import search
    from shardplan.render.record import document_record
    from shardplan.reports.explanation import explain
    from shardplan.web.json import asking  # noqa: F401  # imported ahead of the first question
    from shardplan.web.json.document import document_of

    found = search("llama-3.1-70b", "dgx-h100", 256, top=3)
    document_record(search_document(found, explain(found)))
    if has_pages:
        _other_pages()
    document_of()


def _first_page() -> None:
    from shardplan.web.pages.form import form_context
    from shardplan.web.pages.rendering import templates
    from shardplan.web.state import PageQuestion

    templates().get_template("plan.html")
    form_context(PageQuestion())


def _other_pages() -> None:
    from shardplan.web.pages import VIEWS, routes_of

    for view in VIEWS:
        routes_of(view)
