"""Language models of the shape of Llama: checkpoints, a token in one launch, and text."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pykittens.models.loading import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """The function that loads a model, whose modules the command line does without for other commands."""
    if name == "load":
        return import_module("pykittens.models.loading").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
