"""Filters of pyarrow as conditions of scans.

pyarrow shows what a filter is made of only as text, which says nothing of types and cannot tell a name from a value; its pickled form
has the values with their types. So the text is read as what it may mean, with those values, a filter is made of that, and only if the two
are equal is the meaning taken.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow
import pyarrow.compute
import pyarrow.dataset

from ._condition import Column, NoColumn, NotPushed

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<sign>==|!=|<=|>=|<|>)
      | (?P<mark>[()\[\]{},:=])
      | (?P<word>[^\s()\[\]{},:="<>!]+(?:\ \d\d:\d\d:\d\d(?:\.\d+)?Z?)?)
    )""",
    re.VERBOSE,
)


def _is_narrow_integer(kind: pyarrow.DataType) -> bool:
    """Whether pyarrow compares it with any other integer by value."""
    return bool(pyarrow.types.is_integer(kind) and not pyarrow.types.is_uint64(kind))


def _zone(kind: pyarrow.DataType) -> str | None:
    return kind.tz if pyarrow.types.is_timestamp(kind) else None


_SIGNS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
#: Functions of texts, with what stands before and after the text in a condition.
_TEXTS: dict[str, tuple[Callable[[Any, str], Any], str, str]] = {
    "match_substring": (pyarrow.compute.match_substring, "%", "%"),
    "starts_with": (pyarrow.compute.starts_with, "", "%"),
    "ends_with": (pyarrow.compute.ends_with, "%", ""),
}
#: Types of which values are the same ones in a type of another width or unit.
_ALIKE: tuple[Callable[[pyarrow.DataType], bool], ...] = (_is_narrow_integer, pyarrow.types.is_timestamp, pyarrow.types.is_string)
#: Values of a list that are said to a server.
_AMONG_MAX = 1000
#: How deep a filter is read.
_DEPTH_MAX = 40


class _Meaning(NamedTuple):
    """A part of a filter: as pyarrow has it, and as a condition."""

    expression: Any
    text: str


def condition(filter: Any, schema: pyarrow.Schema) -> str:
    """The condition that a filter is.

    :raises NotPushed: it has something that a scan does not do, or that is not understood.
    """
    try:
        reader = _Reader(str(filter), _values_of(filter), schema)
        meaning = reader.part(0)
        reader.end()
        if not meaning.expression.equals(filter):
            raise NotPushed("it means something else")
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, pyarrow.ArrowException) as error:
        raise NotPushed(str(error)) from None
    return meaning.text


def columns_of(filter: Any, schema: pyarrow.Schema) -> list[str]:
    """The columns that a filter may read: all whose names are in its text, between spaces and marks. It has a number or a path for other
    ways to say a column."""
    text = str(filter)
    if re.search(r"\bField(Ref|Path)\b", text):
        return list(schema.names)
    return [name for name in schema.names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def _values_of(filter: Any) -> list[Any]:
    """The values of a filter, in the order of its text: one that is compared as a scalar, a list as an array."""
    _, (pickled, *_) = filter.__reduce__()
    values: list[Any] = []
    for column in pyarrow.ipc.open_file(pickled).read_all().columns:
        value = column[0]
        if not pyarrow.types.is_struct(value.type):
            values.append(value)
        # Options of a function, of which those of is_in have values.
        elif value.type.get_field_index("value_set") >= 0:
            values.append(value["value_set"].values)
    return values


class _Reader:
    def __init__(self, text: str, values: list[Any], schema: pyarrow.Schema) -> None:
        self._schema = schema
        self._values = iter(values)
        self._tokens: list[str] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise NotPushed(f"not understood: {text[at : at + 20]!r}")
            self._tokens.append(found[0].strip())
            at = found.end()
        self._at = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise NotPushed("more follows")

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, *wanted: str) -> None:
        for one in wanted:
            if self._next() != one:
                raise NotPushed(f"expected {one}")

    def part(self, depth: int) -> _Meaning:
        if depth > _DEPTH_MAX:
            raise NotPushed("too deep")
        token = self._next()
        if token == "(":
            return self._pair(depth)
        if self._at < len(self._tokens) and self._tokens[self._at] == "(":
            return self._call(token, depth)
        column = self._column(token)
        if not column.is_boolean:
            raise NotPushed("not a condition")
        return _Meaning(pyarrow.dataset.field(token), column.text)

    def _pair(self, depth: int) -> _Meaning:
        if self._tokens[self._at + 1] in _SIGNS:
            name, sign, _ = self._next(), self._next(), self._next()
            self._expect(")")
            column, scalar = self._column(name), self._value()
            value = scalar.as_py()
            if type(value) is int and value < 0 and pyarrow.types.is_uint64(self._schema.field(name).type):
                raise NotPushed("pyarrow compares as 64 bits with a sign")
            if _zone(scalar.type) != _zone(self._schema.field(name).type):
                raise NotPushed("pyarrow compares no times of two zones")
            expression = _EXPRESSIONS[sign](pyarrow.dataset.field(name), pyarrow.compute.scalar(scalar))
            return _Meaning(expression, column.compared(_SIGNS[sign], value))
        left, how, right = self.part(depth + 1), self._next(), self.part(depth + 1)
        self._expect(")")
        if how == "and":
            return _Meaning(left.expression & right.expression, f"({left.text}) and ({right.text})")
        if how == "or":
            return _Meaning(left.expression | right.expression, f"({left.text}) or ({right.text})")
        raise NotPushed(f"{how} is not done")

    def _call(self, name: str, depth: int) -> _Meaning:
        self._expect("(")
        if name == "if_else":
            return self._among_or_null()
        if name == "invert":
            inner = self.part(depth + 1)
            self._expect(")")
            return _Meaning(~inner.expression, f"not ({inner.text})")
        of = self._next()
        field, column = pyarrow.dataset.field(of), self._column(of)
        if name == "is_valid":
            self._expect(")")
            return _Meaning(field.is_valid(), f"{column.text} is not null")
        if name == "is_null":
            if self._tokens[self._at] == ",":
                self._expect(",", "{", "nan_is_null", "=", "false", "}")
            self._expect(")")
            return _Meaning(field.is_null(), f"{column.text} is null")
        if name in _TEXTS:
            (expression, before, after), text = _TEXTS[name], self._pattern()
            return _Meaning(expression(field, text), column.like(before, text, after))
        if name == "is_in":
            values = self._among(of)
            return _Meaning(field.isin(values), f"({column.is_among(values.to_pylist())})")
        raise NotPushed(f"{name} is not done")

    def _among_or_null(self) -> _Meaning:
        """What DuckDB makes of IN: NULL is in no list, and not in none either."""
        self._expect("is_valid", "(")
        of = self._next()
        self._expect(")", ",", "is_in", "(", of)
        field, column, values = pyarrow.dataset.field(of), self._column(of), self._among(of)
        self._expect(",", "null", "[", "bool", "]", ")")
        self._value()
        expression = pyarrow.compute.if_else(field.is_valid(), field.isin(values), pyarrow.scalar(None, pyarrow.bool_()))
        return _Meaning(expression, column.among(values.to_pylist()))

    def _pattern(self) -> str:
        self._expect(",", "{", "pattern", "=")
        text = self._next()
        self._expect(",", "ignore_case", "=", "false", "}", ")")
        return re.sub(r"\\(.)", r"\1", text[1:-1])

    def _among(self, of: str) -> pyarrow.Array:
        """The values of is_in."""
        self._expect(",", "{", "value_set", "=")
        while self._next() != "null_matching_behavior":
            pass
        self._expect("=", "MATCH", "}", ")")
        values, kind = self._value(), self._schema.field(of).type
        if values.null_count or not 0 < len(values) <= _AMONG_MAX:
            raise NotPushed("NULL among values, or too many")
        # Others pyarrow casts to the type of the column, and may round them, or refuses them.
        if _zone(values.type) != _zone(kind) or values.type != kind and not any(all(holds(one) for one in (values.type, kind)) for holds in _ALIKE):
            raise NotPushed("values of another type")
        # In a list pyarrow tells -0.0 from 0.0, which `=` and SQL's IN do not.
        if pyarrow.types.is_floating(kind) and any(value == 0 for value in values.to_pylist()):
            raise NotPushed("zeros")
        return values

    def _value(self) -> Any:
        return next(self._values, pyarrow.scalar(None))

    def _column(self, name: str) -> Column:
        if self._schema.get_field_index(name) < 0:
            raise NoColumn(f"{name} is no column")
        return Column(self._schema.field(name))
