"""Figures as SVG: a group of bars for each row, a colour for each way."""

COLOURS = {
    "read": "#999999",
    "buffered": "#bbbbbb",
    "direct": "#888888",
    "mmap": "#555555",
    "host": "#4477aa",
    "device": "#ee6677",
    "auto": "#228833",
    "functions": "#ee6677",
    "standard": "#ccbb44",
}
OTHERS = ["#66ccee", "#aa3377", "#ddaa33", "#004488", "#bb5566", "#997700"]
LEFT, BARS, BAR = 250, 420, 10


def draw(title, cells, unit="seconds a run"):
    """The cells of a figure: of one `row` together, one bar for each `mode`."""
    longest = max(cell["seconds"] for cell in cells)
    modes = list(dict.fromkeys(cell["mode"] for cell in cells))
    spare = iter(OTHERS * len(modes))
    colours = {mode: COLOURS.get(mode) or next(spare) for mode in modes}
    parts, y, before = [], 48, None
    for cell in cells:
        if cell["row"] != before:
            y += 8
            parts.append(text(10, y + 9, cell["row"]))
            before = cell["row"]
        width = BARS * cell["seconds"] / longest
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colours[cell["mode"]]}"/>')
        parts.append(text(LEFT + 6 + round(width), y + 9, f"{cell['seconds']:.3f}"))
        y += BAR + 2
    for i, (mode, colour) in enumerate(colours.items()):
        parts.append(f'<rect x="{10 + 110 * i}" y="28" width="10" height="10" fill="{colour}"/>')
        parts.append(text(24 + 110 * i, 37, mode))
    width = max(LEFT + BARS + 60, 20 + 110 * len(colours))
    style = '<style>text{font:10px sans-serif}</style><rect width="100%" height="100%" fill="white"/>'
    head = text(10, 16, f"{title}: {unit}")
    size = f'width="{width}" height="{y + 12}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{head}{"".join(parts)}</svg>\n'


def text(x, y, words):
    words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<text x="{x}" y="{y}">{words}</text>'
