"""Conditions as texts, as scans take them: columns, values, and what is said of them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from ._scan import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

#: The whole numbers that a condition takes.
_DIGITS_MAX = 38


class NotPushed(Exception):
    """A part of a condition that is not said to a server; whoever asked does it."""


class NoColumn(NotPushed):
    """A condition on what is no column."""


class Column:
    """A column that is compared."""

    def __init__(self, field: pa.Field) -> None:
        import pyarrow.types as types

        self.text = quoted(field.name)
        kind = field.type
        self.is_float = types.is_floating(kind)
        self.is_boolean = types.is_boolean(kind)
        #: Whole numbers up to this one, and down to its negative, are floating-point numbers of the column's width, too.
        self._whole_max = 1 << 24 if types.is_float32(kind) else 1 << 53
        self._has_zone = types.is_timestamp(kind) and kind.tz is not None
        if types.is_integer(kind):
            self._takes: tuple[type, ...] = (int,)
        elif types.is_decimal(kind):
            self._takes = (int, Decimal)
        elif self.is_float and kind.bit_width > 16:
            self._takes = (int, float)
        elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
            self._takes = (str,)
        elif types.is_date32(kind):
            self._takes = (datetime.date,)
        elif types.is_timestamp(kind) and kind.unit != "ns":
            self._takes = (datetime.datetime,)
        else:
            self._takes = ()

    def compared(self, how: str, value: object) -> str:
        """``how`` is one of SQL's signs."""
        return f"{self.text} {how} {self.literal(value)}"

    def among(self, values: Iterable[object]) -> str:
        listed = ", ".join(self.literal(value) for value in values)
        if not listed:
            raise NotPushed("an empty list")
        return f"{self.text} in ({listed})"

    def is_among(self, values: Iterable[object]) -> str:
        """The same where NULL is in no list, and ``not`` of that is true."""
        return f"{self.text} is not null and {self.among(values)}"

    def like(self, before: str, text: str, after: str) -> str:
        if str not in self._takes:
            raise NotPushed("not a text")
        escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return f"{self.text} like {_text(before + escaped + after)}"

    def literal(self, value: object) -> str:
        # bool is an int, and datetime a date.
        if type(value) not in self._takes:
            raise NotPushed(f"{value!r} is of another type than {self.text}")
        if isinstance(value, float):
            if value != value or value in (float("inf"), float("-inf")):
                raise NotPushed("not finite")
            return f"{value:e}" if float(f"{value:e}") == value else f"{value:.17e}"
        if isinstance(value, int) and self.is_float:
            if abs(value) > self._whole_max:
                raise NotPushed("a number that no float is")
            return str(value)
        if isinstance(value, (int, Decimal)):
            return _exact(Decimal(value))
        if isinstance(value, str):
            return _text(value)
        if isinstance(value, datetime.datetime):
            return self._moment(value)
        assert isinstance(value, datetime.date)
        return f"date '{value.isoformat()}'"

    def _moment(self, value: datetime.datetime) -> str:
        # An instant is compared with an instant, which a scan keeps as UTC, and a time on a wall clock with such a time.
        if (value.utcoffset() is not None) != self._has_zone:
            raise NotPushed("a time with a zone, and one without")
        if self._has_zone:
            # A zone may move the first and the last days there are beyond them.
            if not datetime.MINYEAR < value.year < datetime.MAXYEAR:
                raise NotPushed("the first year that there is, or the last one")
            value = value.astimezone(datetime.timezone.utc)
        if value.year < 1000:
            raise NotPushed("a year with fewer than four digits")
        return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}'"


def _exact(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + max(exponent, 0) > _DIGITS_MAX or exponent < 1 - _DIGITS_MAX:
        raise NotPushed("too many digits")
    return f"{value:f}"


def _text(value: str) -> str:
    if "\0" in value:
        raise NotPushed("a text with a NUL")
    return "'" + value.replace("'", "''") + "'"


def all_of(conditions: list[str]) -> str | None:
    """All of these; None: there are none."""
    return " and ".join(f"({condition})" for condition in conditions) or None


def cheapest(schema: pa.Schema) -> list[str]:
    """A column by which rows are counted: a narrow one."""
    widths = {field.name: getattr(field.type, "bit_width", 1 << 16) if _is_plain(field) else 1 << 17 for field in schema}
    return [min(widths, key=lambda name: widths[name])] if widths else []


def _is_plain(field: pa.Field) -> bool:
    import pyarrow.types as types

    return bool(types.is_primitive(field.type))
