"""What a notebook shows is made by a part of the package that is loaded when it is first asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pykittens as pk


def test_pictures_are_loaded_when_one_is_first_asked_for() -> None:
    program = """if True:
        import sys, pykittens as pk
        def loaded():
            return {n for n in sys.modules if n.startswith(("pykittens.pictures", "pykittens.checker", "html"))}
        assert not loaded()
        assert "<svg" in pk.st(pk.bf16, 64, 64)._repr_html_()
        assert "pykittens.pictures.notebook" in loaded() and "IPython" not in sys.modules
    """
    root = Path(pk.__file__).parent.parent
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
