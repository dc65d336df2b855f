"""The style sheets of a report: of its page, which follows the reader's choice of light or dark, and of a notebook."""

from pykittens.pictures.markup import DARK, LIGHT, TEXT
from pykittens.pictures.markup import STYLE as SHARED

STYLE = """\
.is-error { --level: var(--error); }
.is-warning { --level: var(--warning); }
.is-note { --level: var(--note); }
.is-fine { --level: var(--fine); }
.holds, .replay, .ignored { color: var(--muted); font-size: .85rem; }
.verdict { color: var(--level); font-weight: bold; }
.finding {
  border: 1px solid var(--rule); border-left: 4px solid var(--level); border-radius: 6px;
  padding: .4rem 1rem .7rem; margin: 1rem 0;
}
.finding h2, .finding .part { margin: .3rem 0; }
.finding pre { background: var(--blank); border-radius: 4px; padding: .4rem .7rem; overflow-x: auto; }
.badge {
  background: var(--level); color: var(--paper); border-radius: 4px; padding: .05rem .4rem; font-size: .8rem;
}
.step { margin-top: .6rem; }
.help b, .missing b { color: var(--level); }
.listing { width: 100%; border: 1px solid var(--rule); }
.listing td { padding: 0 .6rem; vertical-align: top; }
.listing td:first-child {
  width: 1%; text-align: right; color: var(--muted); border-right: 1px solid var(--rule); user-select: none;
  font: 13px/1.5 Menlo, Consolas, 'DejaVu Sans Mono', monospace;
}
.listing td:last-child { text-align: right; color: var(--muted); font-size: .8rem; }
.listing td:last-child span { display: block; white-space: nowrap; }
.listing .is-error, .listing .is-warning, .listing .is-note { background: var(--blank); }
.listing .is-error td:first-child, .listing .is-warning td:first-child, .listing .is-note td:first-child {
  color: var(--level); font-weight: bold; box-shadow: inset 4px 0 var(--level);
}
.mark { display: block; color: var(--level); font-size: .85rem; text-decoration: none; }
.mark:hover { text-decoration: underline; }
.steps svg { max-width: 100%; height: auto; }
"""

PAGE_STYLE = f"""\
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
body {{ margin: 0; {TEXT} }}
main {{ max-width: 76rem; margin: 0 auto; padding: 1.5rem; }}
section + section {{ border-top: 1px solid var(--rule); margin-top: 3rem; }}
nav li {{ margin: .2rem 0; }}
nav a {{ color: var(--ink); }}
{SHARED}{STYLE}\
@media print {{
  figure, .wide, .finding pre {{ overflow: visible; }}
  pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
}}
"""
