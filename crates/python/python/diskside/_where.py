"""Conditions of scans that are not texts: expressions of pyarrow and of Substrait. Which condition one is depends on the columns' types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


class Filter:
    """An expression that becomes a condition once the columns are known."""

    def __init__(self, expression: Any) -> None:
        self._expression = expression

    def condition(self, schema: pa.Schema) -> str:
        """The condition.

        :raises UsageError: the expression has a part that a scan does not do.
        """
        from ._condition import NoColumn, NotPushed

        try:
            if isinstance(self._expression, bytes):
                from . import _substrait_expression

                return _substrait_expression.condition(self._expression, schema)
            from . import _expression

            return _expression.condition(self._expression, schema)
        except NoColumn as error:
            named = f"it has {', '.join(schema.names)}; one whose name is no plain word is named in a condition as text, in double quotes"
            raise UsageError(f"where: {self!r}: {error}; {named}") from None
        except NotPushed as error:
            instead = "a scan gives exactly the rows of its condition, so take a wider one, and filter its table by the rest"
            raise UsageError(f"where: {self!r} is not done at a server: {error}; {instead}") from None

    def __repr__(self) -> str:
        if isinstance(self._expression, bytes):
            return f"<an expression of Substrait, {len(self._expression)} bytes>"
        return str(self._expression)


def filter_of(where: Any) -> tuple[str | None, Filter | None]:
    """What ``where`` is: a text, or a filter."""
    if where is None or isinstance(where, str):
        return where, None
    # An expression of pyarrow has this method, and pyarrow need not be here for other scans.
    if hasattr(where, "to_substrait"):
        return None, Filter(where)
    try:
        return None, Filter(bytes(memoryview(where)))
    except TypeError:
        example = "write a condition as SQL has it, such as 'price < 2.5', or an expression of pyarrow, such as pc.field('price') < 2.5"
        raise UsageError(f"where: {where!r} is no condition; {example}") from None
