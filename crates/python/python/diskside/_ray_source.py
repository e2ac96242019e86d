"""Tables in files as a source of Ray's datasets. It needs ``ray[data]``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from ._condition import cheapest
from .partition import turn_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._scan_parts import ScanPart


class Tables(Datasource):  # type: ignore[misc]
    """Parts of a scan, each of which is a task. Ray tells it which columns are used."""

    def __init__(self, parts: list[ScanPart], schema: pyarrow.Schema) -> None:
        super().__init__()
        self._parts = parts
        self._table_schema = schema
        #: As Ray has it: the columns that are used, by name; None: all.
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        return "Diskside"

    def supports_projection_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        # Files are compressed, and conditions leave out rows: Ray measures what comes.
        return None

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:
        used = self._table_schema.names if self._projection_map is None else list(self._projection_map)
        # Without a column rows are counted, by one: Ray takes a block without columns for one without rows.
        schema = pyarrow.schema([self._table_schema.field(name) for name in used or cheapest(self._table_schema)])
        return [
            ReadTask(
                partial(_blocks, part, schema),
                BlockMetadata(num_rows=None, size_bytes=None, input_files=part.files, exec_stats=None),
                schema=schema,
                per_task_row_limit=per_task_row_limit,
            )
            for part in self._parts
        ]


def _blocks(part: ScanPart, schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    # A task that has enough rows closes this generator, and that ends the scan.
    is_empty = True
    with turn_at(part.server):
        for batch in part.rows(schema):
            is_empty = False
            yield pyarrow.Table.from_batches([batch])
    if is_empty:
        # Ray learns the columns of a dataset without rows of a block without rows.
        yield schema.empty_table()
