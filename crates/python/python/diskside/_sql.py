"""Queries over scanned tables: DataFusion plans them, servers do their part, and DataFusion computes the rest of what comes.

A query, as SQL or as a plan of Substrait, is planned over empty tables first. What its plan does with a table right after reading it is told to the scan of the table; if the
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
from ._planner import is_failure, perhaps, said_by, tables_of
from ._scan import Scan, quoted
from ._sql_aggregate import Aggregates, aggregates
from ._sql_expression import condition, conjuncts
from ._sql_first import First, first
from ._sql_joins import Join, joins
from ._sql_keys import Keys
from .errors import ChangedError, DisksideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import datafusion
    import pyarrow as pa

    from ._planner import Asked
    from ._session import Session

#: Functions whose results differ from the plan to the query.
_OF_NOW = re.compile(r"\b(now|today|current_\w+)\(", re.IGNORECASE)


class Query(ArrowRows):
    """A query over tables that are scanned. :func:`diskside.sql` and :func:`diskside.substrait` make one.

    Nothing is read before its result is asked for, and each time that it is asked for it is planned and computed again.
    """

    def __init__(self, session: Session, asked: Asked, tables: Mapping[str, Any]) -> None:
        #: The query as it was given.
        self.query = asked.given
        self._asked = asked
        given = {name: _table(session, name, table) for name, table in tables.items()}
        self._reads = asked.reads(given)
        tables = {name: given[read.table] for name, read in self._reads.items()}
        self._sources = {name: table for name, table in tables.items() if _is_scanned(table)}
        self._others = {name: table for name, table in tables.items() if not _is_scanned(table)}
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
        shown = repr(self.query) if isinstance(self.query, str) else f"of a plan of {len(self.query)} bytes"
        return f"<diskside.Query {shown}>"


def _table(session: Session, name: str, table: Any) -> Any:
    """A table that a query is of: a scan of rows, or what gives Arrow data."""
    if isinstance(table, (str, os.PathLike, list, tuple)):
        table = session.scan(table)
    if _is_scanned(table) or hasattr(table, "__arrow_c_stream__"):
        return table
    raise UsageError(f"{name}: {table!r} is no table: give files, a scan, or a table of pyarrow, pandas or Polars")


def _is_scanned(table: Any) -> bool:
    return isinstance(table, Scan) and table._gives_rows()


class _Plan:
    """A query that is planned."""

    def __init__(self, of: Query) -> None:
        self._of = of
        self._schemas = _schemas(of)
        context = _context(of)
        for name, schema in self._schemas.items():
            context.register_record_batches(quoted(name), [[_empty(schema)]])
        frame = of._asked.frame(context)
        with said_by(of._asked.kind):
            # A value that is none of its type is found out here.
            self._text = frame.optimized_logical_plan().display_indent()
            # The view of a plan that shows its parts.
            plan = frame.df.optimized_logical_plan()
            is_of_now = _OF_NOW.search(frame.logical_plan().display_indent()) is not None
        self._aggregates: Aggregates | None = None
        self._pushed: dict[str, str] = {}
        self._first: First | None = None
        self._joins: list[Join] = []
        with perhaps():
            self._aggregates = aggregates(plan, self._schemas, context)
        # Also where there are sums: a server may fail to compute them.
        if not is_of_now:
            self._pushed = _pushed(plan, self._schemas)
            with perhaps():
                self._first = first(plan, self._schemas)
            with perhaps():
                self._joins = joins(plan, self._schemas | _schemas_here(of))

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
        from ._sql_rows import Rows, register

        context, failed, keys = _context(self._of), list[BaseException](), self._keys()
        for at, name in enumerate(self._of._sources):
            register(context, name, f"{name} {at}", Rows(self, keys, name, self._schemas[name], failed))
        return self._reader(context, self._of._asked.frame(context), failed, keys.close)

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
            context = _session()
            return self._reader(context, plan.finished(sums, context), [], lambda: None)
        # A step that does not bind to the sums alone.
        except BaseException as error:
            if not is_failure(error):
                raise
            raise NotPushed(str(error)) from None

    def _has_nulls(self, of: First) -> bool:
        """Whether there are rows that the query has first and a scan last."""
        nulls = of.nulls(self._pushed.get(of.table))
        check = self._of._sources[of.table]._other(columns=[], where=nulls, aggregate="count(*)")
        self._of.scans.append(check)
        return bool(check.arrow().column(0)[0].as_py())

    def scan(self, name: str, columns: list[str], keys: str | None = None) -> Scan:
        """The scan of a table.

        :param keys: a condition that only rows without a partner in a join do not fulfil.
        """
        parts = [one for one in (self._pushed.get(name), keys) if one is not None]
        limit = {} if self._first is None else self._first.options()
        where = {"where": parts[0] if len(parts) == 1 else all_of(parts)} if parts else {}
        # Without a column rows are counted, by one.
        source: Scan = self._of._sources[name]
        return source._other(columns=columns or cheapest(self._schemas[name]), **where, **limit)

    def _columns(self) -> dict[str, list[str]]:
        """The columns that the query reads of each table that is scanned, in their order there."""
        wanted: dict[str, set[str]] = {}
        for name, columns in re.findall(r"TableScan: (.*?) projection=\[(.*?)\]", self._text):
            wanted.setdefault(name, set()).update(columns.split(", ") if columns else [])
        return {name: [one for one in self._schemas[name].names if one in found] for name, found in wanted.items() if name in self._schemas}

    def _keys(self) -> Keys:
        """The joins for which tables are read in part."""
        import pyarrow as pa

        # Others are computed for it, and some can be read once alone.
        others = self._of._others
        here = {join.source: pa.table(others[join.source]) for join in self._joins if join.source in others}
        return Keys(self._joins, self._of._sources, here, self._is_filtered, self._columns())

    def _is_filtered(self, name: str) -> bool:
        return name in self._pushed or (name in self._of._sources and self._of._sources[name]._wanted["where"] is not None)

    def _reader(
        self, context: datafusion.SessionContext, frame: datafusion.DataFrame, failed: list[BaseException], close: Callable[[], None]
    ) -> Batches:
        import pyarrow as pa

        # Types of unions and of `case` are known once the plan is analysed: before, a column has the type of the first part. Batches may
        # say that a column is never NULL, where the plan does not.
        schema = _plain(context.create_dataframe_from_logical_plan(frame.optimized_logical_plan()).schema())

        def batches() -> Generator[pa.RecordBatch]:
            try:
                with said_by(self._of._asked.kind):
                    for batch in frame.execute_stream():
                        rows = batch.to_pyarrow()
                        yield pa.RecordBatch.from_arrays(rows.columns, schema=schema)
            except UsageError as error:
                raise failed[0] if failed else error from None
            finally:
                close()

        rows = batches()
        return Batches(pa.RecordBatchReader.from_batches(schema, rows), rows.close)

    def told(self) -> str:
        """The plan as a text."""
        lines = []
        if (of := self._aggregates) is not None:
            source = self._of._sources[of.table]
            lines = [f"{of.table}: {scan!r}" for scan in (of.check(source), of.scan(source)) if scan is not None]
        else:
            lines = [f"{name}: {self.scan(name, columns)!r}" for name, columns in self._columns().items()]
            lines += [str(join) for join in self._keys().joins]
        return "\n".join([*lines, self._text])


def _session() -> datafusion.SessionContext:
    try:
        import datafusion
    except ImportError:
        raise UsageError("sql takes DataFusion: pip install 'diskside[sql]'") from None
    # One partition: rows come in the order of the files, and few are read ahead of a limit.
    return datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))


def _context(of: Query) -> datafusion.SessionContext:
    """A session that has the tables that are not scanned."""
    import pyarrow as pa

    context = _session()
    for name, given in of._others.items():
        # Read here, a scan that fails says why as it does elsewhere.
        table = given.arrow() if isinstance(given, Scan) else given
        columns = of._reads[name].columns
        if columns is not None:
            rows = pa.table(table)
            _demand(name, columns, rows.schema)
            # Texts and notes as DataFusion has them of tables that are scanned.
            table = rows.select(columns).cast(_plain(rows.select(columns).schema))
        context.from_arrow(table, quoted(name))
    return context


def _schemas(of: Query) -> dict[str, pa.Schema]:
    """The columns that the query knows of, of each table that is scanned."""
    import pyarrow as pa

    whole: dict[str, pa.Schema] = {}
    found = {}
    for name, scan in of._sources.items():
        table, columns = of._reads[name]
        if table not in whole:
            whole[table] = _plain(scan.schema)
        if columns is not None:
            _demand(table, columns, whole[table])
        found[name] = whole[table] if columns is None else pa.schema([whole[table].field(column) for column in columns])
    return found


def _schemas_here(of: Query) -> dict[str, pa.Schema]:
    """Those of tables that are not scanned, and are in memory."""
    import pyarrow as pa

    return {name: _plain(pa.table(table).schema) for name, table in of._others.items() if hasattr(table, "shape")}


def _demand(table: str, columns: list[str], schema: pa.Schema) -> None:
    if missing := [name for name in columns if name not in schema.names]:
        raise UsageError(f"{table}: the query reads a column {missing[0]!r}; it has {', '.join(schema.names)}")


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

    with perhaps():
        look(plan, None)
        return _all_of(found, tables_of(plan))
    return {}


def _all_of(found: Mapping[str, list[str | None]], scanned: list[str]) -> dict[str, str]:
    """A condition for each table of which each scan has one."""
    pushed = {}
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
