"""The rows of a plan as pyarrow's datasets give them, where pyarrow can say the plan."""

import datetime
import decimal
import json
import operator
import re

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

COMPARISONS = {
    "COMPARE_EQUAL": operator.eq,
    "COMPARE_NOTEQUAL": operator.ne,
    "COMPARE_LESSTHAN": operator.lt,
    "COMPARE_LESSTHANOREQUALTO": operator.le,
    "COMPARE_GREATERTHAN": operator.gt,
    "COMPARE_GREATERTHANOREQUALTO": operator.ge,
}
AGGREGATES = {"sum": "sum", "min": "min", "max": "max", "count": "count", "avg": "mean"}


class CannotSay(Exception):
    """pyarrow has no such computation, or another one by that name."""


def rows(found, plan):
    """A table with the rows of a plan over another table, which is plain.

    Conditions are text: DuckDB parses them, and evaluates nothing.
    """
    if "order" in plan:
        raise CannotSay("the first rows in an order")
    try:
        wanted = condition(parsed(plan["where"]), found.schema) if plan["where"] else None
        source = ds.InMemoryDataset(found)
        if "columns" in plan:
            return source.to_table(columns=plan["columns"], filter=wanted)
        return aggregated(source.to_table(filter=wanted), plan)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise CannotSay(str(error)) from error


def plain(found):
    """The table in types that pyarrow computes with: it has few kernels for views, dictionaries and short decimals."""

    def of(kind):
        if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind):
            return pa.string()
        return pa.decimal128(kind.precision, kind.scale) if pa.types.is_decimal(kind) else kind

    return found.cast(pa.schema([field.with_type(of(field.type)) for field in found.schema]))


def aggregated(found, plan):
    sums = []
    for one in plan["aggregate"]:
        kind, name = re.fullmatch(r"(\w+)\((.*)\)", one).groups()
        if kind == "avg" and pa.types.is_decimal(found.schema.field(name).type):
            raise CannotSay("a mean of decimals has the digits of the column")
        sums.append(([], "count_all") if name == "*" else (name, AGGREGATES[kind]))
    # Named by position: one column may be summed up twice.
    of_groups = found.group_by(plan["by"], use_threads=False).aggregate(sums)
    named = [("count_all" if not name else f"{name}_{kind}") for name, kind in sums]
    return pa.table([of_groups[name] for name in [*plan["by"], *named]], names=[str(at) for at in range(len(plan["by"]) + len(named))])


def parsed(where):
    told = json.loads(duckdb.execute("select json_serialize_sql(?)", [f"select 1 where {where}"]).fetchall()[0][0])
    return told["statements"][0]["node"]["where_clause"]


def condition(of, schema):
    kind, inner = of["type"], lambda name: condition(of[name], schema)
    children = lambda: [condition(child, schema) for child in of["children"]]
    if kind == "CONJUNCTION_AND":
        return together(operator.and_, children())
    if kind == "CONJUNCTION_OR":
        return together(operator.or_, children())
    if kind == "OPERATOR_NOT":
        return ~children()[0]
    if kind == "OPERATOR_IS_NULL":
        return children()[0].is_null()
    if kind == "OPERATOR_IS_NOT_NULL":
        return children()[0].is_valid()
    if kind == "COLUMN_REF":
        return pc.field(of["column_names"][0])
    if kind in COMPARISONS:
        return COMPARISONS[kind](inner("left"), value(of["right"], schema, of["left"]))
    if kind == "COMPARE_BETWEEN":
        tested = inner("input")
        return (tested >= value(of["lower"], schema, of["input"])) & (tested <= value(of["upper"], schema, of["input"]))
    if kind == "COMPARE_IN":
        tested, *among = of["children"]
        # Its own `isin` tells 0.0 from -0.0.
        return together(operator.or_, [condition(tested, schema) == value(one, schema, tested) for one in among])
    if kind == "FUNCTION" and of["function_name"] in ("~~", "!~~"):
        column, pattern = (argument["expression"] for argument in of["arguments"])
        matches = pc.match_like(condition(column, schema), pattern["literal"]["text"])
        return matches if of["function_name"] == "~~" else ~matches
    raise CannotSay(f"{kind} {of.get('function_name', '')}")


def together(how, all_of_them):
    first, *others = all_of_them
    for other in others:
        first = how(first, other)
    return first


def value(of, schema, beside):
    """A constant, of the type of the column beside it where that has it exactly."""
    if beside["type"] != "COLUMN_REF":
        raise CannotSay("arithmetic has other types")
    column = schema.field(beside["column_names"][0]).type
    if of["type"] == "OPERATOR_CAST":
        text, name = of["child"]["literal"]["text"], of["cast_type" if "cast_type" in of else "type_expr"]["type_name"].lower()
        if name == "date":
            return pa.scalar(datetime.date.fromisoformat(text))
        if pa.types.is_date(column):
            raise CannotSay("a day beside a moment")
        moment = datetime.datetime.fromisoformat(text)
        zone = column.tz and datetime.timezone.utc
        return pa.scalar(moment.replace(tzinfo=zone), pa.timestamp("us", column.tz))
    if of["type"] != "VALUE_CONSTANT":
        raise CannotSay(of["type"])
    kind, text = of["literal"]["kind"], of["literal"]["text"]
    if kind == "BOOLEAN":
        return pa.scalar(text == "true")
    if kind == "STRING":
        return pa.scalar(text)
    if pa.types.is_floating(column):
        return pa.scalar(float(text), pa.float64())
    if pa.types.is_integer(column) and kind == "INTEGER":
        return pa.scalar(int(text), pa.uint64() if int(text) >= 2**63 else column if fits(int(text), column) else pa.int64())
    return pa.scalar(decimal.Decimal(text))


def fits(number, kind):
    bits = kind.bit_width
    return -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) if pa.types.is_signed_integer(kind) else 0 <= number < 2**bits
