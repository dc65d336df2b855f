"""Views of tensors: indices that do not fit, and operations that need more axes."""

from __future__ import annotations

import numpy as np

import pykittens as pk
from pykittens import bf16
from tests.faults.operations import BF16, bf


def last_index_beside_a_slice(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[0], pk.load(x[:, -1], cols=8))

    kernel(bf(8, 8), out((8, 8), BF16))


def too_many_indices_of_a_view(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y, pk.load(x[:, 1][0, 0, 0], rows=64, cols=16))

    kernel(bf(64, 2, 16), out((64, 16), BF16))


def tile_of_a_column(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[:, 1][0], pk.load(x, rows=64, cols=16))

    kernel(bf(64, 16), out((64, 2), BF16))


def rows_of_a_column(out):
    @pk.kernel
    def kernel(x, index, y):
        pk.grid(1)
        rows = pk.load(index, cols=64, spread=pk.per_row)
        pk.store(y, pk.gather(x[:, 1], rows, cols=16))

    kernel(bf(64, 16), np.zeros(64, np.int32), out((64, 16), BF16))


def shared_tile_from_a_column(out):
    @pk.kernel
    def kernel(x, y):
        ring = pk.pipeline(1, pk.st(bf16, 64, 16))
        pk.grid(1)
        with pk.producer(), ring.fill() as t:
            pk.load_async(t, x[:, 1])
        with pk.storer(), ring.drain() as t:
            pk.store_async(y, t)

    kernel(bf(64, 16), out((64, 16), BF16))


def column_of_a_vector(out):
    @pk.kernel
    def kernel(x, y):
        pk.grid(1)
        pk.store(y[:, 1], pk.load(x, cols=16))

    kernel(bf(16), out((16,), BF16))
