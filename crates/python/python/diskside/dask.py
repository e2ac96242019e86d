"""Functions over many files at many servers, scheduled by Dask.

It needs the package ``dask``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask.delayed import delayed

from ._function import Function, function
from .errors import UsageError
from .partition import combine, partitions, spread

if TYPE_CHECKING:
    import os


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
