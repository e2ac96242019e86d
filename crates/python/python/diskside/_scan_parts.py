"""Parts of scans, for schedulers of others: small, picklable, and read in any process."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ._condition import all_of, cheapest
from ._default import default_session
from ._names import is_export_url, is_url, server_of
from ._scan import Scan, quoted
from ._tables import TableFiles, TableScan
from .errors import ChangedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ._session import Session

#: How types of columns that directories say are called.
_TYPES = {"int64": "integer", "date32[day]": "date", "string": "text"}

#: All row groups of a file that is named alone.
_ALL = (0, (1 << 32) - 1)


class Conjunct(NamedTuple):
    """A part of a condition, with the column that it is of."""

    column: str
    text: str


class ScanPart(NamedTuple):
    """Files of a scan, or row groups of one of its files."""

    files: list[str]
    #: Those that files had when the parts were made; None of files that have none.
    versions: list[int | None]
    #: The first one, and how many; None: all.
    row_groups: tuple[int, int] | None
    #: The scan of which it is a part.
    wanted: dict[str, Any]
    place: str
    partitions: bool
    #: The table that has these files.
    table: TableFiles | None = None

    @property
    def server(self) -> str | None:
        """HOST:PORT of the server that has its first file; None of files of this machine."""
        return server_of(self.files[0]) if self.files else None

    def scan(self, session: Session | None = None, **instead: Any) -> Scan:
        """A scan of this part.

        :raises ChangedError: a file is another version by now.
        """
        used = session or default_session()
        for file, version in zip(self.files, self.versions):
            if version is not None and used.stat(file).version != version:
                raise ChangedError(f"{file} changed since the parts of its scan were made; make them again")
        if self.table is not None:
            of_table = TableScan(used, self.table, place=self.place)
            of_table._wanted = dict(self.wanted)
            return of_table._other(**instead)
        # Directories of one file that is named once are no columns.
        files = self.files * 2 if len(self.files) == 1 and self.row_groups is None else self.files
        scan = used.scan(files, place=self.place, partitions=self.partitions and self.row_groups is None)
        scan._wanted = self.wanted | {"row_groups": self.row_groups}
        return scan._other(**instead)

    def rows(self, schema: pa.Schema, conditions: Iterable[Conjunct] = (), session: Session | None = None) -> Iterator[pa.RecordBatch]:
        """Rows as a schema has them; at least those for which all conditions are true."""
        import pyarrow as pa

        scan = self.scan(session)
        found, by_name = scan.schema, {field.name: field for field in schema}
        # Other files may have columns that these lack: they are NULL here.
        columns = [name for name in by_name if name in found.names]
        kept = [one.text for one in conditions if one.column in found.names]
        if scan._gives_rows():
            scan = scan._other(columns=columns or cheapest(found), **({"where": all_of(kept)} if kept else {}))
        with scan.batches() as batches:
            for batch in batches:
                arrays = [
                    batch.column(name).cast(field.type, safe=False) if name in columns else pa.nulls(batch.num_rows, field.type)
                    for name, field in by_name.items()
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(
    files: Any, columns: str | Iterable[str] | None, where: str | None, session: Session | None, options: dict[str, Any], made: str
) -> Scan:
    """The scan of rows of which a scheduler's table is made, such as a DataFrame: of files, as :meth:`Session.scan` takes them, or one that is made already."""
    if not isinstance(files, Scan):
        scan = (session or default_session()).scan(files, columns, where=where, **options)
    elif columns is not None or where is not None or options:
        raise UsageError("columns, where, ...: the scan has them already; give them to it")
    else:
        scan = files
    if not scan._gives_rows():
        raise UsageError(f"a {made} is of rows: take sums of diskside.scan(), or sum up the {made}")
    return scan


def parts(scan: Scan, target: int) -> list[ScanPart]:
    """Parts of about ``target`` bytes, in the order of the files. A Parquet file that is named alone is cut between row groups."""
    session = scan._session
    table = scan._table if isinstance(scan, TableScan) else None
    files, is_alone = ([name for name, _ in table.files], False) if table else session._native.scan_files(scan._names)
    files = [file if is_url(file) else os.path.abspath(file) for file in files]
    sizes, versions = [], list[int | None]()
    for file in files:
        known = session.stat(file) if is_export_url(file) else None
        sizes.append(session.open(file).size if known is None else known.size)
        versions.append(None if known is None else known.version)

    def part(first: int, end: int, row_groups: tuple[int, int] | None, wanted: dict[str, Any]) -> ScanPart:
        of_table = table and table._replace(files=table.files[first:end])
        return ScanPart(files[first:end], versions[first:end], row_groups, wanted, scan._place, scan._partitions, of_table)

    if not scan._gives_rows() or not files:
        return [part(0, len(files), None if not is_alone else _ALL, scan._wanted)]
    if is_alone:
        return [part(0, 1, groups, scan._wanted) for groups in _row_groups(scan, files[0], sizes[0], target)]
    wanted = scan._wanted | {"types": _types(scan, files)}
    cut, begun, bytes_so_far = list[ScanPart](), 0, 0
    for at, size in enumerate(sizes):
        bytes_so_far += size
        if bytes_so_far >= target or at + 1 == len(files):
            cut.append(part(begun, at + 1, None, wanted))
            begun, bytes_so_far = at + 1, 0
    return cut


def _row_groups(scan: Scan, file: str, size: int, target: int) -> list[tuple[int, int]]:
    # Of a text file, all that is before a part would be read, too.
    if size <= target or scan._session.open(file).read(0, 4) != b"PAR1":
        return [_ALL]
    counted = scan._other(limit=0)
    counted.arrow()
    groups = counted.report["row_groups"]
    count = max(1, min(groups, math.ceil(size / target)))
    firsts = [groups * at // count for at in range(count + 1)]
    return [(first, end - first) for first, end in zip(firsts, firsts[1:])]


def _types(scan: Scan, files: list[str]) -> str | None:
    """Types of columns of text files; and of columns that directories say, which the directories of a part may not tell."""
    given: str | None = scan._wanted["types"]
    if not scan._partitions:
        return given
    keys = {name.split("=", 1)[0] for name in files[0].split("/")[:-1] if "=" in name}
    found = [field for field in scan._other(columns=[]).schema if field.name in keys and field.name not in (given or "")]
    said = [f"{quoted(field.name)} {_TYPES[str(field.type)]}" for field in found if str(field.type) in _TYPES]
    return ", ".join([*([given] if given else []), *said]) or None
