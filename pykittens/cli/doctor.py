"""`pykittens doctor`: what is there, what is missing, and what would help."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.table import Table
from rich.text import Text

import pykittens
from pykittens.cli import checks, screen
from pykittens.cli.findings import Finding, Mark

_MARKS = {Mark.OK: ("✓", "green"), Mark.OPTIONAL: ("–", "yellow"), Mark.WRONG: ("✗", "bold red")}


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="check what kernels need here, and say what would help"
    )
    parser.add_argument("--json", action="store_true", help="print the findings for a program")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if something that should work here does not; a missing GPU is no fault."""
    findings = list(checks.examine())
    wrong = sum(f.mark is Mark.WRONG for f in findings)
    if arguments.json:
        print(json.dumps(_report(findings), indent=2))
    else:
        _print(findings, wrong)
    return 1 if wrong else 0


def _report(findings: list[Finding]) -> dict[str, Any]:
    return {
        "version": pykittens.__version__,
        "ok": all(f.mark is not Mark.WRONG for f in findings),
        "findings": [
            {"name": f.name, "mark": f.mark.value, "text": f.text, "help": f.help} for f in findings
        ],
    }


def _print(findings: list[Finding], wrong: int) -> None:
    console = screen.console()
    grid = Table.grid(padding=(0, 2))
    for style in ("", "bold", ""):
        grid.add_column(style=style, overflow="fold")
    for finding in findings:
        mark, style = _MARKS[finding.mark]
        text = Text(finding.text)
        if finding.help:
            text.append(f"\nwhat would help: {finding.help}", style="cyan")
        grid.add_row(Text(mark, style=style), finding.name, text)
    console.print(grid)
    legend = "  ".join(f"[{style}]{mark}[/] {m.value}" for m, (mark, style) in _MARKS.items())
    console.print(f"\n{legend}")
    if wrong:
        console.print(f"[bold red]{wrong} of {len(findings)} checks found a fault.[/]")
    else:
        console.print("Kernels can be emulated here" + _and_more(findings))


def _and_more(findings: list[Finding]) -> str:
    """What else than emulation works here, as the end of a sentence."""
    fine = {f.name.split()[0] for f in findings if f.mark is Mark.OK}
    compiled = ", compiled" if "compile" in fine else ""
    if "launch" in fine:
        return f"{compiled} and run on a GPU."
    return f"{compiled.replace(',', ' and')}."
