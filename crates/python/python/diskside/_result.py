"""What came of a function, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from . import _diskside
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import pandas as pd
    import pyarrow as pa

    from ._function import Function

#: Rows that are shown.
_SHOWN = 10


class Result(_diskside.Ran):
    """The result of a run: bytes, and rows if the function says what they are.

    A result of one row has its members as attributes: ``result.count``. ``result["bytes"]`` is a member, too, whatever it is
    called; of several rows, a list of its values. Rows come by iteration, by number and in slices, as dictionaries:
    ``for row in result``, ``result[-1]``, ``len(result)``. ``memoryview(result)`` and ``numpy.frombuffer(result)`` look at the
    bytes where they are.
    """

    function: Function
    """The function that made it."""

    def __new__(cls, ran: _diskside.Ran, function: Function) -> Result:
        made: Result = super().__new__(cls, ran)
        return made

    def __init__(self, ran: _diskside.Ran, function: Function) -> None:
        self.function = function

    @property
    def text(self) -> str:
        """Its bytes as UTF-8; what is none shows as U+FFFD."""
        return self.bytes.decode(errors="replace")

    def __len__(self) -> int:
        """How many rows it has.

        :raises UsageError: it is not made of rows; ``nbytes`` says how long it is.
        """
        fields = self.function._native.fields
        if fields is None or self.nbytes % fields[1]:
            raise self._no_rows()
        return self.nbytes // fields[1]

    def __bool__(self) -> bool:
        """Whether there is anything in it."""
        return self.nbytes > 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Its rows: of each the members by name.

        :raises UsageError: it is not made of rows.
        """
        names = self.function.columns
        return [dict(zip(names, row, strict=True)) for row in self._tuples()]

    def columns(self) -> dict[str, list[Any]]:
        """The members by name: of each the values of all rows."""
        rows = self._tuples()
        return {name: [row[at] for row in rows] for at, name in enumerate(self.function.columns)}

    def numpy(self) -> np.ndarray[Any, Any]:
        """Its rows as a structured array of shape (rows,), read-only: the result's own memory, nothing is copied.

        :raises UsageError: it is not made of rows.
        """
        import numpy

        dtype = self.function.dtype
        if self.nbytes % dtype.itemsize:
            raise self._no_rows()
        rows: np.ndarray[Any, Any] = numpy.frombuffer(memoryview(self), dtype)
        return rows

    def arrow(self) -> pa.Table:
        """Its rows as an Arrow table, a column for each member. Text becomes strings, arrays fixed-size lists."""
        import pyarrow

        return pyarrow.table(self)

    def pandas(self) -> pd.DataFrame:
        """Its rows as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.columns())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Its rows, for all that takes Arrow streams: ``polars.DataFrame(result)``, ``pyarrow.table(result)``."""
        stream = self._arrow_stream(self.function._native)
        if stream is None:
            raise self._no_rows()
        return stream

    @property
    def explain(self) -> str:
        """Where it ran and why: a line for each file, or part of one, with what was expected of each side."""
        lines: dict[str, None] = {}
        for part in self.parts:
            lines[f"{part['name']}: {part['why']}"] = None
        return "\n".join(lines)

    @overload
    def __getitem__(self, name: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, name: slice) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, name: str) -> Any: ...
    def __getitem__(self, name: str | int | slice) -> Any:
        if not isinstance(name, str):
            return self.rows()[name]
        names = self.function.columns
        if name not in names:
            has = ", ".join(names) or "none: it is bytes"
            raise KeyError(f"{self.function.name} gives no `{name}`; it gives {has}")
        values = [row[names.index(name)] for row in self._tuples()]
        return values[0] if len(values) == 1 else values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "function":
            raise AttributeError(name)
        names = self.function.columns
        if name not in names:
            has = ", ".join(names) or "no named members: use result.bytes"
            raise AttributeError(f"the result of {self.function.name} has no `{name}`; it has {has}")
        rows = self._tuples()
        if len(rows) != 1:
            raise AttributeError(f"{name}: the result has {len(rows)} rows; use result[{name!r}], rows(), numpy() or pandas()")
        return rows[0][names.index(name)]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.function.columns]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_bytes, (self.bytes, self.function)

    def __repr__(self) -> str:
        try:
            rows = self.rows()
        except UsageError:
            return f"<diskside.Result of {self.function.name}: {self.nbytes} bytes>"
        if len(rows) == 1:
            members = ", ".join(f"{name}={value!r}" for name, value in rows[0].items())
            return f"<diskside.Result of {self.function.name}: {members}>"
        return f"<diskside.Result of {self.function.name}: {len(rows)} rows of {', '.join(self.function.columns)}>"

    def _repr_html_(self) -> str:
        from html import escape

        try:
            rows = self.rows()
        except UsageError:
            shown = f"<pre>{escape(self.text[:2000])}</pre>"
        else:
            head = "".join(f"<th>{escape(name)}</th>" for name in self.function.columns)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row.values()) + "</tr>" for row in rows[:_SHOWN]
            )
            more = f"<p>{len(rows) - _SHOWN} more rows</p>" if len(rows) > _SHOWN else ""
            shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
        told = "<br>".join(escape(line) for line in self.explain.split("\n"))
        return f"{shown}<p><small>{told}</small></p>"

    def _tuples(self) -> list[tuple[Any, ...]]:
        rows = self._rows(self.function._native)
        if rows is None:
            raise self._no_rows()
        return rows

    def _no_rows(self) -> UsageError:
        return UsageError(f"{self.function.name}: its result of {self.nbytes} bytes is not made of rows; use result.bytes or result.text")


def _of_bytes(result: bytes, function: Function) -> Result:
    return Result(_diskside.Ran.of_bytes(result), function)
