"""Programs of small instructions, each by roles and by homes."""

from __future__ import annotations

from typing import Any

import numpy as np

import pykittens as pk
from pykittens import f32
from pykittens.mega import Program
from tests.mega.programs import LENGTH

WARPS, HALF = 2, LENGTH // 2
STYLES = ("homes", "roles")


def by_homes(program: Program, fetchers: int) -> None:
    """Add the kinds by homes; a kind has the fields a, b and out if it takes them."""

    @program.instruction
    def add_homes(x, *, a, b, out):
        """x[out] = x[a] + x[b], fetched."""
        ring = pk.pipeline(2, pk.sv(f32, LENGTH))
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        y, z = (pk.load(ring.fetch(x[i]).parts(HALF)[w]) for i in (a, b))
        pk.store(x[out, w], y + z)

    @program.instruction
    def double_homes(x, *, a, out):
        """x[out] = 2 x[a], by the consumers alone."""
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        pk.store(x[out, w], 2 * pk.load(x[a, w], cols=HALF))

    @program.instruction
    def total_homes(x, *, a, out):
        """x[out] = x[a] + ... + x[a + 2]; the warps have a half each of what they add, and the storer joins them."""
        ring, sums = pk.pipeline(3, pk.sv(f32, LENGTH)), pk.pipeline(1, pk.sv(f32, WARPS * LENGTH))
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        y = pk.zeros(f32, LENGTH)
        for i in pk.range(a, a + 3):
            y = y + pk.load(ring.stream(x[i])) * 0.5
        pk.store(x[out, 0], sums.join(y + (w * 0).to(f32)))


def by_roles(program: Program, fetchers: int) -> None:
    """Add the same kinds by roles."""

    @program.instruction
    def add_roles(x, *, a, b, out):
        """x[out] = x[a] + x[b], fetched."""
        ring = pk.pipeline(2, pk.sv(f32, LENGTH))
        with pk.warps(fetchers) as f:
            for i in (a, b):
                with ring.fill() as s:
                    if fetchers == 1:
                        pk.load_async(s, x[i])
                    else:
                        part = LENGTH // fetchers
                        pk.store(s.parts(part)[f], pk.load(x[i, f], cols=part))
        with pk.warps(WARPS) as w:
            with ring.drain() as s:
                y = pk.load(s.parts(HALF)[w])
            with ring.drain() as s:
                z = pk.load(s.parts(HALF)[w])
            pk.store(x[out, w], y + z)

    @program.instruction
    def double_roles(x, *, a, out):
        """x[out] = 2 x[a], by the consumers alone."""
        with pk.warps(fetchers):
            pass
        with pk.warps(WARPS) as w:
            pk.store(x[out, w], 2 * pk.load(x[a, w], cols=HALF))

    @program.instruction
    def total_roles(x, *, a, out):
        """x[out] = x[a] + ... + x[a + 2], by halves that the storer joins."""
        ring, sums = pk.pipeline(3, pk.sv(f32, LENGTH)), pk.pipeline(1, pk.sv(f32, WARPS * LENGTH))
        with pk.producer():
            for i in pk.range(a, a + 3):
                with ring.fill() as s:
                    pk.load_async(s, x[i])
        with pk.warps(fetchers):
            pass
        with pk.warps(WARPS) as w:
            y = pk.zeros(f32, LENGTH)
            for _ in pk.range(a, a + 3):
                with ring.drain() as s:
                    y = y + pk.load(s) * 0.5
            with sums.fill() as s:
                pk.store(s.parts(LENGTH)[w], y + (w * 0).to(f32))
        with pk.storer(), sums.drain() as s:
            pk.store(x[out, 0], pk.load(s.parts(LENGTH)[0]) + pk.load(s.parts(LENGTH)[1]))


def cells(blocks: int, *styles: str, fetchers: int = 1) -> Program:
    """A program with the kinds of these styles."""
    program = Program(blocks)
    for style in styles:
        (by_homes if style == "homes" else by_roles)(program, fetchers)
    return program


def tagged_cells(blocks: int, fetchers: int) -> Program:
    """A program of cells with tags: some given, the others sums of two, by homes or by roles."""
    program = Program(blocks)

    @program.instruction
    def give(x, given, *, out, tag):
        """x[out] = given[out]."""
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        pk.store_tagged(x[out, w], pk.load(given[out, w], cols=HALF), tag)

    @program.instruction
    def add_homes(x, *, a, b, out, tag):
        """x[out] = x[a] + x[b], fetched by their tags."""
        ring = pk.pipeline(2, pk.sv(f32, LENGTH))
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        y, z = (pk.load(ring.fetch(x[i], tag=tag).parts(HALF)[w]) for i in (a, b))
        pk.store_tagged(x[out, w], y + z, tag)

    @program.instruction
    def add_roles(x, *, a, b, out, tag):
        """The same by roles."""
        ring, part = pk.pipeline(2, pk.sv(f32, LENGTH)), LENGTH // fetchers
        with pk.warps(fetchers) as f:
            for i in (a, b):
                with ring.fill() as s:
                    pk.store(s.parts(part)[f], pk.load_tagged(x[i, f], tag, cols=part))
        with pk.warps(WARPS) as w:
            with ring.drain() as s:
                y = pk.load(s.parts(HALF)[w])
            with ring.drain() as s:
                z = pk.load(s.parts(HALF)[w])
            pk.store_tagged(x[out, w], y + z, tag)

    @program.instruction
    def handed(x, y, *, a, b, out, tag):
        """x[out] = x[a] + x[b], and y[out] the same without tags; the storer writes both."""
        ring, sums = pk.pipeline(2, pk.sv(f32, LENGTH)), pk.pipeline(1, pk.sv(f32, LENGTH))
        w = pk.homes(pk.warps(WARPS), fetchers=fetchers)
        u, v = (pk.load(ring.fetch(x[i], tag=tag).parts(HALF)[w]) for i in (a, b))
        total = pk.load(sums.hand(u + v))
        pk.store_tagged(x[out, 0], total, tag)
        pk.store(y[out, 0], total)

    return program


def random_cells(rng: np.random.Generator, inputs: int, count: int) -> list[dict[str, Any]]:
    """The fields of instructions that each write a cell after `inputs`, with what they do and where."""
    steps = []
    for out in range(inputs, inputs + count):
        what = str(rng.choice(["add", "double", "total"]))
        a = int(rng.integers(0, out - 2 if what == "total" else out))
        fields = {"a": a, "out": out} | ({"b": int(rng.integers(out))} if what == "add" else {})
        steps.append({"what": what, "fields": fields, "block": int(rng.integers(3))})
    return steps


def sequential(steps: list[dict[str, Any]], x: np.ndarray) -> np.ndarray:
    """What the instructions compute one after another."""
    x = x.copy()
    for step in steps:
        a, b, out = (step["fields"].get(name, 0) for name in ("a", "b", "out"))
        match step["what"]:
            case "add":
                x[out] = x[a] + x[b]
            case "double":
                x[out] = 2 * x[a]
            case "total":
                x[out] = x[a : a + 3].sum(axis=0)
    return x
