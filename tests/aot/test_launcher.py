"""The C of a kernel builds on any machine, loads if there is a GPU, and needs no Python."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pykittens as pk
from pykittens.aot.text import template
from pykittens.errors import LanguageError
from tests.aot.cases import (
    ADD,
    CASES,
    F32,
    MATMUL,
    zeros,
)
from tests.aot.programs import (
    C_FLAGS,
    CPP_FLAGS,
    PK_NO_CONTEXT,
    PK_NO_DRIVER,
    PK_OK,
    PK_REQUIRE,
    PK_SHARED_MEMORY,
    CLauncher,
    environment,
    needs_cpp,
)
from tests.runtime.c_programs import Log, build, compiled, needs_compiler

pytestmark = needs_compiler


# -- the texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_it_builds_as_c_without_a_warning(launchers: Any, name: str) -> None:
    case = CASES[name]
    launcher = launchers(case.kernel, *case.compiled_for, **case.constants)  # builds with -Werror
    text = (launcher.folder / f"{launcher.name}.c").read_text()
    build(
        *C_FLAGS, "-O2", "-c", "-o", launcher.folder / "o", launcher.folder / f"{launcher.name}.c"
    )
    assert max(map(len, text.splitlines())) <= 130


@needs_cpp
@pytest.mark.parametrize("name", CASES)
def test_it_builds_as_cpp_without_a_warning(launchers: Any, name: str) -> None:
    case = CASES[name]
    launcher = launchers(case.kernel, *case.compiled_for, **case.constants)
    source = launcher.folder / f"{launcher.name}.c"
    build(*CPP_FLAGS, "-c", "-o", launcher.folder / "o", source, compiler="g++")


def test_the_headers_of_two_kernels_go_together(launchers: Any, tmp_path: Path) -> None:
    headers = [
        next(launchers(c.kernel, *c.compiled_for, **c.constants).folder.glob("*.h"))
        for c in (CASES["add"], CASES["matmul"], CASES["add"])
    ]
    main = tmp_path / "main.c"
    body = "int main(void) { pk_tensor t = pk_packed(0, 2, (int64_t[]){2, 3}); return (int)t.strides[0] - 3; }"
    main.write_text("".join(f'#include "{h}"\n' for h in headers) + body)
    build(*C_FLAGS, "-o", tmp_path / "main", main)
    assert subprocess.run([tmp_path / "main"]).returncode == 0
    main.write_text(f'#define PK_LAUNCH_VERSION 0\n#include "{headers[0]}"\n{body}')
    with pytest.raises(AssertionError, match="different versions of pykittens"):
        build(*C_FLAGS, "-o", tmp_path / "main", main)


def without(text: str, *names: str) -> str:
    """A text with the contents of these files replaced by their names."""
    for name in names:
        assert text.count(template(name)) == 1
        text = text.replace(template(name), f"[{name}]\n")
    return text


def test_the_text_for_matmul_is_kept(golden: Callable[[str, str], None], launchers: Any) -> None:
    case = CASES["matmul"]
    launcher = launchers(case.kernel, *case.compiled_for)
    text = (launcher.folder / "matmul.c").read_text()
    text, data = text.split("// matmul.sm_90a.cubin\n")
    golden("aot/matmul.h", without((launcher.folder / "matmul.h").read_text(), "tensor.h"))
    text = without(text, "numbers.c", "launcher.c")
    golden("aot/matmul.c", re.sub(r"_cubin\[\d+\]", "_cubin[...]", text))
    values = re.findall(r"\b\d+(?=,)", data)
    assert bytes(map(int, values)) == launcher.made.cubin


def test_names_of_c_and_of_other_letters_are_changed(launchers: Any) -> None:
    case = CASES["class"]
    header = next(launchers(case.kernel, *case.compiled_for).folder.glob("*.h")).read_text()
    assert "const pk_tensor *new1" in header
    assert "const pk_tensor *_" in header
    assert "int32_t kernel1" in header
    assert "int32_t double1" in header


class Weights(NamedTuple):
    q: Any
    bias: Any = None


@pk.kernel
def weighted(x, weights, mask, y):
    """y = x * weights.q."""
    pk.require(weights.q.shape == x.shape, "weights.q and x have one shape")
    pk.grid(1)
    assert weights.bias is mask is None
    pk.store(y[0, 0], pk.load(x, rows=64, cols=64) * pk.load(weights.q, rows=64, cols=64))


def test_a_part_of_an_argument_is_a_parameter_and_none_is_a_constant(launchers: Any) -> None:
    x = zeros(64, 64, dtype=F32)
    launcher = launchers(weighted, x, Weights(x), None, x.copy())
    header = next(launcher.folder.glob("*.h")).read_text()
    assert "// weights_q: f32, rank 2" in header
    assert "// weights.bias: None, a constant of the kernel" in header
    assert "// mask: None, a constant of the kernel" in header
    parameters = re.findall(r"const pk_tensor \*(\w+)", header.partition("weighted_launch(")[2])
    assert parameters == ["x", "weights_q", "y"]
    assert launcher.launch(x, x, x.copy()) == PK_OK, launcher.error
    assert launcher.launch(x, x[:32], x.copy()) == PK_REQUIRE
    assert "weights.q and x have one shape" in launcher.error


def test_what_the_host_cannot_compute_in_c_is_reported() -> None:
    @pk.kernel
    def odd(x, y, a):
        pk.require(pk.exp(a) > 1.0, "a must be above 0")
        (i,) = pk.grid(x.rows)
        pk.store(y[i], pk.load(x[i], cols=8))

    x = zeros(8, 8, dtype=F32)
    with pytest.raises(LanguageError, match="odd: a C program cannot compute `exp`") as caught:
        compiled(odd, x, x, 1.0).write("/nonexistent/never/made")
    assert caught.value.loc is not None


# -- loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "code", "message"),
    [
        (
            "FAKE_CUDA_INIT",
            1,
            1,
            "starting the CUDA driver failed: CUDA_ERROR_INVALID_VALUE: invalid",
        ),
        ("FAKE_CUDA_NO_CONTEXT", 1, PK_NO_CONTEXT, "no CUDA context is current"),
        (
            "FAKE_CUDA_LOAD",
            209,
            209,
            "machine code for sm_90a failed: CUDA_ERROR_NO_BINARY_FOR_GPU",
        ),
        ("FAKE_CUDA_SHARED", 1000, PK_SHARED_MEMORY, r"needs \d+ bytes of shared memory a block"),
    ],
)
def test_a_kernel_that_cannot_be_loaded_is_reported(
    launchers: Any,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    value: int,
    code: int,
    message: str,
) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    launcher.unload()
    monkeypatch.setenv(setting, str(value))
    assert launcher.load() == code
    assert not launcher.handle
    assert re.search(message, launcher.error), launcher.error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("FAKE_CUDA_ENCODE", "encoding a tensor map of `A` failed: CUDA_ERROR_INVALID_VALUE"),
        (
            "FAKE_CUDA_LAUNCH",
            "launching 1 blocks of 384 threads with .* failed: CUDA_ERROR_INVALID",
        ),
    ],
)
def test_what_the_driver_says_to_a_launch_is_reported(
    launchers: Any, monkeypatch: pytest.MonkeyPatch, setting: str, message: str
) -> None:
    launcher = launchers(MATMUL, *CASES["matmul"].compiled_for)
    args = (zeros(64, 64), zeros(64, 64), zeros(64, 64))
    assert launcher.launch(*args) == PK_OK
    monkeypatch.setenv(setting, "1")
    assert launcher.launch(*args) == 1
    assert re.search(message, launcher.error), launcher.error


def test_a_machine_without_the_driver_is_reported(fake: Path, tmp_path: Path) -> None:
    made = compiled(ADD, *CASES["add"].compiled_for)
    launcher = CLauncher(made, tmp_path / "none", tmp_path / "libcuda.so.1")
    assert launcher.load() == PK_NO_DRIVER
    assert "the CUDA driver was not found" in launcher.error
    (tmp_path / "old.c").write_text("int cuInit(unsigned flags) { return (int)flags; }")
    build("-shared", "-fPIC", "-o", tmp_path / "old.so", tmp_path / "old.c")
    launcher = CLauncher(made, tmp_path / "old", tmp_path / "old.so")
    assert launcher.load() == PK_NO_DRIVER
    assert "older than CUDA 12" in launcher.error


PROGRAM = """
#include "add.h"
#include "matmul.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    static _Alignas(16) char memory[3][128 * 128 * 4];
    int64_t shape[] = {128, 128};
    pk_tensor a = pk_packed(memory[0], 2, shape), b = pk_packed(memory[1], 2, shape);
    pk_tensor c = pk_packed(memory[2], 2, shape);
    add_kernel *add;
    matmul_kernel *matmul;
    if (add_load(&add) || matmul_load(&matmul)) return 1;
    if (add_launch(add, NULL, &a, &b, &c) || matmul_launch(matmul, NULL, &a, &b, &c)) return 2;
    if (matmul_launch(matmul, NULL, &a, &b, &b) != PK_OVERLAP) return 3;
    puts(matmul_error_string());
    add_unload(add);
    matmul_unload(matmul);
    return 0;
}
"""


def test_a_program_launches_without_python(fake: Path, log: Log, tmp_path: Path) -> None:
    for name in ("add", "matmul"):
        compiled(CASES[name].kernel, *CASES[name].compiled_for).write(tmp_path)
    (tmp_path / "main.c").write_text(PROGRAM)
    sources = [tmp_path / f"{stem}.c" for stem in ("main", "add", "matmul")]
    build(*C_FLAGS, "-o", tmp_path / "main", *sources, "-ldl")
    done = subprocess.run(
        [tmp_path / "main"],
        env=environment(LD_LIBRARY_PATH=fake.parent),  # where dlopen finds libcuda.so.1
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert done.stdout == "matmul: the output `C` shares memory with `B`\n"
    assert [line.split(": ")[1] for line in log.take("launch")] == [
        "grid 4 1 1 block 128 1 1 shared 0 stream (nil)",
        f"grid 1 1 1 block 384 1 1 shared {compiled(MATMUL, *CASES['matmul'].compiled_for).source.shared_bytes} "
        "stream (nil)",
    ]
    log.take()
