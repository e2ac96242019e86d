"""Which files a Delta Lake table is of. The package ``deltalake`` reads its log; of a table in an export, a copy of the log."""

from __future__ import annotations

import os
import re
import tempfile
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ._names import is_export_url, joined
from ._tables import TableFiles, absolute, below, kind_of, local_path, plain_schema, value_text
from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from ._session import Session

#: What readers must know of a table, and is known here, or refused where a table uses it.
_FEATURES = {"timestampNtz", "deletionVectors", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
#: Files of a log: commits, and checkpoints of one or several files.
_IN_LOG = re.compile(r"(\d{20})\.(json|checkpoint(?P<parts>\..+)?\.(parquet|json))")
#: Files of a log that are fetched at one time.
_AT_ONCE = 16


def delta_files(
    session: Session, table: str | os.PathLike[str] | DeltaTable, version: int | None, root: str | os.PathLike[str] | None
) -> TableFiles:
    """The live files of a table.

    :raises UsageError: it is no table, or one whose rows its files alone do not tell.
    """
    try:
        import deltalake
    except ImportError:
        raise UsageError("tables of Delta Lake take deltalake: pip install 'diskside[delta]'") from None
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise UsageError(f"version: {version!r} is no version of a table: give a whole number")
    if isinstance(table, deltalake.DeltaTable):
        if version is not None:
            raise UsageError("version: the table is open at one already: DeltaTable(..., version=...) opens it at another")
        return _files(table, _root(session, table.table_uri, root))
    place = joined(session.url, table)
    try:
        if not is_export_url(place):
            directory = local_path(place)
            if directory is None:
                raise UsageError(f"{place}: it is neither here nor in an export: give a DeltaTable of it, and root= for its files")
            return _files(deltalake.DeltaTable(directory, version=version), _root(session, directory, root))
        with tempfile.TemporaryDirectory(prefix="diskside-delta-") as copied:
            _copy_log(session, place, version, Path(copied) / "_delta_log")
            return _files(deltalake.DeltaTable(copied, version=version), _root(session, place, root))
    except deltalake.exceptions.TableNotFoundError:
        raise UsageError(f"{place}: it is no table of Delta Lake: there is no _delta_log with a commit in it") from None
    except deltalake.exceptions.DeltaError as error:
        if version is not None and version > (last := _last_version(session, place)):
            raise UsageError(f"{place}: there is no version {version} of the table: the last one is {last}") from None
        raise UsageError(f"{place}: {error}") from None


def _last_version(session: Session, table: str) -> int:
    directory = local_path(table)
    names = session.ls(f"{table.rstrip('/')}/_delta_log") if directory is None else os.listdir(Path(directory) / "_delta_log")
    return max(int(known[1]) for name in names if (known := _IN_LOG.fullmatch(name)))


def _root(session: Session, of_table: str, given: str | os.PathLike[str] | None) -> str:
    if given is not None:
        return absolute(joined(session.url, given))
    if is_export_url(of_table):
        return of_table
    path = local_path(of_table)
    if path is None:
        raise UsageError(f"{of_table}: its files are neither here nor in an export: root= says where they are")
    return absolute(urllib.parse.unquote(path) if "://" in of_table else path)


def _copy_log(session: Session, table: str, version: int | None, to: Path) -> None:
    """Copies of a log what the table at one version of it is made of."""
    log = f"{table.rstrip('/')}/_delta_log"
    try:
        names = session.ls(log)
    except FileNotFoundError:
        raise UsageError(f"{table}: it is no table of Delta Lake: there is no _delta_log in it") from None
    found = [(int(known[1]), known["parts"], name) for name in names if (known := _IN_LOG.fullmatch(name))]
    found = [one for one in found if version is None or one[0] <= version]
    # A checkpoint of one file has all that was before. Whether one of several files is complete, deltalake finds out.
    first = max((at for at, parts, name in found if parts is None and name.endswith(".checkpoint.parquet")), default=0)
    wanted = [name for at, _, name in found if at >= first]
    if "_sidecars" in names and any(parts for _, parts, _ in found):
        wanted += [f"_sidecars/{name}" for name in session.ls(f"{log}/_sidecars")]
        (to / "_sidecars").mkdir(parents=True)
    to.mkdir(parents=True, exist_ok=True)

    def copy(name: str) -> None:
        (to / name).write_bytes(session.read(below(log, name)))

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(copy, wanted))


def _files(table: DeltaTable, root: str) -> TableFiles:
    import pyarrow as pa

    _refuse(table, root)
    schema = plain_schema(pa.schema(table.schema().to_arrow()))
    partitions = list(table.metadata().partition_columns)
    for name in partitions:
        if kind_of(schema.field(name).type) is None:
            raise UsageError(f"{root}: it is partitioned by `{name}`, which is of type {schema.field(name).type}: such values are not read")
    files = []
    for row in _added(table).to_pylist():
        values = row.get("partition") or {}
        files.append((_file(root, row["path"]), [value_text(values.get(name)) for name in partitions]))
    return TableFiles(root, schema, partitions, sorted(files))


def _added(table: DeltaTable) -> pa.Table:
    import pyarrow as pa

    added = pa.table(table.get_add_actions(flatten=False))
    return added.select([name for name in ("path", "partition") if name in added.column_names])


def _file(root: str, path: str) -> str:
    named = urllib.parse.unquote(path)
    if "://" not in path and not path.startswith(("/", "file:")):
        return below(root, named)
    # Of a table whose files another one has, too.
    local = None if is_export_url(root) else local_path(named)
    if local is None:
        raise UsageError(f"{root}: its file {path} is not below it: such files are not read")
    return local


def _refuse(table: DeltaTable, root: str) -> None:
    """Refuses tables whose rows are not those of the files as they are."""
    protocol = table.protocol()
    features = set(protocol.reader_features or [])
    unknown = sorted(features - _FEATURES)
    if protocol.min_reader_version > 3 or unknown:
        wanted = ", ".join(unknown) or f"version {protocol.min_reader_version} of the protocol"
        raise UsageError(f"{root}: readers of the table have to know {wanted}: it is not scanned")
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode.lower() != "none":
        raise UsageError(f"{root}: its columns have other names in files (delta.columnMapping.mode is {mode}): it is not scanned")
    if "deletionVectors" in features and (of := _with_deleted_rows(table)):
        remedy = "rewrite its files, as REORG TABLE ... APPLY (PURGE) does"
        raise UsageError(f"{root}: rows of its files are deleted by deletion vectors ({of}): {remedy}")


def _with_deleted_rows(table: DeltaTable) -> str | None:
    """A file of which rows are deleted, or why that is not known."""
    import pyarrow as pa

    try:
        found = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().column("filepath")
        return str(found[0]) if len(found) else None
    # A vector in a file of its own is not among what was copied of the log.
    except Exception as error:
        return str(error)
