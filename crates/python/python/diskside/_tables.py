"""Tables whose metadata says which Parquet files they are of, and what is in the rows of each: Delta Lake's and Apache Iceberg's."""

from __future__ import annotations

import io
import os
import urllib.parse
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ._names import is_export_url
from ._scan import Scan, quoted
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from . import _diskside
    from ._session import Session


class TableFiles(NamedTuple):
    """The files of a table at one version of it."""

    #: How messages call the table.
    name: str
    schema: pa.Schema
    #: Columns that have one value in all rows of a file.
    partitions: list[str]
    #: Each with its values of these, as texts; None is NULL.
    files: list[tuple[str, list[str | None]]]

    def native(self) -> dict[str, Any]:
        """As the native module has it."""
        others = [field for field in self.schema if field.name not in self.partitions]
        return {
            "name": self.name,
            "files": self.files,
            "partitions": _types(self.schema.field(name) for name in self.partitions),
            # What a column that no file has is called matters, and of what type it is only for conditions.
            "columns": _types(others),
        }


class TableScan(Scan):
    """A scan of the files of a table. Its columns have the types that the table says."""

    def __init__(
        self,
        session: Session,
        table: TableFiles,
        columns: str | Iterable[str] | None = None,
        where: Any = None,
        aggregate: str | Mapping[str, str] | None = None,
        by: str | Iterable[str] | None = None,
        order: str | Iterable[str] | None = None,
        limit: int | None = None,
        place: str = "auto",
    ) -> None:
        super().__init__(session, [table.name], columns, where, aggregate, by, order, limit, "parquet", None, True, None, place, False)
        self._table = table
        self._name_columns()

    def _name_columns(self) -> None:
        wanted = self._options
        if not wanted["columns"] and not wanted["aggregate"] and not wanted["by"]:
            wanted["columns"] = list(self._table.schema.names)

    def ipc(self) -> Iterator[bytes]:
        import pyarrow

        written = _Written()
        with self.batches() as batches, pyarrow.ipc.new_stream(written, batches.schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
                yield written.taken()
        yield written.taken()

    @property
    def schema(self) -> pa.Schema:
        import pyarrow

        if self._options["aggregate"] or self._options["by"]:
            return super().schema
        known, names = self._table.schema, self._options["columns"]
        missing = [name for name in names if name not in known.names]
        if missing:
            raise UsageError(f"{self.name}: no column `{missing[0]}`; it has {', '.join(known.names)}")
        return pyarrow.schema([known.field(name) for name in names])

    def _other(self, **instead: Any) -> Scan:
        return _with_names(super()._other(**instead))

    def _whole(self) -> Scan:
        return _with_names(super()._whole())

    def _begin(self, **instead: Any) -> _diskside.Scan:
        return self._session._native.scan_table(self._table.native(), self._wanted | instead, self._place)

    def _typed(self, field: pa.Field) -> pa.Field:
        summed = self._wanted["aggregate"] or self._wanted["by"]
        is_of_table = field.name in (self._wanted["by"] if summed else self._wanted["columns"])
        return self._table.schema.field(field.name) if is_of_table else super()._typed(field)

    def _cast(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        import pyarrow

        return pyarrow.RecordBatch.from_arrays([self._column(*pair) for pair in zip(batch.columns, schema)], schema=schema)

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        import pyarrow

        if column.type == field.type:
            return column
        # That no file has it, or has a value.
        if column.null_count == len(column):
            return pyarrow.nulls(len(column), field.type)
        is_said = field.name in self._table.partitions
        if not is_said and not is_same(column.type, field.type):
            what = f"column `{field.name}` is of type {column.type} in files, and of type {field.type} in the table"
            raise UsageError(f"{self.name}: {what}: a scan gives columns as files have them; rewrite the table's files")
        try:
            return column.cast(field.type)
        except pyarrow.ArrowInvalid as error:
            raise UsageError(f"{self.name}: column `{field.name}`: {error}") from None


def _with_names(scan: Scan) -> Scan:
    assert isinstance(scan, TableScan)
    scan._name_columns()
    return scan


class _Written(io.RawIOBase):
    """What a stream writes, to be handed on."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def plain(kind: pa.DataType) -> pa.DataType:
    """A type as scans give it: one kind of text and of bytes, and lists of one kind."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if isinstance(kind, pa.BaseExtensionType):
        return plain(kind.storage_type)
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema of types as scans give them, without notes; any column may be NULL."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether columns of two types have the same values, however they are kept: integers of two widths have not."""
    import pyarrow.types as types

    one, other = plain(one), plain(other)
    if types.is_timestamp(one) and types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    if types.is_decimal(one) and types.is_decimal(other):
        return bool((one.precision, one.scale) == (other.precision, other.scale))
    if types.is_list(one) and types.is_list(other):
        return is_same(one.value_type, other.value_type)
    if types.is_map(one) and types.is_map(other):
        return is_same(one.key_type, other.key_type) and is_same(one.item_type, other.item_type)
    if types.is_struct(one) and types.is_struct(other):
        names = [field.name for field in one] == [field.name for field in other]
        return names and all(is_same(a.type, b.type) for a, b in zip(one, other))
    return bool(one == other)


def kind_of(kind: pa.DataType) -> str | None:
    """What the option ``types`` calls a type; None: it has no name there."""
    import pyarrow.types as types

    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind):
        return "float"
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale:
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_date32(kind):
        return "date"
    if types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        return "timestamp"
    return "text" if types.is_string(kind) else None


def _types(fields: Iterable[pa.Field]) -> str | None:
    return ", ".join(f"{quoted(field.name)} {kind_of(field.type) or 'text'}" for field in fields) or None


def value_text(value: object) -> str | None:
    """A value as paths would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        # Times with a zone are compared and kept as those of UTC.
        return (value.astimezone(timezone.utc) if value.tzinfo else value).strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return None if value is None else str(value)


def local_path(uri: str) -> str | None:
    """The path that a URI of this machine means; None: it is another's."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return uri.removeprefix("file:") if uri.startswith("file:/") else uri
    return rest if scheme.lower() == "file" and rest.startswith("/") else None


def below(root: str, relative: str) -> str:
    """A file below a directory, by its path as it is."""
    path = urllib.parse.quote(relative) if is_export_url(root) else relative
    return f"{root.rstrip('/')}/{path}"


def absolute(root: str) -> str:
    """A root that holds in every process."""
    return root if is_export_url(root) else os.path.abspath(root)
