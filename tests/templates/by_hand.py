"""The normalisation of kernels.py written with roles and pipelines, for comparison with the template's."""

import pykittens as pk
from pykittens import f32


@pk.kernel
def rms_norm(x, y, *, eps=1e-6):
    """y = x / sqrt(mean(x^2) + eps) along rows of at most 128 elements."""
    pk.require(x.shape == y.shape, "x and y must have one shape")
    pk.require(x.cols <= 128, "a row must have at most 128 elements")
    n = pk.static(x.cols)
    tile = pk.st(x.dtype, 64, pk.cdiv(n, 16) * 16)
    inputs, outputs = pk.pipeline(3, tile), pk.pipeline(2, tile)
    tasks = pk.persistent((pk.cdiv(x.rows, 64),))

    with pk.producer():
        for (block,) in tasks:
            with inputs.fill() as s:
                pk.load_async(s, x[block])

    with pk.consumers(1) as worker:  # noqa: F841, the template names the index too
        for (block,) in tasks:
            with inputs.drain() as s, outputs.fill() as out:
                t = pk.load(s).to(f32)
                scale = pk.rsqrt(pk.row_sum(t * t) / n + eps)
                pk.store(out, (t * scale).to(y.dtype))

    with pk.storer():
        for (block,) in tasks:
            with outputs.drain() as s:
                pk.store_async(y[block], s)
