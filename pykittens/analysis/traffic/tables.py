"""Concatenates tables of boxes: a column per box, with rows for its lane, unit, line, number and bytes."""

from __future__ import annotations

import numpy as np

from pykittens.analysis.traffic.boxes import LANE, LINE, UNIT, TensorLine
from pykittens.analysis.traffic.vector import IntArray


def at(table: IntArray, rows: IntArray) -> IntArray:
    """A table of inner lanes with the outer lanes in their place."""
    table[LANE] = rows[table[LANE]]
    return table


def in_order(tables: list[IntArray], count: int) -> IntArray:
    """The tables concatenated, sorted by lane; within a lane they keep their order."""
    tables = [t for t in tables if t.shape[1]]
    if len(tables) < 2:
        return tables[0] if tables else np.zeros((5, 0), np.int64)
    lanes = np.arange(count)
    if all(_is_regular(t, count, lanes) for t in tables):
        return np.concatenate([t.reshape(5, count, -1) for t in tables], axis=2).reshape(5, -1)
    whole = np.concatenate(tables, axis=1)
    return whole[:, np.argsort(whole[LANE], kind="stable")]


def _is_regular(table: IntArray, count: int, lanes: IntArray) -> bool:
    """Whether every lane has the same number of boxes in a table."""
    if table.shape[1] % count:
        return False
    each = table[LANE].reshape(count, -1)
    return bool((each[:, 0] == lanes).all() and (each[:, -1] == lanes).all())


def side_by_side(tables: list[IntArray], lines: list[TensorLine]) -> IntArray:
    """The boxes of concurrent groups merged: within a unit, every group progresses at the same share of its boxes.

    A written box comes at the end of its share, a read box at the start.
    """
    tables = [t for t in tables if t.shape[1]]
    if len(tables) < 2:
        return tables[0] if tables else np.zeros((5, 0), np.int64)
    writes = np.array([line.writes for line in lines])
    keys = []
    for table in tables:
        _, first, count = np.unique(table[UNIT], return_index=True, return_counts=True)
        number = np.arange(table.shape[1]) - np.repeat(first, count)
        share = (number + writes[table[LINE]]) / np.repeat(count, count)
        keys.append(table[UNIT] * 2 + share)
    whole = np.concatenate(tables, axis=1)
    return whole[:, np.argsort(np.concatenate(keys), kind="stable")]
