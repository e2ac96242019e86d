"""Files, read and written by position, and what is known of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ._function import Function, function
from ._job import Job
from ._names import size
from ._options import parted
from ._result import Result
from .errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from types import TracebackType

    from . import _diskside
    from ._session import Session


class FileInfo(NamedTuple):
    """What is known of a file or directory of an export."""

    kind: str
    """``file``, ``directory``, ``link`` or ``other``."""
    size: int
    """Length in bytes."""
    modified: float
    """When the content changed last, in seconds since 1970."""
    version: int
    """Differs when the content may differ."""
    mode: int
    """Permission bits."""


class File:
    """A path here, a file of an export, or a volume, read and written by position.

    Threads can share it. It is opened again in a process that was forked, and where it is unpickled.
    """

    def __init__(self, session: Session, name: str, mode: str = "r") -> None:
        modes = {"r": "read", "r+": "write", "w+": "create"}
        if mode not in modes:
            others = "a session's write() writes a file whole, and fsspec.open() gives one with lines and a position"
            raise UsageError(f"mode: {mode!r} is none of {', '.join(modes)}; {others}")
        self.name = name
        self.mode = mode
        self._session = session
        self._mode = modes[mode]
        self._opened: tuple[_diskside.Session, _diskside.File] | None = None
        _ = self._native

    @property
    def _native(self) -> _diskside.File:
        session = self._session._native
        if self._opened is None or self._opened[0] is not session:
            if self.mode == "closed":
                raise UsageError(f"{self.name}: the file is closed")
            self._opened = (session, session.open(self.name, self._mode))
        return self._opened[1]

    @property
    def size(self) -> int:
        """Its present length in bytes."""
        return self._native.len_bytes()

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Reads up to ``length`` bytes at ``offset``, or all to the end; fewer only at the end."""
        return bytes(self.view(offset, length))

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """As :meth:`read`, without a copy: the bytes where they came in, read-only."""
        return self.submit_read(offset, length).result()

    def submit_read(self, offset: int = 0, length: int | None = None) -> Job[memoryview]:
        """Begins :meth:`view`, and does not wait."""
        offset = size("offset", offset)
        length = max(self.size - offset, 0) if length is None else size("length", length)
        return Job(self._native.read(offset, length), memoryview)

    def write(self, offset: int, data: Any, *, durable: bool = False) -> int:
        """Writes all of ``data``: bytes, or an array of any type and order (in C order). Returns its number of bytes."""
        return self.submit_write(offset, data, durable=durable).result()

    @property
    def _writable(self) -> _diskside.File:
        if self.mode == "r":
            raise UsageError(f"{self.name}: it was opened for reading; open it with the mode r+, or w+, which makes it if it is not there")
        return self._native

    def submit_write(self, offset: int, data: Any, *, durable: bool = False) -> Job[int]:
        """Begins :meth:`write`; the data is copied at once."""
        return Job(self._writable.write(size("offset", offset), as_bytes(data), durable), int)

    def sync(self) -> None:
        """Makes durable what was written before."""
        Job(self._native.sync(), int).result()

    def truncate(self, length: int) -> None:
        """Makes it so many bytes long."""
        self._writable.truncate(size("length", length))

    def run(self, function: Function | str | os.PathLike[str] | bytes, **options: Any) -> Result:
        """Runs a function over it: :meth:`Session.run`."""
        return self._session.run(function, self, **options)

    def submit(self, function: Function | str | os.PathLike[str] | bytes, **options: Any) -> Job[Result]:
        """Begins :meth:`run`, and does not wait."""
        return self._session.submit(function, self, **options)

    def write_through(
        self,
        what: Function | str | os.PathLike[str] | bytes,
        offset: int,
        data: Any,
        *,
        args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result:
        """Runs a function over ``data`` and writes its output at ``offset``; ``result.stats["written_bytes"]`` is how long that
        is. Where the function runs at the server, only the input travels."""
        run_by = function(what)
        chosen, arguments = parted(run_by, args, options)
        encoded = run_by.encode(arguments)
        request = self._writable.write_fn(size("offset", offset), as_bytes(data), run_by._native, encoded, chosen)
        return Job(request, lambda ran: Result(ran, run_by)).result()

    def close(self) -> None:
        """Closes it. Once more it does nothing."""
        self._opened = None
        self.mode = "closed"

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.name, self.mode)

    def __repr__(self) -> str:
        return f"<diskside.File {self.name} {self.mode}>"


def _open_again(name: str, mode: str) -> File:
    from ._default import default_session

    return File(default_session(), name, mode)


def as_bytes(data: Any) -> bytes:
    """The bytes of anything with a buffer, in C order."""
    if isinstance(data, bytes):
        return data
    kind = getattr(data, "dtype", None)
    if getattr(kind, "hasobject", False):
        raise UsageError(f"an array of {kind} holds Python objects, which have no bytes of their own; give it another type")
    if kind is not None and hasattr(data, "tobytes"):
        # Some types of numpy's, such as its times, have no buffer.
        return bytes(data.tobytes())
    try:
        return memoryview(data).tobytes()
    except TypeError:
        if hasattr(data, "tobytes"):
            return bytes(data.tobytes())
        remedy = "text becomes bytes by its encode()" if isinstance(data, str) else "give bytes, or an array"
        raise UsageError(f"{type(data).__name__} has no bytes: {remedy}") from None
