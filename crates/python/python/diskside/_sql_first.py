"""Plans of DataFusion that take the first rows of one table, as they lie there or in an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ._condition import NotPushed
from ._planner import tables_of
from ._scan import quoted
from ._sql_expression import condition, conjuncts, has_order, renamed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

#: Rows that a scan keeps in an order, at most.
_ORDERED_MAX = 1 << 16


class First(NamedTuple):
    """The first rows of a table."""

    table: str
    limit: int
    #: Columns, each with whether it ascends; none: as they lie there.
    order: tuple[tuple[str, bool], ...] = ()
    #: Columns whose NULLs come first, where a scan has them last: if there are any, these are other rows.
    nulls_first: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """The options of a scan that gives them."""
        if not self.order:
            return {"limit": self.limit}
        order = ", ".join(quoted(name) if ascends else f"{quoted(name)} desc" for name, ascends in self.order)
        return {"limit": self.limit, "order": order}

    def nulls(self, where: str | None) -> str:
        """A condition of the rows that a scan has last and the query first."""
        nulls = " or ".join(f"{quoted(name)} is null" for name in self.nulls_first)
        return nulls if where is None else f"({where}) and ({nulls})"


def first(plan: Any, schemas: Mapping[str, pa.Schema]) -> First | None:
    """The rows that a plan takes of the one table that it reads, if these are the first ones."""
    try:
        return _first(plan, schemas)
    # A condition that is not pushed, a table that is not scanned, or a step that DataFusion does not show to Python.
    except Exception:
        return None


def _first(plan: Any, schemas: Mapping[str, pa.Schema]) -> First | None:
    (table,) = tables_of(plan)
    limit: int | None = None
    # The names of columns, as they are called further down.
    order: list[tuple[str, bool, bool]] = []
    while (kind := type(node := plan.to_variant()).__name__) != "TableScan":
        (below,) = plan.inputs()
        match kind:
            # Of several limits the last one is of the table: those behind it take some of its rows.
            case "Limit":
                skip, fetch = limits(node)
                if fetch is not None:
                    limit, order = skip + fetch, []
            case "Sort":
                fetch = node.get_fetch_val()
                if fetch is not None:
                    limit, order = fetch, [(_name(one.expr()), one.ascending(), one.nulls_first()) for one in node.sort_exprs()]
                elif limit is not None:
                    return None
            case "Projection":
                names = dict(renamed(one) for one in node.projections())
                order = [(_name(names[name]), ascends, has_nulls) for name, ascends, has_nulls in order]
            case "Filter":
                is_last = type(below.to_variant()).__name__ == "TableScan"
                if limit is not None and not (is_last and all(condition(one, schemas[table]).is_exact for one in conjuncts(node.predicate()))):
                    return None
            case "SubqueryAlias":
                pass
            case _:
                return None
        plan = below
    if limit is None or (order and limit > _ORDERED_MAX) or not all(has_order(schemas[table].field(name).type) for name, *_ in order):
        return None
    return First(table, limit, tuple((name, ascends) for name, ascends, _ in order), tuple(name for name, _, has_nulls in order if has_nulls))


def _name(expression: Any) -> str:
    if expression.variant_name() != "Column":
        raise NotPushed("an order by what is computed")
    return str(expression.to_variant().name())


def limits(node: Any) -> tuple[int, int | None]:
    """The rows that a Limit leaves out, and the most that come then.

    :raises NotPushed: they are not numbers.
    """
    numbers = [None if one is None else one.python_value().as_py() for one in (node.skip(), node.fetch())]
    if any(one is not None and type(one) is not int for one in numbers):
        raise NotPushed("a limit that is computed")
    return numbers[0] or 0, numbers[1]
