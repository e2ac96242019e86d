"""SQL over scanned tables: DataFusion plans it, servers do their part, and DataFusion computes the rest of what comes.

A query is planned over empty tables first. What its plan does with a table right after reading it is told to the scan of the table; if the
plan sums up one table, and a scan gives the same sums, it does. Otherwise the query is computed over the rows that scans give. All its
conditions are computed once more there, so a scan may give rows too many, but none too few.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ._arrow_rows import ArrowRows
from ._batches import Batches
from ._condition import NotPushed, all_of, cheapest
from ._scan import Scan, quoted
from ._sql_aggregate import Aggregates, aggregates
from ._sql_expression import condition, conjuncts
from ._sql_first import First, first, tables_of
from .errors import ChangedError, DisksideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    import datafusion
    import pyarrow as pa

    from ._session import Session

#: Rows that no table has: a limit of so many does nothing, but DataFusion takes no condition below a limit. Its own way to tell a
#: pyarrow dataset of conditions has pyarrow compute them, for which NaN is another number.
_ROWS_MAX = (1 << 63) - 1
#: Functions whose results differ from the plan to the query.
_OF_NOW = re.compile(r"\b(now|today|current_\w+)\(", re.IGNORECASE)


class Query(ArrowRows):
    """A query of SQL over tables that are scanned. :func:`diskside.sql` makes one.

    Nothing is read before its result is asked for, and each time that it is asked for it is planned and computed again.
    """

    def __init__(self, session: Session, query: str, tables: Mapping[str, Any]) -> None:
        if not isinstance(query, str):
            raise UsageError(f"sql: {query!r} is no text")
        self.query = query
        self._sources: dict[str, Scan] = {}
        self._others: dict[str, Any] = {}
        for name, table in tables.items():
            if isinstance(table, (str, os.PathLike, list, tuple)):
                table = session.scan(table)
            if isinstance(table, Scan) and table._gives_rows():
                self._sources[name] = table
            elif hasattr(table, "__arrow_c_stream__"):
                self._others[name] = table
            else:
                raise UsageError(f"{name}: {table!r} is no table: give files, a scan, or a table of pyarrow, pandas or Polars")
        #: The scans by which its result was made, when it was asked for last: see their ``report``.
        self.scans: list[Scan] = []

    def batches(self) -> Batches:
        """Computes it, and gives record batches as they come. Close them to stop the scans."""
        return self._plan().run()

    def explain(self) -> str:
        """The scans that it would take, a line each, and DataFusion's plan. Files are looked at, and no row is read."""
        return self._plan().told()

    def _plan(self) -> _Plan:
        return _Plan(self)

    def __repr__(self) -> str:
        return f"<diskside.Query {self.query!r}>"


class _Plan:
    """A query that is planned."""

    def __init__(self, of: Query) -> None:
        self._of = of
        self._schemas = {name: _plain(scan.schema) for name, scan in of._sources.items()}
        context = _context(of._others)
        for name, schema in self._schemas.items():
            context.register_record_batches(quoted(name), [[_empty(schema)]])
        frame = _planned(context, of.query)
        try:
            self._text = frame.optimized_logical_plan().display_indent()
        # A value that is none of its type is found out here.
        except Exception as error:
            raise UsageError(f"sql: {error}") from None
        # The view of a plan that shows its parts.
        plan = frame.df.optimized_logical_plan()
        is_of_now = _OF_NOW.search(frame.logical_plan().display_indent()) is not None
        self._aggregates: Aggregates | None = None
        self._pushed: dict[str, str] = {}
        self._first: First | None = None
        try:
            self._aggregates = aggregates(plan, self._schemas, context)
        # Another kind of plan, or a step that DataFusion does not show to Python.
        except Exception:
            pass
        # Also where there are sums: a server may fail to compute them.
        if not is_of_now:
            self._pushed = _pushed(plan, self._schemas)
            self._first = first(plan, self._schemas)

    def run(self) -> Batches:
        """The result as it comes."""
        self._of.scans = []
        if self._aggregates is not None:
            try:
                return self._summed(self._aggregates)
            except ChangedError:
                raise
            # More groups than fit, or numbers that overflow: DataFusion says what there is to say of it.
            except (NotPushed, DisksideError):
                self._of.scans = []
        if self._first is not None and self._first.nulls_first and self._has_nulls(self._first):
            self._first = None
        context, failed = _context(self._of._others), list[BaseException]()
        for at, (name, scan) in enumerate(self._of._sources.items()):
            _register(context, name, f"{name} {at}", _Rows(self, scan, name, failed))
        return _reader(_planned(context, self._of.query), failed)

    def _summed(self, plan: Aggregates) -> Batches:
        source = self._of._sources[plan.table]
        check = plan.check(source)
        scan = plan.scan(source)
        self._of.scans = [scan] if check is None else [check, scan]
        found = scan.arrow()
        if check is not None and check.arrow().column(0)[0].as_py() != plan.rows_of(found):
            raise NotPushed("NaN")
        sums = plan.table_of(found)
        try:
            return _reader(plan.finished(sums, _context({})), [])
        # A step that does not bind to the sums alone.
        except Exception as error:
            raise NotPushed(str(error)) from None

    def _has_nulls(self, of: First) -> bool:
        """Whether there are rows that the query has first and a scan last."""
        nulls = of.nulls(self._pushed.get(of.table))
        check = self._of._sources[of.table]._other(columns=[], where=nulls, aggregate="count(*)")
        self._of.scans.append(check)
        return bool(check.arrow().column(0)[0].as_py())

    def scan(self, source: Scan, name: str, columns: list[str]) -> Scan:
        """The scan of a table."""
        pushed = self._pushed.get(name)
        limit = {} if self._first is None else self._first.options()
        where = {} if pushed is None else {"where": pushed}
        # Without a column rows are counted, by one.
        return source._other(columns=columns or cheapest(self._schemas[name]), **where, **limit)

    def told(self) -> str:
        """The plan as a text."""
        lines = []
        if (of := self._aggregates) is not None:
            source = self._of._sources[of.table]
            lines = [f"{of.table}: {scan!r}" for scan in (of.check(source), of.scan(source)) if scan is not None]
        else:
            wanted: dict[str, set[str]] = {}
            for name, columns in re.findall(r"TableScan: (.*?) projection=\[(.*?)\]", self._text):
                wanted.setdefault(name, set()).update(columns.split(", ") if columns else [])
            for name, found in wanted.items():
                if name in self._schemas:
                    lines.append(f"{name}: {self.scan(self._of._sources[name], name, [one for one in self._schemas[name].names if one in found])!r}")
        return "\n".join([*lines, self._text])


def _context(others: Mapping[str, Any]) -> datafusion.SessionContext:
    try:
        import datafusion
    except ImportError:
        raise UsageError("sql takes DataFusion: pip install 'diskside[sql]'") from None
    # One partition: rows come in the order of the files, and few are read ahead of a limit.
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    for name, table in others.items():
        context.from_arrow(table, quoted(name))
    return context


def _planned(context: datafusion.SessionContext, query: str) -> datafusion.DataFrame:
    import datafusion

    only_queries = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    try:
        return context.sql_with_options(query, only_queries)
    # It has one class for all that may be wrong.
    except Exception as error:
        raise UsageError(f"sql: {error}") from None


def _register(context: datafusion.SessionContext, name: str, hidden: str, rows: _Rows) -> None:
    from ._sql_rows import dataset

    context.register_dataset(quoted(hidden), dataset(rows))
    context.register_view(quoted(name), context.table(quoted(hidden)).limit(_ROWS_MAX))


class _Rows:
    """The rows of a table, as often as a query reads them."""

    def __init__(self, plan: _Plan, source: Scan, name: str, failed: list[BaseException]) -> None:
        self.schema = plan._schemas[name]
        self._plan = plan
        self._source = source
        self._name = name
        self._failed = failed

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = pa.schema([self.schema.field(name) for name in columns])
        try:
            scan = self._plan.scan(self._source, self._name, columns)
            self._plan._of.scans.append(scan)
            # A query that has enough closes this generator, and that ends the scan.
            with scan.batches() as batches:
                for batch in batches:
                    rows = batch.select(columns)
                    yield pa.RecordBatch.from_arrays(rows.columns, schema=schema) if columns else rows
        except DisksideError as error:
            # DataFusion keeps the text alone.
            self._failed.append(error)
            raise


def _reader(frame: datafusion.DataFrame, failed: list[BaseException]) -> Batches:
    import pyarrow as pa

    # Batches may say that a column is never NULL, where the plan does not.
    schema = _plain(frame.schema())

    def batches() -> Generator[pa.RecordBatch]:
        try:
            for batch in frame.execute_stream():
                rows = batch.to_pyarrow()
                yield pa.RecordBatch.from_arrays(rows.columns, schema=schema)
        except DisksideError:
            raise
        except Exception as error:
            raise failed[0] if failed else UsageError(f"sql: {error}") from None

    rows = batches()
    return Batches(pa.RecordBatchReader.from_batches(schema, rows), rows.close)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Without notes; and any column may be NULL: that of another file may."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _pushed(plan: Any, schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """Conditions of the rows that a plan reads of tables. Where it reads one several times, any of their conditions is enough."""
    found: dict[str, list[str | None]] = {}

    def look(at: Any, predicate: Any) -> None:
        node = at.to_variant()
        if type(node).__name__ == "TableScan":
            if (name := node.table_name()) in schemas:
                found.setdefault(name, []).append(None if predicate is None else _wide(predicate, schemas[name]))
            return
        below = node.predicate() if type(node).__name__ == "Filter" else None
        for inner in at.inputs():
            look(inner, below)

    try:
        look(plan, None)
    # A step that DataFusion does not show to Python.
    except Exception:
        return {}
    pushed = {}
    scanned = tables_of(plan)
    for name, conditions in found.items():
        known = [one for one in conditions if one is not None]
        # Those within expressions are not among them.
        if len(known) == len(conditions) == scanned.count(name):
            pushed[name] = known[0] if len(known) == 1 else " or ".join(f"({one})" for one in dict.fromkeys(known))
    return pushed


def _wide(predicate: Any, schema: pa.Schema) -> str | None:
    """A condition of all rows that a predicate selects, as near as a scan can say it; None: there is none."""
    parts = []
    for conjunct in conjuncts(predicate):
        try:
            parts.append(condition(conjunct, schema).wide)
        except NotPushed:
            pass
    return all_of(parts)
