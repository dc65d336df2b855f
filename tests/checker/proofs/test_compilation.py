"""What the compiler refuses is an error at the user's line."""

from __future__ import annotations

import numpy as np
import pytest

import pykittens as pk
from pykittens.checker.proofs.compilation import try_compile
from pykittens.emulate.finding import Kind, Level, Scope
from pykittens.errors import ResourceError
from pykittens.runtime import compiled, nvrtc
from tests.running import recorded

X = np.zeros((64, 16), np.float32)
compiles = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")


@pk.kernel
def mapped(x, y, *, text="{0}", twice="{0}"):
    (row,) = pk.grid(1)
    t = pk.load(x[row], rows=64, cols=16)
    t = pk.inline_cuda(text, t, like=t, numpy=lambda a: a)
    t = pk.inline_cuda(twice, t, like=t, numpy=lambda a: a)
    pk.store(y[row], t)


@pk.kernel
def told(x, *, text=""):
    (row,) = pk.grid(1)
    pk.store(x[row], pk.zeros(pk.f32, 64, 16))
    pk.inline_cuda(text, numpy=lambda: None)


def errors(kernel, *args, **options):
    """The errors of a check with few schedules, which compiles though it omits the tables."""
    report = pk.check(kernel, *args, schedules=1, costs=False, **options)
    assert all(f.kind is Kind.FAULT and f.scope is Scope.ALWAYS for f in report.errors)
    return report.errors


def lines(finding):
    return [step.loc.text.strip() for step in finding.steps]


@compiles
def test_an_error_of_inline_cuda_is_found_at_its_line():
    (error,) = errors(mapped, X, X.copy(), twice="nonsense({0})")
    assert error.message == 'mapped does not compile for sm_90a: identifier "nonsense" is undefined'
    assert lines(error) == ["t = pk.inline_cuda(twice, t, like=t, numpy=lambda a: a)"]
    assert error.steps[0].loc.columns is not None
    assert "correct the text of pk.inline_cuda" in error.help


@compiles
def test_each_line_with_errors_is_a_finding():
    first, second = errors(mapped, X, X.copy(), text="one({0}) + two", twice="three + {0}")
    assert '"one" is undefined' in first.message
    assert '"three" is undefined' in second.message


@compiles
def test_an_error_of_the_assembler_is_found_at_the_inline_cuda():
    (error,) = errors(told, X.copy(), text='asm volatile("foo.bar;");')
    assert "told does not compile for sm_90a: Unknown modifier '.bar'" in error.message
    assert lines(error) == ["pk.inline_cuda(text, numpy=lambda: None)"]


@compiles
def test_the_compiler_runs_for_the_device_of_the_check():
    (error,) = errors(mapped, X, X.copy(), twice="three + {0}", device="A100 SXM")
    assert "for sm_80" in error.message


@compiles
def test_an_instruction_that_needs_too_many_registers_is_an_error(monkeypatch):
    def wide(*_):
        raise ResourceError("mapped: one instruction needs 300 registers per thread", help="fewer")

    monkeypatch.setattr(compiled.nvrtc, "compile", wide)
    monkeypatch.setattr(compiled.cache, "fetch", lambda key, build, *rest: build())
    (found,) = try_compile(recorded(mapped, X, X), "sm_90a").findings
    assert found.kind is Kind.RESOURCES
    assert found.level is Level.ERROR
    assert lines(found) == ['def mapped(x, y, *, text="{0}", twice="{0}"):']


def test_a_report_says_that_there_is_no_compiler(monkeypatch):
    monkeypatch.setattr(nvrtc, "available", lambda: "the NVRTC library was not found")
    report = pk.check(mapped, X, X.copy(), schedules=1, twice="nonsense({0})", costs=False)
    assert report.ok
    end = "; the kernel was not compiled, because the NVRTC library was not found"
    assert report.holds.endswith(end)
    assert not pk.check(mapped, X, X.copy(), schedules=1, compile=False).holds.endswith(end)


def test_a_check_may_leave_the_compiler_out(monkeypatch):
    monkeypatch.setattr("pykittens.checker.proofs.compilation.compile_kernel", None)
    report = pk.check(mapped, X, X.copy(), schedules=1, twice="nonsense({0})", compile=False)
    assert not report.findings


@compiles
def test_a_kernel_without_an_error_compiles():
    assert not pk.check(mapped, X, X.copy(), schedules=1, costs=False).findings
