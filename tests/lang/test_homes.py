"""Values with homes: kernels compute what they say, and are those that one writes with roles."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import pykittens as pk
from pykittens.ir.nodes import group_name
from pykittens.runtime.arguments import check
from pykittens.targets.emit import emit
from tests.lang import homes_kernels as kernels

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(0)


def numbers(*shape, dtype=BF16):
    return RNG.standard_normal(shape).astype(dtype)


def matvec_case(rows, cols):
    W, x = numbers(rows, cols), numbers(cols, dtype=np.float32)
    return (W, x, np.full(rows, np.nan, np.float32)), {}, W.astype(np.float32) @ x


def matmul_case(rows, cols, depth):
    A, B = numbers(rows, depth), numbers(cols, depth)
    C = np.full((rows, cols), np.nan, BF16)
    return (A, B, C), {}, A.astype(np.float32) @ B.astype(np.float32).T


def normed_case(rows, n):
    x, gain, W = numbers(1, n, dtype=np.float32), numbers(n, dtype=np.float32), numbers(rows, n)
    unit = x[0] / np.sqrt(np.mean(x * x) + 1e-5) * gain
    y = np.full(rows, np.nan, np.float32)
    return (x[0], gain, W, y), {"n": n}, W.astype(np.float32) @ unit


def decode_case(heads, keys):
    q = numbers(heads, kernels.HEAD, dtype=np.float32)
    K, V = (numbers(heads, keys, kernels.HEAD) for _ in range(2))
    s = np.einsum("hd,hkd->hk", q, K.astype(np.float32)) / 8
    p = np.exp(s - s.max(axis=1, keepdims=True))
    wanted = np.einsum("hk,hkd->hd", p, V.astype(np.float32)) / p.sum(axis=1, keepdims=True)
    return (q, K, V, np.full_like(q, np.nan)), {"scale": 0.125}, wanted


CASES = [
    ("matvec", matvec_case(48, 768)),
    ("matvec", matvec_case(40, 300)),
    ("matmul", matmul_case(128, 128, 128)),
    ("matmul", matmul_case(200, 152, 136)),
    ("normed", normed_case(80, 512)),
    ("normed", normed_case(56, 256)),
    ("decode", decode_case(2, 128)),
    ("decode", decode_case(3, 101)),
]
NAMED = [pytest.param(*case, id=f"{case[0]}{i % 2}") for i, case in enumerate(CASES)]


@pytest.mark.parametrize(("name", "case"), NAMED)
def test_kernels_compute_what_they_say_without_races(name, case):
    args, constants, wanted = case
    report = pk.check(getattr(kernels, name), *args, **constants, schedules=3)
    assert report.ok, str(report)
    out = args[-1]
    getattr(kernels, name)(*args, **constants)
    tolerance = 2e-2 if out.dtype == BF16 else 1e-4
    np.testing.assert_allclose(out.astype(np.float32), wanted, rtol=tolerance, atol=tolerance)


def normal(text):
    """The statements of the kernel of a CUDA text, with names by their first appearance in each block."""
    text = text[text.index('extern "C"') :]
    lines = [re.sub(r"//.*", "", line).strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith("#line")]
    scopes, count, found = [dict[str, str]()], 0, []
    for token in re.findall(r"[A-Za-z_]\w*|\n|[^A-Za-z_\n]+", "\n".join(kept)):
        for mark in re.findall(r"[{}]", token):
            if mark == "{":
                scopes.append({})
            else:
                scopes.pop()
        if re.match(r"[A-Za-z_]", token):
            known = next((scope[token] for scope in scopes if token in scope), None)
            if known is None:
                known, count = f"n{count}", count + 1
                scopes[-1][token] = known
            token = known
        found.append(token)
    return "".join(found).splitlines()


@pytest.mark.parametrize(("name", "case"), NAMED[::2])
def test_the_program_is_that_of_the_same_kernel_by_roles(name, case):
    args, constants, _ = case
    homes, roles = (
        normal(getattr(kernels, n).source(*args, **constants)) for n in (name, f"{name}_by_roles")
    )
    assert homes == roles


def test_the_work_of_each_home_is_timed_as_what_it_is_for():
    args, constants, _ = normed_case(64, 256)
    recorded = kernels.normed.record(check(kernels.normed.parameters, args, constants))
    source = emit(recorded, "sm_90a", clocks=True)
    assert {read.part for read in source.reads} >= {"fetch", "compute", "store"}
    names = {group_name(recorded, role, 0) for role in recorded.roles}
    assert names == {"producer", "fetchers", "consumers 0", "storer"}


def test_programs_with_homes_are_emitted_for_debugging_and_older_targets():
    for name, (args, constants, _) in CASES[::2]:
        kernel = getattr(kernels, name)
        recorded = kernel.record(check(kernel.parameters, args, constants))
        assert emit(recorded, "sm_90a", debug=True).sites
        assert kernel.source(*args, arch="sm_80", **constants)
