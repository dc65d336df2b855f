"""All passes over a recorded kernel, in order."""

from __future__ import annotations

from pykittens.ir.nodes import Kernel
from pykittens.ir.passes.parts import carry_parts
from pykittens.ir.passes.prune import prune
from pykittens.ir.passes.sink import sink
from pykittens.ir.passes.together import bring_together
from pykittens.ir.passes.waits import place_waits


def lower(kernel: Kernel) -> Kernel:
    """Drop unused values, bring loads together, place waits and releases, move conversions, carry sums in parts.

    Changes the kernel in place.
    """
    prune(kernel)
    bring_together(kernel)
    place_waits(kernel)
    sink(kernel)
    carry_parts(kernel)
    return kernel
