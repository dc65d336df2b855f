"""Functions that torch.compile leaves out of its graphs, with all that they call; PyTorch is not imported here."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType
from typing import Any

# Codes of functions that were left out before PyTorch was imported.
_waiting: list[CodeType] = []


def leave_out(function: Any, reason: str) -> None:
    """Break the graph of torch.compile at a call of a Python function, with this reason, and run the call untraced.

    torch.compiler.disable does the same by a wrapper, which imports PyTorch and takes time in each call.
    """
    assert isinstance(function, FunctionType)
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    if function.__code__ not in _waiting:
        _waiting.append(function.__code__)
    skip_frames()


def skip_frames() -> None:
    """Once PyTorch is imported, keep Dynamo from the frames of the functions that are left out, and from their calls.

    After the graph break Dynamo would otherwise trace the function's own frame, and those of all that it calls.
    """
    if not _waiting or (torch := sys.modules.get("torch")) is None:
        return
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):  # from PyTorch 2.7
        skip = frames._FrameAction.SKIP
        for code in _waiting:
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    _waiting.clear()
