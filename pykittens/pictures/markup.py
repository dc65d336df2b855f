"""HTML in the colours of the pictures: tables, and fragments for a notebook that leave its own style alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from pykittens.pictures.svg import BLANK, HIGHLIGHT, INK, MUTED, PAPER, RULE

LIGHT = (
    f"--ink: {INK}; --muted: {MUTED}; --paper: {PAPER}; --rule: {RULE}; --blank: {BLANK}; "
    f"--error: {HIGHLIGHT}; --warning: #9a6a00; --note: #1f6f8b; --fine: #2f7d4f; "
    "color-scheme: light;"
)
DARK = (
    "--ink: #e4e7ec; --muted: #9aa4b2; --paper: #171b21; --rule: #38414d; --blank: #222831; "
    "--error: #ff8a7d; --warning: #e9bd5b; --note: #7cc6e0; --fine: #7fcf9c; "
    "color-scheme: dark;"
)
TEXT = (
    "background: var(--paper); color: var(--ink); "
    "font: 15px/1.5 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif;"
)

# Headings of a fragment are no h1 and h2, which notebooks would list in their tables of contents.
STYLE = """\
h1, .title { font-size: 1.5rem; font-weight: bold; margin: 1.5rem 0 0; }
h2, .part { font-size: 1.05rem; font-weight: bold; margin: 1.6rem 0 .5rem; }
small, .where, .hint { color: var(--muted); font-weight: normal; font-size: .85rem; }
pre, code, dl { font: 13px/1.5 Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
pre { margin: 0; }
p { margin: .3rem 0; }
b { margin-right: .4em; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: .4rem 0; }
dt { color: var(--muted); }
dd { margin: 0; }
table { border-collapse: collapse; }
.numbers th, .numbers td {
  text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--rule);
}
.numbers .number { text-align: right; font-variant-numeric: tabular-nums; }
figure, .wide { margin: 0; overflow-x: auto; }
"""

# Notebooks show light pages to readers who chose dark, so what counts is the theme that they name: JupyterLab and
# nbconvert, Visual Studio Code, Colab, Sphinx.
_DARK_THEMES = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    '[theme="dark"]',
    '[data-theme="dark"]',
)
# Three times, so that the rules of a notebook for the elements of its outputs weigh less.
_CARD = ".pykittens.pykittens.pykittens"
_BOX = (
    "border: 1px solid var(--rule); border-radius: 8px; padding: .7rem 1rem; "
    "max-width: 76rem; box-sizing: border-box;"
)
_CARD_STYLE = """\
pre, code { color: inherit; background: none; padding: 0; border: none; }
pre { white-space: pre; overflow-x: auto; }
.title { font-size: 1.15rem; margin: 0; }
.part { font-size: 1rem; }
& > .part { margin: 0 0 .3rem; }
table { table-layout: auto; margin: .2rem 0; }
tr:nth-child(n), tr:nth-child(n):hover { background: none; color: inherit; }
th, td { font-size: 13px; line-height: 1.5; text-align: left; }
dt, dd { font-weight: normal; padding: 0; float: none; width: auto; }
details { margin: .5rem 0 0; }
summary { cursor: pointer; color: var(--muted); }
"""


def fragment(body: str, style: str = "") -> str:
    """The body as a card in a notebook; `style` adds rules."""
    dark = ", ".join(f"{theme} {_CARD}" for theme in _DARK_THEMES)
    return (
        f'<div class="pykittens"><style>\n{_CARD} {{ {LIGHT} {TEXT} {_BOX} }}\n{dark} {{ {DARK} }}\n'
        f"{_CARD} {{\n{STYLE}{style}{_CARD_STYLE}}}\n</style>\n{body}\n</div>"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """A table that can be scrolled; `right` says which columns are aligned to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        styles = (' class="number"' if is_right else "" for is_right in right)
        shown = (f"<{tag}{style}>{escape(c)}</{tag}>" for c, style in zip(row, styles, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    head, body = cells("th", columns), "".join(f"{cells('td', row)}\n" for row in rows)
    return f'<div class="wide"><table class="numbers"><thead>{head}</thead><tbody>\n{body}</tbody></table></div>'
