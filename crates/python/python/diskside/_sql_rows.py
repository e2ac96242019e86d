"""Rows that are scanned, as a dataset that DataFusion reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.dataset

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ._sql import _Rows


def dataset(rows: _Rows) -> _Dataset:
    """Rows of which DataFusion asks for columns."""
    return _Dataset(rows)


class _Dataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """For Arrow's own code it is a table without rows; DataFusion asks for its one fragment, and that for a scanner."""

    def __init__(self, rows: _Rows) -> None:
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
    def __init__(self, rows: _Rows, columns: list[str]) -> None:
        import pyarrow

        self._rows = rows
        self._columns = columns
        self.projected_schema: pa.Schema = pyarrow.schema([rows.schema.field(name) for name in columns])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return self._rows.batches(self._columns)
