"""The report of bench/scan/engines: tables as text, and bars as SVG."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "pushdown"))
import picture as bars  # noqa: E402
from engines_ways import WAYS  # noqa: E402

#: Ways that keep nothing of an earlier run and have nothing of Diskside's scans.
OTHERS = ["fsspec", "first", "http", "nfs"]
FIGURES = [
    ("seconds", "seconds", 1, 3),
    ("MB over the link", "bytes", 1e-6, 2),
    ("processor seconds of the server", "server_cpu_s", 1, 2),
    ("processor seconds of the client", "client_cpu_s", 1, 2),
]


def rows_of(cells):
    """The cells of each engine and query, by their ways."""
    rows = {}
    for cell in cells:
        rows.setdefault((cell["engine"], cell["query"]), {})[cell["way"]] = cell
    return rows


def ratios(cells):
    """How many times as long the other ways take as `pushed`: the fastest of those without a cache that is filled, and each."""
    found = []
    for (engine, query), ways in rows_of(cells).items():
        if "pushed" not in ways:
            continue
        over = {way: cell["seconds"] / ways["pushed"]["seconds"] for way, cell in ways.items() if way != "pushed"}
        best = min((way for way in over if way in OTHERS), key=over.get, default=None)
        row = {"engine": engine, "query": query, "best_other": best, "best_other_over_pushed": over.get(best)}
        found.append(row | {f"{way}_over_pushed": value for way, value in over.items()})
    return found


def text(document):
    rows = rows_of(document["cells"])
    ways = [way for way in WAYS if any(way in of for of in rows.values())]
    ratio = {(of["engine"], of["query"]): of for of in document["ratios"]}
    plain = document["plain_bytes_per_s"]
    link = f"a link of {document['rate_gbit']:g} Gb/s (TCP: {plain / 1e6:.0f} MB/s)" if plain else "loopback"
    lines = [
        f"{document['size']} tables over {link}, {document['processors']} processors shared by both ends, clients at a time: "
        f"{document['clients']}, page cache of the server: {'empty' if document['cold'] else 'filled'}, rounds: {document['rounds']}"
    ]
    for title, key, unit, digits in FIGURES:
        with_ratio = key == "seconds" and ratio
        heads = "".join(f" {way:>9}" for way in ways)
        lines += ["", f"{title:31}{heads}{'  best other/pushed    host/pushed   again/pushed' if with_ratio else ''}".rstrip()]
        for (engine, query), of in rows.items():
            line = f"{engine:9} {query:21}" + "".join(
                f" {of[way][key] * unit:9.{digits}f}" if way in of else f" {'-':>9}" for way in ways
            )
            if with_ratio and (known := ratio.get((engine, query))):
                best = known["best_other_over_pushed"]
                line += f"  {known['best_other']:>8} {best:7.2f}x" if best else " " * 18
                for way in ("host", "again"):
                    value = known.get(f"{way}_over_pushed")
                    line += f" {value:13.2f}x" if value else f" {'-':>14}"
            lines.append(line.rstrip())
    if document["clients"] > 1:
        lines += ["", f"{'queries a second of all clients':31}" + "".join(f" {way:>9}" for way in ways)]
        for (engine, query), of in rows.items():
            found = "".join(f" {of[way]['queries_per_s']:9.2f}" if way in of else f" {'-':>9}" for way in ways)
            lines.append(f"{engine:9} {query:21}{found}")
    lines.append("")
    for of in document["missing"]:
        lines.append(f"not measured: {of['engine']} {of.get('way') or of['query']}: {of['why']}")
    return "\n".join(lines)


def picture(document):
    rows = [{"row": f"{of['engine']}, {of['query']}", "mode": of["way"], "seconds": of["seconds"]} for of in document["cells"]]
    rate = f"{document['rate_gbit']:g} Gb/s" if document["rate_gbit"] else "loopback"
    return bars.draw(f"Queries over files of a server, {rate}", rows, "seconds a query")
