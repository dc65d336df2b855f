"""Lines of a kernel's source, and how a stage of a ring is filled, drained and given back in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pykittens.types.dtypes import DType
from tests.pipeline_parts import Ring


class Text:
    """Lines at a depth."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    @contextlib.contextmanager
    def block(self, header: str, wanted: bool = True) -> Iterator[None]:
        """A header and what is indented below it; where it is not wanted, just what is below."""
        if not wanted:
            yield
            return
        self.line(header)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def whole(self) -> str:
        return "\n".join(self.lines) + "\n"


def dtype_name(dtype: DType) -> str:
    return f"pk.{dtype}"


def tile_at(ring: Ring, name: str, shared: str, field: str) -> str:
    """A tile of the stage of the ring `name` that is held: of its `with`, or of shared memory called `shared`."""
    if ring.by_hand:
        return f"{shared}[{name}_turn % {ring.stages}]"
    return f"{name}_s.{field}" if len(ring.tiles) > 1 else f"{name}_s"


@contextlib.contextmanager
def fill(
    text: Text, ring: Ring, name: str, copied: Sequence[str], stores: bool = False
) -> Iterator[None]:
    """A stage while it is filled; by hand with copies into the tiles `copied`, with ordinary stores or both."""
    if not ring.by_hand:
        with text.block(f"with {name}.fill() as {name}_s:"):
            yield
        return
    n, turn = ring.stages, f"{name}_turn"
    text.line(f"{name}_empty[{turn} % {n}].wait({turn} // {n} + 1)")
    if copied:
        tiles = ", ".join(f"{tile}[{turn} % {n}]" for tile in copied)
        text.line(f"{name}_full[{turn} % {n}].expect({tiles})")
    yield
    if stores:
        text.line("pk.fence_async()")
        text.line(f"{name}_full[{turn} % {n}].arrive()")
    text.line(f"{turn} = {turn} + 1")


@contextlib.contextmanager
def drained(text: Text, ring: Ring, name: str) -> Iterator[None]:
    """A stage while it is drained. By hand, `released` gives it back."""
    if not ring.by_hand:
        with text.block(f"with {name}.drain() as {name}_s:"):
            yield
        return
    text.line(f"{name}_full[{name}_turn % {ring.stages}].wait({name}_turn // {ring.stages})")
    yield


def released(text: Text, ring: Ring, name: str) -> None:
    """The end of a drain by hand."""
    if ring.by_hand:
        text.line(f"{name}_empty[{name}_turn % {ring.stages}].arrive()")
        text.line(f"{name}_turn = {name}_turn + 1")
