"""A profile in all its forms: text, picture, HTML page, and trace for Perfetto and chrome://tracing."""

from __future__ import annotations

from html import escape

from pykittens.analysis.timeline.profile import Profile
from pykittens.checker.report.data import json_text
from pykittens.checker.report.page import document
from pykittens.checker.report.trace import chrome
from pykittens.pictures.notebook import profile_body
from pykittens.pictures.timeline import draw

# The forms of a profile by the endings of file names.
FORMS = {".svg": "svg", ".html": "html", ".json": "trace", ".txt": "text"}


def as_text(profile: Profile, form: str) -> str:
    """The profile in one of FORMS."""
    timeline = profile.timeline
    match form:
        case "svg":
            return draw(timeline).svg()
        case "html":
            head = f'<h1>{escape(timeline.title)}</h1>\n<p class="hint">{escape(timeline.note)}</p>'
            return document(
                f"pykittens profile: {timeline.title}", f"{head}\n{profile_body(profile)}"
            )
        case "trace":
            return json_text(chrome(timeline))
    return f"{timeline.title}\n{timeline.note}\n\n{profile.table()}\n"
