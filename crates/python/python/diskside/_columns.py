"""The columns that a function of Python's reads: as numba has them, and as the structure of pointers that the function is given."""

from __future__ import annotations

import collections
import keyword
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from ._entry import Metadata

#: The end of the name of the member that says which values of a column are there.
_VALIDITY = "__valid"
#: Members of ``struct ds_utf8`` and ``struct ds_dict`` of diskside.h: where they are, and what they point to.
_OFFSETS, _BYTES = (0, "u4"), (8, "u1")
_CODES, _VALUES_AT, _COUNT_AT = (0, "u4"), 8, 24


class Column(NamedTuple):
    """One member of the structure."""

    name: str
    kind: str
    """``text``, ``dictionary``, or the name of a type of numpy's."""
    scale: int | None
    """Digits behind the point of a decimal."""

    @property
    def len_bytes(self) -> int:
        return {"text": 16, "dictionary": 32}.get(self.kind, 8)


def columns_of(function: str, given: Any, dtype_of: Callable[[str, Any], np.dtype[Any]]) -> tuple[Column, ...]:
    """The columns that a function is said to read."""
    if not hasattr(given, "items") or not given:
        raise UsageError(f"{function}: columns= says what it reads, such as {{'price': 'f8', 'word': 'text'}}; this is {given!r}")
    found = []
    for name, kind in given.items():
        what = f"{function}: columns: {name}"
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name.startswith("_"):
            raise UsageError(f"{what}: the name of a column is to be one of Python's, in ASCII, and not to begin with _")
        kind, scale = decimal_of(kind)
        if kind not in ("text", "dictionary"):
            dtype = dtype_of(what, kind)
            if dtype.names is not None or dtype.subdtype is not None or dtype.kind not in "iufb":
                raise UsageError(f"{what}: a column is of numbers, 'text', 'dictionary' or 'decimal(DIGITS)', not {kind!r}")
            kind = f"{dtype.kind}{dtype.itemsize}".replace("b1", "u1")
        if name.endswith(_VALIDITY) and kind != "u1":
            raise UsageError(f"{what}: which values are there is told by 'u1', 1 or 0")
        found.append(Column(name, kind, scale))
    return tuple(found)


def decimal_of(kind: Any) -> tuple[Any, int | None]:
    """Of ``decimal(2)`` the type that has its digits, and how many are behind the point."""
    found = re.fullmatch(r"\s*decimal\s*\(\s*(\d{1,2})\s*\)\s*", kind) if isinstance(kind, str) else None
    return (kind, None) if found is None else ("i8", int(found[1]))


def without_decimals(given: Any) -> tuple[Any, dict[str, str]]:
    """A row of a result with whole numbers for its decimals, and the tags that say which they are."""
    if not hasattr(given, "items") or "names" in given:
        return given, {}
    kinds = {name: decimal_of(kind) for name, kind in given.items()}
    tags = {name: f"decimal:{scale}" for name, (_, scale) in kinds.items() if scale is not None}
    return {name: kind for name, (kind, _) in kinds.items()}, tags


def numba_type(columns: tuple[Column, ...]) -> Any:
    """What numba takes them for: a tuple with names."""
    from numba.core import types as numba_types

    # Its types come from a star import, which mypy does not follow.
    types: Any = numba_types

    def array(kind: str) -> Any:
        return types.Array(getattr(types, {"i": "int", "u": "uint", "f": "float"}[kind[0]] + str(8 * int(kind[1:]))), 1, "C", readonly=True)

    def named(name: str, /, **members: Any) -> Any:
        return types.NamedTuple(tuple(members.values()), collections.namedtuple(name, list(members)))

    text = named("text", offsets=array("u4"), bytes=array("u1"))
    dictionary = named("dictionary", codes=array("u4"), values=text, count=types.uint64)
    kinds = {"text": text, "dictionary": dictionary}
    return named("columns", **{column.name: kinds.get(column.kind) or array(column.kind) for column in columns})


def loads(columns: tuple[Column, ...]) -> tuple[list[str], list[str]]:
    """The lines that load pointers from the structure ``%in``, and what numba's function is given for the tuple: arrays, unpacked."""
    lines: list[str] = []

    def load(kind: str, at: int) -> str:
        name = f"%column_{len(lines)}"
        lines.append(f"  {name}_at = getelementptr i8, ptr %in, i64 {at}\n  {name} = load {kind}, ptr {name}_at")
        return name

    def array(member: tuple[int, str], at: int, count: str) -> list[str]:
        item = int(member[1][1:])
        pointer = load("ptr", at + member[0])
        return ["ptr null", "ptr null", f"i64 {count}", f"i64 {item}", f"ptr {pointer}", f"i64 {count}", f"i64 {item}"]

    def text(at: int, count: str) -> list[str]:
        name = f"%text_{len(lines)}"
        offsets = array(_OFFSETS, at, f"{name}_count")
        pointer = offsets[4].removeprefix("ptr ")
        # As many bytes as the last offset says.
        lines.append(
            f"  {name}_count = add i64 {count}, 1\n"
            f"  {name}_end = getelementptr i32, ptr {pointer}, i64 {count}\n"
            f"  {name}_short = load i32, ptr {name}_end\n"
            f"  {name}_len = zext i32 {name}_short to i64"
        )
        return offsets + array(_BYTES, at, f"{name}_len")

    given, at = [], 0
    for column in columns:
        if column.kind == "text":
            given += text(at, "%records")
        elif column.kind == "dictionary":
            count = load("i64", at + _COUNT_AT)
            given += [*array(_CODES, at, "%records"), *text(at + _VALUES_AT, count), f"i64 {count}"]
        else:
            given += array((0, column.kind), at, "%records")
        at += column.len_bytes
    return lines, given


def structure(name: str, columns: tuple[Column, ...], told: Metadata) -> str:
    """The type of the structure, for BTF."""
    pointer = {kind: told.pointer(told.number(kind)) for kind in ("u4", "S1")}
    text = told.members("ds_utf8", [("offsets", pointer["u4"], 8, ""), ("bytes", pointer["S1"], 8, "")])
    of_dictionary = [("codes", pointer["u4"], 8, ""), ("values", text, 16, ""), ("count", told.number("u8"), 8, "")]
    kinds = {"text": text, "dictionary": told.members("ds_dict", of_dictionary)}
    members = []
    for column in columns:
        base = kinds.get(column.kind) or told.pointer(told.number(column.kind))
        tag = "" if column.scale is None else f"decimal:{column.scale}"
        members.append((column.name, base, column.len_bytes, tag))
    return told.members(name, members)
