"""Tables of random columns, written in random ways: types, shares of NULL, row groups, pages, encodings and codecs, beside DuckDB and pyarrow."""

import contextlib
import datetime
import decimal
import sys

import by_pyarrow
import duckdb
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from everywhere import Everywhere

# Also longer than the twelve bytes that a view has in itself.
WORDS = ["", "a", "fox", "the fox", "a_b", "50%", "\u00e9t\u00e9", "\u65e5\u672c\u8a9e", "x" * 13, "y" * 300, "zebra", "foxes and dogs"]
PATTERNS = ["%fox%", "fox%", "%s", "_ox", "%x_a%", "fox", "%", "___", "\u00e9%", "%\u672c%"]
CODECS = ["none", "snappy", "gzip", "zstd", "lz4"]
# 1994-01-01.
DAY = datetime.date(1994, 1, 1)
MOMENT = datetime.datetime(1994, 1, 1, 12)
WIDTHS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63, pa.uint8(): 8, pa.uint16(): 16, pa.uint32(): 32, pa.uint64(): 64}
UNITS = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


def check(diskside, server, rng, rounds, plans, query, rows_of):
    """Compares random plans over random tables, and gives how many there were."""
    compared = by_other = 0
    everywhere = Everywhere(diskside, server, rows_of)
    for number in range(rounds):
        columns = {f"c{at}": rng.choice(KINDS)(rng) for at in range(rng.randrange(3, 14))}
        columns["id"] = Integers(rng, pa.int64())
        rows = rng.choice([0, 1, 7, 300, 2500, 6000])
        arrays = {name: column.array(rng, rows) for name, column in columns.items()}
        arrays["id"] = pa.array(range(rows), pa.int64())
        found = pa.table(arrays)
        path = server.directory / f"schema{number}.parquet"
        options = parquet_options(rng, found)
        pq.write_table(found, path, **options)
        # DuckDB has the rows from memory: its own reader of Parquet gives other NULLs of some texts with delta encodings.
        duckdb.sql("create or replace table in_memory as select * from found")
        paths, plain = [path], by_pyarrow.plain(found)
        if rng.random() < 0.4:
            paths.append(arrow(rng, found, server.directory / f"schema{number}.{rng.choice(['arrow', 'stream'])}"))
        for _ in range(plans):
            chosen, wanted = rng.choice(paths), plan(rng, columns)
            try:
                ours, asked = everywhere.rows(chosen, wanted, rng), query(wanted, "in_memory")
                equal(ours, rows_of(duckdb.sql(asked).to_arrow_table()), f"{asked} over {chosen.name}: not as DuckDB has it")
                with contextlib.suppress(by_pyarrow.CannotSay):
                    equal(ours, rows_of(by_pyarrow.rows(plain, wanted)), f"{asked} over {chosen.name}: not as pyarrow has it")
                    by_other += 1
            except BaseException:
                print(f"scan: schema {number}: {found.schema}\n{rows} rows, {options}", file=sys.stderr)
                raise
            compared += 1
    # Some tables have one row group, some plans are not divided, and pyarrow has no words for others.
    done, least = (by_other, everywhere.on_both_sides, everywhere.in_parts), (compared // 2, compared // 10, compared // 8)
    if compared >= 40 and any(count < wanted for count, wanted in zip(done, least)):
        sys.exit(f"scan: of {compared} plans over random columns pyarrow, both sides and parts did {done}: at least {least} are expected")
    return compared


def equal(ours, theirs, told):
    if ours != theirs:
        first = next(((a, b) for a, b in zip(ours, theirs) if a != b), (len(ours), len(theirs)))
        sys.exit(f"scan: {told}: {first}")


class Integers:
    """Small ones, or any that the type has, which are not added."""

    def __init__(self, rng, kind=None):
        self.kind = kind or rng.choice(list(WIDTHS))
        self.is_small = rng.random() < 0.6
        self.is_counted = self.is_small and rng.random() < 0.3

    def array(self, rng, rows):
        low, high = self.bounds()
        if self.is_counted:
            return filled(rng, rows, self.kind, lambda row: row * high // rows)
        edges = [low, high, 0, 1]
        return filled(rng, rows, self.kind, lambda _: rng.choice(edges) if rng.random() < 0.1 else rng.randint(low, high))

    def bounds(self):
        signed, most = str(self.kind).startswith("int"), 2 ** WIDTHS[self.kind] - 1
        if self.is_small:
            most = min(most, 1000)
        return (-most - (not self.is_small) if signed else 0), most

    def conditions(self, rng, name):
        low, high = self.bounds()
        some = [rng.randint(low, high) for _ in range(3)] + [low, high]
        yield f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {rng.choice(some)}"
        yield f"{name} in ({rng.choice(some)}, {rng.choice(some)})"
        yield f"{name} between {min(some[:2])} and {max(some[:2])}"
        if self.is_small:
            yield f"{name} {rng.choice(['<', '>='])} {rng.choice(some)}.5"
            # DuckDB multiplies in the narrowest type that has both numbers.
            if self.kind not in (pa.int8(), pa.uint8(), pa.uint64()):
                yield f"{name} * {rng.randrange(-9, 10)} + 3 > {rng.choice(some)}"

    def sums(self, name):
        return [f"sum({name})", f"avg({name})", f"min({name})", f"max({name})"] if self.is_small else [f"min({name})", f"max({name})"]


class Decimals:
    def __init__(self, rng):
        self.precision = rng.choice([1, 4, 9, 10, 15, 18, 19, 28, 38])
        self.scale = rng.randrange(min(self.precision, 6))
        of = {9: pa.decimal32, 18: pa.decimal64}.get(self.precision, pa.decimal128) if rng.random() < 0.5 else pa.decimal128
        self.kind = of(self.precision, self.scale)
        # The sum of all rows has to have 38 digits.
        self.digits = min(self.precision, 30)

    def array(self, rng, rows):
        def value(_):
            digits = rng.randrange(10 ** rng.randrange(1, self.digits + 1))
            return decimal.Decimal(rng.choice([digits, -digits])).scaleb(-self.scale)

        return filled(rng, rows, self.kind, value)

    def conditions(self, rng, name):
        # DuckDB has room for no digit more than the column has.
        digits = rng.randrange(10 ** min(self.digits, 9))
        literal = f"{decimal.Decimal(digits).scaleb(-self.scale):f}"
        yield f"{name} {rng.choice(['=', '<>', '<', '<=', '>', '>='])} {rng.choice(['', '-'])}{literal}"
        yield f"{name} between -{literal} and {literal}"
        if self.precision <= 28:
            yield f"{name} > {literal}{'' if self.scale else '.'}5"
        if self.precision <= 15:
            yield f"{name} * 2 + 1.5 <= {literal}"

    def sums(self, name):
        return [f"sum({name})", f"avg({name})", f"min({name})", f"max({name})"]


class Floats:
    """Values whose sums are exact, or those that are not numbers, which are not added."""

    def __init__(self, rng):
        self.kind = rng.choice([pa.float32(), pa.float64()])
        self.is_clean = rng.random() < 0.5

    def array(self, rng, rows):
        odd = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, 2.0**-140, 2.0**120]
        return filled(rng, rows, self.kind, lambda _: rng.randrange(1, 4000) / 4 if self.is_clean else rng.choice(odd))

    def conditions(self, rng, name):
        # For DuckDB NaN is greater than all others.
        yield f"{name} {rng.choice(['=', '<>', '<', '<='])} {rng.choice(['0.0', '1.5', '-2.25', '250.25', '1e3'])}"
        yield f"{name} in (1.5, 2, 0)"

    def sums(self, name):
        return [f"sum({name})", f"avg({name})", f"min({name})", f"max({name})"] if self.is_clean else []


class Days:
    kind = pa.date32()

    def __init__(self, rng):
        self.step = rng.choice([0, 1, 10])

    def array(self, rng, rows):
        days = (lambda row: row // self.step) if self.step else (lambda _: rng.randrange(-9999, 9999))
        return filled(rng, rows, self.kind, lambda row: DAY + datetime.timedelta(days(row)))

    def conditions(self, rng, name):
        literal = f"'{DAY + datetime.timedelta(rng.randrange(-400, 400))}"
        yield f"{name} {rng.choice(['=', '<', '>='])} date {literal}'"
        yield f"{name} {rng.choice(['=', '<', '>='])} timestamp {literal} {rng.choice(['00', '13'])}:00:00'"

    def sums(self, name):
        return [f"min({name})", f"max({name})"]


class Moments:
    def __init__(self, rng):
        self.unit = rng.choice(list(UNITS))
        self.kind = pa.timestamp(self.unit, rng.choice([None, None, "UTC"]))

    def array(self, rng, rows):
        # The oldest version of the format has microseconds alone.
        step = 1000 if self.unit == "ns" else 1
        begin = (MOMENT - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=1) * UNITS[self.unit]
        return filled(rng, rows, self.kind, lambda _: begin + rng.randrange(-(10**6), 10**6) * UNITS[self.unit] // 100 // step * step)

    def conditions(self, rng, name):
        literal = MOMENT + datetime.timedelta(milliseconds=rng.randrange(-(10**7), 10**7))
        yield f"{name} {rng.choice(['=', '<', '<=', '>'])} timestamp '{literal}'"
        yield f"{name} >= date '{DAY + datetime.timedelta(rng.randrange(-1, 3))}'"

    def sums(self, name):
        return [f"min({name})", f"max({name})"]


class Texts:
    def __init__(self, rng):
        self.words = rng.choice([WORDS, WORDS[:3], None])
        self.kind = rng.choice([pa.string(), pa.large_string(), pa.string_view(), None])

    def array(self, rng, rows):
        value = (lambda _: rng.choice(self.words)) if self.words else (lambda _: f"{rng.randrange(10**9)} {rng.choice(WORDS)}")
        if self.kind:
            return filled(rng, rows, self.kind, value)
        return filled(rng, rows, pa.string(), value).dictionary_encode()

    def conditions(self, rng, name):
        yield f"{name} {rng.choice(['=', '<>', '<', '>='])} '{rng.choice(WORDS)}'"
        yield f"{name} {rng.choice(['', 'not '])}like '{rng.choice(PATTERNS)}'"
        yield f"{name} {rng.choice(['', 'not '])}in ('{rng.choice(WORDS)}', '{rng.choice(WORDS)}')"

    def sums(self, name):
        return [f"min({name})", f"max({name})"]


class Flags:
    kind = pa.bool_()

    def __init__(self, rng):
        self.share = rng.choice([0.0, 0.02, 0.5, 1.0])

    def array(self, rng, rows):
        return filled(rng, rows, self.kind, lambda _: rng.random() < self.share)

    def conditions(self, rng, name):
        yield rng.choice([name, f"not {name}", f"{name} = false", f"{name} <> true"])

    def sums(self, _):
        return []


class Others:
    """Columns that go out, and are not compared."""

    def __init__(self, rng):
        self.kind, self.value = rng.choice(
            [
                (pa.binary(), lambda rng: rng.randbytes(rng.randrange(20))),
                (pa.binary(5), lambda rng: rng.randbytes(5)),
                (pa.list_(pa.int32()), lambda rng: [rng.randrange(9) if rng.random() < 0.8 else None for _ in range(rng.randrange(4))]),
                (pa.struct({"a": pa.string(), "b": pa.int64()}), lambda rng: {"a": rng.choice(WORDS), "b": rng.randrange(9)}),
                (pa.time64("us"), lambda rng: rng.randrange(86_400_000_000)),
                (pa.time32("ms"), lambda rng: rng.randrange(86_400_000)),
            ]
        )

    def array(self, rng, rows):
        return filled(rng, rows, self.kind, lambda _: self.value(rng))

    def conditions(self, _, name):
        yield f"{name} is null"

    def sums(self, _):
        return []


# Kinds of which there are more come more often.
KINDS = [Integers, Integers, Decimals, Decimals, Floats, Days, Moments, Moments, Texts, Texts, Texts, Flags, Others]
GROUPED = (Integers, Decimals, Days, Moments, Texts, Flags)


def filled(rng, rows, kind, value):
    share = rng.choice([0, 0, 0.02, 0.3, 0.97, 1])
    return pa.array([None if share and rng.random() < share else value(row) for row in range(rows)], kind)


def parquet_options(rng, table):
    """How a table is written; each encoding is one that the column can have."""
    encodings = {}
    for field in table.schema:
        of = field.type
        can_be = ["PLAIN"]
        if pa.types.is_integer(of) or pa.types.is_date(of) or pa.types.is_timestamp(of):
            can_be += ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]
        elif pa.types.is_floating(of):
            can_be += ["BYTE_STREAM_SPLIT"]
        elif pa.types.is_boolean(of):
            can_be += ["RLE"]
        elif pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
            can_be += ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]
        elif pa.types.is_dictionary(of) or pa.types.is_nested(of) or pa.types.is_decimal(of):
            continue
        encodings[field.name] = rng.choice(can_be)
    uses_int96 = rng.random() < 0.15
    if uses_int96:
        encodings = {name: of for name, of in encodings.items() if not pa.types.is_timestamp(table.schema.field(name).type)}
    plain = [name for name in encodings if rng.random() < 0.5]
    options = {
        "row_group_size": rng.choice([13, 100, 999, 10_000]),
        "version": rng.choice(["1.0", "2.4", "2.6"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "data_page_size": rng.choice([64, 1000, 1 << 20]),
        "write_batch_size": rng.choice([16, 1024]),
        "dictionary_pagesize_limit": rng.choice([100, 1 << 20]),
        "compression": {name: rng.choice(CODECS) for name in leaves(table.schema)},
        "use_dictionary": [name for name in table.schema.names if name not in plain],
        "column_encoding": {name: encodings[name] for name in plain} or None,
        "write_statistics": rng.choice([True, True, False]),
        "write_page_index": rng.random() < 0.5,
        "write_page_checksum": rng.random() < 0.3,
        "store_schema": rng.random() < 0.6,
        "store_decimal_as_integer": rng.random() < 0.5,
        "use_deprecated_int96_timestamps": uses_int96,
    }
    return options


def leaves(schema):
    """As codecs are given: those of nested columns by their paths."""
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)
        elif pa.types.is_list(field.type):
            yield f"{field.name}.list.element"
        else:
            yield field.name


def arrow(rng, table, path):
    make = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    with make(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=rng.choice([None, "lz4", "zstd"]))) as writer:
        writer.write_table(table, max_chunksize=rng.choice([50, 700, 10_000]))
    return path


def plan(rng, columns):
    def simple():
        name = rng.choice(list(columns))
        return rng.choice([*columns[name].conditions(rng, name), f"{name} is null", f"{name} is not null"])

    def condition(depth):
        choice = rng.random()
        if depth == 0 or choice < 0.4:
            return simple()
        if choice < 0.5:
            return f"not ({condition(depth - 1)})"
        return f"({condition(depth - 1)} {rng.choice(['and', 'or'])} {condition(depth - 1)})"

    where = condition(2) if rng.random() < 0.85 else None
    names = list(columns)
    if rng.random() < 0.5:
        chosen = rng.sample(names, rng.randrange(1, len(names) + 1))
        sorted_by = [name for name in names if isinstance(columns[name], GROUPED)]
        if rng.random() < 0.3:
            key = rng.choice(sorted_by)
            others = [name for name in chosen if name not in ("id", key)]
            return {"where": where, "columns": list(dict.fromkeys(["id", key, *others])), "order": order(rng, key)}
        return {"where": where, "columns": chosen}
    sums = ["count(*)", *(f"count({name})" for name in names)]
    sums += [one for name, column in columns.items() for one in column.sums(name)]
    keys = [name for name in names if isinstance(columns[name], GROUPED) and name != "id"]
    return {
        "where": where,
        "aggregate": rng.sample(sums, min(len(sums), rng.randrange(1, 6))),
        "by": rng.sample(keys, min(len(keys), rng.randrange(4))),
    }


def order(rng, key):
    direction = rng.choice(["", " desc"])
    return f"id{direction}" if key == "id" else f"{key}{direction}, id"
