"""Functions over many files at many servers, and tables in files, scheduled by Dask.

It needs the package ``dask``; tables need ``dask[dataframe]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask.delayed import delayed

from ._function import Function, function
from ._names import size
from ._scan_parts import ScanPart, parts, rows_of
from .errors import UsageError
from .partition import combine, partitions, spread, turn_at

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import pandas as pd
    import pyarrow as pa

    from ._scan import Scan
    from ._session import Session


def run(
    what: Function | str | os.PathLike[str] | bytes,
    files: Any,
    *,
    target: int | str = "128MiB",
    record: int = 1,
    recursive: bool = False,
    split_every: int = 8,
    **options: Any,
) -> Any:
    """A Dask value (``Delayed``) of the :class:`~diskside.Result` that one run over all files would give.

    Partitions run where they lie, whatever worker asks; their results, not their data, travel, and are folded as a tree that
    keeps their order.

    :param what: as for :func:`diskside.run`; it is pickled with its object.
    :param files: as for :func:`diskside.run`; URLs, so that every worker can reach them.
    :param target: bytes of a partition: :func:`diskside.partitions`.
    :param record: bytes of a record; none is cut.
    :param split_every: results that are folded at once.
    :param options: arguments of the function, and options of :func:`diskside.run`.

    >>> diskside.dask.run("stats64", ["diskside://one/data/a.u64", "diskside://two/data/b.u64"], record=8).compute().sum
    """
    if split_every < 2:
        raise UsageError(f"split_every: {split_every} results cannot be folded; it is at least 2")
    run_by = function(what)
    parts = partitions(files, target=target, record=record, recursive=recursive)
    if not parts:
        raise UsageError("there are no files to run over")
    begin = delayed(_run, pure=True)
    # Made in an order in which all servers have work, and folded in that of the files.
    begun = {part: begin(part, run_by, options) for part in spread(parts)}
    level = [begun[part] for part in parts]
    arguments = {name: value for name, value in options.items() if name in {one["name"] for one in run_by.arguments}}
    fold = delayed(_fold, pure=True)
    while len(level) > 1:
        level = [fold(level[at : at + split_every], run_by, arguments) for at in range(0, len(level), split_every)]
    return level[0]


def _run(part: Any, run_by: Function, options: dict[str, Any]) -> Any:
    return part.run(run_by, **options)


def _fold(results: list[Any], run_by: Function, arguments: dict[str, Any]) -> Any:
    return combine(run_by, results, **arguments)


def read(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Scan,
    columns: str | Iterable[str] | None = None,
    *,
    where: str | None = None,
    target: int | str = "128MiB",
    session: Session | None = None,
    **options: Any,
) -> Any:
    """Tables in files, wherever they are, as a Dask DataFrame. Its columns have the types of Arrow (``pandas.ArrowDtype``).

    Partitions are row groups of a Parquet file, or files. Columns that are not used stay where they are, and so do rows for which ``where``
    is not true. Workers read through sessions of their own.

    :param files: as for :meth:`diskside.Session.scan`; URLs, so that every worker can reach them. Or a scan of rows, as of
        :meth:`diskside.Session.scan_delta`, without further options than ``target``.
    :param target: bytes of a partition.
    :param session: what looks at the files now.
    :param options: further options of :meth:`diskside.Session.scan`: ``input``, ``delimiter``, ``header``, ``types``, ``place``, ``partitions``.

    >>> lineitem = diskside.dask.read("diskside://server/data/lineitem.parquet", where="l_quantity < 24")
    >>> lineitem.groupby("l_shipmode")["l_extendedprice"].sum().compute()
    """
    from dask.dataframe import from_map

    scan = rows_of(files, columns, where, session, options, "DataFrame")
    schema = scan.schema
    cut = parts(scan, size("target", target))
    meta = _pandas(schema.empty_table())
    return from_map(_frame, cut, schema=schema, columns=schema.names, meta=meta, label="diskside-read")  # type: ignore[no-untyped-call]


def _frame(part: ScanPart, schema: pa.Schema, columns: list[str]) -> pd.DataFrame:
    import pyarrow

    wanted = pyarrow.schema([schema.field(name) for name in columns])
    with turn_at(part.server):
        return _pandas(pyarrow.Table.from_batches(part.rows(wanted), wanted))


def _pandas(table: pa.Table) -> pd.DataFrame:
    import pandas

    # Of one partition NumPy would have whole numbers, and of another, which has NULL, floating-point numbers.
    return table.replace_schema_metadata(None).to_pandas(types_mapper=pandas.ArrowDtype)
