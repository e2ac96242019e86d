"""The record batches of a scan, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Batches:
    """Record batches as they come: what ``pyarrow.RecordBatchReader`` is, but that :meth:`close` ends the scan, as the end of ``with`` does.

    A scan that is not read to its end stands still at its server, and keeps its memory there, until it is closed.
    """

    # pyarrow's own reader is closed without a word to the generator that it was made of.
    def __init__(self, reader: pa.RecordBatchReader, close: Callable[[], None]) -> None:
        self._reader: pa.RecordBatchReader | None = reader
        self._close = close
        #: The columns, with their types.
        self.schema = reader.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self._open().read_next_batch()

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch.

        :raises StopIteration: there are no more.
        :raises UsageError: it is closed.
        """
        return self._open().read_next_batch()

    def read_all(self) -> pa.Table:
        """The rest, as a table."""
        return self._open().read_all()

    def read_pandas(self) -> pd.DataFrame:
        """The rest, as a pandas DataFrame."""
        return self.read_all().to_pandas()

    def close(self) -> None:
        """Ends the scan, here and at its server. Once it is closed, nothing more is read."""
        if self._reader is not None:
            self._close()
            self._reader = None

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rest, for all that takes Arrow streams. It is here whole before it is handed on: some who read such streams wait in one
        thread for Python's lock, which the other has. ``pyarrow.RecordBatchReader.from_batches(batches.schema, batches)`` streams."""
        return self.read_all().__arrow_c_stream__(requested_schema)

    def _open(self) -> pa.RecordBatchReader:
        if self._reader is None:
            raise UsageError("the batches are closed: scan again")
        return self._reader
