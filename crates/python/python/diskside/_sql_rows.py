"""Rows that are scanned, as a dataset that DataFusion reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.dataset

from ._scan import Scan, quoted
from ._sql_keys import Nothing
from .errors import DisksideError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import datafusion

    from ._sql import _Plan
    from ._sql_keys import Keys

#: Rows that no table has: a limit of so many does nothing, but DataFusion takes no condition below a limit. Its own way to tell a
#: pyarrow dataset of conditions has pyarrow compute them, for which NaN is another number.
_ROWS_MAX = (1 << 63) - 1


def register(context: datafusion.SessionContext, name: str, hidden: str, rows: Rows) -> None:
    """Makes rows a table of a query.

    :param hidden: a name that no query has for a table.
    """
    context.register_dataset(quoted(hidden), _Dataset(rows))
    context.register_view(quoted(name), context.table(quoted(hidden)).limit(_ROWS_MAX))


class Rows:
    """The rows of a table, as often as a query reads them."""

    def __init__(self, plan: _Plan, keys: Keys, name: str, schema: pyarrow.Schema, failed: list[BaseException]) -> None:
        self.schema = schema
        self._plan = plan
        self._keys = keys
        self._name = name
        self._failed = failed

    def batches(self, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
        schema = pyarrow.schema([self.schema.field(name) for name in columns])
        try:
            for batch in self._read(columns):
                rows = batch.select(columns)
                yield pyarrow.RecordBatch.from_arrays(rows.columns, schema=schema) if columns else rows
        except (DisksideError, KeyboardInterrupt) as error:
            # DataFusion keeps the text alone.
            self._failed.append(error)
            raise

    def _read(self, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
        if (kept := self._keys.take(self._name, columns, self._scan)) is not None:
            yield from kept.rows()
            return
        try:
            scan = self._scan(self._name, columns)
        except Nothing:
            return
        # A query that has enough closes this generator, and that ends the scan.
        with scan.batches() as batches:
            yield from batches

    def _scan(self, name: str, columns: list[str]) -> Scan:
        scan = self._plan.scan(name, columns, self._keys.condition(name, self._plan._schemas[name], self._scan))
        self._plan._of.scans.append(scan)
        return scan


class _Dataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """For Arrow's own code it is a table without rows; DataFusion asks for its one fragment, and that for a scanner."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows.schema.empty_table())
        self._rows = rows

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **options: Any) -> _Scanner:
        # Conditions stay above the limit that its view has.
        assert filter is None
        return _Scanner(self._rows, self._rows.schema.names if columns is None else columns)

    def get_fragments(self, filter: Any = None) -> Iterator[_Fragment]:
        return iter([_Fragment(self)])


class _Fragment:
    def __init__(self, of: _Dataset) -> None:
        self._of = of

    def scanner(self, schema: Any = None, columns: list[str] | None = None, filter: Any = None, **options: Any) -> _Scanner:
        return self._of.scanner(columns, filter)


class _Scanner:
    def __init__(self, rows: Rows, columns: list[str]) -> None:
        self._rows = rows
        self._columns = columns
        self.projected_schema: pyarrow.Schema = pyarrow.schema([rows.schema.field(name) for name in columns])

    def to_batches(self) -> Iterator[pyarrow.RecordBatch]:
        return self._rows.batches(self._columns)
