"""Programs of small instructions, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import pykittens as pk
from pykittens.mega import Program

LENGTH = 64  # of a cell


class Cell(NamedTuple):
    """An instruction that writes a cell, from one or two others."""

    kind: str
    out: int
    a: int
    b: int = 0
    block: int | None = None


def cells(blocks: int, dynamic: bool = False) -> Program:
    """A program of cells, vectors of a tensor, with kinds that read and write them in all ways."""
    program = Program(blocks, dynamic=dynamic)

    @program.instruction
    def add(x, *, a, b, out):
        """x[out] = x[a] + x[b], through rings, by the copy engine."""
        ring = pk.pipeline(2, pk.sv(pk.f32, LENGTH))
        sums = pk.pipeline(1, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            with ring.fill() as s:
                pk.load_async(s, x[a, 0])
            with ring.fill() as s:
                pk.load_async(s, x[b, 0])
        with pk.warps(2) as w:
            with ring.drain() as s:
                y = pk.load(s.parts(LENGTH // 2)[w])
            with ring.drain() as s:
                y = y + pk.load(s.parts(LENGTH // 2)[w])
            with sums.fill() as s:
                pk.store(s.parts(LENGTH // 2)[w], y)
        with pk.storer(), sums.drain() as s:
            pk.store_async(x[out, 0], s)

    @program.instruction
    def double(x, *, a, out):
        """x[out] = 2 x[a], by the warps alone, each a half."""
        with pk.warps(2) as w:
            pk.store(x[out, w], 2 * pk.load(x[a, w], cols=LENGTH // 2))

    @program.instruction
    def total(x, *, a, out):
        """x[out] = x[a] + ... + x[a + 2], in a loop."""
        ring = pk.pipeline(3, pk.sv(pk.f32, LENGTH))
        with pk.producer():
            for i in pk.range(a, a + 3):
                with ring.fill() as s:
                    pk.load_async(s, x[i, 0])
        with pk.warps(2) as w:
            y = pk.zeros(pk.f32, LENGTH // 2)
            for _ in pk.range(3):
                with ring.drain() as s:
                    y = y + pk.load(s.parts(LENGTH // 2)[w])
            pk.store(x[out, w], y)

    return program


def added(program: Program, steps: Sequence[Cell]) -> Program:
    """The program with these instructions, on their blocks unless it is dynamic."""
    kinds = {kind.name: kind for kind in program.kinds}
    for step in steps:
        fields = {"a": step.a, "out": step.out} | ({"b": step.b} if step.kind == "add" else {})
        block = None if program.dynamic else step.block
        program.add(kinds[step.kind], block=block, **fields)
    return program


def sequential(steps: Sequence[Cell], x: np.ndarray) -> np.ndarray:
    """What the instructions compute one after another."""
    x = x.copy()
    for step in steps:
        match step.kind:
            case "add":
                x[step.out] = x[step.a] + x[step.b]
            case "double":
                x[step.out] = 2 * x[step.a]
            case "total":
                x[step.out] = x[step.a : step.a + 3].sum(axis=0)
    return x


def random_steps(rng: np.random.Generator, inputs: int, count: int, blocks: int) -> list[Cell]:
    """Instructions that write a cell each, after `inputs` that are given, from cells before it."""
    steps = []
    for out in range(inputs, inputs + count):
        kind = str(rng.choice(["add", "double", "total"]))
        a = int(rng.integers(0, out - 2 if kind == "total" else out))
        steps.append(Cell(kind, out, a, int(rng.integers(0, out)), int(rng.integers(0, blocks))))
    return steps


def random_rewrites(rng: np.random.Generator, cells: int, count: int, blocks: int) -> list[Cell]:
    """Instructions that write one of a few cells each, from others of them or, by lanes, from itself."""
    steps = []
    for _ in range(count):
        kind = str(rng.choice(["add", "double", "total"]))
        a = int(rng.integers(0, cells - 2 if kind == "total" else cells))
        b = int(rng.integers(0, cells))
        read = {*range(a, a + 3)} if kind == "total" else {a, b} if kind == "add" else {*()}
        out = int(rng.choice([cell for cell in range(cells) if cell not in read]))
        steps.append(Cell(kind, out, a, b, int(rng.integers(0, blocks))))
    return steps
