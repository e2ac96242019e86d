"""Reads of one turn of an event loop, which travel together."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ._job import call_in
from ._names import joined, parts_of

if TYPE_CHECKING:
    from ._session import Session

#: First byte (below 0: counted from the end) and end (None: that of the file).
Range = tuple[int, "int | None"]


class Read(NamedTuple):
    """What came of a read."""

    data: memoryview
    length: int
    """Of the file."""
    version: int
    """Of the file, which the bytes are of; 0: of more than one."""


class Wanted(NamedTuple):
    """A read that a task waits for."""

    range: tuple[str, int, int | None, int | None]
    anew: bool
    done: asyncio.Future[Read]


class Turns:
    """Gathers the reads that tasks ask for in one turn of their loop, and begins them as one batch: however many they are,
    and of however many files, that takes two round trips, or one where the files are open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[Wanted]] = weakref.WeakKeyDictionary()
        self._connected: set[str] = set()
        self.batches = 0
        """How many have been begun."""

    async def read(
        self, url: str, start: int = 0, end: int | None = None, *, version: int | None = None, anew: bool = False
    ) -> Read:
        """The bytes of a range of a file of an export that are there.

        :param version: the one of the file that the range was chosen for. What comes says which it is of.
        :param anew: the file is looked for, although it was open just now.
        """
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(loop, [])
        if not waiting:
            loop.call_soon(self._begin, loop)
        done: asyncio.Future[Read] = loop.create_future()
        waiting.append(Wanted((joined(self._session.url, url), start, end, version), anew, done))
        return await done

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop, [])
        self.batches += 1
        servers = {parts_of(one.range[0])[0] for one in waiting}
        if servers <= self._connected:
            self._fetch(loop, waiting)
            return
        # Connecting takes a while, and the loop has other work.
        connecting = loop.run_in_executor(None, self._fetch, loop, waiting)
        connecting.add_done_callback(lambda _: self._connected.update(servers))

    def _fetch(self, loop: asyncio.AbstractEventLoop, waiting: list[Wanted]) -> None:
        try:
            request = self._session._native.fetch([one.range for one in waiting], any(one.anew for one in waiting))
        except Exception as error:
            failed = error
            call_in(loop, lambda: _settle(waiting, [failed] * len(waiting)))
            return

        def tell() -> None:
            outcome = request.take()
            _settle(waiting, outcome)

        request.when_done(lambda: call_in(loop, tell))


def _settle(waiting: list[Wanted], outcomes: list[tuple[memoryview, int, int] | Exception]) -> None:
    for (*_, done), outcome in zip(waiting, outcomes, strict=True):
        if done.done():
            # Whoever waited was cancelled.
            continue
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            data, length, version = outcome
            done.set_result(Read(memoryview(data), length, version))
