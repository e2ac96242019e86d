"""A server in this process."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

from . import _diskside
from ._default import connect
from ._session import Session
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType


class Server:
    """Directories and volumes, served from this process over NVMe/TCP until it is closed; :func:`serve` makes one."""

    def __init__(self, native: _diskside.Server, exports: list[str]) -> None:
        self._native = native
        self.address: str = native.addresses[0]
        """Where it listens: HOST:PORT."""
        self.urls: dict[str, str] = {name: f"diskside://{self.address}/{name}" for name in exports}
        """The URL of each export, by its name."""
        self.volumes: dict[str, str] = {
            name: f"nvme-tcp://{self.address}/{native.nqn}/{number}" for name, number in native.volumes
        }
        """The URL of each volume, by its name."""

    @property
    def url(self) -> str:
        """The URL of the first export; without exports, of the server."""
        return next(iter(self.urls.values()), f"diskside://{self.address}")

    def connect(self, **options: Any) -> Session:
        """A session whose relative paths are those of :attr:`url`: :func:`connect`."""
        return connect(self.url, **options)

    def close(self) -> None:
        """Ends what runs, and closes connections. Once more it does nothing."""
        self._native.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a diskside.Server runs in its process, so it does not pickle; pickle its URL")

    def __repr__(self) -> str:
        return f"<diskside.Server at {self.address}: {', '.join([*self.urls, *self.volumes])}>"


def serve(
    exports: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    volumes: Iterable[str] = (),
    rw: bool = False,
    listen: str | Iterable[str] = "127.0.0.1:0",
    insecure: bool = False,
    nqn: str | None = None,
    engines: int | None = None,
) -> Server:
    """Serves directories and volumes from this process, over NVMe/TCP, until the server is closed.

    :param exports: a directory, served as ``data``; or names and directories. ``s3://BUCKET/KEY`` or ``https://HOST/PATH`` in its
        place is what is below a key of a bucket, or below a path of a web server, read-only; it takes ``diskside-objects``.
    :param volumes: as for ``diskside serve --volume``: ``NAME=PATH[,rw][,size=SIZE]`` or ``NAME=mem:SIZE,rw``.
    :param rw: hosts may change what is in the exports; without it they may only read.
    :param listen: HOST[:PORT][,path=STATE], one or several. By default a free port for this machine alone.
    :param insecure: listen beyond this machine although hosts are not authenticated.
    :param nqn: the NQN of the subsystem.
    :param engines: functions that compute at a time; by default one for each core.
    :raises IoError: a directory cannot be served, or an address not be listened on.

    >>> with diskside.serve("/srv/data") as server, server.connect() as session:
    ...     session.run("stats64", "measured.u64")
    """
    if exports is None:
        exports = {}
    elif isinstance(exports, bytes):
        exports = {"data": os.fsdecode(exports)}
    elif isinstance(exports, (str, os.PathLike)):
        exports = {"data": exports}
    if engines is not None and not 0 < operator.index(engines) < 2**16:
        raise UsageError(f"serve: engines: {engines} is not from 1 to {2**16 - 1}")
    wanted = [(name, os.fspath(path), rw) for name, path in exports.items()]
    volumes = list(volumes)
    if not wanted and not volumes:
        raise UsageError("serve: there is nothing to serve; give a directory, names and directories, or volumes=")
    addresses = [listen] if isinstance(listen, str) else list(listen)
    native = _diskside.Server(wanted, volumes, addresses, nqn, engines, insecure)
    return Server(native, [name for name, *_ in wanted])
