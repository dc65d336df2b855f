"""Functions written with operations, one file per family."""

from pykittens.lang.std.masks import (
    left_fill,
    lower_fill,
    right_fill,
    tril,
    triu,
    upper_fill,
)
from pykittens.lang.std.online import inf, log2e, normalize, online_softmax
from pykittens.lang.std.outer import outer_add, outer_mul, outer_sub
from pykittens.lang.std.random import uniform
from pykittens.lang.std.rotary import rotary, rotate_half, rotate_pairs
from pykittens.lang.std.slices import diagonal, diagonal_matrix, with_column, with_row

__all__ = [
    "diagonal",
    "diagonal_matrix",
    "inf",
    "left_fill",
    "log2e",
    "lower_fill",
    "normalize",
    "online_softmax",
    "outer_add",
    "outer_mul",
    "outer_sub",
    "right_fill",
    "rotary",
    "rotate_half",
    "rotate_pairs",
    "tril",
    "triu",
    "uniform",
    "upper_fill",
    "with_column",
    "with_row",
]
