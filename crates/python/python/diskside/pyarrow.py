"""Parquet files on Diskside servers as a pyarrow dataset, which DuckDB and Ibis query, too.

>>> lineitem = diskside.pyarrow.dataset("diskside://server/data/lineitem.parquet")
>>> duckdb.sql("select l_orderkey from lineitem where l_quantity < 24")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset

from ._condition import NotPushed
from ._default import source_of
from ._expression import columns_of, condition
from .errors import ChangedError, UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from ._batches import Batches
    from ._scan import Scan
    from ._session import Session


def dataset(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Scan,
    *,
    session: Session | None = None,
    place: str = "auto",
    partitions: bool = True,
) -> Dataset:
    """Parquet files, wherever they are, as a ``pyarrow.dataset.Dataset``.

    Columns that are not asked for stay where they are, and so do rows that a filter rules out: comparisons of columns with values,
    ``is_in``, ``is_null``, ``is_valid``, and ``&``, ``|``, ``~`` of those. Any other filter is computed here, over all columns.

    :param source: a path or ``diskside://HOST[:PORT]/EXPORT/PATH``, relative to the session's URL, if it has one; a directory, a
        pattern, or a list of these, as :meth:`diskside.Session.scan` takes them. Or a scan of rows, as of
        :meth:`diskside.Session.scan_delta`, for which the other parameters mean nothing.
    :param place: ``auto``, ``host`` (the needed bytes are read and decoded here) or ``device`` (at the server).
    :param partitions: False: directories that are called ``key=value`` are not columns of the files in them.
    """
    scan = source_of(source, session, place, partitions)
    return Dataset(scan.schema, scan)


class Dataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """A table that :func:`dataset` makes."""

    # For Arrow's own code this is a table without rows; all that Python, DuckDB and Ibis ask for goes through scanner().

    def __init__(self, schema: pyarrow.Schema, scan: Scan) -> None:
        super().__init__(schema.empty_table())
        self._scan = scan

    def scanner(self, columns: Any = None, filter: pyarrow.dataset.Expression | None = None, **options: Any) -> Scanner:
        """What reads it. Options say how Arrow would read files here, and say nothing of scans."""
        if columns is not None and not (isinstance(columns, (list, tuple)) and all(isinstance(name, str) for name in columns)):
            raise UsageError(f"columns: {columns!r}: a scan gives columns by their names; compute others of its table")
        return Scanner(self, self.schema.names if columns is None else list(columns), filter)

    def get_fragments(self, filter: Any = None) -> Any:
        raise self._not_done("get_fragments")

    def filter(self, expression: Any) -> Any:
        raise self._not_done("filter", "to_table(filter=...) and scanner(filter=...) take one")

    def replace_schema(self, schema: Any) -> Any:
        raise self._not_done("replace_schema")

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        raise self._not_done("sort_by", "sort its table")

    def join(self, right_dataset: Any, keys: Any, *more: Any, **options: Any) -> Any:
        raise self._not_done("join", "join its table, or ask DuckDB")

    def join_asof(self, right_dataset: Any, on: Any, by: Any, tolerance: Any, *more: Any, **options: Any) -> Any:
        raise self._not_done("join_asof", "join its table, or ask DuckDB")

    def __reduce__(self) -> Any:
        raise TypeError("a dataset of diskside has a session, so it does not pickle; pickle the URL, and make one there")

    def _not_done(self, what: str, instead: str = "to_table() gives a table that does it") -> UsageError:
        return UsageError(f"{what}: not done where the file is: {instead}")


class Scanner:
    """What reads a :class:`Dataset`: the methods of ``pyarrow.dataset.Scanner``."""

    def __init__(self, of: Dataset, columns: list[str], filter: pyarrow.dataset.Expression | None) -> None:
        missing = [name for name in columns if name not in of.schema.names]
        if missing:
            raise UsageError(f"columns: no column {missing[0]!r}; it has {', '.join(of.schema.names)}")
        self._of = of
        self._columns = columns
        self._filter = filter
        self.projected_schema = pyarrow.schema([of.schema.field(name) for name in columns])

    @property
    def dataset_schema(self) -> pyarrow.Schema:
        return self._of.schema

    def to_reader(self) -> pyarrow.RecordBatchReader:
        """Its rows as they come. The scan ends when the reader is read to its end, or nothing refers to it any more: pyarrow's
        ``close()`` alone does not end it."""
        return pyarrow.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pyarrow.RecordBatch]:
        return self._batches(None)

    def to_table(self) -> pyarrow.Table:
        return pyarrow.Table.from_batches(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int, **options: Any) -> pyarrow.Table:
        return pyarrow.Table.from_batches(self._batches(num_rows), self.projected_schema).slice(0, num_rows)

    def count_rows(self) -> int:
        """How many rows there are: the server counts them, if it can do all of the filter."""
        where, is_pushed = self._condition()
        if not is_pushed:
            few = columns_of(self._filter, self._of.schema)[:1] or self._of.schema.names[:1]
            return sum(batch.num_rows for batch in Scanner(self._of, few, self._filter).to_batches())
        counted = self._of._scan._other(columns=[], aggregate="count(*)", **_where(where)).arrow()
        return int(counted.column(0)[0].as_py())

    def take(self, indices: Sequence[int]) -> pyarrow.Table:
        return self.to_table().take(indices)

    def _condition(self) -> tuple[str | None, bool]:
        if self._filter is None:
            return None, True
        try:
            return condition(self._filter, self._of.schema), True
        except NotPushed:
            return None, False

    def _batches(self, limit: int | None) -> Iterator[pyarrow.RecordBatch]:
        where, is_pushed = self._condition()
        if is_pushed:
            # Without a column rows are counted, by one.
            columns = self._columns or self._of.schema.names[:1]
            scan = self._of._scan._other(columns=columns, limit=limit, **_where(where))
            with self._checked(scan) as batches:
                for batch in batches:
                    yield batch.select(self._columns)
            return
        left = limit
        mentioned = columns_of(self._filter, self._of.schema)
        needed = [name for name in self._of.schema.names if name in self._columns or name in mentioned]
        with self._checked(self._of._scan._other(columns=needed or self._of.schema.names[:1])) as batches:
            for batch in batches:
                kept = pyarrow.Table.from_batches([batch]).filter(self._filter).select(self._columns)
                if left is not None and (left := left - kept.num_rows) <= 0:
                    batches.close()
                yield from kept.to_batches()
                if left is not None and left <= 0:
                    return

    def _checked(self, scan: Scan) -> Batches:
        """Its batches, whose columns have the types that the dataset told: DuckDB takes their memory for what it was told."""
        batches = scan.batches()
        for field in batches.schema:
            told = self._of.schema.field(field.name).type
            if field.type != told:
                batches.close()
                raise ChangedError(
                    f"{scan.name}: the column {field.name!r} was {told} when the dataset was made, and is {field.type} now: "
                    "the files were replaced; make the dataset again"
                )
        return batches


def _where(condition: str | None) -> dict[str, str]:
    return {} if condition is None else {"where": condition}

