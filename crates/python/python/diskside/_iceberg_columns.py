"""Whether the columns of a Parquet file are those of an Iceberg table by name, as they are by their ids."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from ._tables import is_same
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table.name_mapping import NameMapping

    from ._session import Session

#: Bytes of a file's end that most footers fit in.
_END = 64 << 10
_MAGIC = b"PAR1"
#: Where pyarrow has the ids of columns.
_ID = b"PARQUET:field_id"


def footer(session: Session, name: str) -> pa.Schema:
    """The columns of a Parquet file, of which nothing else is read."""
    import pyarrow
    import pyarrow.parquet

    with session.open(name) as file:
        size = file.size
        end = bytes(file.read(max(size - _END, 0), min(size, _END)))
        wanted = int.from_bytes(end[-8:-4], "little") + 8
        if end[-4:] != _MAGIC or wanted > size:
            raise UsageError(f"{name}: it is no Parquet file, or an encrypted one")
        if wanted > len(end):
            end = bytes(file.read(size - wanted, wanted))
    try:
        return pyarrow.parquet.read_schema(io.BytesIO(_MAGIC + end[-wanted:]))
    except pyarrow.ArrowException as error:
        raise UsageError(f"{name}: {error}") from None


def check(name: str, of_file: pa.Schema, schema: Schema, columns: pa.Schema, said: Iterable[str], mapping: NameMapping | None) -> None:
    """Refuses a file whose columns by name are not those by id.

    :param columns: those of ``schema``, with ids.
    :param said: columns of which the metadata have the values.
    """
    ids = [_id(field) for field in of_file]
    if all(one is None for one in ids):
        _check_names(name, of_file, mapping, columns)
        ids = [_id(columns.field(field.name)) if field.name in columns.names else None for field in of_file]
    for field, column in zip(schema.fields, columns):
        if field.name in said:
            continue
        by_id = [found for found, one in zip(of_file, ids) if one == field.field_id]
        if not by_id:
            _check_missing(name, of_file, field)
            continue
        (found,) = by_id[:1]
        if found.name != field.name:
            raise UsageError(f"{name}: column `{field.name}` was renamed, and is `{found.name}` in this file: {_REMEDY}")
        if of_file.names.count(found.name) > 1:
            raise UsageError(f"{name}: several of its columns are called `{found.name}`: {_REMEDY}")
        if not is_same(found.type, column.type) or not _are_same(found, column):
            both = f"is of type {found.type} in this file, and of type {column.type} in the table"
            raise UsageError(f"{name}: column `{field.name}` {both}: {_REMEDY}")


_REMEDY = "a scan finds columns by name, with the type that files have; rewrite the data files of the table"


def _check_missing(name: str, of_file: pa.Schema, field: Any) -> None:
    if field.name in of_file.names:
        raise UsageError(f"{name}: column `{field.name}` is another in this file, which the table has not any more: {_REMEDY}")
    if field.initial_default is not None:
        raise UsageError(f"{name}: column `{field.name}` has a value for rows that were before it: {_REMEDY}")
    if field.required:
        raise UsageError(f"{name}: column `{field.name}` is required, and is not in this file: {_REMEDY}")


def _check_names(name: str, of_file: pa.Schema, mapping: NameMapping | None, columns: pa.Schema) -> None:
    """Refuses a file without ids, unless the table finds its columns by their own names, too."""
    if mapping is None:
        raise UsageError(f"{name}: its columns have no ids, and the table has no schema.name-mapping.default: {_REMEDY}")
    by_id = {one.field_id: list(one.names) for one in mapping.root}
    for column in columns:
        names = by_id.get(_id(column), [])
        others = [one for one in names if one != column.name and one in of_file.names]
        if others or column.name in of_file.names and column.name not in names:
            raise UsageError(f"{name}: the table has another name for its column `{(others or [column.name])[0]}`: {_REMEDY}")


def _id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(_ID)
    return None if found is None else int(found)


def _are_same(found: pa.Field, column: pa.Field) -> bool:
    """Whether fields within columns have the same ids, where the file has any."""
    inner, wanted = _within(found.type), _within(column.type)
    if len(inner) != len(wanted):
        return False
    return all(_id(one) in (None, _id(other)) and _are_same(one, other) for one, other in zip(inner, wanted))


def _within(kind: Any) -> list[pa.Field]:
    import pyarrow.types as types

    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(at) for at in range(kind.num_fields)]
