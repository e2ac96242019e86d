"""TPC-H's queries, and whether answers are right."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]
HERE = Path(__file__).parent
# Answers are compared to so much of a value: DuckDB's means are floating-point numbers.
TOLERANCE = 1e-6


def queries(scale):
    """The queries by their names."""
    pieces = re.split(r"^-- (q\d+)$", (HERE / "tpch.sql").read_text(), flags=re.MULTILINE)
    return {name: text.strip().rstrip(";").replace("{scale}", scale) for name, text in zip(pieces[1::2], pieces[2::2])}


def check(python, directory, scale, found):
    """Ends the program unless these are the rows of DuckDB on the same files, and at scale 1 the published ones."""
    script = (
        "import duckdb, json, sys; directory, queries = sys.argv[1], json.loads(sys.argv[2])\n"
        f"for table in {TABLES}: duckdb.sql(f\"create view {{table}} as from '{{directory}}/{{table}}.parquet'\")\n"
        "print(json.dumps({name: duckdb.sql(text).fetchall() for name, text in queries.items()}, default=str))"
    )
    texts = json.dumps({name: text for name, text in queries(scale).items() if name in found})
    done = subprocess.run([python, "-c", script, directory, texts], check=True, stdout=subprocess.PIPE, text=True)
    compare("DuckDB", json.loads(done.stdout), found)
    if float(scale) == 1:
        published = json.loads((HERE / "tpch-answers.json").read_text())["answers"]
        compare("published", {name: rows for name, rows in published.items() if name in found}, found)


def compare(of, wanted, found):
    for name, rows in wanted.items():
        if isinstance(rows, dict):
            if digest(found[name]) != rows:
                sys.exit(f"bench: {name} is not as the {of} answer has it: {digest(found[name])}")
            continue
        # Rows that are equal in what they are sorted by come in any order.
        ours, theirs = (sorted(map(normal, all_rows)) for all_rows in (found[name], rows))
        if len(ours) != len(theirs) or not all(map(alike, ours, theirs)):
            first = next(((a, b) for a, b in zip(ours, theirs) if not alike(a, b)), (len(ours), len(theirs)))
            sys.exit(f"bench: {name} is not as the {of} answer has it: {first}")
    print(f"the answers of {len(wanted)} queries are the {of} ones", file=sys.stderr)


def digest(rows):
    """The number of rows, and the digest of their fields with bars between them: numbers with two decimals, a line for each row, sorted."""
    lines = ("|".join(fields) for fields in sorted(normal(row)[0] for row in rows))
    return {"rows": len(rows), "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


def normal(row):
    fields = tuple(f"{number(value):.2f}" if number(value) is not None else str(value) for value in row)
    return fields, tuple(None if value is None else str(value) for value in row)


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def alike(one, other):
    """Whether a row is as another one has it. What that one has no value for is not compared."""
    def same(a, b):
        if b is None:
            return True
        if number(a) is None or number(b) is None:
            return a == b
        return abs(number(a) - number(b)) <= TOLERANCE * max(1, abs(number(a)))

    return len(one[1]) == len(other[1]) and all(map(same, one[1], other[1]))
