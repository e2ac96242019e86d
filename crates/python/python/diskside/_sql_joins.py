"""Joins of a plan: which table need only be read where a column has a value that a column of another table has.

Rows of a join's input that are left out leave the join's result as it is, if they have no partner in the other input, and rows without a
partner leave no trace in that result. That is so

- of both inputs of an inner join and of a semi join: a row without a partner is in neither's result, nor does it give one to another row;
- of the right input of a left join, and of the left input of a right join: NULL is put in the place of partners that are not there. The
  other input is kept whole there;
- of no input of a full join. Anti joins and joins that mark rows are left alone, too: what NULL means there is theirs to say.

A row has no partner if its key equals no key of the other input. NULL equals nothing, unless the join says otherwise, and such a join is
left alone. So it is enough to read rows whose key is among the keys of a table that the other input is made of: further conditions of
the join, and steps that leave out rows of that table on the way, make it fewer partners, never more; steps that put NULL in their place
make no keys.

The table that is read in part has to reach the join row by row, such that leaving out one of its rows takes away from the join's input what
came of that row, all of which has its key, and nothing else. Conditions, choices of columns, sorting, and the other joins that keep
rows of that side do so; limits, sums and unions do not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ._planner import tables_of
from ._sql_expression import has_order, renamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

#: Joins of which the left or the right input may be read in part.
_LEFT_IN_PART = ("Inner", "Right", "LeftSemi", "RightSemi")
_RIGHT_IN_PART = ("Inner", "Left", "LeftSemi", "RightSemi")
#: Joins that give what came of each row of the left or of the right input, whatever its other rows are.
_LEFT_ROW_BY_ROW = ("Inner", "Left", "LeftSemi", "LeftAnti", "LeftMark")
_RIGHT_ROW_BY_ROW = ("Inner", "Right", "RightSemi", "RightAnti", "RightMark")
#: Joins whose result has no columns of the right or of the left input.
_LEFT_ALONE = ("LeftSemi", "LeftAnti", "LeftMark")
_RIGHT_ALONE = ("RightSemi", "RightAnti", "RightMark")
_CAST = re.compile(r" AS (\w+)(?:\((\d+), (\d+)\))?\)$")
_TEXTS = ("Utf8", "LargeUtf8", "Utf8View")
#: Digits of numbers of which integers of a type have all.
_DIGITS = {"Int16": 4, "Int32": 9, "Int64": 18}


class Join(NamedTuple):
    """A column of a table whose rows are wanted only if it has a value that a column of another table has."""

    table: str
    column: str
    #: The other table, and its column.
    source: str
    key: str

    def __str__(self) -> str:
        return f"{self.table}: of {self.column}, the values that {self.source} has of {self.key}, if these are few"


class _Origin(NamedTuple):
    """Where the values of a column come from."""

    table: str
    column: str
    #: Whether rows of the table can be left out.
    is_row_by_row: bool
    #: Casts that they pass, in this order.
    casts: tuple[str, ...] = ()


def joins(plan: Any, schemas: Mapping[str, pa.Schema]) -> list[Join]:
    """The joins of an optimised plan by which tables can be read in part; both ways, where both can.

    :param schemas: the columns of tables, by name.
    """
    scanned = tables_of(plan)
    # One that is read twice has one scan, and its rows have to do for both.
    columns = {name: schema for name, schema in schemas.items() if scanned.count(name) == 1}
    found = dict[Join, None]()

    def look(at: Any) -> None:
        node = at.to_variant()
        if type(node).__name__ == "Join" and not node.null_equals_null():
            for pair in node.on():
                found.update(dict.fromkeys(_of(node, pair, columns)))
        for inner in at.inputs():
            look(inner)

    look(plan)
    return list(found)


def _of(node: Any, pair: tuple[Any, Any], columns: Mapping[str, pa.Schema]) -> list[Join]:
    left, right = _origin_of(node.left(), pair[0], columns), _origin_of(node.right(), pair[1], columns)
    if left is None or right is None or left.table == right.table:
        return []
    kind, found = str(node.join_type()), []
    if kind in _LEFT_IN_PART and left.is_row_by_row:
        found.append(Join(left.table, left.column, right.table, right.column))
    if kind in _RIGHT_IN_PART and right.is_row_by_row:
        found.append(Join(right.table, right.column, left.table, left.column))
    return found


def _origin_of(plan: Any, expression: Any, columns: Mapping[str, pa.Schema]) -> _Origin | None:
    """Where a side of a join's condition comes from, if its values are those of a column."""
    origin = _value_of(plan, expression, columns)
    if origin is None:
        return None
    kind = columns[origin.table].field(origin.column).type
    # NaN, -0.0 and zones are left alone.
    return origin if has_order(kind) and _keeps(kind, origin.casts) else None


def _value_of(plan: Any, expression: Any, columns: Mapping[str, pa.Schema]) -> _Origin | None:
    """Where an expression over a plan's rows comes from."""
    casts = list[str]()
    while expression.variant_name() == "Cast":
        casts.insert(0, expression.canonical_name())
        expression = expression.to_variant().expr()
    if expression.variant_name() != "Column":
        return None
    column = expression.to_variant()
    origin = _origin(plan, column.relation(), column.name(), columns)
    return None if origin is None else origin._replace(casts=(*origin.casts, *casts))


def _origin(plan: Any, relation: str | None, name: str, columns: Mapping[str, pa.Schema]) -> _Origin | None:
    node, below = plan.to_variant(), plan.inputs()
    match type(node).__name__:
        case "TableScan":
            table = node.table_name()
            if table not in columns or relation not in (None, table) or name not in columns[table].names:
                return None
            return _Origin(table, name, node.fetch() is None and not node.filters())
        case "SubqueryAlias":
            return _origin(below[0], None, name, columns) if relation in (None, node.alias()) else None
        case "Projection":
            return _projected(node, below[0], relation, name, columns)
        case "Filter":
            return _origin(below[0], relation, name, columns)
        case "Sort":
            return _cut(_origin(below[0], relation, name, columns), node.get_fetch_val() is None)
        case "Limit":
            return _cut(_origin(below[0], relation, name, columns), False)
        case "Join":
            return _joined(node, relation, name, columns)
    return None


def _projected(node: Any, below: Any, relation: str | None, name: str, columns: Mapping[str, pa.Schema]) -> _Origin | None:
    found = []
    for one in node.projections():
        # An alias has no table, nor has what is computed.
        called, of = renamed(one)
        if called == name and (one.variant_name() != "Column" or relation in (None, one.to_variant().relation())):
            found.append(of)
    return _value_of(below, found[0], columns) if len(found) == 1 else None


def _joined(node: Any, relation: str | None, name: str, columns: Mapping[str, pa.Schema]) -> _Origin | None:
    kind = str(node.join_type())
    left = None if kind in _RIGHT_ALONE else _origin(node.left(), relation, name, columns)
    right = None if kind in _LEFT_ALONE else _origin(node.right(), relation, name, columns)
    if left is not None and right is not None:
        return None
    return _cut(left, kind in _LEFT_ROW_BY_ROW) or _cut(right, kind in _RIGHT_ROW_BY_ROW)


def _cut(origin: _Origin | None, is_row_by_row: bool) -> _Origin | None:
    return None if origin is None else origin._replace(is_row_by_row=origin.is_row_by_row and is_row_by_row)


def _keeps(kind: pa.DataType, casts: tuple[str, ...]) -> bool:
    """Whether casts keep all values of a type."""
    import pyarrow.types as types

    if not casts:
        return True
    found = [_CAST.search(cast) for cast in casts]
    if types.is_string(kind) or types.is_large_string(kind):
        return all(one is not None and one[1] in _TEXTS for one in found)
    if types.is_decimal(kind):
        whole, behind = kind.precision - kind.scale, kind.scale
    elif types.is_integer(kind):
        # 2^8, 2^16, 2^32 and 2^64 have so many digits.
        whole, behind = len(str(1 << kind.bit_width)), 0
    else:
        return False
    for one in found:
        if one is None:
            return False
        if one[1] in _DIGITS and behind == 0:
            kept = (_DIGITS[one[1]], 0)
        elif one[2] is not None and one[1].startswith("Decimal"):
            kept = (int(one[2]) - int(one[3]), int(one[3]))
        else:
            return False
        if kept[0] < whole or kept[1] < behind:
            return False
        whole, behind = kept
    return True
