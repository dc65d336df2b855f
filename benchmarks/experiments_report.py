"""The report of benchmarks/experiments.py: a table per experiment."""

from __future__ import annotations

from collections.abc import Sequence

from record import Row, markdown


def table(rows: Sequence[Row]) -> str:
    """A line per variant, a column per extent; for the orders also the bytes."""
    tables = []
    for kind in dict.fromkeys(row["experiment"] for row in rows):
        found = [row for row in rows if row["experiment"] == kind]
        tables.append(_orders_table(found) if kind == "orders" else _speeds_table(kind, found))
    return "\n\n".join(tables)


def _speeds_table(kind: str, rows: Sequence[Row]) -> str:
    extent = {"stages": "m = n = k =", "persistent": "k ="}[kind]
    extents = list(dict.fromkeys(row["at"] for row in rows))
    cells = {(row["name"], row["at"]): _speed(row) for row in rows}
    return markdown(
        [kind, *(f"TFLOP/s, {extent} {at}" for at in extents)],
        (
            [name, *(cells.get((name, at), "-") for at in extents)]
            for name in dict.fromkeys(row["name"] for row in rows)
        ),
    )


def _orders_table(rows: Sequence[Row]) -> str:
    heads = ["order", f"TFLOP/s at {rows[0]['at']}", "GB read", "GB written", "GB/s", "bytes are"]
    return markdown(heads, ([row["name"], _speed(row), *_traffic(row)] for row in rows))


def _speed(row: Row) -> str:
    return f"{row['tflops']:.0f}, {row['ratio']:.2f}"


def _traffic(row: Row) -> list[str]:
    if "read" not in row:
        return ["-"] * 4
    seconds = 2.0 * row["at"] ** 3 / row["tflops"] * 1e-12
    rate = (row["read"] + row["written"]) / seconds
    return [f"{x * 1e-9:.{n}f}" for x, n in ((row["read"], 1), (row["written"], 1), (rate, 0))] + [
        row["source"]
    ]
