"""Draws cells as an SVG file: operations a second and the 99th percentile of latency, plain beside pushed down."""

COLOURS = {"plain": "#4477aa", "pushdown": "#ee6677"}
# What is drawn, and from where its bars begin.
COLUMNS = [("per_s", "operations a second", 290), ("p99_us", "99 % within, us", 640)]
WIDTH = 250


def picture(cells):
    rows, y, before = [], 46, None
    groups = {}
    for cell in cells:
        groups.setdefault(cell["name"], []).append(cell)
    for name, group in groups.items():
        # A row of cells of one kind, by whatever differs most.
        kind = (name.split(":")[0].split(",")[0], group[0]["medium"], group[0]["rtt_us"])
        y += 10 if kind == before else 20
        before = kind
        rows.append(f'<text x="10" y="{y + 9}">{escaped(name)}</text>')
        for cell in group:
            for key, _, x in COLUMNS:
                longest = max(other[key] for other in group) or 1
                width = WIDTH * cell[key] / longest
                rows.append(f'<rect x="{x}" y="{y}" width="{width:.1f}" height="10" fill="{COLOURS[cell["mode"]]}"/>')
                rows.append(f'<text x="{x + 5 + width:.1f}" y="{y + 9}">{cell[key]:,.0f}</text>')
            y += 12
    legend = "".join(
        f'<rect x="{10 + 90 * i}" y="12" width="10" height="10" fill="{colour}"/><text x="{25 + 90 * i}" y="21">{mode}</text>'
        for i, (mode, colour) in enumerate(COLOURS.items())
    )
    legend += "".join(f'<text x="{x}" y="38">{title}</text>' for _, title, x in COLUMNS)
    style = '<style>text{font:10px sans-serif}</style><rect width="100%" height="100%" fill="white"/>'
    size = f'width="960" height="{y + 20}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{legend}{"".join(rows)}</svg>\n'


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")
