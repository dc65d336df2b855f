"""What is held against a whole kernel: a value is used where it is seen, whatever brought it there."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.nodes import Call, Carried, For, If, Merged, walk
from pykittens.ir.values import Scalar
from pykittens.ir.verify import verify
from pykittens.types.dtypes import int32
from pykittens.types.tiles import SCALAR
from tests.running import put, recorded

OUT = np.zeros((8, 8), np.int32)


@pk.kernel
def nested(out, n):
    pk.grid(1)
    total = n
    for i in pk.range(n):
        total = total + i
        if total > 3:
            total = total * 2
    put(out, 0, total)


def parts():
    kernel = recorded(nested, OUT, 3, lowered=False)
    loop = next(n for n in walk(kernel.body) if isinstance(n, For))
    branch = next(n for n in walk(kernel.body) if isinstance(n, If))
    return kernel, loop, branch


def test_a_kernel_as_recorded_is_sound():
    verify(parts()[0])


def test_a_value_of_a_branch_is_not_carried():
    kernel, loop, branch = parts()
    (doubled,) = (n.results[0] for n in branch.then.nodes if isinstance(n, Call))
    (carried,) = loop.carried
    loop.carried[0] = Carried(carried.init, carried.param, doubled, carried.result)
    with pytest.raises(
        pk.KernelError, match="carried out of the loop or branch that made it"
    ) as caught:
        verify(kernel)
    assert "made at" in str(caught.value)


def test_a_value_of_one_branch_is_not_merged_from_the_other():
    kernel, _, branch = parts()
    (merged,) = branch.merged
    branch.merged[0] = Merged(merged.then, merged.then, merged.result)
    with pytest.raises(pk.KernelError, match="carried out of"):
        verify(kernel)


def test_a_value_is_not_used_before_it_is_made():
    kernel, loop, _ = parts()
    late = Scalar(SCALAR(int32), "late")
    late.block, late.source = loop.body, loop
    loop.start = late
    with pytest.raises(pk.KernelError, match="`late` is carried out of"):
        verify(kernel)
