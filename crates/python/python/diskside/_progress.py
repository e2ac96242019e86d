"""The progress of a run, told while it is waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .errors import DeadlineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import _diskside
    from ._job import Job
    from ._result import Result


class _Bar:
    """A bar of tqdm's, told of progress."""

    def __init__(self, name: str) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise UsageError("progress=True shows a bar of tqdm: pip install tqdm; or give a function that is told") from None
        self._tqdm: Any = tqdm
        self._name = name
        self._bar: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        self._bar = self._bar or self._tqdm(total=total, unit="B", unit_scale=True, desc=self._name)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def told(progress: Callable[[int, int | None], object] | bool, name: str) -> Callable[[int, int | None], object]:
    if callable(progress):
        return progress
    if progress is True:
        return _Bar(name)
    raise UsageError(f"progress: {progress!r} is neither True nor a function of the bytes that are done, and of those that there are")


def with_progress(
    job: Job[Result],
    files: list[_diskside.File],
    tell: Callable[[int, int | None], object],
    timeout: float | None,
    name: str,
) -> Result:
    total = sum(file.len_bytes() for file in files) if len(files) <= 64 else None
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            ended = job._request.wait(0.05)
            done = job.done_bytes
            tell(done, total)
            if ended:
                return job.result()
            if end is not None and time.monotonic() >= end:
                raise DeadlineError(f"{name}: it had not ended within {timeout} s, and was stopped")
    finally:
        job.cancel()
        if isinstance(tell, _Bar):
            tell.close()
