"""Requests under way."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._names import seconds
from .errors import DeadlineError, UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Iterable

    from . import _diskside

T = TypeVar("T")


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Calls it in the loop's thread; not if the loop was closed meanwhile, when nobody waits any more."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        if not loop.is_closed():
            raise


class Job(Generic[T]):
    """A request under way: wait for it with :meth:`result`, or ``await`` it.

    Cancelling a task that awaits it, interrupting :meth:`result` with Ctrl-C, and dropping it stop its function, here or at a
    server.
    """

    def __init__(self, request: _diskside.Request, finish: Callable[[Any], T]) -> None:
        self._request = request
        self._finish = finish
        self._lock = threading.Lock()
        self._outcome: tuple[T] | BaseException | None = None

    def result(self, timeout: float | None = None) -> T:
        """Waits for its result.

        :param timeout: seconds to wait at most; the request goes on when they are over.
        :raises DeadlineError: it has not ended in time; also a TimeoutError.
        :raises DisksideError: what failed.
        """
        # A process that was forked has what it gave, but not the request.
        if self._outcome is None and not self._request.wait(seconds("timeout", timeout)):
            raise DeadlineError(f"the request has not ended within {timeout} s; it goes on")
        return self._ended()

    def done(self) -> bool:
        """Whether it has ended."""
        return self._outcome is not None or self._request.is_done

    def cancel(self) -> None:
        """Asks that its function be stopped; :meth:`result` then raises :class:`~diskside.CancelledError`, unless the function
        was faster. Plain reads and writes end by themselves."""
        self._request.cancel()

    @property
    def done_bytes(self) -> int:
        """Bytes of input that the function is done with."""
        return self._request.done_bytes

    def add_done_callback(self, callback: Callable[[Job[T]], object]) -> None:
        """Calls ``callback(job)`` when it has ended, in a thread of this package; at once if it has. What it raises goes to
        ``sys.unraisablehook``."""
        self._request.when_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        self._request.when_done(lambda: call_in(loop, settle))
        try:
            yield from ended
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._ended()

    def _ended(self) -> T:
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = (self._finish(self._request.take()),)
                except Exception as error:
                    self._outcome = error
            outcome = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome[0]

    def __reduce__(self) -> Any:
        raise TypeError("a diskside.Job is under way in its process, so it does not pickle; pickle its result")

    def __repr__(self) -> str:
        try:
            return f"<diskside.Job {'done' if self.done() else 'under way'}>"
        except UsageError:
            return "<diskside.Job of the process that this one was forked from>"


def wait(jobs: Iterable[Job[Any]], timeout: float | None = None, *, first: bool = False) -> tuple[list[Job[Any]], list[Job[Any]]]:
    """Waits until all jobs have ended, or with ``first``, until one has.

    :param jobs: what :meth:`Session.submit`, :meth:`File.submit_read` and their like gave.
    :param timeout: seconds to wait at most; the jobs go on when they are over, and when Ctrl-C ends the wait.
    :returns: those that have ended, well or not, and the others, in the order in which they were given.

    >>> ended, others = diskside.wait([file.submit_read(0, 4096), file.submit_read(4096, 4096)])
    """
    listed = list(jobs)
    for job in listed:
        if not isinstance(job, Job):
            raise UsageError(f"wait: {job!r} is no job: give what submit and submit_read gave")
    limit = seconds("timeout", timeout)
    missing = [job for job in listed if not job.done()]
    if missing and not (first and len(missing) < len(listed)):
        ended = threading.Semaphore(0)
        for job in missing:
            job._request.when_done(ended.release)
        end = None if limit is None else time.monotonic() + limit
        for _ in range(1 if first else len(missing)):
            # The longest that a lock waits is as good as for ever.
            left = None if end is None else min(max(end - time.monotonic(), 0), threading.TIMEOUT_MAX)
            if not ended.acquire(timeout=left):
                break
    sorted_out: tuple[list[Job[Any]], list[Job[Any]]] = ([], [])
    for job in listed:
        sorted_out[0 if job.done() else 1].append(job)
    return sorted_out
