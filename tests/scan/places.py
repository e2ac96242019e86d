"""One call has one answer, wherever it runs: the same bytes in every format, and the same words where it fails."""

import subprocess
import sys

PLACES = ["local", "host", "device"]
# What cannot be divided among both sides says so.
WHOLE = ["only row groups are divided", "rows are not divided", "each side is to have some", "depend on where a file is cut"]
FORMATS = ["table", "csv", "arrow", "parquet"]
FAILING = [
    ["--aggregate", "sum(wide * wide * wide)"],
    ["--where", "word > 3"],
    ["--where", "nothing = 1"],
    ["--where", 'word = "nothing"'],
    ["--columns", "sorted,nothing"],
    ["--aggregate", "sum(word)"],
    ["--aggregate", "count(*)", "--by", "ratio"],
    ["--columns", "sorted", "--order", "small", "--limit", "3"],
    ["--where", "day > timestamp '2001-01-01 25:00:00'"],
]


def check(diskside, server, rng, files, plan, plans):
    """Plans over files, each of which has options and may have rows; gives how many were compared."""

    def run(path, options, place):
        file = [path] if place == "local" else [f"{server.url}/{path.relative_to(server.directory)}", "--place", place]
        done = subprocess.run([diskside, "scan", *file, *options], capture_output=True, timeout=120)
        # A file is called as the caller named it.
        return done.returncode, done.stdout, done.stderr.decode().replace(str(file[0]), "FILE")

    def compare(path, options, has_result):
        found = {place: run(path, options, place) for place in PLACES}
        code, _, told = found["local"]
        if any(other != found["local"] for other in found.values()):
            told = {place: (code, len(out), told.strip()) for place, (code, out, told) in found.items()}
            sys.exit(f"scan: {options} over {path.name} depends on its place: {told}")
        if (code == 0) != has_result:
            sys.exit(f"scan: {options} over {path.name}: {code}: {told}")

    def compare_both(path, options):
        """Whether it can be divided; then the result is the same."""
        code, out, told = run(path, options, "both")
        if code != 0 and any(why in told for why in WHOLE):
            return False
        if (code, out) != (of_one := run(path, options, "local"))[:2]:
            sys.exit(f"scan: {options} over {path.name} on both sides: {told} {code}, {len(out)} bytes; {of_one[0]}, {len(of_one[1])}")
        return True

    compared = divided = 0
    for path, options, has_rows in files:
        is_text = path.suffix in (".csv", ".psv", ".jsonl")
        for index in range(plans):
            chosen = words(plan(rng, is_text))
            asked = [*options, *chosen, "--format", FORMATS[(compared + index) % len(FORMATS)]]
            compare(path, asked, True)
            divided += compare_both(path, asked)
        # Sums of no rows are not too large.
        failing = FAILING if has_rows else FAILING[1:]
        for wrong in failing:
            compare(path, [*options, *wrong], False)
            compare_both(path, [*options, *wrong])
        compared += plans + len(failing)
    if divided == 0:
        sys.exit("scan: no scan was divided among both sides")
    return compared


def words(plan):
    """The options of a scan that does this."""
    found = ["--where", plan["where"]] if plan["where"] else []
    if "columns" in plan:
        found += ["--columns", ",".join(plan["columns"])]
    else:
        found += ["--aggregate", ", ".join(plan["aggregate"])]
        found += ["--by", ",".join(plan["by"])] if plan["by"] else []
    return found + (["--order", plan["order"], "--limit", "40"] if "order" in plan else [])
