"""Requests under way."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._names import seconds
from .errors import DeadlineError, UsageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

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
