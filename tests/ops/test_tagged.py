"""The promise that all of a vector with tags lies inside the tensor: it is checked, and shortens the program."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.errors import AccessError
from pykittens.runtime import nvrtc


@pk.kernel
def handed_on(links, y, at, *, stores, loads):
    """A vector of 64, and what a load finds of it."""
    pk.grid(1)
    with pk.consumers(1):
        pk.store_tagged(links[at], pk.zeros(pk.f32, 64) + 3.0, 1, whole=stores)
    with pk.warps(1):
        pk.store(y, pk.load_tagged(links[at], 1, cols=64, whole=loads))


@pytest.mark.parametrize(("stores", "loads"), [(True, False), (False, True), (True, True)])
def test_a_promise_that_is_not_kept_is_an_error(stores, loads):
    links, y = np.zeros(100, np.float32), np.zeros(64, np.float32)
    handed_on(links, y, 0, stores=stores, loads=loads)
    np.testing.assert_array_equal(y, 3)
    handed_on(links, y, 1, stores=False, loads=False)
    np.testing.assert_array_equal(y, [3] * 36 + [0] * 28)
    with pytest.raises(AccessError, match=r"links\[1\] is not inside the tensor"):
        handed_on(links, y, 1, stores=stores, loads=loads)


@pytest.mark.skipif(nvrtc.available() is not None, reason="no compiler")
def test_a_promise_leaves_out_the_tests_of_sides():
    links, y = np.zeros(100, np.float32), np.zeros(64, np.float32)
    texts = {
        whole: str(
            handed_on.compile(links, y, 0, stores=whole, loads=whole, arch="sm_90a").source.text
        )
        for whole in (False, True)
    }
    calls = {
        whole: sum("load_tagged<" in line and "DEVICE" not in line for line in text.splitlines())
        for whole, text in texts.items()
    }
    assert calls == {False: 2, True: 1}
