"""What was measured, as tables in Markdown."""


def markdown(document, title):
    """All figures; `title` gives the heading of one."""
    size, rounds, link = document["size_mib"], document["rounds"], document["link"]
    parts = [f"{size} MiB, {rounds} rounds, {link} where a figure does not say otherwise; seconds a pass, medians."]
    for figure in dict.fromkeys(cell["figure"] for cell in document["cells"]):
        parts.append(f"### {figure}: {title(figure)}")
        parts += of_figure(figure, document)
    parts += [f"{kind}: {regret(found)}." for kind, found in document["summary"].items()]
    parts += [f"Not measured: {miss['figure']}: {miss['what']}: {miss['why']}." for miss in document["missing"]]
    parts += [f"Failed: {failure.strip()}." for failure in document["failed"]]
    return "\n\n".join(parts)


def of_figure(figure, document):
    """A table for each set of ways that rows have."""
    rows, ratios = {}, {ratio["row"]: ratio for ratio in document["ratios"] if ratio["figure"] == figure}
    for cell in document["cells"]:
        if cell["figure"] == figure:
            rows.setdefault(cell["row"], {})[cell["mode"]] = cell
    sets = {}
    for row, modes in rows.items():
        sets.setdefault(tuple(modes), []).append(row)
    tables = []
    for modes, of_set in sets.items():
        columns = [*modes]
        extra = [(key, head, form) for key, head, form in EXTRA if any(key in ratios.get(row, {}) for row in of_set)]
        head = ["", *columns, *(head for _, head, _ in extra)]
        sent = "device" in modes and any(rows[row]["device"]["wire_bytes"] for row in of_set)
        lines = [head + (["bytes on the wire, device"] if sent else [])]
        lines.append(["---"] * len(lines[0]))
        for row in of_set:
            line = [row, *(seconds(rows[row][mode]["seconds"]) for mode in modes)]
            line += [form(ratios[row][key]) if key in ratios.get(row, {}) else "" for key, _, form in extra]
            lines.append(line + ([f"{rows[row]['device']['wire_bytes'] or 0:,}"] if sent else []))
        tables.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return tables


def seconds(value):
    return f"{value:.3f}" if value >= 0.001 else f"{1e6 * value:.1f} us"


def regret(found):
    """One line about all cells."""
    return (
        f"{found['cells']} cells; auto against the better side: mean {100 * found['regret_mean']:+.1f} % "
        f"(only losses {100 * found['regret_of_lost_cells_mean']:.1f} %), "
        f"median {100 * found['regret_median']:+.1f} %, worst {100 * found['regret_max']:+.1f} %, "
        f"the very first pass {100 * found['regret_first_median']:+.1f} % in the median; rounds of the better side differ by "
        f"{100 * found['spread_median']:.0f} %; the device wins {found['device_wins_by_half']} cells by 1.5 x or more, "
        f"the host {found['host_wins_by_half']}"
    )


def ratio(value):
    return f"{value:.2f}"


def share(value):
    return f"{100 * value:+.1f} %"


EXTRA = [
    ("device_vs_host", "device / host, speed", ratio),
    ("auto", "auto loses", share),
    ("spread", "spread", share),
    ("device_vs_disk", "device / disk, speed", ratio),
    ("functions_vs_standard", "functions / standard, speed", ratio),
    ("call_vs_read", "call / read, time", ratio),
]
