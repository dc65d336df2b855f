"""Elements of a row of memory that an index names one by one, in the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from pykittens.emulate.watch import Access, Watcher

Array = np.ndarray[Any, np.dtype[Any]]


class Elements:
    """The elements of `row` that an index names; `first` is the column of the row's first element.

    cols: the columns of those that exist, each once, in ascending order. clashes: several values are stored to one
    element, so that their order decides what it holds.
    """

    def __init__(self, row: Array, first: int, index: Array) -> None:
        self.row, self.index = row, index.astype(np.int64)
        self.inside = (self.index >= 0) & (self.index < len(row))
        self.at = self.index[self.inside]
        self.cols = np.unique(self.at) + first
        self.clashes = False

    @property
    def are_distinct(self) -> bool:
        """Whether no element is named twice."""
        return len(self.cols) == len(self.at)

    @property
    def span(self) -> tuple[int, int]:
        """The first column, and the one after the last."""
        return (int(self.cols[0]), int(self.cols[-1]) + 1) if len(self.cols) else (0, 0)

    def read(self, fill: float) -> Array:
        """The elements in the shape of the index, with `fill` for those that do not exist."""
        found = np.full(self.index.shape, fill, self.row.dtype)
        found[self.inside] = self.row[self.at]
        return found

    def write(self, value: Array, combine: np.ufunc | None) -> None:
        """Store the values in their order, or combine the elements with them."""
        values = value[self.inside]
        if combine is None:
            self.row[self.at] = values
        else:
            combine.at(self.row, self.at, values)

    def differ(self, value: Array) -> bool:
        """Whether one element is given different values."""
        order = np.argsort(self.at, kind="stable")
        at, values = self.at[order], value[self.inside][order]
        return bool(((at[1:] == at[:-1]) & (values[1:] != values[:-1])).any())


class ByIndex:
    """Memory whose elements an index can name."""

    watch: Watcher

    def named(self, index: Array) -> Elements:
        """The elements of its row that an index names."""
        raise NotImplementedError

    def touch(self, elements: Elements, access: Access) -> None:
        """Report an access to elements."""
        raise NotImplementedError

    def gather_elements(self, index: Array, fill: float) -> Array:
        """The named elements, with `fill` for those outside."""
        elements = self.named(index)
        self.touch(elements, Access.READ)
        return elements.read(fill)

    def scatter_elements(self, index: Array, value: Array, combine: np.ufunc | None) -> None:
        """Store values to the named elements, in their order; those outside are dropped."""
        elements = self.named(index)
        in_order = combine is None or (combine is np.add and value.dtype.kind not in "iu")
        elements.clashes = in_order and not elements.are_distinct and elements.differ(value)
        self.touch(elements, Access.WRITE if combine is None else Access.COMBINE)
        elements.write(value, combine)
