"""Which files an Apache Iceberg table is of. The package ``pyiceberg`` reads its metadata, wherever that is; the columns of each file are
compared with the table's by their ids, since a scan finds columns by name."""

from __future__ import annotations

import datetime
import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from ._iceberg_columns import check, footer
from ._names import is_export_url, joined
from ._tables import TableFiles, absolute, below, kind_of, local_path, plain, plain_schema, value_text
from .errors import UsageError

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from ._session import Session

#: Files that are looked at at one time.
_AT_ONCE = 16
_EPOCH = datetime.datetime(1970, 1, 1)
#: What the name of a file with metadata ends in.
_METADATA = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def iceberg_files(
    session: Session, table: str | os.PathLike[str] | Table, snapshot_id: int | None, root: str | os.PathLike[str] | None
) -> TableFiles:
    """The live files of a table.

    :raises UsageError: it is no table, or one whose rows its files alone do not tell.
    """
    try:
        import pyiceberg.table
        from pyiceberg.exceptions import ValidationError
    except ImportError:
        raise UsageError("tables of Apache Iceberg take pyiceberg: pip install 'diskside[iceberg]'") from None
    given = None if root is None else absolute(joined(session.url, root))
    if isinstance(table, pyiceberg.table.Table):
        metadata, read_by = table.metadata, table.io
        places = _Places(metadata.location, given or metadata.location)
        if given is not None or places.is_known(table.metadata_location):
            read_by = _file_io(session, places)
    else:
        name, directory = _metadata_file(session, joined(session.url, table))
        metadata = _parsed(session, name)
        places = _Places(metadata.location, given or (absolute(directory) if directory else metadata.location))
        read_by = _file_io(session, places)
    try:
        return _Reading(session, metadata, places, read_by).files(snapshot_id)
    except (ValidationError, NotImplementedError) as error:
        raise UsageError(f"{places.root}: {error}") from None


class _Places(NamedTuple):
    """Where the files of a table are, as it names them."""

    #: The directory of the table, as its metadata has it.
    location: str
    #: Where that is: a path or a URL of an export.
    root: str

    def is_known(self, name: str) -> bool:
        try:
            self.file(name)
        except UsageError:
            return False
        return True

    def file(self, name: str) -> str:
        """A path or URL of a file that metadata name."""
        location = self.location.rstrip("/") + "/"
        for one in (location, local_path(location)):
            if one is not None and name.startswith(one):
                root = self.root if is_export_url(self.root) else local_path(self.root)
                if root is not None:
                    return below(root, name.removeprefix(one))
        # It may be elsewhere: only a table that was not moved knows where.
        was_moved = self.root.rstrip("/") + "/" not in (location, local_path(location))
        found = name if is_export_url(name) else local_path(name) if not was_moved else None
        if found is None:
            raise UsageError(f"{self.root}: its file {name} is neither here nor in an export: root= says where {self.location} is")
        return found


def _metadata_file(session: Session, place: str) -> tuple[str, str | None]:
    """The file with a table's metadata, and the table's directory."""
    place = place if is_export_url(place) else local_path(place) or place
    if place.endswith(_METADATA):
        directory, _, last = place.rpartition("/")[0].rpartition("/")
        return place, directory if last == "metadata" else None
    directory = f"{place.rstrip('/')}/metadata"
    try:
        hint = session.read(f"{directory}/version-hint.text").decode().strip()
    except FileNotFoundError:
        remedy = "name its file that ends in .metadata.json, or give a table of pyiceberg from its catalog"
        raise UsageError(f"{place}: there is no metadata/version-hint.text that says which metadata are its last: {remedy}") from None
    if not hint.endswith(_METADATA):
        hint = f"v{hint}.metadata.json" if hint.isdecimal() else f"{hint}.metadata.json"
    return f"{directory}/{hint}", place.rstrip("/")


def _parsed(session: Session, name: str) -> TableMetadata:
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import Compressor, FromByteStream

    try:
        found = session.read(name)
    except FileNotFoundError as error:
        raise UsageError(f"{name}: there are no metadata of a table: {error}") from None
    last = name.rpartition("/")[2]
    # Some write v3.metadata.json.gz, and some v3.gz.metadata.json.
    compressed = Compressor.get_compressor("x.gz.metadata.json" if ".gz" in last else last)
    try:
        return FromByteStream.table_metadata(io.BytesIO(found), compression=compressed)
    except (ValidationError, OSError, ValueError) as error:
        raise UsageError(f"{name}: it has no metadata of a table: {error}") from None


def _file_io(session: Session, places: _Places) -> FileIO:
    """What pyiceberg reads lists of files by, wherever Diskside does."""
    from pyiceberg.io import FileIO, InputFile

    class Input(InputFile):
        def __len__(self) -> int:
            with session.open(places.file(self.location)) as file:
                return file.size

        def exists(self) -> bool:
            try:
                return len(self) >= 0
            except FileNotFoundError:
                return False

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(session.read(places.file(self.location)))

    class Io(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(location)

        def new_output(self, location: str) -> Any:
            raise UsageError(f"{location}: tables are read alone")

        def delete(self, location: Any) -> None:
            raise UsageError(f"{location}: tables are read alone")

    return Io()


class _Reading:
    """A table whose files are found."""

    def __init__(self, session: Session, metadata: TableMetadata, places: _Places, read_by: FileIO) -> None:
        self._session = session
        self._metadata = metadata
        self._places = places
        self._io = read_by

    def files(self, snapshot_id: int | None) -> TableFiles:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        snapshot = self._snapshot(snapshot_id)
        schema = self._schema(snapshot if snapshot_id is not None else None)
        columns = schema_to_pyarrow(schema)
        live = [] if snapshot is None else self._live(snapshot)
        partitions = self._partitions(schema, columns, live)
        names = [self._places.file(file.file_path) for file, _ in live]
        self._check(schema, columns, [columns.names[at] for at in partitions], names)
        files = [
            (name, [_value(values[of], columns.field(at).type) for at, of in partitions.items()]) for name, (_, values) in zip(names, live)
        ]
        said = [columns.names[at] for at in partitions]
        return TableFiles(self._places.root, plain_schema(columns), said, sorted(files, key=lambda one: one[0]))

    def _snapshot(self, snapshot_id: int | None) -> Snapshot | None:
        if snapshot_id is None:
            return self._metadata.current_snapshot()
        found = self._metadata.snapshot_by_id(snapshot_id)
        if found is None:
            known = ", ".join(str(one.snapshot_id) for one in self._metadata.snapshots) or "none"
            raise UsageError(f"{self._places.root}: snapshot_id: it has no snapshot {snapshot_id!r}; it has {known}")
        return found

    def _schema(self, snapshot: Snapshot | None) -> Schema:
        """That of a snapshot; otherwise the table's."""
        if snapshot is None or snapshot.schema_id is None:
            return self._metadata.schema()
        for schema in self._metadata.schemas:
            if schema.schema_id == snapshot.schema_id:
                return schema
        raise UsageError(f"{self._places.root}: its metadata do not have the columns of snapshot {snapshot.snapshot_id} any more")

    def _live(self, snapshot: Snapshot) -> list[tuple[DataFile, dict[int, Any]]]:
        """The files that have rows, each with what its partition says of columns, by their ids."""
        from pyiceberg.manifest import ManifestContent, read_manifest_list
        from pyiceberg.transforms import IdentityTransform

        specs = {spec.spec_id: spec for spec in self._metadata.partition_specs}
        listed = list(read_manifest_list(self._io.new_input(snapshot.manifest_list)))

        def entries(manifest: ManifestFile) -> list[DataFile]:
            return [entry.data_file for entry in manifest.fetch_manifest_entry(self._io, discard_deleted=True)]

        live = []
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for manifest, files in zip(listed, threads.map(entries, listed)):
                identities = [
                    (at, field.source_id)
                    for at, field in enumerate(specs[manifest.partition_spec_id].fields)
                    if isinstance(field.transform, IdentityTransform)
                ]
                for file in files:
                    self._refuse(file, manifest.content != ManifestContent.DATA)
                    live.append((file, {source: file.partition[at] for at, source in identities}))
        return live

    def _refuse(self, file: DataFile, is_of_deletes: bool) -> None:
        from pyiceberg.manifest import DataFileContent, FileFormat

        if is_of_deletes or file.content != DataFileContent.DATA:
            what = "equality deletes" if file.content == DataFileContent.EQUALITY_DELETES else "position deletes or a deletion vector"
            raise UsageError(f"{self._places.root}: it has {what} ({file.file_path}): rewrite its data files, which applies them")
        if file.file_format != FileFormat.PARQUET:
            raise UsageError(f"{self._places.root}: {file.file_path} is of format {file.file_format.value}: only Parquet files are scanned")
        if file.key_metadata is not None:
            raise UsageError(f"{self._places.root}: {file.file_path} is encrypted: it is not scanned")

    def _partitions(self, schema: Schema, columns: pa.Schema, live: list[tuple[DataFile, dict[int, Any]]]) -> dict[int, int]:
        """Columns whose values all files have in the metadata: their places, and their ids."""
        found = {}
        for at, field in enumerate(schema.fields):
            is_said = bool(live) and all(field.field_id in said for _, said in live)
            if is_said and kind_of(plain(columns.field(at).type)) is not None:
                found[at] = field.field_id
        return found

    def _check(self, schema: Schema, columns: pa.Schema, said: list[str], names: list[str]) -> None:
        mapping = self._metadata.name_mapping()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for name, of_file in zip(names, threads.map(lambda name: footer(self._session, name), names)):
                check(name, of_file, schema, columns, said, mapping)


def _value(value: Any, kind: pa.DataType) -> str | None:
    import pyarrow.types as types

    # Dates and times are numbers in metadata.
    if isinstance(value, int) and types.is_date32(kind):
        return value_text((_EPOCH + datetime.timedelta(days=value)).date())
    if isinstance(value, int) and types.is_timestamp(kind):
        return value_text(_EPOCH + datetime.timedelta(microseconds=value))
    return value_text(value)
