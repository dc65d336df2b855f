"""A kernel is pickled by its name, copied as itself and shown with its parameters; torch.compile does not trace it."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import numpy as np

import pykittens as pk
from tests.runtime.calling import filled, scaled


@pk.kernel
def summed(out, *terms, first: float = 0.0):
    pk.grid(1)
    pk.store(out, pk.full(out.dtype, first, 64, 64))


def doubled_ones(kernel: object) -> float:
    """The sum of a result of the kernel `scaled`."""
    y = np.zeros((64, 64), np.float32)
    kernel(np.ones((64, 64), np.float32), y, 2.0)  # type: ignore[operator]
    return float(y.sum())


def test_a_kernel_is_pickled_and_copied_as_itself() -> None:
    for same in (pickle.loads(pickle.dumps(scaled)), copy.copy(scaled), copy.deepcopy([scaled])[0]):
        assert same is scaled


def test_a_process_that_is_spawned_takes_a_kernel() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(doubled_ones, (scaled,)) == 2 * 64 * 64


def test_a_kernel_shows_its_parameters_and_its_place() -> None:
    assert repr(filled).startswith("<kernel filled(y, value) at calling.py:")
    assert repr(summed).startswith("<kernel summed(out, *terms, first=) at test_identity.py:")
