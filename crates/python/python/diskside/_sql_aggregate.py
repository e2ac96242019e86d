"""Plans of DataFusion that sum up one table: what the server sums up, and what is left to do with its result."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from ._condition import NotPushed, all_of
from ._planner import tables_of
from ._scan import quoted
from ._sql_expression import Condition, Numbers, condition, conjuncts, has_order, origin, renamed
from ._sql_first import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    import datafusion
    import pyarrow as pa

    from ._scan import Scan

#: The columns that rows are grouped by, at most.
_KEYS_MAX = 8
#: The number of rows, as a column of sums.
_ROWS = "all rows: count(*)"
#: Steps that may follow the sums.
_AFTER = ("Projection", "Sort", "Limit", "Filter", "SubqueryAlias", "Aggregate")


class Aggregates(NamedTuple):
    """A query of sums over one table."""

    table: str
    #: How columns of the sums are qualified in the steps that follow.
    alias: str
    where: str | None
    #: Another condition, where a scan and DataFusion may differ; if it selects other rows, the query is no such.
    wide: str | None
    by: list[str]
    aggregates: list[str]
    #: Makes a column of the sums, from those of the scan.
    columns: list[Callable[[dict[str, pa.ChunkedArray]], pa.Array | pa.ChunkedArray]]
    schema: pa.Schema
    #: Those that are columns of the table.
    keys: list[str]
    #: Columns of the scan that have to be within bounds, or the sums are not those of DataFusion.
    bounded: dict[str, tuple[int, int]]
    #: Steps that follow, from the last to the first.
    after: list[Any]

    def scan(self, source: Scan) -> Scan:
        """The scan that sums up."""
        return source._other(columns=[], where=self.where, by=self.by, aggregate=", ".join(self.aggregates))

    def check(self, source: Scan) -> Scan | None:
        """A scan that counts the rows that there are if those in doubt are taken."""
        return None if self.wide is None else source._other(columns=[], where=self.wide, aggregate="count(*)")

    def rows_of(self, sums: pa.Table) -> int:
        """The rows that were summed up, where some are in doubt."""
        return sum(sums[_ROWS].to_pylist())

    def table_of(self, sums: pa.Table) -> pa.Table:
        """The table of sums that DataFusion would make, of that of the scan.

        :raises NotPushed: DataFusion's numbers would have overflown.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, (least, greatest) in self.bounded.items():
            found = pc.min_max(sums[name]).as_py()
            if found["min"] is not None and not least <= found["min"] <= found["max"] <= greatest:
                raise NotPushed("an overflow")
        by_name = {name: sums[name] for name in sums.column_names}
        try:
            columns = [make(by_name).cast(field.type) for make, field in zip(self.columns, self.schema)]
        except pa.ArrowInvalid as error:
            raise NotPushed(str(error)) from None
        return pa.table(columns, schema=self.schema)

    def finished(self, sums: pa.Table, context: datafusion.SessionContext) -> datafusion.DataFrame:
        """The answer, of DataFusion's table of sums."""
        from datafusion.expr import Expr, SortExpr

        context.register_record_batches(quoted(self.alias), [sums.to_batches() or [_empty(self.schema)]])
        # A column of the table has its name before its own; a sum, and a key with another name, have not.
        columns = [(Expr.column(quoted(name)), name) for name in self.schema.names]
        named = [one if name in self.keys else one.alias(name) for one, name in columns]
        frame = context.table(quoted(self.alias)).select(*named)
        for node in reversed(self.after):
            match type(node).__name__:
                case "Projection":
                    # A column has a table here, which an expression would be called after.
                    shown = [(Expr(one), one.variant_name() in ("Column", "Alias"), one.schema_name()) for one in node.projections()]
                    frame = frame.select(*(one if is_named else one.alias(name) for one, is_named, name in shown))
                case "Filter":
                    frame = frame.filter(Expr(node.predicate()))
                case "Sort":
                    by = [SortExpr(Expr(one.expr()), one.ascending(), one.nulls_first()) for one in node.sort_exprs()]
                    frame = frame.sort(*by)
                    if (fetch := node.get_fetch_val()) is not None:
                        frame = frame.limit(fetch)
                case "Limit":
                    skip, fetch = limits(node)
                    frame = frame.limit((1 << 63) - 1 if fetch is None else fetch, offset=skip)
                case "SubqueryAlias":
                    name = quoted(node.alias())
                    context.deregister_table(name)
                    context.register_view(name, frame)
                    frame = context.table(name)
                case "Aggregate":
                    keys, sums = ([Expr(one) for one in of] for of in (node.group_by_exprs(), node.aggregate_exprs()))
                    frame = frame.aggregate(keys, sums)
        return frame


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)


def aggregates(plan: Any, schemas: dict[str, pa.Schema], context: datafusion.SessionContext) -> Aggregates:
    """The sums of an optimised plan.

    :param schemas: the columns of tables that are scanned, by name.
    :raises NotPushed: it is of another kind, or has sums that a scan does not do, or does with another result.
    """
    from datafusion.plan import LogicalPlan

    if len(tables_of(plan)) != 1:
        raise NotPushed("several tables")
    after, at = [], plan
    # The last one: DataFusion makes two of sums of different values, and a query may sum up sums.
    while (name := type(node := at.to_variant()).__name__) != "Aggregate" or _has_sums(*at.inputs()):
        if name not in _AFTER:
            raise NotPushed(f"{name} is not done")
        after.append(node)
        (at,) = at.inputs()
    (below,) = at.inputs()
    table, predicate, computed, frames = _rows(below, context)
    if table not in schemas:
        raise NotPushed("not a table that is scanned")
    where, wide = _where(predicate, schemas[table])
    if any(name in schemas[table].names for name in computed):
        raise NotPushed("a column that has the name of another one")
    reader = _Reader(schemas[table], computed, frames)
    keys = [reader.key(one) for one in node.group_by_exprs()]
    schema = context.create_dataframe_from_logical_plan(LogicalPlan(at)).schema()
    for field, one in zip(list(schema)[len(keys) :], node.aggregate_exprs()):
        reader.aggregate(one, field.type)
    if len(keys) > _KEYS_MAX:
        raise NotPushed("many keys")
    by, made, bounded = reader.asked(wide is not None)
    plain = [key for key, one in zip(keys, node.group_by_exprs()) if one.variant_name() == "Column"]
    return Aggregates(table, reader.alias or table, where, wide, by, made, reader.columns, schema, plain, bounded, after)


def _has_sums(plan: Any) -> bool:
    while (inputs := plan.inputs()) and type(plan.to_variant()).__name__ != "Aggregate":
        (plan,) = inputs
    return bool(inputs)


def _rows(plan: Any, context: datafusion.SessionContext) -> tuple[str, Any, dict[str, Any], list[datafusion.DataFrame]]:
    """The table whose rows are summed up, their predicate, columns that are computed of them, by name, and what tells types: those of
    expressions, once they are columns of one of these."""
    from datafusion.plan import LogicalPlan

    predicate = None
    computed: dict[str, Any] = {}
    frames = [context.create_dataframe_from_logical_plan(LogicalPlan(plan))]
    while True:
        node = plan.to_variant()
        match type(node).__name__:
            case "TableScan":
                if node.filters() or node.fetch() is not None:
                    raise NotPushed("part of a table")
                return node.table_name(), predicate, computed, frames
            case "Projection":
                made = dict(renamed(one) for one in node.projections() if one.variant_name() != "Column")
                if made.keys() & computed.keys():
                    raise NotPushed("two columns of one name")
                computed |= made
                frames += [context.create_dataframe_from_logical_plan(LogicalPlan(below)) for below in plan.inputs()]
            case "Filter" if predicate is None:
                predicate = node.predicate()
            case "SubqueryAlias":
                pass
            case other:
                raise NotPushed(f"{other} is not done")
        (plan,) = plan.inputs()


def _where(predicate: Any, schema: pa.Schema) -> tuple[str | None, str | None]:
    if predicate is None:
        return None, None
    parts: list[Condition] = [condition(one, schema) for one in conjuncts(predicate)]
    strict, wide = all_of([part.strict for part in parts]), all_of([part.wide for part in parts])
    return strict, None if strict == wide else wide


class _Reader:
    """Reads the keys and sums of one Aggregate."""

    def __init__(self, schema: pa.Schema, computed: dict[str, Any], frames: list[datafusion.DataFrame]) -> None:
        from datafusion.expr import Expr

        def type_of(expression: Any) -> pa.DataType:
            for frame in frames[:-1]:
                try:
                    return frame.select(Expr(expression)).schema().field(0).type
                # It is of columns that are there further down.
                except Exception:
                    pass
            return frames[-1].select(Expr(expression)).schema().field(0).type

        self._schema = schema
        self._computed = computed
        self._numbers = Numbers(schema, type_of, computed)
        self._by: list[str] = []
        self._asked: dict[str, str] = {}
        self.alias: str | None = None
        self.columns: list[Callable[[dict[str, pa.ChunkedArray]], Any]] = []

    def asked(self, are_in_doubt: bool) -> tuple[list[str], list[str], dict[str, tuple[int, int]]]:
        """Keys, aggregates, and the bounds of some of these."""
        bounded = {}
        for text, bounds in self._numbers.bounded.items():
            for kind in ("min", "max"):
                bounded[self._ask(f"{kind}({text})")] = bounds
        asked = dict(self._asked)
        if are_in_doubt or not asked:
            asked |= {"count(*) ": _ROWS}
        return self._by, [f"{text} as {quoted(name)}" for text, name in asked.items()], bounded

    def key(self, expression: Any) -> str:
        import pyarrow.types as types

        if expression.variant_name() == "Alias":
            expression = expression.to_variant().expr()
        if expression.variant_name() != "Column":
            raise NotPushed("a key that is computed")
        column = expression.to_variant()
        name = self._name(expression, "a key that is computed")
        kind = self._schema.field(name).type
        if not (types.is_boolean(kind) or has_order(kind)):
            raise NotPushed(f"{kind} is no key")
        self._by.append(name)
        self.alias = column.relation()
        self.columns.append(lambda found: found[name])
        return str(name)

    def aggregate(self, expression: Any, wanted: pa.DataType) -> None:
        if expression.variant_name() == "Alias":
            expression = expression.to_variant().expr()
        node = expression.to_variant()
        if type(node).__name__ != "AggregateFunction" or len(node.args()) != 1:
            raise NotPushed("a sum of another kind")
        kind, (of,) = node.aggregate_type(), node.args()
        # DISTINCT, FILTER and ORDER BY are in its name alone.
        if expression.canonical_name() != f"{kind}({of.canonical_name()})":
            raise NotPushed("a sum of some rows")
        match kind:
            case "count":
                self._take(self._counted(of))
            case "min" | "max":
                self._take(f"{kind}({self._compared(of)})")
            case "sum":
                self._take(f"sum({self._numbers.read(of).text})")
            case "avg":
                self._average(of, wanted)
            case _:
                raise NotPushed(f"{kind} is not done")

    def _ask(self, text: str) -> str:
        # No name of a column that rows are grouped by.
        return self._asked.setdefault(text, f"{len(self._asked)} {text}")

    def _take(self, text: str) -> None:
        name = self._ask(text)
        self.columns.append(lambda found: found[name])

    def _counted(self, of: Any) -> str:
        if of.variant_name() == "Literal" and of.python_value().is_valid:
            return "count(*)"
        return f"count({quoted(self._name(of, 'a count of values that are computed'))})"

    def _name(self, of: Any, otherwise: str) -> str:
        """The column of the table that an expression is, perhaps by another name."""
        of = origin(of, self._computed)
        if of.variant_name() != "Column":
            raise NotPushed(otherwise)
        return str(of.to_variant().name())

    def _compared(self, of: Any) -> str:
        name = self._name(of, "the least of values that are computed")
        if not has_order(kind := self._schema.field(name).type):
            raise NotPushed(f"{kind} is not compared")
        return quoted(name)

    def _average(self, of: Any, wanted: pa.DataType) -> None:
        import pyarrow.types as types

        if types.is_decimal(wanted):
            total, count = self._ask(f"sum({self._numbers.read(of).text})"), self._ask(f"count({self._numbers.read(of).text})")
            self.columns.append(lambda found: _means(found[total], found[count], wanted))
        elif of.variant_name() == "Cast" and types.is_integer(self._numbers._type_of(of.to_variant().expr())):
            self._take(f"avg({self._numbers.read(of.to_variant().expr()).text})")
        else:
            self._take(f"avg({self._numbers.read(of).text})")


def _means(totals: pa.ChunkedArray, counts: pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    """Means of decimals, as DataFusion cuts them off."""
    import pyarrow as pa

    def mean(total: Decimal | None, count: int) -> Decimal | None:
        if total is None:
            return None
        digits = int(total.scaleb(wanted.scale, Context(prec=100)))
        cut = abs(digits) // count
        return Decimal(cut if digits >= 0 else -cut).scaleb(-wanted.scale, Context(prec=100))

    return pa.array([mean(total, count) for total, count in zip(totals.to_pylist(), counts.to_pylist())], wanted)
