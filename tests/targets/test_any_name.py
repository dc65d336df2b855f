"""Kernels, parameters, tiles, pipelines and indices may have any name that Python accepts."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from pykittens.runtime import nvrtc
from pykittens.targets.architectures import target_for
from pykittens.targets.cuda.program import header
from pykittens.targets.names import FUNCTIONS, RESERVED, c_name, declared, kernel_name
from tests.targets.compiling import matrix

needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
KEYWORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl "
    "concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default "
    "delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long "
    "mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register "
    "reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template "
    "this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while "
    "xor xor_eq"
).split()
ODD = (
    "_ __ κ κλ ª std __global__ __pk_x _State__x _A NULL INT_MAX cudaStreamDefault linux unix threadIdx blockIdx "
    "warpSize printf half main pk_tensor malloc int32_t TensorMap store_box BOXES_OUT UNROLL thread warp lane ring "
    "ring_full t t1 cosf place_of memcpy float4 uint4 size_t restrict kernel stream n0 x_s0 x_n0 x_map task rank"
).split() + ["x" * 300, "κ" * 300]
SOURCE = '''
import pykittens as pk

@pk.kernel
def {kernel}({x}, {y}, {n}):
    """A docstring that ends in a backslash \\\\
    and in ??/
    */ \\\\"""
    {ring} = pk.pipeline(2, pk.st(pk.f32, 64, 32))
    with pk.producer():
        for {i} in pk.range({n}):  # \\
            with {ring}.fill() as {tile}:
                pk.load_async({tile}, {x}[{i}])
    with pk.consumers(1) as {group}:
        {acc} = [pk.zeros(pk.f32, 64, 32), 0]
        for {i} in pk.range({n}):
            with {ring}.drain() as {tile}:
                {acc}[0] = {acc}[0] + pk.load({tile})
            {acc}[1] = {acc}[1] + {i}
        pk.store({y}[{group}], {acc}[0] + {acc}[1].to(pk.f32))
    pk.grid(1)
'''
ROLES = ("kernel", "x", "y", "n", "ring", "i", "tile", "group", "acc")
NUMBER = itertools.count()


def made(folder, names):
    """The kernel whose names are these."""
    source = SOURCE.format(**dict(zip(ROLES, names, strict=True)))
    path = folder / f"named{next(NUMBER)}.py"
    path.write_text(source, encoding="utf-8")
    space: dict = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), space)
    kernels = [k for k in space.values() if hasattr(k, "emitted")]
    return kernels[-1]


def python_names():
    """Every odd name and every word of C++ and of the device functions that is a name in Python."""
    words = {*ODD, *KEYWORDS, *RESERVED, *FUNCTIONS, *declared(header(target_for("sm_90a")))}
    refused = {"pk", "False", "None", "True"}
    return sorted(w for w in words - refused if w.isidentifier() and not is_keyword(w))


def is_keyword(word):
    try:
        compile(f"{word} = 1", "", "exec")
    except SyntaxError:
        return True
    return False


def test_no_name_is_a_word_of_cpp_or_of_the_device_functions():
    functions = header(target_for("sm_90a"))
    assert set(KEYWORDS) <= set(RESERVED)
    for name in python_names():
        assert c_name(name).isascii()
        assert len(c_name(name)) <= 101
        assert not kernel_name(name).startswith("__")
        assert kernel_name(name).strip("_")
    assert {"store_box", "place_of", "fence_async", "UNROLL", "Turn"} <= declared(functions)


@needs_compiler
@pytest.mark.parametrize("seed", range(6))
def test_a_kernel_compiles_whatever_its_names(tmp_path, seed):
    names = python_names()
    random.Random(seed).shuffle(names)
    chosen = [ODD[(seed * 9 + k) % len(ODD)] for k in range(9)] if seed < 4 else names[: len(ROLES)]
    kernel = made(tmp_path, list(dict.fromkeys([*chosen, *names]))[: len(ROLES)])
    x, y = matrix(128, 32, dtype=np.dtype(np.float32)), matrix(64, 32, dtype=np.dtype(np.float32))
    kernel.compile(x, y, 2)
