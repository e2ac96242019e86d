"""Expressions of Substrait as conditions of scans.

An ``ExtendedExpression`` is read from its bytes, as Protocol Buffers have them: numbered fields, each a number, some bytes or a message.
A message that says something that is not known here may mean anything, so it is refused.
"""

from __future__ import annotations

import datetime
import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from ._condition import Column, NoColumn, NotPushed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_SIGNS = {"equal": "=", "not_equal": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
#: The same with both sides exchanged.
_EXCHANGED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Functions of texts, with what stands before and after the text in a condition.
_TEXTS = {"starts_with": ("", "%"), "ends_with": ("%", ""), "contains": ("%", "%")}
#: How deep an expression is read.
_DEPTH_MAX = 40
_EPOCH = datetime.datetime(1970, 1, 1)
#: Messages of integer types, by their numbers, with their bits.
_INTEGERS = {2: 8, 3: 16, 5: 32, 7: 64}
_FP32, _FP64, _STRING, _DECIMAL = 10, 11, 12, 24


def condition(expression: bytes, schema: pa.Schema) -> str:
    """The condition that an ``ExtendedExpression`` is.

    :raises NotPushed: it is none, or has something that a scan does not do.
    """
    try:
        whole = _Message(expression)
        if len(referred := whole.all(3)) != 1:
            raise NotPushed(f"it has {len(referred)} expressions, and one is a condition")
        functions = {}
        for declared in whole.all(2):
            if (of := _Message(declared).message(3)) is not None:
                # The name may have the types of arguments behind it.
                functions[of.number(2)] = of.text(3).partition(":")[0]
        names = _top(whole.demand(4))
        return _Reader(functions, names, schema).condition(_Message(referred[0]).demand(1), 0)
    except (ValueError, IndexError, ArithmeticError, struct.error) as error:
        raise NotPushed(f"it is no expression of Substrait: {error}") from None


class _Fixed(bytes):
    """A number of a fixed length, as its bytes."""


class _Message:
    """A message of Protocol Buffers."""

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        for number, value in _fields(data):
            self._fields.setdefault(number, []).append(value)

    @property
    def numbers(self) -> set[int]:
        """The fields that are there."""
        return set(self._fields)

    def all(self, number: int) -> list[bytes]:
        """A field that is there any number of times."""
        found = self._fields.get(number, [])
        listed = [one for one in found if isinstance(one, bytes) and not isinstance(one, _Fixed)]
        if len(listed) < len(found):
            raise NotPushed(f"field {number} is a number")
        return listed

    def _one(self, number: int) -> int | bytes | None:
        found = self._fields.get(number, [])
        if len(found) > 1:
            raise NotPushed(f"field {number} is there twice")
        return found[0] if found else None

    def number(self, number: int) -> int:
        found = self._one(number)
        if isinstance(found, bytes):
            raise NotPushed(f"field {number} is no number")
        return found or 0

    def signed(self, number: int, bits: int = 64) -> int:
        found = self.number(number)
        return (found + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    def content(self, number: int) -> bytes:
        self._one(number)
        return (self.all(number) or [b""])[0]

    def fixed(self, number: int) -> bytes:
        """A number of a fixed length."""
        found = self._one(number)
        if not isinstance(found, _Fixed):
            raise NotPushed(f"field {number} is no number of a fixed length")
        return found

    def text(self, number: int) -> str:
        return self.content(number).decode()

    def message(self, number: int) -> _Message | None:
        return _Message(self.content(number)) if number in self._fields else None

    def demand(self, number: int) -> _Message:
        found = self.message(number)
        if found is None:
            raise NotPushed(f"field {number} of a message is missing")
        return found

    def kind(self, *beside: int) -> int:
        """Which of several fields is there, beside those that say something of it."""
        kinds = self.numbers - set(beside)
        if len(kinds) != 1:
            raise NotPushed("a message says nothing, or several things")
        return kinds.pop()


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & ((1 << 64) - 1)
        raise ValueError("a number has too many bytes")

    while at < len(data):
        tag = varint()
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            yield number, varint()
            continue
        length = varint() if wire == 2 else {1: 8, 5: 4}.get(wire, -1)
        if length < 0 or number == 0 or at + length > len(data):
            raise ValueError("it ends too early, or has a field of an unknown kind")
        found = data[at : at + length]
        yield number, found if wire == 2 else _Fixed(found)
        at += length


def _top(schema: _Message) -> list[str]:
    """The names of the columns, of a list that also has those of the fields within them."""
    names, found, at = [one.decode() for one in schema.all(1)], list[str](), 0
    for kind in schema.demand(2).all(1):
        found.append(names[at])
        at += 1 + _count(_Message(kind), 0)
    return found


def _count(kind: _Message, depth: int) -> int:
    """The fields within a type."""
    if depth > _DEPTH_MAX:
        raise NotPushed("too deep")
    if (of := kind.message(25)) is not None:
        return sum(1 + _count(_Message(one), depth + 1) for one in of.all(1))
    if (of := kind.message(27)) is not None:
        return _count(of.demand(1), depth + 1)
    if (of := kind.message(28)) is not None:
        return _count(of.demand(1), depth + 1) + _count(of.demand(2), depth + 1)
    return 0


class _Reader:
    def __init__(self, functions: dict[int, str], names: list[str], schema: pa.Schema) -> None:
        self._functions = functions
        self._names = names
        self._schema = schema

    def condition(self, expression: _Message, depth: int) -> str:
        if depth > _DEPTH_MAX:
            raise NotPushed("too deep")
        match expression.kind():
            case 2:
                column = self._column(expression)
                if not column.is_boolean:
                    raise NotPushed(f"{column.text} is not a condition")
                return column.text
            case 3:
                return self._call(expression.demand(3), depth)
            case 8:
                listed = expression.demand(8)
                return self._column(listed.demand(1)).among(_literal(_Message(one)) for one in listed.all(2))
            case other:
                raise NotPushed(f"an expression of kind {other} is not done")

    def _call(self, call: _Message, depth: int) -> str:
        name = self._functions.get(call.number(1), f"function {call.number(1)}, which is not declared,")
        if call.all(5) or call.all(2):
            raise NotPushed(f"{name} with options, or with arguments of the old kind, is not done")
        arguments = [_Message(one).demand(3) for one in call.all(4)]
        if name in ("and", "or") and arguments:
            return f" {name} ".join(f"({self.condition(one, depth + 1)})" for one in arguments)
        match name, arguments:
            case "not", [one]:
                return f"not ({self.condition(one, depth + 1)})"
            case "is_null", [one]:
                return f"{self._column(one).text} is null"
            case "is_not_null", [one]:
                return f"{self._column(one).text} is not null"
            case "between", [one, low, high]:
                column = self._column(one)
                return f"({column.compared('>=', _literal(low))}) and ({column.compared('<=', _literal(high))})"
            case _, [left, right] if name in _SIGNS:
                sign = _SIGNS[name]
                if left.numbers == {1}:
                    left, sign, right = right, _EXCHANGED[sign], left
                return self._column(left).compared(sign, _literal(right))
            case _, [one, text] if name in _TEXTS:
                value = _literal(text)
                if not isinstance(value, str):
                    raise NotPushed(f"{name} of another value than a text")
                before, after = _TEXTS[name]
                return self._column(one).like(before, value, after)
        raise NotPushed(f"{name} of {len(arguments)} values is not done")

    def _column(self, expression: _Message) -> Column:
        return Column(self._field(expression))

    def _field(self, expression: _Message) -> pa.Field:
        if expression.kind() == 11:
            cast = expression.demand(11)
            field = self._field(cast.demand(2))
            if not _keeps(field.type, cast.demand(1)):
                raise NotPushed(f"a cast of {field.name} that may change its values is not done")
            return field
        if expression.kind() != 2:
            raise NotPushed("a value that is computed, where a column should be, is not done")
        reference = expression.demand(2)
        chosen = reference.demand(1).demand(2)
        if 2 in chosen.numbers or reference.numbers - {1, 4}:
            raise NotPushed("a part of a nested column is not done")
        name = self._names[chosen.number(1)]
        if len(at := self._schema.get_all_field_indices(name)) != 1:
            raise NoColumn(f"{name} is no column")
        return self._schema.field(at[0])


def _keeps(given: pa.DataType, wanted: _Message) -> bool:
    """Whether a cast keeps all values, so that those are compared."""
    import pyarrow.types as types

    kind = wanted.kind()
    if types.is_integer(given) and kind in _INTEGERS:
        return bool(_INTEGERS[kind] > given.bit_width or (_INTEGERS[kind] == given.bit_width and types.is_signed_integer(given)))
    if types.is_floating(given):
        return kind == _FP64 or (kind == _FP32 and given.bit_width == 32)
    if types.is_decimal(given) and kind == _DECIMAL:
        scale, precision = (wanted.demand(kind).number(field) for field in (1, 2))
        return bool(scale >= given.scale and precision - scale >= given.precision - given.scale)
    return bool((types.is_string(given) or types.is_large_string(given)) and kind == _STRING)


def _literal(expression: _Message) -> Any:
    """A value, as Python has it."""
    if expression.kind() != 1:
        raise NotPushed("a value that is computed is not done")
    value = expression.demand(1)
    if value.number(51):
        raise NotPushed("a value of another kind than its type has is not done")
    match kind := value.kind(50, 51):
        case 2 | 3 | 5 | 7:
            return value.signed(kind)
        case 10:
            return struct.unpack("<f", value.fixed(kind))[0]
        case 11:
            return struct.unpack("<d", value.fixed(kind))[0]
        case 12 | 21:
            return value.text(kind)
        case 22:
            return value.demand(22).text(1)
        case 16:
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=value.signed(16))
        case 14:
            return _EPOCH + datetime.timedelta(microseconds=value.signed(14))
        case 27:
            return (_EPOCH + datetime.timedelta(microseconds=value.signed(27))).replace(tzinfo=datetime.timezone.utc)
        case 34 | 35:
            moment = _moment(value.demand(kind))
            return moment if kind == 34 else moment.replace(tzinfo=datetime.timezone.utc)
        case 24:
            decimal = value.demand(24)
            digits = decimal.content(1)
            if len(digits) != 16:
                raise NotPushed("a decimal of another length than 16 bytes")
            scaled = Decimal(int.from_bytes(digits, "little", signed=True))
            return scaled.scaleb(-decimal.signed(3, 32), Context(prec=100))
    raise NotPushed(f"a value of kind {kind} is not done")


def _moment(value: _Message) -> datetime.datetime:
    digits, count = value.number(1), value.signed(2)
    if digits > 6:
        # Microseconds are the shortest there are here.
        count, rest = divmod(count, 10 ** min(digits - 6, 20))
        if rest:
            raise NotPushed("a time in parts of a microsecond is not done")
    return _EPOCH + datetime.timedelta(microseconds=count * 10 ** max(6 - digits, 0))
