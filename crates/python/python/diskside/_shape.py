"""What a function that is written in Python is given and gives: its records or columns, its arguments and its rows."""

from __future__ import annotations

import inspect
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ._columns import columns_of, without_decimals
from ._entry import Notes, Rows, Shape
from ._names import size
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np


class Written(NamedTuple):
    """A function as its author wrote it."""

    function: Callable[..., Any]
    name: str
    file: str
    line: int
    text: str
    parameters: int

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Written:
        function = getattr(function, "py_func", function)
        if not inspect.isfunction(function):
            raise UsageError(f"{function!r} is no function of Python's: give one that is written with def")
        code = function.__code__
        try:
            text = "".join(inspect.findsource(function)[0])
        except OSError:
            text = ""
        if not re.fullmatch(r"[A-Za-z_]\w*", function.__name__, re.ASCII):
            raise UsageError(f"{function.__name__!r} is no name of a function: write it with def, in ASCII")
        # The directory is nobody's business, and would make another object of the same function.
        file = os.path.basename(code.co_filename)
        return cls(function, function.__name__, file, code.co_firstlineno, text, code.co_argcount)


def shape_of_records(
    main: Written,
    records: Any,
    result: Any,
    args: Mapping[str, Any] | None,
    folds: bool,
    concatenates: bool,
    output_max: int | str | None,
) -> tuple[Shape, Notes]:
    import numpy

    row = _row(main, result, folds, "records")
    byte = numpy.dtype("u1")
    split: tuple[int, int] | None
    if records is None:
        rows, split = Rows(byte), None
    elif isinstance(records, str) and records in ("lines", "bytes"):
        rows, split = Rows(byte), (2, ord("\n")) if records == "lines" else (3, 0)
    elif isinstance(records, int):
        if not 0 < records < 2**31:
            raise UsageError(f"{main.name}: records: {records} is not the bytes of a record")
        rows, split = Rows(byte, records), (1, records)
    else:
        rows = Rows(dtype_of(f"{main.name}: records", records))
        split = (1, rows.len_bytes)
    given, defaults = _arguments(main, args)
    if output_max is not None:
        output: tuple[int, int, int] | None = (0, 1, size("output_max", output_max))
    elif folds:
        output = (0, 1, row.itemsize)
    elif split is not None and split[0] == 1:
        output = (row.itemsize, rows.len_bytes, row.itemsize)
    else:
        output = None
    shape = Shape(Rows(row, is_one=folds), rows, given, main.parameters, defaults)
    return shape, Notes(split, concatenates, output)


def shape_of_columns(
    main: Written,
    columns: Any,
    result: Any,
    args: Mapping[str, Any] | None,
    folds: bool,
    concatenates: bool,
    output_max: int | str | None,
    selects: bool,
) -> tuple[Shape, Notes]:
    if selects and (result is not None or folds or concatenates or output_max is not None):
        raise UsageError(f"{main.name}: one that selects has a byte for each row in its first parameter: give no result, combine or output_max")
    if not (selects or folds or concatenates):
        raise UsageError(f"{main.name}: say what becomes of its results: combine=, a function or 'concatenate', or select=True")
    reads = columns_of(main.name, columns, dtype_of)
    plain, decimals = without_decimals(result)
    row = _row(main, "u1" if selects else plain, folds, "columns")
    given, defaults = _arguments(main, args)
    if output_max is not None:
        output: tuple[int, int, int] | None = (0, 1, size("output_max", output_max))
    elif folds:
        output = (0, 1, row.itemsize)
    else:
        output = None if selects else (row.itemsize, 1, 0)
    shape = Shape(Rows(row, is_one=folds), Rows(row), given, main.parameters, defaults, reads, decimals)
    return shape, Notes(None, concatenates, output, selects)


def _row(main: Written, result: Any, folds: bool, reads: str) -> np.dtype[Any]:
    """The dtype of a row of its result."""
    import numpy

    if not 2 <= main.parameters <= 4:
        raise UsageError(f"{main.name} has {main.parameters} parameters; it takes (out, {reads}), (…, args) or (…, args, call)")
    if result is None:
        raise UsageError(f"{main.name}: result= says what a row of its result is, such as {{'count': 'u8', 'sum': 'f8'}}")
    row = dtype_of(f"{main.name}: result", result)
    return numpy.dtype([("value", row)]) if folds and row.names is None else row


def _arguments(main: Written, args: Mapping[str, Any] | None) -> tuple[Rows | None, dict[str, Any]]:
    """Its arguments, and the defaults that some have."""
    import numpy

    defaults: dict[str, Any] = {}
    given = None
    if main.parameters > 2:
        fields = []
        for name, kind in (args or {}).items():
            if isinstance(kind, tuple) and len(kind) == 2:
                kind, defaults[name] = kind
            fields.append((name, dtype_of(f"{main.name}: args: {name}", kind)))
        given = Rows(numpy.dtype(fields, align=True) if fields else numpy.dtype([("none", "u1")]), is_one=True)
        if not fields:
            defaults["none"] = 0
    elif args:
        raise UsageError(f"{main.name} has no third parameter to take its arguments {', '.join(args)}")
    return given, defaults


def dtype_of(what: str, given: Any) -> np.dtype[Any]:
    """The dtype that is meant: what numpy takes, or names and types, laid out as C does."""
    import numpy

    if isinstance(given, dict) and "names" not in given:
        return numpy.dtype([(name, dtype_of(f"{what}: {name}", kind)) for name, kind in given.items()], align=True)
    try:
        dtype: np.dtype[Any] = numpy.dtype(given)
    except TypeError as error:
        raise UsageError(f"{what}: {given!r} is no type of numpy's: {error}") from None
    if dtype.itemsize == 0 or dtype.hasobject:
        raise UsageError(f"{what}: {given!r} has no fixed length in bytes")
    if (odd := _odd(dtype)) is not None:
        raise UsageError(f"{what}: functions have no {odd}: there are numbers, bool, bytes (S), and arrays of them")
    if not _is_little(dtype):
        raise UsageError(f"{what}: {dtype} is big-endian: functions see little-endian numbers")
    return dtype


def _odd(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """What in a dtype has no place in a function."""
    if dtype.names is not None:
        assert dtype.fields is not None
        return next((odd for field in dtype.fields.values() if (odd := _odd(field[0])) is not None), None)
    base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    is_number = base.kind in "iufb" and base.itemsize <= 8 and base.name != "float16"
    return None if is_number or base.kind == "S" else base


def _is_little(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        assert dtype.fields is not None
        return all(_is_little(field[0]) for field in dtype.fields.values())
    base = dtype.subdtype[0] if dtype.subdtype is not None else dtype
    return base.byteorder != ">"
