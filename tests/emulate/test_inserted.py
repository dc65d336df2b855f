"""What the compiler inserted is listed, each node where it stands."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import pykittens as pk
from pykittens import bf16, f32
from pykittens.emulate.inserted import inserted
from pykittens.ir.nodes import walk
from tests.running import recorded

A, C = np.zeros((256, 64), ml_dtypes.bfloat16), np.zeros((64, 64), np.float32)


@pk.kernel
def product(A, C):
    ring, out = pk.pipeline(3, pk.st(bf16, 64, 64)), pk.pipeline(1, pk.st(f32, 64, 64))
    pk.grid(1)
    with pk.producer():
        for i in pk.range(A.rows // 64):
            with ring.fill() as t:
                pk.load_async(t, A[i])
    with pk.consumers(1):
        c = pk.zeros(f32, 64, 64)
        for i in pk.range(A.rows // 64):
            with ring.drain() as t:
                c = pk.mma_ABt(t, t, c)
        with out.fill() as o:
            pk.store(o, c)
    with pk.storer(), out.drain() as o:
        pk.store_async(C[0], o)


def test_everything_that_was_inserted_is_listed_in_order():
    found = [(p.role.kind, p.what, p.description) for p in inserted(recorded(product, A, C))]
    assert found == [
        ("producer", "wait", "until a stage of `ring` is free"),
        ("producer", "arrival", "the stage of `ring` is filled"),
        ("consumers", "wait", "until a stage of `ring` is full"),
        ("consumers", "wait", "until `c` is complete, of all products but the newest, 1 pending"),
        ("consumers", "release", "up to a stage of `ring` released, 1 still held"),
        ("consumers", "wait", "until a stage of `out` is free"),
        ("consumers", "wait", "until `c` is complete"),
        ("consumers", "release", "up to a stage of `ring` released"),
        ("consumers", "fence", "the engines see what was stored to the stage of `out`"),
        ("consumers", "arrival", "the stage of `out` is filled"),
        ("storer", "wait", "until a stage of `out` is full"),
        ("storer", "wait", "until all stores of the role have read their tiles"),
        ("storer", "release", "a stage of `out` released"),
        ("storer", "wait", "until all stores of the role have been written"),
    ]


def test_an_entry_names_its_node_and_the_user_s_line():
    kernel = recorded(product, A, C)
    entries = inserted(kernel)
    nodes = {id(n) for role in kernel.roles for n in walk(role.body)}
    assert all(id(p.node) in nodes for p in entries)
    lines = [p.loc.text.strip() for p in entries]
    assert lines[:3] == ["with ring.fill() as t:"] * 2 + ["with ring.drain() as t:"]
    assert lines[6] == "pk.store(o, c)"
    # A node after the last line of a role has the line of the role.
    assert lines[-1].startswith("with pk.storer()")


def test_a_fill_by_copies_only_has_no_fence():
    kernel = recorded(product, A, C)
    fences = [p for p in inserted(kernel) if p.what == "fence"]
    assert [p.node.acquire.pipeline.name for p in fences] == ["out"]
    (arrival,) = [p for p in inserted(kernel) if p.what == "arrival" and p.node is fences[0].node]
    assert arrival.role is fences[0].role
