"""DataFusion as the planner of queries: what a query may be asked in, and whose fault an error is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import DisksideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import datafusion

#: DataFusion's own catalogue and schema, in which all tables are.
_QUALIFIED = re.compile(r"^(?:datafusion\.)?public\.")


class Read(NamedTuple):
    """A table as a query reads it."""

    #: The name by which the table was given.
    table: str
    #: The columns that the query knows of, in its order; None: all.
    columns: list[str] | None


class Asked(ABC):
    """A query, in a language that DataFusion plans."""

    #: The name of the language in messages.
    kind: str
    #: The query as it was given.
    given: str | bytes

    @abstractmethod
    def reads(self, tables: Collection[str]) -> dict[str, Read]:
        """The tables that it reads, by the names that its plan has for them.

        :raises UsageError: one of them was not given.
        """

    @abstractmethod
    def frame(self, context: datafusion.SessionContext) -> datafusion.DataFrame:
        """Plans it over the tables of a context.

        :raises UsageError: DataFusion does not plan it.
        """


class Sql(Asked):
    """A query as a text of SQL."""

    kind = "sql"

    def __init__(self, query: str) -> None:
        if not isinstance(query, str):
            raise UsageError(f"sql: {query!r} is no text")
        self.given = self._text = query

    def reads(self, tables: Collection[str]) -> dict[str, Read]:
        return {name: Read(name, None) for name in tables}

    def frame(self, context: datafusion.SessionContext) -> datafusion.DataFrame:
        import datafusion

        only_queries = datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
        with said_by(self.kind):
            return context.sql_with_options(self._text, only_queries)


def is_failure(error: BaseException) -> bool:
    """Whether DataFusion failed, and not the program was interrupted: a panic of it is none of Python's exceptions."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextmanager
def said_by(kind: str) -> Iterator[None]:
    """Errors of DataFusion, which has one class for all that may be wrong, as those of a query."""
    try:
        yield
    except DisksideError:
        raise
    except BaseException as error:
        if not is_failure(error):
            raise
        raise UsageError(f"{kind}: {error}") from None


@contextmanager
def perhaps() -> Iterator[None]:
    """Looks at a plan, for what may be pushed: a plan of another kind, or a step that DataFusion does not show to Python, ends the look."""
    try:
        yield
    except BaseException as error:
        if not is_failure(error):
            raise


def tables_of(plan: Any) -> list[str]:
    """The tables that are scanned, as often as they are; those within expressions, too, which plans do not show otherwise.

    A table is the same by any of its names. A recursive query reads again and again what it has found, which is shown as a table, and not
    by which name: there all tables count once more, so that none is taken for one that is read once.
    """
    shown = plan.display_indent()
    names = [_QUALIFIED.sub("", name) for name in re.findall(r"^ *TableScan: (.*?)(?: projection=.*)?$", shown, re.MULTILINE)]
    return names * 2 if re.search(r"^ *RecursiveQuery: ", shown, re.MULTILINE) else names
