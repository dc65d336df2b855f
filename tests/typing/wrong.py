"""Mistakes that type checkers find: a comment names the rules of Pyright and mypy that report its line."""

from __future__ import annotations

import pykittens as pk


@pk.kernel
def moving(x: pk.Global, y: pk.Global, n: pk.Scalar) -> None:
    row, col = pk.grid(*x.tiles(64, 64))
    a, b, c = pk.grid(x.rows, x.cols)  # reportAssignmentType / misc
    t = pk.load(x[row, col], rows=64, cols=64)
    v = pk.load(x[row, col], cols=64)
    pk.load(x[row, col], row=64, cols=64)  # reportCallIssue / call-overload
    pk.load(x[row, col], rows=x.rows, cols=64)  # reportArgumentType / call-overload
    pk.load(t)  # reportArgumentType / call-overload
    pk.load(x[t, col])  # reportArgumentType / index
    pk.load(x["row", col])  # reportArgumentType / index
    pk.store(t, v)  # reportArgumentType / arg-type
    pk.store(y[row, col], x)  # reportArgumentType / arg-type
    pk.store(y[row, col], t, op="mean")  # reportArgumentType / arg-type
    pk.zeros(64, 64)  # reportArgumentType / call-overload
    pk.zeros(pk.f32, 64, n)  # reportArgumentType / call-overload
    for i in range(n):  # reportArgumentType / call-overload
        pass
    for j in pk.range(t):  # reportArgumentType / arg-type
        pass
    for part in t:  # reportGeneralTypeIssues / misc
        pass
    x.T  # reportAttributeAccessIssue / attr-defined
    x + 1  # reportOperatorIssue / operator


@pk.kernel
def computing(x: pk.Global, y: pk.Global, n: pk.Scalar) -> None:
    t, v = pk.zeros(pk.f32, 64, 64), pk.zeros(pk.f32, 64, spread=pk.per_row)
    t.T  # reportAttributeAccessIssue / attr-defined
    t.length  # reportAttributeAccessIssue / attr-defined
    v.rows  # reportAttributeAccessIssue / attr-defined
    t.to("f32")  # reportArgumentType / arg-type
    t[0]  # reportArgumentType / index
    t @ t  # reportOperatorIssue / operator
    t + "1"  # reportOperatorIssue / arg-type
    t + x  # reportOperatorIssue / arg-type
    pk.exp(x)  # reportArgumentType / type-var
    pk.exp(t, t)  # reportCallIssue / call-arg
    pk.maximum(t)  # reportCallIssue / call-overload
    pk.where(t > 0, t, x)  # reportArgumentType / call-overload
    pk.row_max(v)  # reportArgumentType / arg-type
    pk.sum(n)  # reportArgumentType / arg-type
    pk.row_sum(t).rows  # reportAttributeAccessIssue / attr-defined
    pk.cdiv(t, 64)  # reportArgumentType / call-overload
    pk.column(t, t)  # reportArgumentType / arg-type
    pk.mask(t, row=v, col=0, cols=64)  # reportArgumentType / arg-type
    pk.atomic_add(x[0], t)  # reportArgumentType / arg-type
    pk.atomic_add(t, 1)  # reportArgumentType / arg-type
    pk.gather(x, 3, cols=64)  # reportArgumentType / call-overload
    pk.spread(v, "per row")  # reportArgumentType / arg-type
    tile: pk.RegTile = pk.row_max(t)  # reportAssignmentType / assignment
    number: int = n + 1  # reportAssignmentType / assignment
    if v > 0:  # reportGeneralTypeIssues / -
        pass
    while t:  # reportGeneralTypeIssues / -
        pass


@pk.kernel
def staging(x: pk.Global, y: pk.Global) -> None:
    ring = pk.pipeline(3, a=pk.st(pk.bf16, 64, 64), b=pk.st(pk.bf16, 64, 64))
    one = pk.pipeline(3, pk.st(pk.bf16, 64, 64))
    vectors = pk.pipeline(3, pk.sv(pk.f32, 64))
    pk.pipeline(3, pk.bf16)  # reportArgumentType / call-overload
    ring.take()  # reportAttributeAccessIssue / attr-defined
    with pk.producer() as p, ring.fill() as s:
        p + 1  # reportOperatorIssue / operator
        pk.load_async(s, x[0, 0])  # reportArgumentType / arg-type
        pk.load_async(s.a, s.b)  # reportArgumentType / arg-type
        pk.load_async(s.a, x[0, 0], signals=None)  # reportCallIssue / call-arg
    with pk.consumers(2) as w, ring.drain() as s, one.drain() as t, vectors.drain() as v:
        w.rows  # reportAttributeAccessIssue / attr-defined
        s.a.T  # reportAttributeAccessIssue / attr-defined
        s.a.parts(16)  # reportAttributeAccessIssue / attr-defined
        s.a.row(0).parts(16)  # reportAttributeAccessIssue / attr-defined
        t.a  # reportAttributeAccessIssue / attr-defined
        t.to(pk.f32)  # reportAttributeAccessIssue / attr-defined
        v.parts(16).rows  # reportAttributeAccessIssue / attr-defined
        pk.row_max(t)  # reportArgumentType / arg-type
        pk.mma_AB(s.a, pk.load(s.b))  # reportArgumentType / arg-type
        pk.mma_AB(s.a, s.b, w)  # reportArgumentType / arg-type
        pk.mma_AB(s.a, s.b).length  # reportAttributeAccessIssue / attr-defined
        pk.load(t, rows=64, cols=64)  # reportArgumentType / call-overload
    full = pk.semaphore(1, count=2)
    full.wait(0)  # reportAttributeAccessIssue / attr-defined
    full[0].wait(x)  # reportArgumentType / arg-type


@pk.kernel  # reportArgumentType / arg-type
def result(x: pk.Global) -> pk.Scalar:
    return x.rows


@pk.kernel(warp=4)  # reportCallIssue / call-overload
def options(x: pk.Global) -> None:
    pass


def helper(t: pk.RegTile, limit: pk.Scalar) -> pk.RegVector:
    return pk.minimum(t, limit)  # reportReturnType / return-value


moving.compiles  # reportAttributeAccessIssue / attr-defined
