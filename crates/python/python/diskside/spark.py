"""Files on Diskside servers as a data source of Spark: columns and rows that are not asked for stay where they are.

>>> spark = SparkSession.builder.config("spark.jars", diskside.spark.jar()).getOrCreate()
>>> spark.read.format("diskside").load("diskside://server/data/lineitem.parquet").filter("l_quantity < 24").count()

Without the jar, the same name is a source in Python, which Spark tells less of a query:

>>> diskside.spark.register(spark)
>>> read = spark.read.format("diskside").option("columns", "l_orderkey").option("where", "l_quantity < 24")
>>> read.load("diskside://server/data/lineitem.parquet").count()

Both need the package ``pyspark``, from version 4.1 on, and a Java runtime; the jar needs version 4.3.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ._condition import Column, NotPushed
from ._default import default_session
from ._names import size
from ._scan import Scan
from ._scan_parts import Conjunct, ScanPart, parts
from ._sql_expression import OTHERWISE, Condition
from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

#: Options that are those of :meth:`diskside.Session.scan`.
_TEXTS = ("columns", "where", "aggregate", "by", "input", "delimiter", "types", "place")
_TRUTHS = ("header", "partitions")
_JAR = "diskside-spark.jar"
#: Bytes of a partition: each costs Spark about as much time as a scan of so many.
_TARGET = "128MiB"
_COMPARISONS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}
_PATTERNS = {"StringStartsWith": ("", "%"), "StringEndsWith": ("%", ""), "StringContains": ("%", "%")}


def jar() -> str:
    """The path of the data source for Spark's Java side, for the setting ``spark.jars`` of a session that is not there yet.

    Spark tells it the columns, filters, aggregates and limits of each query. It reads by the command ``diskside``, which has to be
    installed on the executors.
    """
    beside = Path(__file__).with_name(_JAR)
    path = Path(os.environ.get("DISKSIDE_SPARK_JAR") or beside)
    if not path.is_file():
        raise UsageError(f"there is no {path}: `make spark` builds {_JAR}, and the environment variable DISKSIDE_SPARK_JAR says where it is")
    return str(path.resolve())


def register(spark: SparkSession) -> None:
    """Has ``spark.read.format("diskside")`` read files of servers: by the source in Python, unless the session has :func:`jar`."""
    if _has_jar(spark):
        return
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(DisksideDataSource)


def _has_jar(spark: SparkSession) -> bool:
    # A session of Spark Connect has its Java side elsewhere.
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return False
    from py4j.protocol import Py4JJavaError

    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass("io.diskside.spark.DisksideSource")
    except Py4JJavaError:
        return False
    return True


class DisksideDataSource(DataSource):  # type: ignore[misc]
    """The source behind ``spark.read.format("diskside")``: a file, a directory or a pattern, as :meth:`diskside.Session.scan` takes them.

    Spark does not say which columns a query uses: the option ``columns``, or ``schema(...)``, does. Further options are ``where``,
    ``aggregate``, ``by``, ``input``, ``delimiter``, ``header``, ``types``, ``place`` and ``partitions``, as those of a scan; ``target``,
    the bytes of a partition; and ``filters="once"``: filters of Spark's are done at the server, too. Then the DataFrame is for one query
    in which it is once: Spark 4.3 reads with the last filters that it said for a DataFrame, also where it is used without them.
    """

    @classmethod
    def name(cls) -> str:
        return "diskside"

    def schema(self) -> StructType:
        return from_arrow_schema(_known(self._scan().schema), prefer_timestamp_ntz=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = dict(self.options)
        if (how := options.get("filters")) not in (None, "once"):
            raise UsageError(f"filters: {how!r} is not 'once'")
        return _Reader(options, schema) if how is None else _ReaderOnce(options, schema)

    def _scan(self) -> Scan:
        return _scan(dict(self.options))


def _scan(options: dict[str, str]) -> Scan:
    unknown = options.keys() - {*_TEXTS, *_TRUTHS, "path", "target", "filters"}
    if unknown:
        raise UsageError(f"{min(unknown)}: no such option; there are {', '.join((*_TEXTS, *_TRUTHS))}, target and filters")
    if "path" not in options:
        raise UsageError("load() takes a URL, such as diskside://HOST/EXPORT/PATH")
    given: dict[str, Any] = {name: options[name] for name in _TEXTS if name in options}
    for name in _TRUTHS:
        if name in options:
            given[name] = {"true": True, "false": False}.get(options[name].lower(), options[name])
    return default_session().scan(options["path"], **given)


def _arrow(schema: StructType) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    # Earlier versions take UTC, and no zone.
    except TypeError:
        return to_arrow_schema(schema)


def _known(schema: pa.Schema) -> pa.Schema:
    """Columns of types that Spark has, and that hold all of their values."""
    import pyarrow as pa
    import pyarrow.types as types

    unsigned = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}

    def known(kind: pa.DataType) -> pa.DataType:
        if types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if types.is_float16(kind):
            return pa.float32()
        if types.is_dictionary(kind):
            return known(kind.value_type)
        return unsigned.get(kind, pa.date32() if types.is_date64(kind) else kind)

    return pa.schema([pa.field(field.name, known(field.type)) for field in schema])


class _Partition(InputPartition):  # type: ignore[misc]
    def __init__(self, part: ScanPart) -> None:
        super().__init__(part)


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: list[Conjunct] = []

    def partitions(self) -> list[InputPartition]:
        return [_Partition(part) for part in parts(_scan(self._options), size("target", self._options.get("target", _TARGET)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: ScanPart = partition.value
        yield from part.rows(_arrow(self._schema), self._conditions)


class _ReaderOnce(_Reader):
    """A reader of one query, which Spark says its filters."""

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        found = _scan(self._options)
        # Sums are filtered by Spark.
        columns = {field.name: Column(field) for field in (found.schema if found._gives_rows() else [])}
        for one in filters:
            try:
                self._conditions.append(Conjunct(_attribute(one), condition(one, columns).wide))
            except NotPushed:
                pass
        # Spark applies all of them once more: for it NaN is a number.
        return filters


def _attribute(one: Any) -> str:
    """The column that a filter is of."""
    if isinstance(one, datasource.Not):
        return _attribute(one.child)
    if len(one.attribute) != 1:
        raise NotPushed("a part of a column")
    return str(one.attribute[0])


def condition(one: Any, columns: dict[str, Column]) -> Condition:
    """A filter of Spark as a scan takes it.

    :raises NotPushed: a scan does not do it.
    """
    name, kind = _attribute(one), type(one).__name__
    if kind == "Not":
        inner = condition(one.child, columns)
        return Condition(f"not ({inner.wide})", f"not ({inner.strict})")
    if name not in columns:
        raise NotPushed(f"{name} is no column of files")
    column = columns[name]
    if kind == "IsNull" or (kind == "EqualNullSafe" and one.value is None):
        return _exact(f"{column.text} is null")
    if kind == "IsNotNull":
        return _exact(f"{column.text} is not null")
    if kind == "EqualNullSafe":
        return _exact(f"{column.compared('=', one.value)} and {column.text} is not null")
    if kind == "In":
        return _exact(column.among(one.value))
    if kind in _PATTERNS:
        before, after = _PATTERNS[kind]
        return _exact(column.like(before, one.value, after))
    if (sign := _COMPARISONS.get(kind)) is None:
        raise NotPushed(f"{kind} is not done")
    said = column.compared(sign, one.value)
    if column.is_float and sign in OTHERWISE:
        return Condition(said, f"not ({column.compared(OTHERWISE[sign], one.value)})")
    return _exact(said)


def _exact(text: str) -> Condition:
    return Condition(text, text)
