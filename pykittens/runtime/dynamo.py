"""Functions that torch.compile leaves out of its graphs, with all that they call; PyTorch is not imported here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, FunctionType
from typing import Any

# Codes of functions that were left out before Dynamo was imported.
_waiting: list[CodeType] = []


def leave_out(function: Any, reason: str) -> None:
    """Break the graph of torch.compile at a call of a Python function, with this reason, and run the call untraced.

    torch.compiler.disable does the same by a wrapper, which imports PyTorch and takes time in each call.
    """
    assert isinstance(function, FunctionType)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    if "torch._dynamo" in sys.modules:
        _skip_frames([function.__code__])
        return
    if not any(isinstance(finder, _BeforeDynamo) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeDynamo())
    _waiting.append(function.__code__)


class _BeforeDynamo(MetaPathFinder):
    """Finds no module: it is asked when Dynamo, PyTorch's tracer, is about to be imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == "torch._dynamo":
            # It stays in sys.meta_path, over which the import that asks is iterating.
            _skip_frames(_waiting)
            _waiting.clear()


def _skip_frames(codes: list[CodeType]) -> None:
    """Keep Dynamo from the frames of functions and of all that they call.

    After the graph break it would otherwise trace the function's own frame and the others.
    """
    frames: Any = sys.modules["torch"]._C._dynamo.eval_frame
    # From PyTorch 2.7; a release that names them otherwise traces more.
    if hasattr(frames, "set_code_exec_strategy") and hasattr(frames, "_FrameExecStrategy"):
        skip = frames._FrameAction.SKIP
        for code in codes:
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
