"""A report as tables for the terminal, and as an HTML page with plots in it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyspark_jetstream.reports import Report

COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#64748b")
WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
LABEL_WIDTH = 62


def number(value: float) -> str:
    if 0 < value < 1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


def amount(value: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            whole = unit == "B" or value == int(value)
            return f"{value:,.0f} {unit}" if whole else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError


def span(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


Rows = list[list[str]]


def by_pattern(report: Report) -> tuple[str, list[str], Rows]:
    """Sums over all times, and the busiest."""
    patterns: dict[str, list[float]] = {}
    for row in report.volume:
        kept = patterns.setdefault(row["pattern"], [0, 0, 0])
        kept[0] += row["messages"]
        kept[1] += row["bytes"]
        kept[2] = max(kept[2], row["messages"] / report.bucket_s)
    listed = sorted(patterns.items(), key=lambda item: -item[1][0])
    return (
        "Volume by subject pattern",
        ["pattern", "messages", "bytes", f"peak msg/s (per {span(report.bucket_s)})"],
        [[name, number(m), amount(b), number(peak)] for name, (m, b, peak) in listed],
    )


def sections(report: Report) -> list[tuple[str, list[str], Rows]]:
    """(title, heads, rows) of everything that is a table."""
    found: list[tuple[str, list[str], Rows]] = []
    streams = [[r["stream"], number(r["messages"]), amount(r["bytes"])] for r in report.streams]
    found.append(("Streams", ["stream", "messages", "bytes"], streams))
    found.append(by_pattern(report))
    found.append(
        (
            "Top subjects",
            ["subject", "stream", "messages", "msg/s", "bytes", "mean size"],
            [
                [
                    row["subject"],
                    row["stream"],
                    number(row["messages"]),
                    number(row["per_second"]),
                    amount(row["bytes"]),
                    amount(row["mean"]),
                ]
                for row in report.top_subjects
            ],
        )
    )
    sizes = [[name, amount(size)] for name, size in report.size_percentiles.items()]
    found.append(("Message sizes", ["percentile", "size"], sizes))
    found.append(
        (
            f"Gaps: {report.gap_count:,}, {report.gap_sequences:,} sequences",
            ["stream", "from", "to", "sequences"],
            [
                [g["stream"], str(g["first"]), str(g["last"]), number(g["count"])]
                for g in report.gaps
            ],
        )
    )
    found.append(
        (
            f"Message ids seen more than once: {report.duplicate_ids:,}",
            ["stream", "message id", "times", "first"],
            [
                [d["stream"], d["msg_id"], number(d["count"]), d["first_time"]]
                for d in report.duplicates
            ],
        )
    )
    latest = {row["consumer"]: row for row in report.lag}
    if latest:
        peaks: dict[str, int] = {}
        for row in report.lag:
            peaks[row["consumer"]] = max(peaks.get(row["consumer"], 0), row["pending"])
        found.append(
            (
                "Consumers",
                ["consumer", "pending", "unacknowledged", "pending at most"],
                [
                    [name, number(row["pending"]), number(row["ack_pending"]), number(peaks[name])]
                    for name, row in sorted(latest.items())
                ],
            )
        )
    return found


def headline(report: Report) -> str:
    if report.first_time is None:
        return "no messages in this time"
    return (
        f"{report.messages:,} messages, {amount(report.bytes)} of payload, "
        f"{report.first_time} to {report.last_time}"
    )


def as_text(report: Report) -> str:
    lines = [headline(report), ""]
    for title, heads, rows in sections(report):
        lines.append(title)
        lines += text_table(heads, rows) if rows else ["  none"]
        lines.append("")
    return "\n".join(lines)


def text_table(heads: Sequence[str], rows: Rows) -> list[str]:
    widths = [max(len(str(row[at])) for row in [heads, *rows]) for at in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if is_number(rows, at) else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  " + "  ".join(parts).rstrip()

    return [line(heads), "  " + "  ".join("-" * width for width in widths), *map(line, rows)]


def is_number(rows: Rows, at: int) -> bool:
    return all(row[at][:1].isdigit() for row in rows)


# -- the page --------------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1e293b; background: #f8fafc; margin: 0 }
main { max-width: 920px; margin: 0 auto; padding: 24px }
h1 { font-size: 22px; margin: 0 } h2 { font-size: 16px; margin: 0 0 8px }
p { color: #475569; margin: 2px 0 16px }
section { background: #fff; border: 1px solid #e2e8f0; border-radius: 8px; padding: 16px;
  margin: 16px 0; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th { text-align: left; color: #64748b; font-weight: 600 }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid #f1f5f9 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
text { font: 11px system-ui, sans-serif; fill: #64748b } .grid { stroke: #e2e8f0 }
.key { display: inline-block; margin-right: 14px; font-size: 13px; color: #475569 }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px }
"""


def as_page(report: Report) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'><title>Martlet streams</title>",
        f"<style>{STYLE}</style><main><h1>Streams</h1><p>{html.escape(headline(report))}</p>",
    ]
    if report.volume:
        rates = series(
            (row["pattern"], row["time"], row["messages"] / report.bucket_s)
            for row in report.volume
        )
        times = sorted({row["time"] for row in report.volume})
        rates = {name: with_zeros(points, times, report.bucket_s) for name, points in rates.items()}
        parts.append(figure(f"Messages a second, mean of {span(report.bucket_s)}", rates))
        flow = series(
            (row["pattern"], row["time"], row["bytes"] / report.bucket_s) for row in report.volume
        )
        flow = {name: with_zeros(points, times, report.bucket_s) for name, points in flow.items()}
        parts.append(figure("Payload bytes a second", flow, in_bytes=True))
    if report.sizes:
        parts.append(bars("Messages by payload size", report.sizes))
    if report.lag:
        lag = series((row["consumer"], row["time"], row["pending"]) for row in report.lag)
        parts.append(figure("Messages pending for consumers", lag))
    for title, heads, rows in sections(report):
        parts.append(html_table(title, heads, rows))
    parts.append(
        f"<p>Made {html.escape(report.made_at)} by martlet analytics report.</p></main></html>"
    )
    return "\n".join(parts)


Points = list[tuple[float, float]]


def series(rows: Iterable[tuple[str, float, float]]) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for name, time, value in rows:
        found.setdefault(name, []).append((time, value))
    return found


def with_zeros(points: Points, times: list[float], step: int) -> Points:
    """A bucket without a message is zero, not left out."""
    known = dict(points)
    first, last = int(times[0]), int(times[-1])
    return [(time, known.get(time, 0.0)) for time in range(first, last + 1, step)]


def nice(top: float, in_bytes: bool = False) -> float:
    """A round number at or above `top`, and so are its quarters."""
    if top <= 0:
        return 4.0 if in_bytes else 1.0
    if in_bytes:
        return float(1 << max(math.ceil(math.log2(top)), 2))
    power = 10.0 ** (len(str(int(top))) - 1) if top >= 1 else 10.0**-3
    return next(
        step * power for step in (1, 2, 2.5, 5, 10, 20, 50, 100, 1000) if step * power >= top
    )


def moment(time: float, whole_s: float) -> str:
    shape = "%H:%M:%S" if whole_s < 900 else "%H:%M" if whole_s < 2 * 86_400 else "%d %b"
    return datetime.fromtimestamp(time, UTC).strftime(shape)


def figure(title: str, lines: dict[str, Points], *, in_bytes: bool = False) -> str:
    """Lines over time; columns side by side while there is but one moment."""
    keys = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(lines)}
    times = [time for points in lines.values() for time, _ in points]
    low, high = min(times), max(times)
    if low == high:
        cells = [Cell("", points[0][1], keys[name]) for name, points in lines.items()]
        when = datetime.fromtimestamp(low, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return columns(f"{title}, at {when}", cells, keys, in_bytes=in_bytes)
    whole = high - low
    top = nice(max(value for points in lines.values() for _, value in points), in_bytes)

    def x(time: float) -> float:
        return LEFT + (time - low) / whole * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    marks = axis(top, y, in_bytes)
    for at in range(5):
        time = low + whole * at / 4
        anchor = "start" if at == 0 else "end" if at == 4 else "middle"
        label = moment(time, whole)
        marks.append(f"<text x={x(time):.0f} y={HEIGHT - 12} text-anchor={anchor}>{label}</text>")
    for name, points in lines.items():
        colour = keys[name]
        if len(points) == 1:
            marks.append(
                f"<circle cx={x(points[0][0]):.1f} cy={y(points[0][1]):.1f} r=3 fill='{colour}'/>"
            )
        path = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in points)
        marks.append(f"<polyline points='{path}' fill=none stroke='{colour}' stroke-width=1.6 />")
    return wrap(title, marks, keys)


def axis(top: float, y: Any, in_bytes: bool) -> list[str]:
    marks = []
    for at in range(5):
        value = top * at / 4
        label = amount(value) if in_bytes else number(value)
        marks.append(
            f"<line class=grid x1={LEFT} x2={WIDTH - RIGHT} y1={y(value):.1f} y2={y(value):.1f} />"
            f"<text x={LEFT - 6} y={y(value) + 4:.1f} text-anchor=end>{label}</text>"
        )
    return marks


class Cell(NamedTuple):
    """One column of a chart; its label is HTML."""

    label: str
    value: float
    colour: str


def bars(title: str, rows: list[dict[str, Any]]) -> str:
    cells = [Cell(f"&le; {amount(row['up_to'])}", row["messages"], COLOURS[0]) for row in rows]
    return columns(title, cells, {})


def columns(title: str, cells: list[Cell], keys: dict[str, str], *, in_bytes: bool = False) -> str:
    top = nice(max(cell.value for cell in cells), in_bytes)
    room = (WIDTH - LEFT - RIGHT) / len(cells)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    marks = axis(top, y, in_bytes)
    labelled_each = math.ceil(LABEL_WIDTH / room)
    for at, (label, value, colour) in enumerate(cells):
        left, height = LEFT + at * room, HEIGHT - BOTTOM - y(value)
        told = amount(value) if in_bytes else number(value)
        marks.append(
            f"<rect x={left + room * 0.1:.1f} y={y(value):.1f} width={room * 0.8:.1f} "
            f"height={height:.1f} fill='{colour}'><title>{told}</title></rect>"
        )
        if label and at % labelled_each == 0:
            marks.append(
                f"<text x={left + room / 2:.1f} y={HEIGHT - 12} text-anchor=middle>{label}</text>"
            )
    return wrap(title, marks, keys)


def wrap(title: str, marks: list[str], keys: dict[str, str]) -> str:
    """`keys`: the colour of each name."""
    named = "".join(
        f"<span class=key><i style='background:{colour}'></i>{html.escape(name)}</span>"
        for name, colour in keys.items()
    )
    return (
        f"<section><h2>{html.escape(title)}</h2>"
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='100%' role=img "
        f"aria-label='{html.escape(title)}'>"
        f"{''.join(marks)}</svg><div>{named}</div></section>"
    )


def html_table(title: str, heads: list[str], rows: Rows) -> str:
    if not rows:
        return f"<section><h2>{html.escape(title)}</h2>none</section>"
    kinds = [" class=n" if is_number(rows, at) else "" for at in range(len(heads))]

    def line(cells: Sequence[str], tag: str) -> str:
        filled = (
            f"<{tag}{kind}>{html.escape(cell)}" for cell, kind in zip(cells, kinds, strict=True)
        )
        return f"<tr>{''.join(filled)}"

    body = "".join(line(row, "td") for row in rows)
    return (
        f"<section><h2>{html.escape(title)}</h2><table>{line(heads, 'th')}{body}</table></section>"
    )
