"""Words of a machine for many tokens at once: matrices of bf16 that instructions write, products and attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.mega.isa import prefill
from pykittens.mega.isa.core import Core
from pykittens.mega.isa.memory import Pages
from pykittens.mega.isa.packing import check_array, in_pages, out_of_pages, rounded

ROWS, COLS = 128, 64  # of a page


# The words that make operands.
MATRIX, WEIGHT_PAGES = "matrix(rows, cols)", "weight_pages(matrix)"


class Matrices(Core):
    """The words of a machine for matrices; see Machine."""

    def matrix(self, rows: int, cols: int) -> Pages:
        """Room for a matrix of bf16, (rows, cols), which instructions write, or `set_matrix` before a run."""
        check_count("rows", rows)
        check_count("cols", cols)
        made = Pages(self, MATRIX, self._sizes["M"], rows, cols)
        self._sizes["M"] += made.down * made.across
        return made

    def weight_pages(self, matrix: Any) -> Pages:
        """A matrix of bf16, (rows, columns), copied to pages of 128 rows, for `matmul`."""
        check_array("matrix", matrix, ("bfloat16",), 2)
        # An instruction takes two rows of pages.
        first = self._add_pages(in_pages(matrix, 2 * ROWS, COLS))
        return Pages(self, WEIGHT_PAGES, first, *matrix.shape)

    def set_matrix(self, tensors: Mapping[str, Any], to: Pages, values: Any) -> None:
        """Give a matrix its values, (rows, cols) of bf16, before a run."""
        self._check(MATRIX, to=to)
        check_array("values", values, ("bfloat16",), 2)
        if tuple(values.shape) != (to.rows, to.cols):
            raise ArgumentError(f"`values` must be {(to.rows, to.cols)}, not {tuple(values.shape)}")
        pages = in_pages(values, ROWS, COLS)
        tensors["M"][to.page * ROWS : to.page * ROWS + len(pages)] = pages

    def matrix_values(self, tensors: Mapping[str, Any], x: Pages) -> Any:
        """The elements of a matrix after a run, a copy of them."""
        self._check(MATRIX, x=x)
        pages = tensors["M"][x.page * ROWS : (x.page + x.down * x.across) * ROWS]
        return out_of_pages(pages, x.down)[: x.rows, : x.cols]

    def matmul(self, a: Pages, w: Pages, out: Pages) -> None:
        """out = a w^T: a is (m, k), w (n, k), out (m, n). Sums are in f32.

        Blocks of 8 x 128 rows come after another, so that their pages of `a` stay in the L2 cache.
        """
        self._check(MATRIX, a=a, out=out)
        self._check(WEIGHT_PAGES, w=w)
        self._check_fetched()
        if a.cols != w.cols or (out.rows, out.cols) != (a.rows, w.rows):
            raise ArgumentError(
                f"out = a w^T: {a.rows} x {a.cols} by {w.rows} x {w.cols} is no {out.rows} x {out.cols}"
            )
        depth = a.across
        for first in range(0, a.down, 8):
            for col in range(rounded(w.rows, 2 * ROWS) // (2 * ROWS)):
                for row in range(first, min(first + 8, a.down)):
                    self._add(
                        prefill.matmul,
                        a=a.page + row * depth,
                        b=w.page + 2 * col * depth,
                        out=out.page + row * out.across + 4 * col,
                        width=min(4, out.across - 4 * col),
                        depth=depth,
                    )

    def attention_of_all(
        self, q: Pages, k: Pages, v: Pages, out: Pages, causal: bool = True
    ) -> None:
        """out = softmax(q k^T / sqrt(head)) v for each head; rows are tokens, columns heads after one another.

        q and out: (queries, a multiple of the heads of the keys); k and v: (keys, heads). causal: query i of n is the
        i-th of the last n keys, and sees no later ones.
        """
        self._check(MATRIX, q=q, k=k, v=v, out=out)
        self._check_fetched()
        heads, of_keys = q.cols // self.head, k.cols // self.head
        sides = (k.rows, k.cols) == (v.rows, v.cols) and (q.rows, q.cols) == (out.rows, out.cols)
        if not sides or q.cols % self.head or k.cols % self.head or not of_keys or heads % of_keys:
            raise ArgumentError(
                f"attention: q and out have one shape, k and v have one, of heads of {self.head} columns, those of q a "
                f"multiple of those of k, not {q.cols} and {k.cols} columns"
            )
        offset = k.rows - q.rows if causal else k.rows
        if causal and offset < 0:
            raise ArgumentError(f"attention: {q.rows} queries are no more than the {k.rows} keys")
        for block in reversed(range(q.down)):  # the longest first
            row = block * ROWS + offset
            last = (min(row + ROWS, k.rows) - 1) // ROWS
            masked = max(last + 1 - (row + 1) // ROWS, 1)
            for head in range(heads):
                at = block * q.across + head * self.panels
                of = head * of_keys // heads * self.panels
                self._add(
                    prefill.attention,
                    cost=last + 2,
                    q=q.page + at,
                    k=k.page + of,
                    v=v.page + of,
                    step=k.across,
                    last=last,
                    masked=masked,
                    row=row,
                    keys=k.rows,
                    out=out.page + at,
                )

    def _check_fetched(self) -> None:
        if not self.fetched:
            raise ArgumentError(
                "instructions on matrices take stages of their own: Machine(fetched=2)"
            )
