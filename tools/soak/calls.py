"""Random scripts of calls: tensors are made, changed, freed and their memory used again, in one thread or in several.

All numbers are exact, so a result that differs in a bit, the sign of a zero among them, is of old data, old arguments
or an old program.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import pykittens as pk
from pykittens.kernels.gemm import gemm
from tools.soak.part import Part

SLOTS = 4
TILE = 64
NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf"), float("nan"))


@dataclass(frozen=True)
class Make:
    """A slot gets a tensor of small whole numbers; what it held is freed.

    layout: "plain"; "padded", rows further apart than they are wide; "odd", one element past an aligned address;
    "repeated", all rows are one; "negated", a view whose sign PyTorch changes when it is read.
    """

    slot: int
    rows: int
    cols: int
    layout: str
    seed: int


@dataclass(frozen=True)
class Change:
    """PyTorch writes other numbers to the tensor of a slot."""

    slot: int
    seed: int


@dataclass(frozen=True)
class Call:
    """A call of a kernel of `kernels()` on slots; its output goes to a slot, and to the memory there if that fits."""

    kernel: str
    x: int
    y: int
    out: int
    number: float


Step = Make | Change | Call
Script = tuple[Step, ...]


def kernels() -> SimpleNamespace:
    """Kernels that have not been called yet."""

    def tasks(out: Any) -> tuple[Any, Any]:
        return pk.cdiv(out.rows, TILE), pk.cdiv(out.cols, TILE)

    @pk.kernel
    def scaled(x, out, factor):  # type: ignore[no-untyped-def]
        row, col = pk.grid(*tasks(out))
        pk.store(out[row, col], pk.load(x[row, col], rows=TILE, cols=TILE) * factor)

    @pk.kernel
    def added(x, y, out):  # type: ignore[no-untyped-def]
        row, col = pk.grid(*tasks(out))
        x, y = (pk.load(t[row, col], rows=TILE, cols=TILE) for t in (x, y))
        pk.store(out[row, col], x + y)

    @pk.kernel
    def grown(x, factor):  # type: ignore[no-untyped-def]
        row, col = pk.grid(*tasks(x))
        pk.store(x[row, col], pk.load(x[row, col], rows=TILE, cols=TILE) * factor)

    @pk.kernel
    def upper(x, out, count):  # type: ignore[no-untyped-def]
        """The first `count` rows of tiles; the grid depends on a number of the call."""
        row, col = pk.grid(count, pk.cdiv(out.cols, TILE))
        pk.store(out[row, col], pk.load(x[row, col], rows=TILE, cols=TILE))

    @pk.kernel
    def constant(x, out, *, factor):  # type: ignore[no-untyped-def]
        row, col = pk.grid(*tasks(out))
        pk.store(out[row, col], pk.load(x[row, col], rows=TILE, cols=TILE) * factor)

    return SimpleNamespace(
        scaled=scaled, added=added, grown=grown, upper=upper, constant=constant, gemm=gemm
    )


@dataclass(eq=False)
class Slot:
    """A tensor and the numbers that it should hold."""

    tensor: Any
    exact: np.ndarray[Any, Any]
    layout: str = "plain"


class Run:
    """The tensors of a script while it runs."""

    def __init__(self, kernels: SimpleNamespace, device: str) -> None:
        import torch

        self.torch, self.kernels, self.device = torch, kernels, device
        self.slots: list[Slot] = []
        for i in range(SLOTS):
            self.slots.append(self.made(Make(i, 40, 40, "plain", i)))

    def step(self, step: Step) -> str:
        """Do a step; the fault is that of a tensor which is freed or changed by it."""
        match step:
            case Make():
                fault = self.fault(step.slot)
                self.slots[step.slot] = self.made(step)
                return fault
            case Change():
                slot = self.slots[step.slot]
                fault = self.fault(step.slot)
                if slot.layout != "repeated":
                    slot.exact = _whole(step.seed, slot.exact.shape)
                    slot.tensor.copy_(self.torch.from_numpy(slot.exact))
                return fault
            case Call():
                x, y = self.slots[step.x], self.slots[step.y]
                y = y if y.exact.shape == x.exact.shape else x
                used = (x, y) if step.kernel == "added" else (x,)
                if step.kernel == "gemm" or all(s.layout != "negated" for s in used):
                    self.call(step, x, y)
                    return ""
                try:
                    self.call(step, x, y)
                except pk.KernelError:
                    return ""
                return "wrong: a negated view was taken"

    def made(self, step: Make) -> Slot:
        """The tensor of a step."""
        torch, shape = self.torch, (step.rows, step.cols)
        exact = _whole(step.seed, shape)
        if step.layout == "repeated":
            exact = np.repeat(exact[:1], step.rows, axis=0)
            row = torch.from_numpy(exact[0].copy()).to(self.device)
            return Slot(row.expand(shape), exact, step.layout)
        if step.layout == "negated":
            return Slot(torch._neg_view(self.filled(shape, -exact)), exact, step.layout)
        return Slot(self.filled(shape, exact, step.layout), exact, step.layout)

    def filled(self, shape: tuple[int, int], exact: Any, layout: str = "plain") -> Any:
        """A tensor of a layout that holds these numbers."""
        rows, cols = shape
        pitch = {"plain": cols, "padded": cols + 16, "odd": cols + 1}[layout]
        memory = self.torch.empty(rows * pitch + 1, device=self.device)
        tensor = memory.as_strided(shape, (pitch, 1), int(layout == "odd"))
        tensor.copy_(self.torch.from_numpy(exact))
        return tensor

    def output(self, slot: int, shape: tuple[int, ...]) -> Slot:
        """The memory of a slot if a result of this shape may go there, else new memory."""
        held = self.slots[slot]
        if held.exact.shape == shape and held.layout not in ("repeated", "negated"):
            return held
        unwritten = self.torch.full(shape, self.torch.nan, device=self.device)
        self.slots[slot] = Slot(unwritten, np.full(shape, np.nan, np.float32))
        return self.slots[slot]

    def call(self, step: Call, x: Slot, y: Slot) -> None:
        """Call a kernel, and keep what its output should be."""
        f = np.float32(step.number)
        if step.kernel == "grown":
            if x.layout != "repeated":
                self.kernels.grown(x.tensor, step.number)
                x.exact = _times(x.exact, f)
            return
        if step.kernel == "gemm":
            # Both signs of a zero come from sums of zeros, so only whole numbers go in.
            a = _whole(step.x, x.exact.shape)
            tensor = self.torch.from_numpy(a).to(self.device, self.torch.bfloat16)
            out = self.kernels.gemm(tensor, tensor, out_dtype=pk.f32, alpha=step.number)
            self.slots[step.out] = Slot(out, _times(a @ a.T, f))
            return
        # An output over an input is refused.
        place = next(i for i in (step.out, *range(SLOTS)) if self.slots[i] not in (x, y))
        out = self.output(place, x.exact.shape)
        match step.kernel:
            case "scaled":
                self.kernels.scaled(x.tensor, out.tensor, step.number)
                out.exact = _times(x.exact, f)
            case "constant":
                self.kernels.constant(x.tensor, out.tensor, factor=step.number)
                out.exact = _times(x.exact, f)
            case "added":
                self.kernels.added(x.tensor, y.tensor, out.tensor)
                with np.errstate(all="ignore"):
                    out.exact = x.exact + y.exact
            case "upper":
                count = 1 + step.y % -(-x.exact.shape[0] // TILE)
                out.tensor.fill_(step.number)
                out.exact = np.full_like(x.exact, f)
                self.kernels.upper(x.tensor, out.tensor, count)
                out.exact[: count * TILE] = x.exact[: count * TILE]
            case unknown:
                raise KeyError(unknown)

    def fault(self, slot: int) -> str:
        """Whether a slot holds other bits than it should; NaNs are alike."""
        found, exact = self.slots[slot].tensor.cpu().resolve_neg().numpy(), self.slots[slot].exact
        same = (found == exact) & (np.signbit(found) == np.signbit(exact))
        wrong = ~(same | np.isnan(found) & np.isnan(exact))
        if not wrong.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"wrong: {wrong.sum()} elements; at {at}: {found[at]} instead of {exact[at]}"


def _whole(seed: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def _times(x: Any, factor: Any) -> Any:
    with np.errstate(all="ignore"):
        return x * factor


def run(script: Script, kernels: SimpleNamespace, device: str) -> str:
    """The first fault of a script."""
    state = Run(kernels, device)
    for number, step in enumerate(script):
        if fault := state.step(step):
            return f"{fault}, found in step {number}: {step}"
    found = (state.fault(slot) for slot in range(SLOTS))
    return next((f"{fault}, found at the end" for fault in found if fault), "")


def call_fault(script: Script, on_gpu: bool) -> str:
    """The fault of a script that calls kernels which earlier scripts have called."""
    return run(script, SHARED, "cuda" if on_gpu else "cpu")


def thread_fault(scripts: tuple[Script, ...], on_gpu: bool) -> str:
    """The first fault of scripts that run at once, each in a thread and on a stream, with kernels not yet called."""
    import torch

    own, start = kernels(), threading.Barrier(len(scripts))
    faults: list[str] = []

    def work(script: Script) -> None:
        try:
            start.wait()
            if on_gpu:
                with torch.cuda.stream(torch.cuda.Stream()):
                    faults.append(run(script, own, "cuda"))
            else:
                faults.append(run(script, own, "cpu"))
        except Exception as fault:  # a thread that fails says so
            faults.append(f"{type(fault).__name__}: {fault}")

    threads = [threading.Thread(target=work, args=(script,)) for script in scripts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next((fault for fault in faults if fault), "")


def scripts(most: int) -> SearchStrategy[Script]:
    """Scripts of so many steps at most."""
    slot, seed = st.integers(0, SLOTS - 1), st.integers(0, 9)
    rows, cols = st.sampled_from((40, 1, 64, 65, 200)), st.sampled_from((40, 1, 64, 65, 128))
    layouts = st.sampled_from(("plain", "plain", "padded", "odd", "repeated", "negated"))
    names = st.sampled_from(tuple(vars(kernels())))
    make = st.builds(Make, slot, rows, cols, layouts, seed)
    call = st.builds(Call, names, slot, slot, slot, st.sampled_from(NUMBERS))
    step = st.one_of(make, st.builds(Change, slot, seed), call, call, call)
    return st.lists(step, min_size=1, max_size=most).map(tuple)


SHARED = kernels()
NAMES = "from tools.soak.calls import Call, Change, Make"
CALLS = Part(
    lambda seed, on_gpu: scripts(40),
    call_fault,
    NAMES,
    each=100,
    emulated=1_000,
    on_gpu=20_000,
)
THREADS = Part(
    lambda seed, on_gpu: st.lists(scripts(10), min_size=2, max_size=8).map(tuple),
    thread_fault,
    NAMES,
    each=10,
    emulated=40,
    on_gpu=500,
    seconds=120,
)
