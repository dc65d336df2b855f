"""What a notebook shows: pictures of types and timelines, the source of a kernel, its resources as a table."""

from __future__ import annotations

import inspect
import textwrap
from contextlib import suppress
from html import escape

from pykittens.analysis.timeline.profile import Profile
from pykittens.analysis.timeline.spans import Timeline
from pykittens.errors import ArgumentError
from pykittens.pictures import timeline
from pykittens.pictures.markup import fragment, table
from pykittens.pictures.picture import picture
from pykittens.runtime.compiled import Resources
from pykittens.runtime.kernel import KernelFunction
from pykittens.types.tiles import RT, RV, ST

_UNFOLDED = 40  # lines of source at most


def html(value: object) -> str | None:
    """A value as HTML; None if it has no picture."""
    match value:
        case RT() | RV() | ST():
            return _of_type(value)
        case Timeline() if value.spans:
            return _scaled(timeline.draw(value).svg())
        case Profile():
            return fragment(profile_body(value))
        case KernelFunction():
            return _kernel(value)
        case Resources():
            return _resources(value)
    return None


def profile_body(profile: Profile) -> str:
    """The tables of a profile and its timeline, in a picture that can be scrolled."""
    parts = []
    for columns, rows in profile.tables():
        right = [name not in ("instruction", "group", "waits", "ring") for name in columns]
        parts.append(table(columns, rows, right))
    if profile.timeline.spans:
        parts.append(f'<figure class="wide">{timeline.draw(profile.timeline).svg()}</figure>')
    return "\n".join(parts)


def _of_type(type: RT | RV | ST) -> str | None:
    # Over a warpgroup, or over fewer warps if there are too few rows for it.
    for warps in (4, 2, 1):
        with suppress(ArgumentError):
            return _scaled(picture(type, warps))
    return None


def _scaled(svg: str) -> str:
    """A picture as HTML, no wider than its cell.

    As image/svg+xml it would be cut off there, and show no texts under the mouse.
    """
    return svg.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)


def _kernel(kernel: KernelFunction) -> str:
    parameters = kernel.parameters
    head = f"<strong>{escape(parameters.name)}</strong>({escape(parameters.shown)})"
    lines = [f"<p><code>{head}</code> <small>{escape(str(parameters.loc))}</small></p>"]
    if about := inspect.getdoc(kernel.function):
        lines += [f"<p>{escape(part)}</p>" for part in about.split("\n\n")]
    with suppress(OSError):
        source, _ = inspect.getsourcelines(kernel.function)
        unfolded = " open" if len(source) <= _UNFOLDED else ""
        text = escape(textwrap.dedent("".join(source)).rstrip())
        lines.append(f"<details{unfolded}><summary>source</summary><pre>{text}</pre></details>")
    return fragment("\n".join(lines))


def _resources(resources: Resources) -> str:
    rows = [
        ("threads", f"{resources.threads:,}"),
        ("registers per thread at entry", f"{resources.registers:,}"),
        ("bytes of shared memory", f"{resources.shared_bytes:,}"),
        ("bytes of local memory per thread", f"{resources.frame:,}"),
    ]
    for role in resources.roles:
        budget = f" of {role.budget}" if role.budget else ""
        rows.append((f"registers of {role.role}", f"{role.used}{budget}"))
    remarks = "".join(f'<p class="hint">{escape(s)}</p>' for s in resources.spills)
    return fragment(table(("a block", ""), rows, (False, True)) + remarks)
