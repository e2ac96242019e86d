"""Functions over many files at many servers, and tables in files, scheduled by Ray.

It needs the package ``ray``; tables need ``ray[data]``.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import ray

from ._function import Function, function
from ._names import size
from ._result import Result
from ._scan_parts import parts, rows_of
from .errors import UsageError
from .partition import AT_ONCE, Partition, combine, partitions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from ._scan import Scan
    from ._session import Session


def run(
    what: Function | str | os.PathLike[str] | bytes,
    files: Any,
    *,
    target: int | str = "128MiB",
    record: int = 1,
    recursive: bool = False,
    at_once: int = AT_ONCE,
    **options: Any,
) -> Result:
    """The result that one run over all files would give, of Ray tasks: one for each partition.

    Partitions run where they lie, whatever worker asks; their results, not their data, travel, and are folded here in the
    order of the files. A task that is lost with its worker is run again, if the function has no effects.

    :param what: as for :func:`diskside.run`; it is pickled with its object.
    :param files: as for :func:`diskside.run`; URLs, so that every worker can reach them.
    :param target: bytes of a partition: :func:`diskside.partitions`.
    :param record: bytes of a record; none is cut.
    :param at_once: partitions of one server that are under way at a time, of all workers together.
    :param options: arguments of the function, and options of :func:`diskside.run`.

    >>> diskside.ray.run("stats64", ["diskside://one/data/a.u64", "diskside://two/data/b.u64"], record=8).sum
    """
    if at_once < 1:
        raise UsageError(f"at_once: {at_once} partitions are none; it is at least 1")
    run_by = function(what)
    cut = partitions(files, target=target, record=record, recursive=recursive)
    if not cut:
        raise UsageError("there are no files to run over")
    # Tasks wait for their servers, and take no processor meanwhile.
    task = ray.remote(num_cpus=0, max_retries=3 if run_by._native.is_pure else 0)(_run)
    shared = ray.put((run_by, options))
    results = in_turn(cut, lambda part: task.remote(part, shared), _next_of, at_once)
    arguments = {name: value for name, value in options.items() if name in {one["name"] for one in run_by.arguments}}
    return combine(run_by, results, **arguments)


def _run(part: Partition, shared: Any) -> Result:
    run_by, options = shared
    return part.run(run_by, **options)


def _next_of(begun: list[Any]) -> tuple[Any, Any]:
    ended, _ = ray.wait(begun, num_returns=1)
    try:
        return ended[0], ray.get(ended[0])
    except ray.exceptions.RayTaskError as error:
        for other in begun:
            ray.cancel(other)
        # What failed, not where Ray noticed it.
        raise error.cause from error


def in_turn(
    parts: list[Partition],
    begin: Callable[[Partition], Any],
    next_of: Callable[[list[Any]], tuple[Any, Any]],
    at_once: int,
) -> list[Any]:
    """Begins partitions in turn over their servers, at most ``at_once`` of a server at a time.

    :param begin: begins one, and gives what stands for it.
    :param next_of: waits for one of those that are begun: which, and its result.
    :returns: the results in the order of the partitions.
    """
    waiting: dict[str | None, deque[int]] = {}
    for place, part in enumerate(parts):
        waiting.setdefault(part.server, deque()).append(place)
    begun: dict[Any, int] = {}
    results: list[Any] = [None] * len(parts)

    def begin_one(server: str | None) -> None:
        if waiting[server]:
            place = waiting[server].popleft()
            begun[begin(parts[place])] = place

    for _ in range(at_once):
        for server in waiting:
            begin_one(server)
    while begun:
        ended, result = next_of(list(begun))
        place = begun.pop(ended)
        results[place] = result
        begin_one(parts[place].server)
    return results


def read(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Scan,
    columns: str | Iterable[str] | None = None,
    *,
    where: str | None = None,
    target: int | str = "128MiB",
    session: Session | None = None,
    **options: Any,
) -> Any:
    """Tables in files, wherever they are, as a Ray ``Dataset`` of Arrow blocks.

    Tasks are of row groups of a Parquet file, or of files. Columns that are not used stay where they are, as far as Ray tells of them
    (``select_columns``, ``count``), and so do rows for which ``where`` is not true. Workers read through sessions of their own; a task
    whose file was changed since fails.

    :param files: as for :meth:`diskside.Session.scan`; URLs, so that every worker can reach them. Or a scan of rows, as of
        :meth:`diskside.Session.scan_delta`, without further options than ``target``.
    :param target: bytes of a task's part.
    :param session: what looks at the files now.
    :param options: further options of :meth:`diskside.Session.scan`: ``input``, ``delimiter``, ``header``, ``types``, ``place``,
        ``partitions``.

    >>> lineitem = diskside.ray.read("diskside://server/data/lineitem.parquet", where="l_quantity < 24")
    >>> lineitem.groupby("l_shipmode").sum("l_extendedprice").take_all()
    """
    try:
        from ._ray_source import Tables
    except ImportError as error:
        raise UsageError(f"tables take Ray's datasets: pip install 'diskside[ray]' ({error})") from None
    scan = rows_of(files, columns, where, session, options, "Dataset")
    cut = parts(scan, size("target", target))
    # Ray would cut the blocks of fewer tasks than it thinks of.
    return ray.data.read_datasource(Tables(cut, scan.schema), override_num_blocks=len(cut))
