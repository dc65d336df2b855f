"""How many sequences a call has: those of its batch, or those that `ends` says are packed in a batch of 1."""

from __future__ import annotations

from pykittens.kernels.arrays import Arrays
from pykittens.runtime.fakes import is_equal


def count_sequences(arrays: Arrays, name: str) -> None:
    """Let dims have `sequences`, by the batch of an array that is known; an ArgumentError unless `ends` fits it.

    ends: int32 (sequences + 1,), where each of several sequences starts that lie one after another in a batch of 1, and
    where the last one ends: not decreasing, from 0 to n. What lies in it is not checked, as it is on the device.
    """
    dims = arrays.shapes(ends="ends")
    dims["sequences"] = dims["batch"]
    if "ends" not in arrays:
        return
    arrays.dtypes("ends", among=("int32",))
    if not is_equal(dims["batch"], 1):
        raise arrays.fail(f"with `ends` the batch of `{name}` must be 1, not {dims['batch']}")
    if is_equal(dims["ends"], 0) or is_equal(dims["ends"], 1):
        raise arrays.fail("`ends` must have where a sequence starts and where it ends")
    dims["sequences"] = dims["ends"] - 1
