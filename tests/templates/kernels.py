"""Kernels that use features of the template which the example does not."""

import pykittens as pk
from pykittens import bf16, f32
from pykittens.templates.lcsf import lcsf


@pk.kernel
def products(A, B, each, total, *, groups=2):
    """each[i, k] = A[i, k] @ B[k], total[i] their sum over k: an output a step, and a state to finish with."""
    steps = pk.cdiv(A.cols, 64)

    def setup():
        return pk.zeros(f32, 64, 64)

    def load(task, step, input):
        pk.load_async(input.a, A[task[0], step])
        pk.load_async(input.b, B[step])

    def compute(input, output, state, worker):
        left = input.a.tiles(64, 64)[worker]
        pk.store(output.tiles(64, 64)[worker], pk.mma_AB(left, input.b))
        return pk.mma_AB(left, input.b, state)

    def store(task, step, output):
        pk.store_async(each[task[0], step], output)

    def finish(task, state, worker):
        pk.store(total[task[0] * groups + worker], state)

    lcsf(
        load=load, compute=compute, store=store, finish=finish, setup=setup, steps=steps,
        tasks=pk.persistent((pk.cdiv(A.rows, groups * 64),)),
        inputs=pk.pipeline(2, a=pk.st(bf16, groups * 64, 64), b=pk.st(bf16, 64, 64)),
        outputs=pk.pipeline(2, pk.st(f32, groups * 64, 64)),
        consumers=pk.consumers(groups),
    )  # fmt: skip


@pk.kernel
def rms_norm(x, y, *, eps=1e-6):
    """y = x / sqrt(mean(x^2) + eps) along rows of at most 128 elements: tasks of one step, which fills the output."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    pk.require(x.cols <= 128, "a row must have at most 128 elements")
    n = pk.static(x.cols)
    tile = pk.st(x.dtype, 64, pk.cdiv(n, 16) * 16)  # columns behind the row read as zero

    def load(task, input):
        pk.load_async(input, x[task])

    def compute(input, output):
        t = pk.load(input).to(f32)
        scale = pk.rsqrt(pk.row_sum(t * t) / n + eps)
        pk.store(output, (t * scale).to(y.dtype))

    def store(task, output):
        pk.store_async(y[task], output)

    lcsf(
        load=load, compute=compute, store=store,
        tasks=pk.persistent((pk.cdiv(x.rows, 64),)),
        inputs=pk.pipeline(3, tile), outputs=pk.pipeline(2, tile),
        consumers=pk.consumers(1),
    )  # fmt: skip


@pk.kernel
def straight(A, C):
    """C = A @ A.T of each 64 rows by the least that can be said: one step, no state, no outputs."""
    lcsf(
        load=lambda task, input: pk.load_async(input, A[task[0]]),
        compute=lambda task, input: pk.store(C[task[0]], pk.mma_ABt(input, input)),
        tasks=pk.persistent((pk.cdiv(A.rows, 64),)),
        inputs=pk.pipeline(2, pk.st(bf16, 64, 64)),
        consumers=pk.consumers(1),
    )
