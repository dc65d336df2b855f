"""A compilation runs in a process of its own: what ends it, and what its end means for the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykittens.errors import BackendError
from pykittens.runtime import compiler, nvrtc
from pykittens.runtime.autotuner import Autotuner

pytestmark = pytest.mark.skipif(nvrtc.available() is not None, reason=f"{nvrtc.available()}")

STORE = 'extern "C" __global__ void store(float *p) { p[threadIdx.x] = 1.0f; }'
on_posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

Stand = Callable[[str], None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """`stand_in(text)`: a Python program in place of the one that compiles."""

    def replace(text: str) -> None:
        (tmp_path / "stand_in.py").write_text(text)
        monkeypatch.setattr(compiler, "__file__", str(tmp_path / "stand_in.py"))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return replace


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_process_and_the_program_itself_compile_the_same(monkeypatch):
    apart = nvrtc.compile(STORE, "sm_90a", "store.cu")
    monkeypatch.setattr(nvrtc, "_compiled_apart", lambda *_: None)
    assert nvrtc.compile(STORE, "sm_90a", "store.cu") == apart


@on_posix
@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL"])
def test_a_crash_is_an_error_with_the_signal_and_the_source(name, stand_in):
    stand_in(f"import os, signal, sys; print('free()', file=sys.stderr, flush=True)\n"
             f"os.kill(os.getpid(), signal.{name})")  # fmt: skip
    version = ".".join(map(str, nvrtc.version()))
    with pytest.raises(BackendError) as caught:
        nvrtc.compile(STORE, "sm_90a", "store")
    assert caught.value.message == (
        f"store: NVRTC {version} was ended by {name} while it compiled the kernel"
    )
    assert Path(str(caught.value.operands["source"])).read_text() == STORE
    assert caught.value.operands["library"] == nvrtc.library_path()
    assert caught.value.operands["output"] == "free()"
    word = "memory runs out" if name == "SIGKILL" else "nvidia-cuda-nvrtc"
    assert word in str(caught.value.help)


@pytest.mark.parametrize(
    "text",
    [
        "print('rubbish')",
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 9)",
        "import sys; sys.stdout.buffer.write(bytes([255]) * 64)",
        "pass",
        "import sys; sys.exit(3)",
        "raise MemoryError",
    ],
)
def test_a_process_without_a_result_is_an_error(text, stand_in):
    stand_in(text)
    with pytest.raises(BackendError, match=r"ended with code \d and without a result"):
        nvrtc.compile(STORE, "sm_90a", "store")


def test_what_a_library_prints_does_not_mix_with_the_result(stand_in):
    text = Path(compiler.__file__).read_text()
    begin = "    with open(reply, "
    assert begin in text
    stand_in(text.replace(begin, f"    os.write(1, b'ptxas info')\n{begin}"))
    assert nvrtc.compile(STORE, "sm_90a", "store").cubin.startswith(b"\x7fELF")


SLEEP = """
import os, pathlib, time
pathlib.Path(__file__).with_name(f"{os.getpid()}.pid").touch()
time.sleep(60)
"""


def pids(folder: Path, count: int) -> list[int]:
    """The compilers that have started, once there are `count`."""
    until = time.monotonic() + 30
    while len(found := [int(p.stem) for p in folder.glob("*.pid")]) < count:
        assert time.monotonic() < until, "the compilers do not start"
        time.sleep(0.01)
    return found


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also in a process that was started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@on_posix
def test_an_interrupt_ends_the_compilation_at_once(stand_in, tmp_path, interruptible):
    stand_in(SLEEP)
    begun: list[float] = []

    def interrupt() -> None:
        pids(tmp_path, 1)
        begun.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        nvrtc.compile(STORE, "sm_90a", "store")
    assert time.monotonic() - begun[0] < 5
    thread.join()
    assert not any(map(is_running, pids(tmp_path, 1)))


@on_posix
def test_an_interrupt_ends_the_compilations_of_a_tuning(
    stand_in, tmp_path, monkeypatch, interruptible
):
    stand_in(SLEEP)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    tuner = Autotuner("gemm", range(6), None, lambda step: None)
    begun: list[float] = []

    def interrupt() -> None:
        pids(tmp_path, 2)
        begun.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        tuner.compile(lambda i: nvrtc.compile(STORE, "sm_90a", f"store{i}"))
    assert time.monotonic() - begun[0] < 5
    thread.join()
    assert not any(map(is_running, pids(tmp_path, 2)))
    assert len(pids(tmp_path, 2)) == 2


# Goes on once another compiler runs at the same time.
MEET = """
import pathlib, sys, time
own = pathlib.Path(__file__)
with open(own.with_name("met"), "a") as file: file.write("x")
until = time.monotonic() + 30
while len(own.with_name("met").read_text()) < 2 and time.monotonic() < until: time.sleep(0.01)
sys.exit(0 if time.monotonic() < until else 7)
"""


def test_threads_compile_side_by_side(stand_in):
    stand_in(MEET)

    def compile(name: str) -> str:
        with pytest.raises(BackendError) as caught:
            nvrtc.compile(STORE, "sm_90a", name)
        return caught.value.message

    with ThreadPoolExecutor(2) as pool:
        assert all("code 0" in message for message in pool.map(compile, ("one", "two")))


@pytest.mark.parametrize("program", [None, "", "/usr/bin/blender", "/nowhere/python3"])
def test_a_program_that_cannot_start_python_compiles_in_its_own_process(program, monkeypatch):
    monkeypatch.setattr(sys, "executable", program)
    if program != "/nowhere/python3":
        monkeypatch.setattr(subprocess.Popen, "__init__", lambda *_, **__: pytest.fail("started"))
    assert nvrtc.compile(STORE, "sm_90a", "store").cubin.startswith(b"\x7fELF")


def test_a_frozen_program_compiles_in_its_own_process(monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda *_, **__: pytest.fail("started"))
    assert nvrtc.compile(STORE, "sm_90a", "store").cubin.startswith(b"\x7fELF")


@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
def test_a_compilation_ends_with_a_program_that_is_killed(stand_in, tmp_path):
    text = Path(compiler.__file__).read_text()
    begin = "    reply = os.dup(1)"
    assert begin in text
    touch = "open(f'{os.path.dirname(__file__)}/{os.getpid()}.pid', 'w').close()"
    stand_in(text.replace(begin, f"    {touch}\n    import time; time.sleep(60)\n{begin}"))
    program = (
        "import sys; from pykittens.runtime import compiler, nvrtc\n"
        "compiler.__file__ = sys.argv[1]; nvrtc.compile('', 'sm_90a', 'empty')"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, compiler.__file__],
        env={**os.environ, "PYTHONPATH": str(Path(nvrtc.__file__).parents[2])},
    )
    (pid,) = pids(tmp_path, 1)
    parent.kill()
    parent.wait()
    until = time.monotonic() + 10
    while is_running(pid) and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until, "the compiler runs on"
        time.sleep(0.01)


@pytest.mark.parametrize("parts", [{}, {"a": b""}, {"a": b"1", "größe": bytes(300)}])
def test_parts_are_read_as_they_were_written(parts):
    assert compiler.decode(compiler.encode(parts)) == parts


@pytest.mark.parametrize("data", [b"x", bytes([255]) * 20, compiler.encode({"a": b"12"})[:-1],
                                  compiler.encode({"a": b""})[:9], b"\1" + bytes(7) + b"\xff" + bytes(8)])  # fmt: skip
def test_bytes_that_are_no_parts_are_refused(data):
    with pytest.raises(ValueError, match=r".*"):
        compiler.decode(data)
