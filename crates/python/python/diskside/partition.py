"""Parts of files at many servers, for schedulers of others: small, picklable, and run where they lie."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _diskside
from ._default import default_session
from ._function import Function, function
from ._names import expanded, is_export_url, joined, server_of, size
from ._options import parted
from ._result import Result
from ._session import Session
from .errors import ChangedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Partitions of one server that a process runs at the same time: more would only wait there.
AT_ONCE = 4

_turns: dict[str | None, threading.BoundedSemaphore] = {}
_turns_lock = threading.Lock()


def turn_at(server: str | None) -> threading.BoundedSemaphore:
    with _turns_lock:
        return _turns.setdefault(server, threading.BoundedSemaphore(AT_ONCE))


def _after_fork() -> None:
    # Those who had a turn, or the lock, are not here.
    global _turns_lock
    _turns_lock = threading.Lock()
    _turns.clear()


os.register_at_fork(after_in_child=_after_fork)


class Partition(NamedTuple):
    """A range of a file. It pickles, and runs in any process."""

    url: str
    """The file: a URL or a path."""
    offset: int
    """Its first byte."""
    length: int
    """Its bytes."""
    version: int | None = None
    """That of the file when the partition was made; None of files that have none."""

    @property
    def server(self) -> str | None:
        """HOST:PORT of the server that has it; None of files of this machine."""
        return server_of(self.url)

    def run(self, what: Function | str | os.PathLike[str] | bytes, *, session: Session | None = None, **options: Any) -> Result:
        """Runs a function over it: :meth:`Session.run`. :func:`combine` folds the results of several.

        :raises ChangedError: the file is another version by now.
        """
        used = session or default_session()
        with turn_at(self.server):
            return self._run(used, what, options)

    def _run(self, used: Session, what: Function | str | os.PathLike[str] | bytes, options: dict[str, Any]) -> Result:
        if self.version is not None and used.stat(self.url).version != self.version:
            raise ChangedError(f"{self.url} changed since its partitions were made; make them again")
        options |= {"range": (self.offset, self.offset + self.length), "header": "none", "decompress": "none"}
        return used.run(what, self.url, **options)


def partitions(
    files: Any,
    *,
    target: int | str = "128MiB",
    record: int = 1,
    recursive: bool = False,
    session: Session | None = None,
) -> list[Partition]:
    """Cuts files into partitions, in the order of the files: that in which :func:`combine` folds their results.

    For functions whose records have a fixed length, such as ``stats64`` (8 bytes). Functions over lines take whole files:
    ``target="1EiB"`` does not cut. :func:`spread` gives an order in which all servers have work.

    :param files: as for :meth:`Session.run`.
    :param target: bytes of a partition, at least 64 KiB; the last of a file may be shorter.
    :param record: bytes of a record; none is cut.
    :raises UsageError: a file is not made of whole records of this length.
    """
    used = session or default_session()
    record = size("record", record)
    if record < 1:
        raise UsageError("record: a record has at least 1 byte")
    step = max(size("target", target), 64 << 10)
    step -= step % record
    if isinstance(files, (str, bytes)) or hasattr(files, "__fspath__"):
        files = [files]
    names = [name for one in files for name in expanded(used._native, joined(used.url, one), recursive)]
    parts = []
    for name in names:
        known = used.stat(name) if is_export_url(name) else None
        length = used.open(name).size if known is None else known.size
        if length % record:
            raise UsageError(f"{name}: its {length} bytes are no whole records of {record}")
        for offset in range(0, max(length, 1), step):
            parts.append(Partition(name, offset, min(step, length - offset), known and known.version))
    return parts


def spread(parts: Iterable[Partition]) -> list[Partition]:
    """Partitions in an order that keeps all servers at work: round robin over them."""
    by_server: dict[str | None, list[Partition]] = {}
    for part in parts:
        by_server.setdefault(part.server, []).append(part)
    left = [iter(group) for group in by_server.values()]
    ordered = []
    while left:
        for group in list(left):
            part_or_end = next(group, None)
            if part_or_end is None:
                left.remove(group)
            else:
                ordered.append(part_or_end)
    return ordered


def combine(
    what: Function | str | os.PathLike[str] | bytes,
    results: Iterable[Result | bytes],
    *,
    session: Session | None = None,
    **options: Any,
) -> Result:
    """Folds results of a function, in this order, as one run over all of its input would: with its ``combine``, or one after
    another. Results of :func:`combine` can be combined again.

    :param options: arguments of the function.
    """
    run_by = function(what)
    used = session or default_session()
    chosen, arguments = parted(run_by, None, options)
    parts = [_bytes_of(result) for result in results]
    folded: _diskside.Ran = used._native.fold(run_by._native, run_by.encode(arguments), parts, chosen)
    return Result(folded, run_by)


def _bytes_of(result: Any) -> bytes:
    try:
        return memoryview(result).tobytes()
    except TypeError:
        raise UsageError(f"combine: {result!r} is no result of a function, and not the bytes of one") from None
