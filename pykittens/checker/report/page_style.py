"""The style sheet of a report's page, light and dark, in the colours of the pictures."""

from pykittens.pictures.svg import BLANK, HIGHLIGHT, INK, MUTED, PAPER, RULE

STYLE = f"""\
:root {{
  --ink: {INK}; --muted: {MUTED}; --paper: {PAPER}; --rule: {RULE}; --blank: {BLANK};
  --error: {HIGHLIGHT}; --warning: #9a6a00; --note: #1f6f8b; --fine: #2f7d4f;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --ink: #e4e7ec; --muted: #9aa4b2; --paper: #171b21; --rule: #38414d; --blank: #222831;
    --error: #ff8a7d; --warning: #e9bd5b; --note: #7cc6e0; --fine: #7fcf9c;
  }}
}}
.is-error {{ --level: var(--error); }}
.is-warning {{ --level: var(--warning); }}
.is-note {{ --level: var(--note); }}
.is-fine {{ --level: var(--fine); }}
body {{
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif;
}}
main {{ max-width: 76rem; margin: 0 auto; padding: 1.5rem; }}
h1 {{ font-size: 1.5rem; margin: 1.5rem 0 0; }}
h2 {{ font-size: 1.05rem; margin: 1.6rem 0 .5rem; }}
small, .where, .holds, .replay, .ignored, .hint {{ color: var(--muted); font-weight: normal; font-size: .85rem; }}
pre, code, dl {{ font: 13px/1.5 Menlo, Consolas, 'DejaVu Sans Mono', monospace; }}
pre {{ margin: 0; }}
p {{ margin: .3rem 0; }}
b {{ margin-right: .4em; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: .4rem 0; }}
dt {{ color: var(--muted); }}
dd {{ margin: 0; }}
section + section {{ border-top: 1px solid var(--rule); margin-top: 3rem; }}
.verdict {{ color: var(--level); font-weight: bold; }}
.finding {{
  border: 1px solid var(--rule); border-left: 4px solid var(--level); border-radius: 6px;
  padding: .4rem 1rem .7rem; margin: 1rem 0;
}}
.finding h2 {{ margin: .3rem 0; }}
.finding pre {{ background: var(--blank); border-radius: 4px; padding: .4rem .7rem; overflow-x: auto; }}
.badge {{
  background: var(--level); color: var(--paper); border-radius: 4px; padding: .05rem .4rem; font-size: .8rem;
}}
.step {{ margin-top: .6rem; }}
.help b, .missing b {{ color: var(--level); }}
table {{ border-collapse: collapse; }}
.listing {{ width: 100%; border: 1px solid var(--rule); }}
.listing td {{ padding: 0 .6rem; vertical-align: top; }}
.listing td:first-child {{
  width: 1%; text-align: right; color: var(--muted); border-right: 1px solid var(--rule); user-select: none;
  font: 13px/1.5 Menlo, Consolas, 'DejaVu Sans Mono', monospace;
}}
.listing td:last-child {{ text-align: right; color: var(--muted); font-size: .8rem; }}
.listing td:last-child span {{ display: block; white-space: nowrap; }}
.listing .is-error, .listing .is-warning, .listing .is-note {{ background: var(--blank); }}
.listing .is-error td:first-child, .listing .is-warning td:first-child, .listing .is-note td:first-child {{
  color: var(--level); font-weight: bold; box-shadow: inset 4px 0 var(--level);
}}
.mark {{ display: block; color: var(--level); font-size: .85rem; text-decoration: none; }}
.mark:hover {{ text-decoration: underline; }}
.numbers th, .numbers td {{
  text-align: left; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--rule);
}}
.numbers .number {{ text-align: right; font-variant-numeric: tabular-nums; }}
figure, .wide {{ margin: 0; overflow-x: auto; }}
nav li {{ margin: .2rem 0; }}
nav a {{ color: var(--ink); }}
@media print {{
  figure, .wide, .finding pre {{ overflow: visible; }}
  pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
}}
"""
