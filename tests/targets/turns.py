"""Which of the targets before Hopper a program is compiled for: one of them in turn where all compile the same.

What such a target has of its own is its shared memory, and in the device functions the packing of 8-bit floats.
"""

from __future__ import annotations

import zlib

from pykittens.targets.source import Source

BEFORE_HOPPER = ("sm_80", "sm_89")
# The only functions that are not the same for all of them.
APART = ("pack_e4m3", "pack_e5m2")


def is_in_turn(name: str, arch: str) -> bool:
    """Whether it is this target's turn, by the name of a program; always that of Hopper."""
    if arch not in BEFORE_HOPPER:
        return True
    return BEFORE_HOPPER[zlib.crc32(name.encode()) % len(BEFORE_HOPPER)] == arch


def are_one(sources: list[Source]) -> bool:
    """Whether the compiler reads the same in programs for these targets."""
    first = sources[0]
    same = all(s.text == first.text for s in sources)
    return same and not any(name in first.program for name in APART)
