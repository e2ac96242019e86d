"""Scans of tables in files: what goes out is chosen where the file is."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import _diskside
from ._arrow_rows import ArrowRows
from ._batches import Batches
from ._where import filter_of
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ._function import Function
    from ._session import Session


class Scan(ArrowRows):
    """Columns, rows or sums of Parquet, Arrow, CSV or JSON lines files, wherever they are. :meth:`diskside.Session.scan` makes one.

    Nothing is read before its result is asked for, and each time that it is asked for the files are found and scanned again. ``pyarrow``
    (``pip install 'diskside[arrow]'``) makes tables of it; :meth:`ipc` does without.
    """

    def __init__(
        self,
        session: Session,
        names: list[str],
        columns: str | Iterable[str] | None,
        where: Any,
        aggregate: str | Mapping[str, str] | None,
        by: str | Iterable[str] | None,
        order: str | Iterable[str] | None,
        limit: int | None,
        input: str | None,
        delimiter: str | None,
        header: bool,
        types: str | Mapping[str, str] | None,
        place: str,
        partitions: bool,
        by_function: tuple[Function, bytes] | None = None,
    ) -> None:
        where, self._filter = filter_of(where)
        for option, value in [("header", header), ("partitions", partitions)]:
            if not isinstance(value, bool):
                raise UsageError(f"{option}: {value!r} is neither True nor False")
        if not names:
            raise UsageError("there are no files to scan: give a path, a URL, a directory, a pattern, or several of them")
        #: As the native module has it, but for the filter.
        self._options: dict[str, Any] = {
            "columns": _names("columns", columns),
            "where": where,
            "aggregate": _listed("aggregate", aggregate, lambda name, sums: f"{sums} as {quoted(name)}", "sum(price) as total"),
            "by": _names("by", by),
            "order": order if order is None or isinstance(order, str) else ", ".join(_texts("order", order)),
            "limit": None if limit is None else _whole(limit),
            "input": _text("input", input),
            "delimiter": _text("delimiter", delimiter),
            "header": header,
            "types": _listed("types", types, lambda name, kind: f"{quoted(name)} {kind}", "price decimal(15, 2)"),
            # The first one, and how many, of one file; None: all.
            "row_groups": None,
            # Over the columns, and the bytes of its arguments.
            "function": None if by_function is None else (by_function[0]._native, by_function[1]),
        }
        self._session = session
        self._place = place
        self._partitions = partitions
        self._names = names
        self._report: dict[str, Any] | None = None
        #: What it scans.
        self.name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

    @property
    def _wanted(self) -> dict[str, Any]:
        """The options, with the filter as a condition: the columns of the files say which."""
        if self._filter is not None:
            self._options = self._options | {"where": self._filter.condition(self._whole().schema)}
            self._filter = None
        return self._options

    @_wanted.setter
    def _wanted(self, options: dict[str, Any]) -> None:
        self._options, self._filter = options, None

    def _whole(self) -> Scan:
        """A scan of all columns and rows."""
        other = copy.copy(self)
        other._wanted = self._options | {"columns": [], "aggregate": None, "by": [], "order": None, "limit": None, "function": None}
        return other

    def ipc(self) -> Iterator[bytes]:
        """Scans, and gives the result as it comes: pieces of one Arrow IPC stream. A scan that is not read to its end is stopped.

        :raises UsageError: a column is not there, or an expression does not fit the file.
        :raises IoError: the file or its server cannot be used, or the file is damaged.
        :raises ChangedError: the file changed meanwhile; what came is of two versions.
        """
        scan = self._begin()
        try:
            while (piece := scan.next()) is not None:
                yield piece
            self._ended(scan.report)
        finally:
            scan.close()

    def batches(self) -> Batches:
        """Scans, and gives record batches as they come. Close them if you do not read all: with ``with``, or ``close()``."""
        return self._reader()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result, with their types. The server is asked; no row is read, except by a function."""
        # A function may give a result of its own, to which no limit applies.
        with self._reader(limit=0) if self._options["function"] is None else self._reader() as batches:
            return batches.schema

    @property
    def report(self) -> dict[str, Any]:
        """How the last scan that was read to its end went: ``place``, ``why``, ``files_found``, ``files_pruned`` (their paths rule them
        out), ``files_host`` and ``files_device`` (scanned here and at servers), ``row_groups``, ``row_groups_pruned``,
        ``row_groups_host`` and ``row_groups_device`` (where both sides scanned one file, otherwise None), ``rows_read``,
        ``rows_selected``, ``row_groups_pruned_by_dictionaries`` (of those that are pruned), ``file_bytes``, ``needed_bytes``, ``read_bytes``, ``result_bytes``,
        ``compression`` (``lz4`` if a server was asked for it, otherwise ``none``), ``sent_bytes``, ``received_bytes``, and ``total_s`` in seconds.
        """
        if self._report is None:
            raise UsageError("nothing of this scan was read to its end yet: take arrow(), or one of its like")
        return dict(self._report)

    def _ended(self, report: dict[str, Any] | None) -> None:
        self._report = report
        if report is not None:
            self._session._scanned.append({"name": self.name, **report})

    def _gives_rows(self) -> bool:
        """Whether it gives rows of its files, so that it may be asked for fewer of them."""
        return not any(self._options[option] for option in ("aggregate", "by", "order", "function")) and self._options["limit"] is None

    def _other(self, **instead: Any) -> Scan:
        """A scan of the same files; its rows are among those of this one."""
        other = copy.copy(self)
        both = [one for one in (self._wanted["where"], instead.get("where")) if one is not None]
        where = " and ".join(f"({one})" for one in both) if len(both) > 1 else both[0] if both else None
        other._wanted = self._wanted | instead | {"where": where}
        other._report = None
        return other

    def _begin(self, **instead: Any) -> _diskside.Scan:
        return self._session._native.scan(self._names, self._wanted | instead, self._place, self._partitions)

    def _reader(self, **instead: Any) -> Batches:
        try:
            import pyarrow
        except ImportError:
            raise UsageError("tables take pyarrow: pip install 'diskside[arrow]'; ipc() gives an Arrow stream without it") from None
        pieces = _Pieces(self, self._begin(**instead))
        try:
            reader = pyarrow.ipc.open_stream(pieces)
            schema = pyarrow.schema([self._typed(field) for field in reader.schema], reader.schema.metadata)
        except BaseException:
            # The traceback would keep it.
            pieces.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            with pieces:
                for batch in reader:
                    yield batch if schema == reader.schema else self._cast(batch, schema)
                # That the file changed meanwhile is known only now.
                pieces.finish()

        return Batches(pyarrow.RecordBatchReader.from_batches(schema, batches()), pieces.close)

    def _typed(self, field: pa.Field) -> pa.Field:
        """A column of the result as it is handed on."""
        return _widened(field)

    def _cast(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return batch.cast(schema)

    def __repr__(self) -> str:
        options = self._options | ({} if self._filter is None else {"where": self._filter})
        usual = [("header", True), ("function", self._options["function"])]
        given = ((name, value) for name, value in options.items() if value not in (None, []) and (name, value) not in usual)
        told = "".join(f", {name}={value!r}" for name, value in given)
        return f"<diskside.Scan of {self.name}{told}>"


class _Pieces(io.RawIOBase):
    """The pieces of a scan as a file."""

    def __init__(self, of: Scan, scan: _diskside.Scan) -> None:
        self._of = of
        self._scan = scan
        self._rest = memoryview(b"")

    def finish(self) -> None:
        """Takes what may follow the stream, and learns how it went."""
        while self._scan.next() is not None:
            pass
        self._of._ended(self._scan.report)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        into = memoryview(buffer).cast("B")
        while not self._rest:
            piece = self._scan.next()
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(into), len(self._rest))
        into[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        into = bytearray(size)
        filled = 0
        # Whoever reads an Arrow stream takes fewer bytes than it asked for as its end.
        while filled < size and (count := self.readinto(memoryview(into)[filled:])):
            filled += count
        return bytes(into[:filled])

    def close(self) -> None:
        if not self.closed:
            self._scan.close()
        super().close()


def _whole(limit: Any) -> int:
    try:
        number = int(limit.__index__())
    except AttributeError:
        raise UsageError(f"limit: {limit!r} is no number of rows") from None
    if number < 0:
        raise UsageError(f"limit: {number} is below 0")
    if number >= 2**64:
        raise UsageError(f"limit: {number} is more than any table has")
    return number


def _names(option: str, names: str | Iterable[str] | None) -> list[str]:
    if names is None:
        return []
    if isinstance(names, str):
        try:
            return _diskside.scan_columns(names)
        except UsageError as error:
            raise UsageError(f"{option}: {error}") from None
    return _texts(option, names)


def _texts(option: str, names: Any) -> list[str]:
    try:
        listed = list(names)
    except TypeError:
        raise UsageError(f"{option}: {names!r} are not names of columns") from None
    if not all(isinstance(name, str) for name in listed):
        raise UsageError(f"{option}: {listed!r} are not names of columns")
    return listed


def _text(option: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{option}: {value!r} is no text")
    return value


def _listed(option: str, value: Any, entry: Callable[[str, str], str], example: str) -> str | None:
    """What is a text, or a dictionary by names of columns, as one text."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise UsageError(f"{option}: {value!r} is neither text, such as {example!r}, nor a dictionary of such by name")
    return ", ".join(entry(name, what) for name, what in value.items())


def _widened(field: pa.Field) -> pa.Field:
    """Decimals come as 64-bit numbers where they fit, which few packages know."""
    import pyarrow

    kind = field.type
    if pyarrow.types.is_decimal32(kind) or pyarrow.types.is_decimal64(kind):
        return field.with_type(pyarrow.decimal128(kind.precision, kind.scale))
    return field


def quoted(name: str) -> str:
    """A name as conditions have it."""
    return '"' + name.replace('"', '""') + '"'
