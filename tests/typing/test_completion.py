"""Editors complete the values of a kernel: Pyright's language server does, and jedi, which Jupyter asks."""

from __future__ import annotations

import inspect
import itertools
import json
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

import pykittens as pk

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "a_users_kernel.py"  # the server has its text; it is not written
SERVER = "from basedpyright.langserver import main; main()"
KERNEL = """import pykittens as pk
@pk.kernel
def own(x: pk.Global, bias, y):
    row, col = pk.grid(*x.tiles(64, 64))
    tile = pk.load(x[row, col], rows=64, cols=64)
    vector = pk.load(bias[col], cols=64, spread=pk.per_column)
    shared = pk.shared(pk.st(pk.f32, 64, 64))
    ring = pk.pipeline(2, a=pk.st(pk.f32, 64, 64), b=pk.st(pk.f32, 64, 64))
    with ring.drain() as stage:"""
# What stands before the cursor, and names that must be offered there.
NAMES = {
    "pk.": "kernel check grid load store row_sum mma_ABt per_row f32",
    "x.": "shape rows cols dtype tiles at window",
    "tile.": "shape rows cols dtype to",
    "pk.exp(tile).": "shape rows cols dtype to",
    "vector.": "length dtype to",
    "pk.row_sum(tile).": "length dtype to",
    "shared.": "shape rows cols tiles row",
    "ring.": "fill drain",
    "stage.a.": "shape rows cols tiles row",
}
# A word, its signature as the server shows it, and the object with its docstring.
WORDS = {
    "pk.load": ("load: Op[Load]", pk.load),
    "pk.row_sum": ("(tile: RegTile) -> RegVector", pk.row_sum),
    "pk.grid": (
        "def grid(\n    *dims: Int,\n    cluster: int | None = None\n) -> tuple[Scalar, ...]",
        pk.grid,
    ),
    "tile.to": ("to(dtype: DType) -> RegTile", pk.RegTile.to),
    "shared.tiles": ("rows: int", pk.SharedTile.tiles),
    "vector": ("vector: RegVector", None),
    "stage": ("stage: NamedTiles[SharedTile]", None),
}
LINES = [*KERNEL.splitlines(), *(f"        {line}" for line in (*WORDS, *NAMES))]
pytestmark = pytest.mark.types


class Editor:
    """A client of the language server, with the kernel open."""

    def __init__(self, server):
        self.server, self.numbers = server, itertools.count(1)
        folder, text = {"uri": ROOT.as_uri(), "name": ROOT.name}, "\n".join(LINES)
        self.ask("initialize", processId=None, workspaceFolders=[folder], capabilities={})
        self.send(method="initialized", params={})
        document = {"uri": FILE.as_uri(), "languageId": "python", "version": 1, "text": text}
        self.send(method="textDocument/didOpen", params={"textDocument": document})

    def send(self, **message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.server.stdin.flush()

    def ask(self, method, **params):
        self.send(id=(number := next(self.numbers)), method=method, params=params)
        while True:
            head = [*iter(lambda: self.server.stdout.readline().strip().lower(), b"")]
            (length,) = (int(x.split(b":")[1]) for x in head if x.startswith(b"content-length"))
            told = json.loads(self.server.stdout.read(length))
            if "method" in told and "id" in told:  # the server asks for settings and gets none
                self.send(id=told["id"], result=[{}] * len((told["params"] or {}).get("items", ())))
            elif told.get("id") == number:
                return told["result"]

    def at(self, line, method):
        """What the server answers at the end of a line."""
        place = dict(zip(("line", "character"), end_of(line), strict=True))
        return self.ask(
            f"textDocument/{method}", textDocument={"uri": FILE.as_uri()}, position=place
        )


def end_of(line):
    number = LINES.index(f"        {line}")
    return number, len(LINES[number])


@pytest.fixture(scope="module")
def editor():
    words = [sys.executable, "-c", SERVER, "--stdio"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as server:
        yield Editor(server)
        server.kill()


@pytest.mark.parametrize("line", NAMES)
def test_an_editor_offers_the_names_of_a_value(editor, line):
    offered = {item["label"] for item in editor.at(line, "completion")["items"]}
    assert offered >= set(NAMES[line].split())


@pytest.mark.parametrize("word", WORDS)
def test_an_editor_shows_the_signature_and_the_docstring(editor, word):
    signature, thing = WORDS[word]
    shown = editor.at(word, "hover")["contents"]["value"]
    assert signature in shown
    assert thing is None or inspect.getdoc(thing).splitlines()[0] in shown


# jedi has no type variables of objects that are called, as pk.exp is.
@pytest.mark.parametrize("line", [line for line in NAMES if "exp" not in line])
def test_jupyter_offers_the_names_of_a_value(line):
    number, column = end_of(line)
    found = jedi.Script("\n".join(LINES), path=FILE).complete(number + 1, column)
    assert {each.name for each in found} >= set(NAMES[line].split())
