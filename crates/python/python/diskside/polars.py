"""Parquet files on Diskside servers for Polars: the rows and columns that a query wants come, and no others.

>>> lineitem = diskside.polars.scan_parquet("diskside://server/data/lineitem.parquet")
>>> lineitem.filter(pl.col("l_quantity") < 24).select("l_orderkey").collect()
"""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ._condition import Column, NotPushed, all_of, cheapest
from ._default import source_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import polars as pl
    import pyarrow as pa

    from ._batches import Batches
    from ._scan import Scan
    from ._session import Session

#: How Polars calls comparisons; the sign in SQL, and the sign with both sides exchanged.
_COMPARISONS = {
    "Eq": ("=", "="),
    "NotEq": ("<>", "<>"),
    "Lt": ("<", ">"),
    "LtEq": ("<=", ">="),
    "Gt": (">", "<"),
    "GtEq": (">=", "<="),
}
#: How Polars calls the types of numbers that are numbers in JSON, too.
_NUMBERS = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"Float32", "Float64"}
_EPOCH = datetime.datetime(1970, 1, 1)


def scan_parquet(
    source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Scan,
    *,
    session: Session | None = None,
    place: str = "auto",
    partitions: bool = True,
) -> pl.LazyFrame:
    """Parquet files, wherever they are, as a LazyFrame.

    Columns that a query does not use stay where they are, and so do rows that its filters rule out, as far as they compare columns
    with values (``<``, ``==``, ``is_between``, ``is_in``, ``is_null``, ``str.starts_with``, ``str.ends_with``, and ``&``, ``|``, ``~``
    of those). Polars applies the whole filter once more here, so the answer is that of ``polars.scan_parquet``. Sums are computed here;
    :meth:`diskside.Session.scan` has the server do it.

    :param source: a path or ``diskside://HOST[:PORT]/EXPORT/PATH``, relative to the session's URL, if it has one; a directory, a
        pattern, or a list of these, as :meth:`diskside.Session.scan` takes them. Or a scan of rows, as of
        :meth:`diskside.Session.scan_delta`, for which the other parameters mean nothing.
    :param place: ``auto``, ``host`` (the needed bytes are read and decoded here) or ``device`` (at the server).
    :param partitions: False: directories that are called ``key=value`` are not columns of the files in them.
    """
    from polars.io.plugins import register_io_source

    scan = source_of(source, session, place, partitions)
    schema = scan.schema

    def rows(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = schema.names if with_columns is None else with_columns
        pushed, is_whole = (None, True) if predicate is None else condition(predicate, schema)
        columns = list(dict.fromkeys([*wanted, *(predicate.meta.root_names() if predicate is not None else [])]))
        # No column at all: rows are counted, by one that is cheap.
        columns = columns or cheapest(schema)
        limit = n_rows if is_whole else None
        where = {} if pushed is None else {"where": pushed}
        yield from _frames(scan._other(columns=columns, limit=limit, **where).batches(), wanted, predicate, n_rows)

    return register_io_source(rows, schema=_frame(schema.empty_table()).schema)


def _frames(
    batches: Batches, wanted: list[str], predicate: pl.Expr | None, n_rows: int | None
) -> Iterator[pl.DataFrame]:
    left = n_rows
    # One that is closed before its end, or thrown away, ends the scan. Polars may keep one that has given all that it asked for.
    with batches:
        for batch in batches:
            frame = _frame(batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            frame = frame.select(wanted)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            if left == 0:
                batches.close()
            yield frame
            if left == 0:
                return


def _frame(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    import polars

    frame = polars.from_arrow(rows)
    assert isinstance(frame, polars.DataFrame)
    return frame


def condition(predicate: pl.Expr, schema: pa.Schema) -> tuple[str | None, bool]:
    """What of a predicate is said to a server, and whether that is all of it.

    Polars shows how an expression is made only as JSON, which changes from version to version: what is not understood is not said.
    """
    pushed, is_whole = [], True
    for conjunct in _conjuncts(json.loads(predicate.meta.serialize(format="json"))):
        try:
            pushed.append(_text(conjunct, schema))
        except (NotPushed, KeyError, TypeError, ValueError, OverflowError):
            is_whole = False
    return all_of(pushed), is_whole


def _conjuncts(node: Any) -> list[Any]:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return [*_conjuncts(left), *_conjuncts(right)]
    return [node]


def _text(node: Any, schema: pa.Schema) -> str:
    node = _uncast(node, schema)
    match node:
        case {"Column": str(name)}:
            return _boolean(name, schema)
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            return f"({_text(left, schema)}) and ({_text(right, schema)})"
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            return f"({_text(left, schema)}) or ({_text(right, schema)})"
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": op, "right": {"Literal": literal}}}:
            return _compared(name, _COMPARISONS[op][0], literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": {"Column": str(name)}}}:
            return _compared(name, _COMPARISONS[op][1], literal, schema)
        case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
            return f"not ({_text(inner, schema)})"
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNull"}}}:
            return f"{Column(schema.field(name)).text} is null"
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": "IsNotNull"}}}:
            return f"{Column(schema.field(name)).text} is not null"
        case {"Function": {"input": [{"Column": str(name)}, {"Literal": first}, {"Literal": last}], "function": {"Boolean": {"IsBetween": how}}}}:
            return _between(name, first, last, how["closed"], schema)
        case {"Function": {"input": [{"Column": str(name)}, {"Literal": {"Scalar": {"List": among}}}], "function": {"Boolean": {"IsIn": how}}}}:
            return _among(name, bytes(among), how["nulls_equal"], schema)
        case {"Function": {"input": [{"Column": str(name)}, {"Literal": {"Scalar": {"String": text}}}], "function": {"StringExpr": how}}}:
            return _like(Column(schema.field(name)), text, how)
    raise NotPushed("not understood")


def _uncast(node: Any, schema: pa.Schema) -> Any:
    """Polars widens decimals before it compares them, which changes nothing; the column itself is meant."""
    match node:
        case {"Cast": {"expr": {"Column": str(name)}, "dtype": {"Literal": {"Decimal": [int(_), int(scale)]}}}}:
            kind = schema.field(name).type
            if getattr(kind, "scale", None) == scale:
                return {"Column": name}
        case {"BinaryExpr": {"left": left, "op": op, "right": right}}:
            return {"BinaryExpr": {"left": _uncast(left, schema), "op": op, "right": _uncast(right, schema)}}
        case {"Function": {"input": inputs, "function": function}}:
            return {"Function": {"input": [_uncast(one, schema) for one in inputs], "function": function}}
    return node


def _boolean(name: str, schema: pa.Schema) -> str:
    column = Column(schema.field(name))
    if not column.is_boolean:
        raise NotPushed("not a condition")
    return column.text


def _compared(name: str, sign: str, literal: Any, schema: pa.Schema) -> str:
    column = Column(schema.field(name))
    # For Polars NaN equals itself, and is above all other numbers; for a scan it is unequal to all.
    if column.is_float and sign in (">", ">="):
        raise NotPushed("NaN")
    return column.compared(sign, _value(literal, schema.field(name).type))


def _between(name: str, first: Any, last: Any, closed: str, schema: pa.Schema) -> str:
    low, high = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}[closed]
    column = Column(schema.field(name))
    kind = schema.field(name).type
    # NaN is below no number, so it is not between two.
    return f"({column.compared(low, _value(first, kind))}) and ({column.compared(high, _value(last, kind))})"


def _among(name: str, stream: bytes, nulls_equal: bool, schema: pa.Schema) -> str:
    import polars

    series = polars.read_ipc_stream(stream).to_series()
    kind, inner = schema.field(name).type, getattr(series.dtype, "inner", series.dtype)
    if getattr(inner, "time_zone", None) != getattr(kind, "tz", None):
        raise NotPushed("another zone")
    if inner.is_float() and inner != (polars.Float32 if kind == "float" else polars.Float64):
        raise NotPushed("numbers of another width")
    values = series.to_list()
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    # With None among them it matters what is said of NULL, and it is not said to a server.
    column = Column(schema.field(name))
    return column.is_among(values) if nulls_equal else column.among(values)


def _like(column: Column, text: str, how: Any) -> str:
    match how:
        case "StartsWith":
            return column.like("", text, "%")
        case "EndsWith":
            return column.like("%", text, "")
        case {"Contains": {"literal": True}}:
            return column.like("%", text, "%")
    raise NotPushed("not understood")


def _narrowed(value: float) -> float:
    """The nearest number of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _value(literal: Any, compared_with: pa.DataType) -> object:
    match literal:
        case {"Dyn": {"Int": int(value)}}:
            return value
        case {"Dyn": {"Float": float(value)}}:
            # A number without a type has the width of its column.
            return _narrowed(value) if compared_with == "float" else value
        case {"Scalar": {"Float32": float(value)}}:
            return _narrowed(value)
        case {"Scalar": {"String": str(value)}}:
            return value
        case {"Scalar": {"Date": int(days)}}:
            return (_EPOCH + datetime.timedelta(days)).date()
        case {"Scalar": {"Decimal": [int(digits), int(_), int(scale)]}}:
            return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
        case {"Scalar": {"Datetime": [int(count), unit, zone]}}:
            # Polars refuses to compare those of two zones.
            if (None if zone is None else zone["inner"]) != getattr(compared_with, "tz", None):
                raise NotPushed("another zone")
            micros = {"Milliseconds": count * 1000, "Microseconds": count}[unit]
            return (_EPOCH if zone is None else _EPOCH.replace(tzinfo=datetime.timezone.utc)) + datetime.timedelta(microseconds=micros)
        case {"Scalar": dict(one)} if len(one) == 1:
            ((kind, value),) = one.items()
            if kind in _NUMBERS:
                return value
    raise NotPushed("not understood")
