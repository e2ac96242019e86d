"""What gives record batches, in the shapes that others take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from ._batches import Batches


class ArrowRows(ABC):
    """A result that is computed each time that it is asked for: of a scan, or of a query."""

    @abstractmethod
    def batches(self) -> Batches:
        """Computes it, and gives record batches as they come."""

    def arrow(self) -> pa.Table:
        """Computes it, and gives the result as an Arrow table."""
        with self.batches() as batches:
            return batches.read_all()

    def pandas(self) -> pd.DataFrame:
        """Computes it, and gives the result as a pandas DataFrame."""
        return self.arrow().to_pandas()

    def polars(self) -> pl.DataFrame:
        """Computes it, and gives the result as a Polars DataFrame."""
        import polars

        frame = polars.from_arrow(self.arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The result, for all that takes Arrow streams: ``polars.DataFrame(scan)``, ``duckdb.from_arrow(scan)``.

        It is here whole before it is handed on: some who read such streams wait in one thread for Python's lock, which the other has.
        """
        return self.arrow().__arrow_c_stream__(requested_schema)
