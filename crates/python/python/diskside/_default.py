"""Making a session, and the session of those who make none."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from . import _diskside
from ._function import shipped
from ._names import is_url, seconds, size
from ._scan import Scan
from ._session import Session
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import deltalake
    import pyiceberg.table

    from ._file import File
    from ._function import Function
    from ._job import Job
    from ._result import Result
    from ._sql import Query


_default: Session | None = None
_default_lock = threading.Lock()


def default_session() -> Session:
    """The session of :func:`run`, :func:`submit`, :func:`scan` and :func:`open`."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = connect()
    return _default


def connect(
    url: str | None = None,
    *,
    cache: int | str = "256MiB",
    footers: int | str = "64MiB",
    policy: str | None = None,
    learnt_directory: str | os.PathLike[str] | None = None,
    volumes: Iterable[str] = (),
    host_nqn: str | None = None,
    connect_timeout: float | None = None,
    loss_timeout: float | None = None,
    keep_alive: float | None = None,
    io: Mapping[str, Any] | None = None,
) -> Session:
    """Makes a session. Servers are connected to when they are first used.

    :param url: ``diskside://HOST[:PORT]/EXPORT/...``, of which relative paths are taken; ``diskside+tls://`` wants TLS.
    :param cache: bytes of files at servers that are kept here; 0: none. Sizes may be text such as ``"1GiB"``.
    :param footers: bytes of footers, Bloom filters and indexes of such files that are kept here for further scans on this machine; 0: none.
    :param policy: how ``place="auto"`` chooses: ``adaptive``, ``lambda-io[:n=N,k=K]``, ``host`` or ``device``; otherwise what
        the variable ``DISKSIDE_POLICY`` says.
    :param learnt_directory: where :meth:`Session.save_learnt` keeps what was measured.
    :param volumes: ``nvme-tcp://`` URLs of volumes that local files may be on, beside those that the kernel tells of.
    :param host_nqn: the NQN to connect as, if not this machine's.
    :param connect_timeout: seconds that each step of connecting may take (5).
    :param loss_timeout: seconds to try to connect again before requests fail (60).
    :param keep_alive: seconds without a sign of life after which a server is taken for lost (10), however long its functions
        run; it is asked every half of that.
    :param io: how files of this machine are read and written (``docs/asynchronous.md``): ``instances``, ``threads`` of each
        (1 or 2), ``in_flight_max``, ``staging_max``, ``spin`` and ``sq_poll`` in seconds, ``io_poll``.
    """
    if url is not None and not is_url(url):
        raise UsageError(f"connect: {url!r} is no URL; write diskside://HOST[:PORT]/EXPORT")
    learnt = None if learnt_directory is None else os.fspath(learnt_directory)
    timeouts = [
        seconds("connect_timeout", connect_timeout),
        seconds("loss_timeout", loss_timeout),
        seconds("keep_alive", keep_alive),
    ]
    if io is not None and not hasattr(io, "items"):
        raise UsageError(f'io: {io!r} is no dictionary, such as {{"instances": 2, "threads": 2}}')
    return Session(url, ([size("cache", cache), size("footers", footers)], policy, learnt, list(volumes), host_nqn, timeouts, dict(io or {})))


def run(function: Function | str | os.PathLike[str] | bytes, files: Any, **options: Any) -> Result:
    """Runs a function over files in the default session: :meth:`Session.run`."""
    return default_session().run(function, files, **options)


def submit(function: Function | str | os.PathLike[str] | bytes, files: Any, **options: Any) -> Job[Result]:
    """Begins :func:`run`, and does not wait: :meth:`Session.submit`."""
    return default_session().submit(function, files, **options)


def scan(
    file: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], columns: str | Iterable[str] | None = None, **options: Any
) -> Scan:
    """Columns, rows or sums of Parquet, Arrow, CSV or JSON lines files, in the default session: :meth:`Session.scan`."""
    return default_session().scan(file, columns, **options)


def last_scans() -> list[dict[str, Any]]:
    """How the last scans of the default session went: :meth:`Session.last_scans`."""
    return default_session().last_scans()


def scan_delta(table: str | os.PathLike[str] | deltalake.DeltaTable, columns: str | Iterable[str] | None = None, **options: Any) -> Scan:
    """Columns, rows or sums of a Delta Lake table, in the default session: :meth:`Session.scan_delta`."""
    return default_session().scan_delta(table, columns, **options)


def scan_iceberg(
    table: str | os.PathLike[str] | pyiceberg.table.Table, columns: str | Iterable[str] | None = None, **options: Any
) -> Scan:
    """Columns, rows or sums of an Apache Iceberg table, in the default session: :meth:`Session.scan_iceberg`."""
    return default_session().scan_iceberg(table, columns, **options)


def source_of(source: Any, session: Session | None, place: str, partitions: bool) -> Scan:
    """What an engine reads rows of: a scan, or files, as :meth:`Session.scan` takes them."""
    if isinstance(source, Scan):
        if not source._gives_rows():
            raise UsageError(f"{source!r} is no table of rows: give a scan without sums, groups, order and limit")
        return source
    return (session or default_session()).scan(source, place=place, partitions=partitions)


def sql(query: str, /, **tables: Any) -> Query:
    """SQL over files and tables, in the default session: :meth:`Session.sql`."""
    return default_session().sql(query, **tables)


def substrait(plan: bytes | str, /, **tables: Any) -> Query:
    """A plan of Substrait over files and tables, in the default session: :meth:`Session.substrait`."""
    return default_session().substrait(plan, **tables)


def open(name: str | os.PathLike[str], mode: str = "r") -> File:
    """Opens a file in the default session: :meth:`Session.open`."""
    return default_session().open(name, mode)


def info() -> dict[str, Any]:
    """What there is here: ``version``; ``tiers``, which run functions; ``functions``, the shipped ones; ``io``, which is
    ``"io_uring"``, or ``"posix"`` where that is denied."""
    tiers = ["interp", "cranelift", *(["llvm"] if default_session()._native.has_llvm else [])]
    return {"version": _diskside.__version__, "tiers": tiers, "functions": shipped(), "io": _diskside.interface()}
