"""Run a function where the data lies, and move only its result.

>>> import diskside
>>> diskside.run("stats64", "measured.u64").sum
499500
>>> diskside.run("grep", "diskside://server/data/*.log", pattern="ERROR").text

:func:`run` and :func:`submit` work in a default session; :func:`connect` makes one with a base URL. :func:`function` takes
functions of your own, as C source. :func:`serve` serves directories from this process. Files of servers open through fsspec
(``diskside.filesystem``), Zarr arrays through ``diskside.zarr``, Parquet files by :func:`scan`, :func:`sql`, :func:`substrait`,
``diskside.polars`` and ``diskside.pyarrow``.
"""

from __future__ import annotations

from . import errors
from ._arrow_rows import ArrowRows
from ._batches import Batches
from ._default import connect, info, last_scans, open, run, scan, scan_delta, scan_iceberg, sql, submit, substrait
from ._diskside import __version__
from ._file import File, FileInfo
from ._function import Function, function, shipped
from ._job import Job, wait
from ._result import Result
from ._scan import Scan
from ._serve import Server, serve
from ._session import Session
from ._sql import Query
from .errors import *  # noqa: F403
from .partition import Partition, combine, partitions, spread

__all__ = [
    *errors.__all__,
    "ArrowRows",
    "Batches",
    "File",
    "FileInfo",
    "Function",
    "Job",
    "Partition",
    "Query",
    "Result",
    "Scan",
    "Server",
    "Session",
    "__version__",
    "combine",
    "connect",
    "function",
    "info",
    "last_scans",
    "open",
    "partitions",
    "run",
    "scan",
    "scan_delta",
    "scan_iceberg",
    "serve",
    "shipped",
    "spread",
    "sql",
    "submit",
    "substrait",
    "wait",
]
