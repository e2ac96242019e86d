"""Expressions of DataFusion as texts of scans: conditions, and the inputs of sums.

DataFusion and a scan agree but for floating-point numbers: for DataFusion NaN is above or below all others, by its sign; for a scan it is
neither. So a condition is said twice: one that is true of no row but those that are wanted, and one that is true of all of these.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ._condition import Column, NotPushed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

#: Comparisons, and how they are with both sides exchanged.
_EXCHANGED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Comparisons that are true where others are false, but for NaN.
OTHERWISE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
#: How deep an expression is read; scans take at most 64.
_DEPTH_MAX = 40


class Condition(NamedTuple):
    """A condition, as nearly as a scan can say it."""

    #: True of no row of which the condition is not.
    strict: str
    #: True of all rows of which the condition is.
    wide: str

    @property
    def is_exact(self) -> bool:
        return self.strict == self.wide


def conjuncts(predicate: Any) -> list[Any]:
    """The parts of a predicate that all have to be true."""
    found, waiting = [], [predicate]
    while waiting:
        one = waiting.pop()
        if one.variant_name() == "BinaryExpr" and (node := one.to_variant()).op() == "AND":
            waiting += [node.right(), node.left()]
        else:
            found.append(one)
    return found


def condition(expression: Any, schema: pa.Schema, depth: int = 0) -> Condition:
    """A predicate as a scan takes it.

    :raises NotPushed: it has something that a scan does not do.
    """
    if depth > _DEPTH_MAX:
        raise NotPushed("too deep")
    node = _node(expression)
    match type(node).__name__:
        case "Column":
            column = Column(_field(node, schema))
            if not column.is_boolean:
                raise NotPushed("not a condition")
            return _exact(column.text)
        case "Not":
            inner = condition(node.expr(), schema, depth + 1)
            return Condition(f"not ({inner.wide})", f"not ({inner.strict})")
        case "BinaryExpr" if (how := node.op()) in ("AND", "OR"):
            left, right = (condition(side, schema, depth + 1) for side in (node.left(), node.right()))
            word = how.lower()
            return Condition(f"({left.strict}) {word} ({right.strict})", f"({left.wide}) {word} ({right.wide})")
        case "BinaryExpr":
            return _compared(node, schema)
        case "IsNull":
            return _exact(f"{_column(node.expr(), schema).text} is null")
        case "IsNotNull":
            return _exact(f"{_column(node.expr(), schema).text} is not null")
        case "InList":
            return _among(_column(node.expr(), schema), [_value(one) for one in node.list()], node.negated())
        case "Like":
            return _like(expression, node, schema)
    raise NotPushed(f"{type(node).__name__} is not done")


def has_order(kind: pa.DataType) -> bool:
    """Whether DataFusion and a scan have the same order of such values: for DataFusion NaN is the greatest number, for a scan it is none."""
    import pyarrow.types as types

    known = (types.is_integer, types.is_decimal, types.is_date32, types.is_string, types.is_large_string)
    return any(holds(kind) for holds in known) or (types.is_timestamp(kind) and kind.tz is None)


def _exact(text: str) -> Condition:
    return Condition(text, text)


def _node(expression: Any) -> Any:
    try:
        return expression.to_variant()
    # Of some expressions it has no view for Python.
    except Exception as error:
        raise NotPushed(str(error)) from None


def _field(node: Any, schema: pa.Schema) -> pa.Field:
    return schema.field(node.name())


def _column(expression: Any, schema: pa.Schema) -> Column:
    if expression.variant_name() != "Column":
        raise NotPushed("not a column")
    return Column(_field(expression.to_variant(), schema))


def _value(expression: Any) -> Any:
    if expression.variant_name() != "Literal":
        raise NotPushed("not a value")
    try:
        return expression.python_value().as_py()
    except Exception as error:
        raise NotPushed(str(error)) from None


def _compared(node: Any, schema: pa.Schema) -> Condition:
    left, sign, right = node.left(), node.op(), node.right()
    if sign not in _EXCHANGED:
        raise NotPushed(f"{sign} is not done")
    if left.variant_name() == "Literal":
        left, sign, right = right, _EXCHANGED[sign], left
    column, value = _column(left, schema), _value(right)
    said = column.compared("<>" if sign == "!=" else sign, value)
    if column.is_float and sign in OTHERWISE:
        return Condition(said, f"not ({column.compared(OTHERWISE[sign], value)})")
    return _exact(said)


def _among(column: Column, values: list[Any], is_negated: bool) -> Condition:
    # In long lists DataFusion tells -0.0 from 0.0.
    if column.is_float and any(value == 0 for value in values):
        raise NotPushed("zeros")
    said = column.among(values)
    return _exact(f"not ({said})" if is_negated else said)


def _like(expression: Any, node: Any, schema: pa.Schema) -> Condition:
    column, pattern = _column(node.expr(), schema), _value(node.pattern())
    # Its name alone tells LIKE from ILIKE.
    how = "NOT LIKE" if node.negated() else "LIKE"
    if expression.canonical_name() != f"{node.expr().canonical_name()} {how} {node.pattern().canonical_name()}":
        raise NotPushed("another LIKE")
    if node.escape_char() is not None or not isinstance(pattern, str) or "\\" in pattern:
        raise NotPushed("an escape")
    said = f"{column.text} like {column.literal(pattern)}"
    return _exact(f"not ({said})" if node.negated() else said)


def renamed(expression: Any) -> tuple[str, Any]:
    """What a projection calls a column, and the expression that it is."""
    if expression.variant_name() == "Alias":
        node = expression.to_variant()
        return str(node.alias()), node.expr()
    if expression.variant_name() == "Column":
        return str(expression.to_variant().name()), expression
    return str(expression.schema_name()), expression


def origin(expression: Any, computed: Mapping[str, Any]) -> Any:
    """What an expression is further down, where columns that are computed are not there yet."""
    while expression.variant_name() == "Column" and (below := computed.get(expression.to_variant().name())) is not None:
        expression = below
    return expression


class Number(NamedTuple):
    """A number that is computed of a row."""

    text: str
    #: ``int``, ``decimal`` or ``float``.
    kind: str


class Numbers:
    """Reads expressions of numbers."""

    def __init__(self, schema: pa.Schema, type_of: Callable[[Any], pa.DataType], computed: Mapping[str, Any]) -> None:
        """:param computed: columns that are none of the table, but computed of those."""
        self._schema = schema
        self._origins = computed
        self._type_of = type_of
        #: Expressions that DataFusion computes in few bits, of which it keeps the lowest: with the least and the greatest it can hold.
        self.bounded: dict[str, tuple[int, int]] = {}

    def read(self, expression: Any, depth: int = 0) -> Number:
        """The number that an expression is.

        :raises NotPushed: it has something that a scan does not do, or does with another result.
        """
        if depth > _DEPTH_MAX:
            raise NotPushed("too deep")
        expression = origin(expression, self._origins)
        node = _node(expression)
        match type(node).__name__:
            case "Column":
                field = _field(node, self._schema)
                return Number(Column(field).text, _kind(field.type))
            case "Literal":
                return _literal(_value(expression))
            case "Cast":
                return self._cast(expression, node, depth)
            case "BinaryExpr" if node.op() in ("+", "-", "*"):
                return self._computed(expression, node, depth)
        raise NotPushed(f"{type(node).__name__} is not done")

    def _computed(self, expression: Any, node: Any, depth: int) -> Number:
        left, right = self.read(node.left(), depth + 1), self.read(node.right(), depth + 1)
        if left.kind != right.kind:
            raise NotPushed("two kinds of numbers")
        text, wanted = f"({left.text} {node.op()} {right.text})", self._type_of(expression)
        if left.kind == "int":
            bits = wanted.bit_width
            is_signed = str(wanted).startswith("int")
            self.bounded[text] = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        elif left.kind == "float" and wanted.bit_width != 64:
            raise NotPushed("computed in 32 bits")
        return Number(text, left.kind)

    def _cast(self, expression: Any, node: Any, depth: int) -> Number:
        """Casts that change no value: the same number is meant."""
        import pyarrow.types as types

        inner, wanted, given = self.read(node.expr(), depth + 1), self._type_of(expression), self._type_of(node.expr())
        if types.is_integer(given) and types.is_integer(wanted):
            is_same = wanted.bit_width > given.bit_width and (types.is_signed_integer(wanted) or types.is_unsigned_integer(given))
        elif types.is_integer(given) and types.is_decimal(wanted):
            is_same = wanted.precision - wanted.scale >= len(str(1 << given.bit_width))
        elif types.is_decimal(given) and types.is_decimal(wanted):
            is_same = wanted.scale >= given.scale and wanted.precision - wanted.scale >= given.precision - given.scale
        else:
            is_same = types.is_float32(given) and types.is_float64(wanted)
        if not is_same:
            raise NotPushed("a cast")
        return Number(inner.text, _kind(wanted))


def _kind(kind: pa.DataType) -> str:
    import pyarrow.types as types

    if types.is_integer(kind):
        return "int"
    if types.is_decimal(kind):
        return "decimal"
    if types.is_float32(kind) or types.is_float64(kind):
        return "float"
    raise NotPushed(f"{kind} is not computed with")


def _literal(value: Any) -> Number:
    if type(value) is int:
        return Number(f"({value})" if value < 0 else str(value), "int")
    if isinstance(value, Decimal) and value.is_finite() and len(value.as_tuple().digits) <= 38:
        return Number(f"({value:f})" if value < 0 else f"{value:f}", "decimal")
    if isinstance(value, float) and value - value == 0:
        return Number(f"({value:.17e})" if value < 0 else f"{value:.17e}", "float")
    raise NotPushed("a value")
