"""Whole programs: the resources they need of a block, and launches that overlap."""

import functools
import itertools
import re

import numpy as np
import pytest

import pykittens as pk
from pykittens import bf16, f32
from pykittens.runtime import cubin, nvrtc
from pykittens.runtime.compiled import Compiled, compile_kernel
from pykittens.runtime.kernel import KernelFunction
from pykittens.targets.architectures import TARGETS
from pykittens.targets.cuda.program import emit
from tests.kernels_cluster import cluster_matmul
from tests.running import recorded
from tests.targets.compiling import CASES, matrix
from tests.tiers import sampled

F32 = np.dtype(np.float32)
needs_compiler = pytest.mark.skipif(nvrtc.available() is not None, reason=str(nvrtc.available()))
needs_nvdisasm = pytest.mark.skipif(cubin.disassembler() is None, reason="nvdisasm was not found")


def told(kernel, *args, **constants) -> str:
    with pytest.raises(pk.KernelError) as caught:
        kernel.compile(*args, **constants)
    return f"{caught.value}\n"


@pk.kernel
def full_of_stages(x, y, *, small):
    """Stages up to the last bytes, and a reduction over the warps of a group, which needs some more."""
    ring = pk.pipeline(14, pk.st(f32, 128, 32))
    pk.pipeline(small, pk.st(bf16, 16, 16))
    tasks = pk.persistent((1,))
    with pk.producer():
        for (i,) in tasks:
            with ring.fill() as t:
                pk.load_async(t, x[i, 0])
    with pk.warpgroups(1):
        for (i,) in tasks:
            with ring.drain() as t:
                row = pk.load(x[i], cols=32)
            pk.store(y[i], row * pk.sum(row))


@needs_compiler
def test_shared_memory_for_reductions_counts(monkeypatch):
    x = matrix(128, 32, dtype=F32)
    taken = full_of_stages.compile(x, x.copy(), small=1).resources.shared_bytes
    monkeypatch.setattr(TARGETS["sm_90a"], "shared_bytes", taken - 1)
    message = told(
        KernelFunction(full_of_stages.function, full_of_stages.options), x, x.copy(), small=1
    )
    assert (
        "sum: an exchange between the lanes of a group needs 16 bytes of shared memory, and 0 are left"
        in message
    )


@pk.kernel
def wide_products(A, B, C):
    """Three warpgroups with 256 columns each: more accumulators than their registers hold."""
    ring = pk.pipeline(1, a=pk.st(bf16, 192, 64), b=pk.st(bf16, 256, 64))
    tasks = pk.persistent(C.tiles(192, 256))
    with pk.producer():
        for row, col in tasks:
            with ring.fill() as s:
                pk.load_async(s.a, A[row, 0])
                pk.load_async(s.b, B[col, 0])
    with pk.consumers(3) as w:
        for row, col in tasks:
            with ring.drain() as s:
                acc = pk.mma_ABt(s.a.tiles(64, 64)[w], s.b)
            pk.store(C[row * 3 + w, col], acc)


@needs_compiler
def test_a_product_with_more_accumulators_than_registers():
    message = told(wide_products, matrix(256, 64), matrix(256, 64), matrix(256, 256, dtype=F32))
    assert re.match(
        r"wide_products: one instruction needs \d+ registers per thread, but a block of this size starts with 128\n",
        message,
    )


@pk.kernel
def many_products(A, B, out):
    """Three warpgroups with two products each from registers, and a warp that keeps them from trading registers."""
    a = pk.pipeline(1, pk.st(bf16, 192, 96))
    b = pk.pipeline(1, pk.st(bf16, 96, 96))
    c = pk.pipeline(1, pk.st(bf16, 96, 96))
    tasks = pk.persistent(out.tiles(192, 96))
    with pk.producer():
        for row, col in tasks:
            with a.fill() as s:
                pk.load_async(s, A[row, 0])
            with b.fill() as s:
                pk.load_async(s, B[col, 0])
    with pk.consumers(3) as w:
        for row, col in tasks:
            with a.drain() as s:
                x = pk.load(s.tiles(64, 96)[w]).to(pk.f32)
            y = pk.full(pk.f32, 0.5, 64, 96)
            with b.drain() as s, c.drain() as t:
                x = pk.mma_AB(x.to(bf16), s, x)
                y = pk.mma_AB(x.to(bf16), t, y)
            pk.store(out[row * 3 + w, col], x + y)
    with pk.warps(1):
        for _row, col in tasks:
            with c.fill() as s:
                for i in range(6):
                    pk.store(s.tiles(16, 96)[i], pk.load(B[col * 6 + i, 0], rows=16, cols=96))


@needs_compiler
def test_products_that_need_more_registers_than_their_block_has():
    message = told(many_products, matrix(256, 96), matrix(256, 96), matrix(256, 96, dtype=F32))
    assert message.startswith(
        "many_products: its products need more registers per thread than the 96 of a block of this size\n"
    )


# -- launches that overlap -------------------------------------------------------------------------


@pk.kernel
def read_before_the_roles(x, factors, y):
    """Rows of x times a factor that all threads read before the roles."""
    pk.overlap()
    (block,) = pk.grid(pk.cdiv(x.rows, 4))
    factor = pk.load(factors[block])
    with pk.warps(4) as w:
        pk.store(y[block * 4 + w], pk.load(x[block * 4 + w], cols=64) * factor)


@pk.kernel
def nothing_but_a_signal(flags):
    """A flag a block."""
    (block,) = pk.grid(flags.cols)
    pk.overlap()
    pk.signal(flags[block], 1)


@pk.kernel
def ready_weights(W, x, y):
    """y = W x; a producer runs ahead of the launch that writes x."""
    pk.overlap(ready=W)
    (block,) = pk.grid(W.rows // 16)
    pages = pk.pipeline(2, pk.st(f32, 16, 64))
    with pk.producer():
        for k in pk.range(W.cols // 64):
            with pages.fill() as page:
                pk.load_async(page, W[block, k])
    with pk.warps(1):
        total = pk.zeros(f32, 16, spread=pk.per_row)
        for k in pk.range(W.cols // 64):
            with pages.drain() as page:
                part = pk.load(x[k], cols=64, spread=pk.per_column)
                total = total + pk.row_sum(pk.load(page) * part)
        pk.store(y[block], total)


def test_a_role_waits_before_the_first_tensor_that_is_not_ready():
    args = matrix(64, 128, dtype=F32), np.zeros(128, F32), np.zeros(64, F32)
    program = recorded(ready_weights, *args)
    text = emit(program, TARGETS["sm_90a"]).program
    before, producer, warps = re.split(r"// producer\n|// warps\n", text)
    assert "earlier_launches_wait" not in before + producer
    assert warps.count("earlier_launches_wait();") == 1
    assert warps.index("earlier_launches_wait();") < warps.index("for (int k")
    assert "const float* x" in before
    assert "earlier_launches_wait" not in emit(program, TARGETS["sm_80"]).program


@pk.kernel
def ready_by_tickets(W, counter, y):
    """y = 2 W; tasks by tickets, whose counter the launch before may still change."""
    pk.overlap(ready=W)
    rows, out = (pk.pipeline(2, pk.st(f32, 16, 64)) for _ in range(2))
    tasks = pk.persistent((W.rows // 16,), tickets=counter)
    with pk.producer():
        for (i,) in tasks:
            with rows.fill() as t:
                pk.load_async(t, W[i, 0])
    with pk.warps(1):
        for (i,) in tasks:
            with rows.drain() as t:
                x = pk.load(t) * 2.0
            with out.fill() as t:
                pk.store(t, x)
    with pk.storer():
        for (i,) in tasks:
            with out.drain() as t:
                pk.store_async(y[i, 0], t)


def test_tickets_are_drawn_when_earlier_launches_have_ended():
    args = matrix(64, 64, dtype=F32), np.zeros(1, np.int32), np.zeros((64, 64), F32)
    text = emit(recorded(ready_by_tickets, *args), TARGETS["sm_90a"]).program
    producer = text[text.index("// producer") :]
    assert producer.index("earlier_launches_wait();") < producer.index("tickets.draw(")


def test_what_is_ready_is_not_written():
    @pk.kernel
    def writes(x):
        pk.overlap(ready=(x,))
        pk.grid(1)
        pk.store(x[0], pk.zeros(f32, 64))

    with pytest.raises(pk.KernelError, match="`x` is written, and `ready` of pk.overlap says that"):
        recorded(writes, np.zeros(64, F32))


@pk.kernel
def two_producers(x, y):
    """y = 2 x, with one producer for the left half and one for the right half."""
    pk.overlap()
    left, right = (pk.pipeline(2, pk.st(f32, 64, 32)) for _ in range(2))
    tasks = pk.persistent((x.rows // 64,))
    for half, ring in enumerate((left, right)):
        with pk.producer():
            for (i,) in tasks:
                with ring.fill() as t:
                    pk.load_async(t, x[i, half])
    with pk.consumers(1):
        for (i,) in tasks:
            for half, ring in enumerate((left, right)):
                with ring.drain() as t:
                    pk.store(y[i, half], pk.load(t) * 2)


F32_TILES = matrix(64, 64, dtype=F32)
OF_HEAD = ("add-f32", "softmax-1000-unaligned", "rms_norm-2048", "element", "signal")
OF_PRODUCER = ("matmul-aaa", "matmul-uuu", "attention-128-causal", "cluster", "two")
ALL = (*OF_HEAD, *OF_PRODUCER)
KERNELS = {
    **{name: (c.kernel, c.args, c.constants) for name, c in CASES.items() if name in ALL},
    "element": (read_before_the_roles, (F32_TILES, matrix(16, dtype=F32), F32_TILES.copy()), {}),
    "signal": (nothing_but_a_signal, (np.zeros(8, np.int32),), {}),
    "cluster": (cluster_matmul, tuple(matrix(256, 256) for _ in range(3)), {}),
    "two": (two_producers, (F32_TILES, F32_TILES.copy()), {}),
}
# Global memory and tensors, read, written or combined, by lanes or by the copy engine; a flag.
ACCESS = re.compile(r"(LD|LDG|ST|STG|ATOM|ATOMG|RED|REDG|LDGSTS|UBLK\w*|UTMA(?!CCTL)\w*)\b")
LOAD = re.compile(r"(LD|LDG|LDGSTS|UTMALDG)\b")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?([A-Z][A-Z0-9_]*)(.*)")
LABEL = re.compile(r"`\((\.L_x_\d+)\)")


@functools.cache
def compiled(
    name: str, arch: str = "sm_90a", debug: bool = False, overlaps: bool = True
) -> Compiled:
    """A kernel of the table, compiled with `pk.overlap()` or without."""
    kernel, args, constants = KERNELS[name]
    made = recorded(kernel, *args, **constants)
    made.overlaps = overlaps
    return compile_kernel(made, arch, debug)


def instructions(made: Compiled) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """Predicate, name and operands of each instruction, and the instruction after each label."""
    found: list[tuple[str, str, str]] = []
    labels: dict[str, int] = {}
    for line in made.sass.splitlines():
        if (label := re.match(r"(\.L_x_\d+):", line)) is not None:
            labels[label[1]] = len(found)
        elif (match := INSTRUCTION.search(line)) is not None:
            found.append((match[1] or "", match[2], match[3]))
    return found, labels


def targets(i: int, found: list[tuple[str, str, str]], labels: dict[str, int]) -> list[int]:
    """Instructions that may follow one, except the next; a call returns."""
    _, op, operands = found[i]
    assert op not in ("BRX", "JMP"), "it may lead anywhere"
    assert op != "BSYNC" or i + 1 in labels.values(), "threads meet elsewhere"
    return [labels[label[1]]] if op == "BRA" and (label := LABEL.search(operands)) else []


def reached(start: int, found: list[tuple[str, str, str]], labels: dict[str, int]) -> set[int]:
    """The instructions that a thread may reach after one."""
    seen: set[int] = set()
    left = [start + 1]
    while left:
        if (i := left.pop()) in seen or i == len(found):
            continue
        seen.add(i)
        left += targets(i, found, labels)
        predicate, op, operands = found[i]
        conditional = predicate or re.match(r"(\.\w+)*\s+(!?U?P\d|~?U?R\d)", operands)
        if op not in ("BRA", "EXIT", "RET") or conditional:
            left.append(i + 1)
    return seen


@needs_compiler
@needs_nvdisasm
@pytest.mark.parametrize(
    ("name", "debug"),
    sampled(
        itertools.product(ALL, (False, True)), lambda c: (c[0] in OF_HEAD, True) if c[1] else c[0]
    ),
)
def test_every_thread_waits_for_the_launches_before_ahead_of_any_access(name, debug):
    found, labels = instructions(compiled(name, debug=debug))
    waits = [i for i, (_, op, _) in enumerate(found) if op == "ACQBULK"]
    assert len(waits) == 1
    assert any(ACCESS.match(op) for _, op, _ in found[waits[0] :])
    assert found[waits[0]][0] == ""
    for i, (_, op, _) in enumerate(found[: waits[0]]):
        assert not ACCESS.match(op), op
        assert op not in ("EXIT", "CALL", "RET"), "a way round the wait"
        assert all(t <= waits[0] for t in targets(i, found, labels)), "a branch round the wait"


def start_of_next(name: str) -> tuple[int, list[tuple[str, str, str]], dict[str, int]]:
    """The instruction that starts the next launch: exactly one, without a condition, after the wait."""
    found, labels = instructions(compiled(name))
    named = [op for _, op, _ in found if op in ("ACQBULK", "PREEXIT")]
    assert named == ["ACQBULK", "PREEXIT"]
    at = next(i for i, (_, op, _) in enumerate(found) if op == "PREEXIT")
    assert found[at][0] == ""
    return at, found, labels


@needs_compiler
@needs_nvdisasm
@pytest.mark.parametrize("name", OF_HEAD)
def test_without_a_producer_the_next_launch_may_start_once_a_block_has_waited(name):
    at, found, _ = start_of_next(name)
    assert not any(ACCESS.match(op) for _, op, _ in found[:at])


@needs_compiler
@needs_nvdisasm
@pytest.mark.parametrize("name", OF_PRODUCER)
def test_with_a_producer_the_next_launch_may_start_at_its_end(name):
    at, found, labels = start_of_next(name)
    loads = {i for i, (_, op, _) in enumerate(found) if LOAD.match(op)}
    assert loads
    assert all(at in reached(i, found, labels) for i in loads)
    assert not loads & reached(at, found, labels)


@needs_compiler
@pytest.mark.parametrize("name", ALL)
def test_no_load_is_one_that_the_compiler_may_move_ahead_of_the_wait(name):
    made = compiled(name)
    assert "__restrict__" not in made.source.program
    assert "griddepcontrol.wait" in made.ptx
    assert "ld.global.nc" not in made.ptx


# Whether a kernel asks for it, and whether the target can.
WITHOUT = [("sm_90a", False), ("sm_80", True), ("sm_89", True)]


@needs_compiler
@pytest.mark.parametrize(("target", "overlaps"), WITHOUT)
@pytest.mark.parametrize("name", ["add-f32", "softmax-1000-unaligned"])
def test_programs_that_do_not_overlap_neither_wait_nor_start_the_next(name, target, overlaps):
    made = compiled(name, target, overlaps=overlaps)
    assert not made.source.overlaps
    assert "griddepcontrol" not in made.ptx
    assert re.search(r"const \w+( short)?\* __restrict__ [ax],", made.source.program)
    assert "ld.global.nc" in made.ptx


@needs_compiler
@pytest.mark.parametrize("debug", [False, True])
def test_a_kernel_overlaps_where_it_asks_for_it(debug):
    kernel, args, _ = KERNELS["element"]
    asks = compile_kernel(recorded(kernel, *args), "sm_90a", debug)
    assert asks.source.overlaps
    assert asks.source.program == compiled("element", debug=debug).source.program
    kernel, args, _ = KERNELS["add-f32"]
    assert not compile_kernel(recorded(kernel, *args), "sm_90a", debug).source.overlaps
