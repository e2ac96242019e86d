"""Keys of joins: a table that is read in part for the few keys that another one has.

The smaller table is read first, up to bounds, and its rows are kept for the join. If these are all its rows, and its conditions left out
at least half of them, the larger one is read with the condition that its key is among theirs. If not, the join has the rows that were kept,
and those that follow: nothing is read twice, and nothing waits.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ._condition import Column, NotPushed
from ._names import is_export_url
from ._sql_joins import Join
from ._tables import TableScan
from .errors import DisksideError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from ._batches import Batches
    from ._scan import Scan

#: Different keys of one column, at most: a plan has 512 KiB, and 18 bytes for a number.
KEYS_MAX = 10_000
#: Different keys of all columns of one table, and their length as texts.
_KEYS_IN_ALL_MAX = 12_000
_TEXT_LEN_MAX = 192 << 10
#: Rows of one table that are kept.
_KEPT_BYTES_MAX = 16 << 20
#: A table that is read in part has at least so many bytes, and so many times those of the table whose keys are taken: a condition takes a
#: round trip, by which a server finds out how many rows it selects.
_BYTES_MIN = 1 << 20
_TIMES_MIN = 2
#: The part of its rows that the conditions of a table leave, at most: those of the other one are taken to be fewer by as much.
_LEFT_MAX = 0.5


class Kept:
    """The rows of a table that were read before the join asked for them."""

    def __init__(self, scan: Scan, columns: list[str]) -> None:
        self.scan = scan
        self.columns = columns
        self._rows: list[pa.RecordBatch] = []
        #: Those that follow; None: there are none.
        self.rest: Batches | None = None

    def read(self, keys: Iterable[str]) -> dict[str, list[Any]]:
        """Reads rows up to bounds. Gives the different values of columns, NULL left out; none of a column that has too many."""
        import pyarrow as pa
        import pyarrow.compute as pc

        batches, count = self.scan.batches(), 0
        found = {key: pa.array([], batches.schema.field(key).type) for key in keys}
        try:
            for batch in batches:
                self._rows.append(batch)
                count += batch.nbytes
                found = {key: pc.unique(pa.chunked_array([values, batch.column(key)])) for key, values in found.items()}
                found = {key: values for key, values in found.items() if len(values) <= KEYS_MAX}
                if not found or count > _KEPT_BYTES_MAX:
                    self.rest = batches
                    return {}
        except BaseException:
            batches.close()
            raise
        batches.close()
        return {key: listed for key, values in found.items() if (listed := _listed(values)) is not None}

    def part(self) -> float:
        """The part of the table's rows that its conditions selected, once all were read."""
        report = self.scan.report
        read = report["rows_selected"] / report["rows_read"] if report["rows_read"] else 0.0
        for all_of_them, pruned in (("row_groups", "row_groups_pruned"), ("files_found", "files_pruned")):
            if report[all_of_them]:
                read *= 1 - report[pruned] / report[all_of_them]
        return float(read)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows, once."""
        try:
            yield from self._rows
            if self.rest is not None:
                yield from self.rest
        finally:
            self.close()

    def close(self) -> None:
        if self.rest is not None:
            self.rest.close()


class Keys:
    """Which tables of one run of a query are read in part, and by which keys."""

    def __init__(
        self,
        found: list[Join],
        sources: Mapping[str, Scan],
        others: Mapping[str, pa.Table],
        has_condition: Callable[[str], bool],
        columns: Mapping[str, list[str]],
    ) -> None:
        """:param columns: those that the query reads of each table."""
        self._columns = columns
        self._sources = sources
        self._others = others
        # Threads of DataFusion may ask for two tables at one time.
        self._lock = threading.RLock()
        self._kept: dict[str, Kept] = {}
        self._known: dict[str, dict[str, list[Any]]] = {}
        self.joins = _worthwhile(found, sources, others, has_condition)

    def condition(self, table: str, schema: pa.Schema, scan: Callable[[str, list[str]], Scan]) -> str | None:
        """The condition that keys of other tables make; None: they make none.

        :raises Nothing: no row of the table has a key.
        """
        parts, count, length = list[str](), 0, 0
        for join in self.joins:
            if join.table != table or (keys := self._keys(join, scan)) is None:
                continue
            try:
                column = Column(schema.field(join.column))
                values = _fitting(keys, schema.field(join.column).type)
                if not values:
                    raise Nothing
                part = column.among(values)
            except NotPushed:
                continue
            if count + len(values) <= _KEYS_IN_ALL_MAX and length + len(part) <= _TEXT_LEN_MAX:
                parts.append(part)
                count, length = count + len(values), length + len(part)
        return " and ".join(parts) or None

    def take(self, table: str, columns: list[str], scan: Callable[[str, list[str]], Scan]) -> Kept | None:
        """The rows of a table that gives keys, to be read once; None: it is read as any other."""
        with self._lock:
            if any(join.source == table for join in self.joins) and table in self._sources:
                self._read(table, scan)
            kept = self._kept.get(table)
            if kept is None or not set(columns) <= set(kept.columns):
                return None
            return self._kept.pop(table)

    def close(self) -> None:
        """Ends scans whose rows nobody asked for."""
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()

    def _keys(self, join: Join, scan: Callable[[str, list[str]], Scan]) -> list[Any] | None:
        with self._lock:
            if join.source in self._others:
                return _values(self._others[join.source], join.key)
            self._read(join.source, scan)
            return self._known[join.source].get(join.key)

    def _read(self, table: str, scan: Callable[[str, list[str]], Scan]) -> None:
        """Reads a table that gives keys, if that was not done yet."""
        if table in self._known:
            return
        self._known[table] = {}
        # A scan that stands still has a place and memory at its server, so there is one at a time.
        if any(kept.rest is not None for kept in self._kept.values()):
            return
        wanted = dict.fromkeys(join.key for join in self.joins if join.source == table)
        columns = list(dict.fromkeys([*self._columns.get(table, []), *wanted]))
        try:
            kept = Kept(scan(table, columns), columns)
        except Nothing:
            self._known[table] = {key: [] for key in wanted}
            return
        found = kept.read(wanted)
        self._kept[table] = kept
        if kept.rest is None and kept.part() <= _LEFT_MAX:
            self._known[table] = found


class Nothing(Exception):
    """No row of a table is wanted."""


def _worthwhile(
    found: list[Join], sources: Mapping[str, Scan], others: Mapping[str, pa.Table], has_condition: Callable[[str], bool]
) -> list[Join]:
    """The joins of which the table that gives keys is filtered, and the other one is clearly larger; those of the smallest tables first."""
    # One that is read in part gives fewer keys, too.
    possible = list[Join]()
    filtered = {join.source for join in found if join.source in others or has_condition(join.source)}
    while more := [join for join in found if join.table in sources and join.source in filtered and join not in possible]:
        possible += more
        filtered |= {join.table for join in more}
    if not possible:
        return []
    names = list({name: None for join in possible for name in (join.source, join.table)})
    with ThreadPoolExecutor(len(names)) as pool:
        sizes = dict(zip(names, pool.map(lambda name: _size(sources[name]) if name in sources else others[name].nbytes, names)))

    def is_worthwhile(join: Join) -> bool:
        size, of_source = sizes[join.table], sizes[join.source]
        return size is not None and of_source is not None and size >= max(_BYTES_MIN, _TIMES_MIN * of_source)

    return sorted(filter(is_worthwhile, possible), key=lambda join: sizes[join.source] or 0)


def _size(scan: Scan) -> int | None:
    """The bytes of the files of a scan: of many files, as many as they are if a few of them are like the others. None: it is not known."""
    session = scan._session
    try:
        files = [name for name, _ in scan._table.files] if isinstance(scan, TableScan) else session._native.scan_files(scan._names)[0]
        asked = files[:: max(1, len(files) // 8)]
        sizes = [session.stat(file).size if is_export_url(file) else os.stat(file).st_size for file in asked]
    # The scan says so, if there is something to say.
    except (DisksideError, OSError):
        return None
    return sum(sizes) * len(files) // max(1, len(asked))


def _values(table: pa.Table, name: str) -> list[Any] | None:
    """The different values of a column of a table that is here; None: there are too many."""
    import pyarrow.compute as pc

    values = pc.unique(table[name])
    return _listed(values) if len(values) <= KEYS_MAX else None


def _listed(values: pa.Array) -> list[Any] | None:
    try:
        return list(values.drop_null().to_pylist())
    # A year that Python does not have.
    except (ValueError, OverflowError):
        return None


def _fitting(keys: list[Any], kind: pa.DataType) -> list[Any]:
    """Keys as values of another type of numbers, without those that it does not have."""
    import pyarrow.types as types

    if not types.is_integer(kind):
        return keys
    return [int(key) for key in keys if not isinstance(key, Decimal) or key == int(key)]
