"""A plan at every place: here, over ranges, at the server, on both sides, and in two parts of row groups whose results are joined."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import places
import pyarrow as pa
import pyarrow.ipc

PLACES = ["local", "host", "device", "both"]
# How parts of a sum are summed up; of a mean there is no way.
JOINED = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}


class Everywhere:
    """Runs plans at all places, several at a time, and counts what was compared."""

    def __init__(self, diskside, server, rows_of):
        self.diskside, self.server, self.rows_of = diskside, server, rows_of
        self.on_both_sides = self.in_parts = 0

    def rows(self, path, plan, rng):
        """The result, which is the same at all places."""
        words = places.words(plan)
        # Rows in any order are never divided among both sides.
        tried = PLACES if "aggregate" in plan or "order" in plan else PLACES[:-1]
        with ThreadPoolExecutor(len(tried)) as threads:
            done = dict(zip(tried, threads.map(lambda place: self._run(path, words, place), tried)))
        code, result, report = done["local"]
        if code != 0:
            sys.exit(f"scan: {words} over {path.name}: {report}")
        if "both" in done and done["both"][0] != 0 and any(why in done["both"][2] for why in places.WHOLE):
            del done["both"]
        self.on_both_sides += "both" in done
        for place, (code, out, told) in done.items():
            if (code, out) != (0, result):
                sys.exit(f"scan: {words} over {path.name} at {place}: {told} {code}, {len(out)} bytes, and not {len(result)}")
        found = pa.ipc.open_stream(result).read_all()
        self._compare_parts(path, plan, found, json.loads(report)["row_groups"], rng)
        return self.rows_of(found)

    def _run(self, path, words, place):
        out = self.server.directory / f"result at {place}"
        out.unlink(missing_ok=True)
        file = [path] if place.startswith("local") else [f"{self.server.url}/{path.name}", "--place", place]
        command = [self.diskside, "scan", *file, *words, "--format", "arrow", "--out", out, "--json"]
        done = subprocess.run(command, capture_output=True, timeout=120)
        return done.returncode, out.read_bytes() if done.returncode == 0 else b"", done.stderr.decode() or done.stdout.decode()

    def _compare_parts(self, path, plan, whole, groups, rng):
        """Row groups from the first one on and the others: together they have what all have."""
        words = places.words(plan)
        if groups < 2 or any(one.startswith("avg") for one in plan.get("aggregate", [])):
            return
        cut = rng.randrange(1, groups)
        wheres = [rng.choice(["local", "host", "device"]) for _ in range(2)]
        parts = [f"0..{cut}", f"{cut}..{groups}"]
        done = [self._run(path, [*words, "--row-groups", part], place) for part, place in zip(parts, wheres)]
        for code, _, told in done:
            if code != 0:
                sys.exit(f"scan: {words} over row groups of {path.name}: {told}")
        joined = join(plan, [pa.ipc.open_stream(out).read_all() for _, out, _ in done])
        found, wanted = self.rows_of(joined), self.rows_of(whole)
        if found != wanted:
            sys.exit(f"scan: {words} over {path.name}, cut at row group {cut} of {groups}, at {wheres}: {found[:3]}, not {wanted[:3]}")
        self.in_parts += 1


def join(plan, parts):
    parts = pa.concat_tables(parts)
    if "order" in plan:
        return duckdb.sql(f"select * from parts order by {plan['order']} limit 40").to_arrow_table()
    if "columns" in plan:
        return parts
    keys = [f"k{at}" for at in range(len(plan["by"]))]
    kinds = [re.match(r"\w+", one)[0] for one in plan["aggregate"]]
    parts = parts.rename_columns(keys + [f"v{at}" for at in range(len(kinds))])
    selected = keys + [f"{JOINED[kind]}(v{at})" for at, kind in enumerate(kinds)]
    grouped = f" group by {', '.join(keys)}" if keys else ""
    return duckdb.sql(f"select {', '.join(selected)} from parts{grouped}").to_arrow_table()
