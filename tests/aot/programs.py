"""C launchers built and called through ctypes, on the stand-in for libcuda."""

from __future__ import annotations

import ctypes
import os
import shutil
from ctypes import c_bool, c_char_p, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pykittens.ir.values import Global
from pykittens.runtime.arrays import describe
from pykittens.runtime.compiled import Compiled
from tests.runtime.c_programs import build

C_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
# Arithmetic without a result in C ends the test.
SANITIZED = (*C_FLAGS, "-fsanitize=undefined", "-fno-sanitize-recover")
CPP_FLAGS = ("-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror")

# enum pk_code
PK_OK, PK_NO_DRIVER, PK_NO_CONTEXT, PK_SHARED_MEMORY = 0, 1001, 1002, 1004
PK_TENSOR, PK_STATIC, PK_ALIGNMENT, PK_REQUIRE, PK_RANGE, PK_CLUSTER, PK_OVERLAP, PK_AT_ONCE = (
    range(1005, 1013)
)

needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ here")


class Tensor(ctypes.Structure):
    """pk_tensor."""

    _fields_ = (("data", c_void_p), ("shape", c_int64 * 5), ("strides", c_int64 * 5))


def tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """An array as a C program describes it; the other axes hold values that no launcher may read."""
    found = describe(array)
    assert found is not None
    rest = [-7] * (5 - len(found.shape))
    return Tensor(
        found.address,
        (c_int64 * 5)(*found.shape, *rest),
        (c_int64 * 5)(*found.strides, *rest),
    )


class CLauncher:
    """A kernel's C launcher as a shared library that has the stand-in for its driver."""

    def __init__(self, made: Compiled, folder: Path, fake: Path) -> None:
        self.made, self.name, self.folder = made, made.source.name, folder
        made.write(folder)
        library = folder / f"{self.name}.so"
        path = f'-DPK_LIBCUDA="{fake}"'
        build(
            *SANITIZED, path, "-shared", "-fPIC", "-o", library, folder / f"{self.name}.c", "-ldl"
        )
        self.library = ctypes.CDLL(str(library))
        self._function("error_string").restype = c_char_p
        self._function("unload").argtypes = (c_void_p,)
        self._function("unload").restype = None
        self.handle = c_void_p()

    def _function(self, name: str) -> Any:
        return getattr(self.library, f"{self.name}_{name}")

    @property
    def error(self) -> str:
        """The sentence about the call that failed last."""
        text: bytes = self._function("error_string")()
        return text.decode()

    def load(self) -> int:
        """The code of loading the kernel."""
        return int(self._function("load")(ctypes.byref(self.handle)))

    def unload(self) -> None:
        self._function("unload")(self.handle)
        self.handle = c_void_p()

    def launch(self, *args: Any, stream: int = 0) -> int:
        """The code of a launch with arrays, Tensors and numbers."""
        if not self.handle and (code := self.load()) != 0:
            return code
        values = [self._value(a, p) for a, p in zip(args, self.made.kernel.params, strict=True)]
        return int(self._function("launch")(self.handle, c_void_p(stream), *values))

    def _value(self, value: Any, param: Any) -> Any:
        if isinstance(param, Global):
            made = tensor(value) if isinstance(value, np.ndarray) else value
            return None if made is None else ctypes.byref(made)
        return {"int": c_int32, "float": c_float, "bool": c_bool}[param.dtype.kind](value)


def environment(**values: object) -> dict[str, str]:
    """This process's environment with some values set."""
    return os.environ | {name: str(value) for name, value in values.items()}
