"""Values that a notebook shows as a picture or as HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar


class Shown:
    """A value that a notebook shows as HTML, or by its `repr` if the HTML is None.

    make_html: set by the package, because pictures are in a layer below, which is loaded when one is asked for.
    """

    make_html: ClassVar[Callable[[object], str | None]]

    def _repr_html_(self) -> str | None:
        return Shown.make_html(self)
