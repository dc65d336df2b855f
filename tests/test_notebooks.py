"""The notebooks run in the emulator, twice in one session, and are committed without outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
FAILS = "raises-exception"  # the tag of a cell that shows an error

# Cells of which the second changes what a kernel reads, and the third the kernel.
CELLS = (
    """\
import numpy as np
import pykittens as pk
factor = 2.0
def scaled(t):
    return t * factor
@pk.kernel
def scale(x, y):
    pk.grid(1)
    pk.store(y[0, 0], scaled(pk.load(x[0, 0], rows=64, cols=64)))
x, y = np.ones((64, 64), np.float32), np.empty((64, 64), np.float32)
""",
    "scale(x, y); print(y[0, 0], pk.check(scale, x, y, costs=False, compile=False).verdict)",
    "factor = 3.0",
    "def scaled(t):\n    return t * factor + 1.0",
    """\
@pk.kernel
def scale(x, y):
    pk.grid(1)
    pk.store(y[0, 0], pk.load(x[0, 0], rows=64, cols=64) - 1.0)
""",
)


def read(path: Path) -> dict[str, Any]:
    contents: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return contents


class Session:
    """A running IPython kernel, whose cells return their outputs."""

    def __init__(self, client: Any, nbformat: Any) -> None:
        self.client, self.nbformat = client, nbformat

    def run(self, source: str, fails: bool = False) -> list[Any]:
        cell = self.nbformat.v4.new_code_cell(source, metadata={"tags": [FAILS] if fails else []})
        self.client.nb.cells.append(cell)
        self.client.execute_cell(cell, len(self.client.nb.cells) - 1)
        outputs = list(cell.outputs)
        assert fails == any(o.output_type == "error" for o in outputs)
        return outputs

    def text(self, source: str) -> str:
        return "".join(o.text for o in self.run(source) if o.output_type == "stream")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    # Nothing of the user's own set-up is read or written.
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(), timeout=300, resources={"metadata": {"path": str(ROOT)}}
    )
    with client.setup_kernel():
        yield Session(client, nbformat)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook["metadata"]["language_info"]) == {"name"}
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    for cell in notebook["cells"]:
        assert cell["metadata"] in ({}, {"tags": [FAILS]})
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.filterwarnings("default")  # those of Jupyter's own packages
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_each_cell_runs_again(path: Path, session: Session) -> None:
    cells = [c for c in read(path)["cells"] if c["cell_type"] == "code"]
    if any("import torch" in "".join(c["source"]) for c in cells):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    for _ in range(2):
        for cell in cells:
            fails = FAILS in cell["metadata"].get("tags", ())
            for output in session.run("".join(cell["source"]), fails):
                assert output.get("name") != "stderr", output.text
                # IPython keeps cells under names of their contents; what users see is their numbers.
                assert not re.search(r"\d{5,}\.py", str(output.get("data", "")))
                if output.output_type == "error":
                    assert_short(output.traceback)


def assert_short(traceback: list[str]) -> None:
    """The first line is the error's; the lines of cells have carets; no line of the package is shown."""
    first, *_ = text = "\n".join(traceback).splitlines()
    assert first.startswith(("TypeMismatch: ", "DeadlockError: "))
    assert any(line.strip().strip("^") == "" for line in text)
    assert any(line.startswith("called at Cell In[") for line in text)
    assert not any("pykittens/" in line or "site-packages" in line for line in text)
    assert len(text) < 20


@pytest.mark.filterwarnings("default")
def test_a_cell_that_changes_a_kernel_or_what_it_reads_is_noticed(session: Session) -> None:
    define, call, factor, helper, kernel = CELLS
    session.run(define)
    assert session.text(call) == "2.0 no fault found\n"
    session.run(factor)
    assert session.text(call) == "3.0 no fault found\n"
    session.run(helper)
    assert session.text(call) == "4.0 no fault found\n"
    session.run(kernel)
    assert session.text(call) == "0.0 no fault found\n"
    session.run(define)
    assert session.text(call) == "2.0 no fault found\n"


@pytest.mark.filterwarnings("default")
def test_values_are_shown_in_their_forms(session: Session) -> None:
    session.run(CELLS[0])
    session.run("report = pk.check(scale, x, y, compile=False)")
    for value in (
        "report",
        "report.tables[0]",
        "report.timeline",
        "scale",
        "pk.st(pk.f32, 64, 64)",
    ):
        (output,) = session.run(value)
        assert set(output.data) == {"text/html", "text/plain"}
        assert "Traceback" not in output.data["text/plain"]
    (output,) = session.run("scale")
    assert output.data["text/plain"] == "<kernel scale(x, y) at Cell In[1]:6>"
