"""Generic instructions on this machine's GPU: a token of a model, products with vectors and matrices, attention.

A token of Llama-3.2-1B with random weights is one launch; beside it its layers as kernels of PyTorch in a CUDA graph.
Products with a vector are measured beside PyTorch's, attention beside this library's kernel, products beside cuBLAS.
docs/tuning/generic.md has the predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import record  # noqa: E402
import torch  # noqa: E402
from mega import launch_of  # noqa: E402
from protocol import Bench, bench_of, normal  # noqa: E402
from record import Row, about  # noqa: E402

from pykittens.kernels.attention import attention  # noqa: E402
from pykittens.mega.isa import Machine, halves_in_turn, in_turn  # noqa: E402

BLOCKS = 132


@dataclass(frozen=True)
class Sizes:
    """Of a Llama; by default of Llama-3.2-1B."""

    layers: int = 16
    width: int = 2048
    heads: int = 32
    of_keys: int = 8
    head: int = 64
    inner: int = 8192
    vocabulary: int = 128256
    capacity: int = 256


@dataclass
class Model:
    """Random weights of these sizes."""

    sizes: Sizes
    device: str
    table: torch.Tensor = field(init=False)
    layers: list[dict[str, torch.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        s, of_keys = self.sizes, self.sizes.of_keys * self.sizes.head
        self.table = self._weights(s.vocabulary, s.width)
        rows = {"q": s.heads * s.head, "k": of_keys, "v": of_keys, "gate": s.inner, "up": s.inner}
        self.layers = [
            {name: self._weights(n, s.width) for name, n in rows.items()}
            | {"o": self._weights(s.width, rows["q"]), "down": self._weights(s.width, s.inner)}
            | {name: self._gain() for name in ("before", "after")}
            for _ in range(s.layers)
        ]
        self.last, self.output = self._gain(), self._weights(s.vocabulary, s.width)
        turns = 5e5 ** -(torch.arange(s.head // 2, device=self.device) * 2 / s.head)
        angles = torch.arange(s.capacity, device=self.device)[:, None] * turns
        self.rope = torch.cat([angles.cos(), angles.sin()], 1)

    def _weights(self, rows: int, cols: int) -> torch.Tensor:
        return (normal(rows, cols, device=self.device) / cols**0.5).bfloat16()

    def _gain(self) -> torch.Tensor:
        return 1 + 0.1 * normal(self.sizes.width, device=self.device).float()

    def cache(self) -> torch.Tensor:
        s = self.sizes
        shape = 2 * s.layers, s.capacity, s.of_keys * s.head
        return normal(*shape, device=self.device).bfloat16()

    @property
    def bytes(self) -> int:
        """Of the weights that a token reads."""
        weights = [w for layer in self.layers for w in layer.values() if w.dim() == 2]
        return sum(2 * w.numel() for w in (*weights, self.output))


def token_of(model: Model, blocks: int, parts: int, **rings: Any) -> tuple[Machine, Any, Any]:
    """The machine that computes a token, its last hidden state and the logits."""
    s = model.sizes
    machine = Machine(
        blocks,
        chunk=min(s.width, 2048),
        head=s.head,
        heads=s.of_keys,
        layers=s.layers,
        capacity=s.capacity,
        vocabulary=s.vocabulary,
        **rings,
    )
    rope, h = machine.constant(model.rope), machine.vector(s.width)
    machine.embedding(h)
    for number, w in enumerate(model.layers):
        before, after = (machine.constant(w[name]) for name in ("before", "after"))
        heads = machine.vector((s.heads + s.of_keys) * s.head)
        rows = halves_in_turn(torch.cat([w["q"], w["k"]]), s.head)
        machine.norm_rotary(machine.weights(rows), h, before, rope, heads)
        q = heads.part(0, s.heads * s.head)
        k, v = heads.part(q.length, s.of_keys * s.head), machine.vector(s.of_keys * s.head)
        machine.norm_matvec(machine.weights(w["v"]), h, before, v)
        mixed, added = machine.vector(q.length), machine.vector(s.width)
        machine.attention(number, q, k, v, mixed, parts)
        machine.append(number, k, v)
        machine.matvec_add(machine.weights(w["o"]), mixed, h, added)
        gated, h = machine.vector(s.inner), machine.vector(s.width)
        machine.norm_gate(machine.weights(in_turn(w["gate"], w["up"])), added, after, gated)
        machine.matvec_add(machine.weights(w["down"]), gated, added, h)
    logits = machine.vector(s.vocabulary)
    machine.norm_matvec(machine.weights(model.output), h, machine.constant(model.last), logits)
    machine.argmax(logits)
    return machine, h, logits


def normed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """rms_norm in the dtype of x."""
    return torch.nn.functional.rms_norm(x, x.shape, gain.to(x.dtype), 1e-5)


def by_pytorch(
    model: Model, cache: torch.Tensor, token: Any, position: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The last hidden state and the logits, computed in a dtype."""
    s = model.sizes
    cos, sin = model.rope[position].to(dtype).split(s.head // 2)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        a, b = x.view(-1, s.head).split(s.head // 2, 1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], 1)

    def by(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return w.to(dtype) @ x

    h = model.table[token].reshape(-1).to(dtype)
    for number, w in enumerate(model.layers):
        x = normed(h, w["before"])
        q, k, v = rotated(by(w["q"], x)), rotated(by(w["k"], x)), by(w["v"], x)
        for i, new in enumerate((k, v)):
            cache[2 * number + i, position] = new.reshape(-1).to(cache.dtype)
        keys, values = (
            cache[2 * number + i, : position + 1].to(dtype).view(1, -1, s.of_keys, s.head).transpose(1, 2)
            for i in range(2)
        )  # fmt: skip
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q.view(1, s.heads, 1, s.head), keys, values, enable_gqa=True
        )
        h = h + by(w["o"], mixed.reshape(-1))
        x = normed(h, w["after"])
        h = h + by(w["down"], torch.nn.functional.silu(by(w["gate"], x)) * by(w["up"], x))
    return h, by(model.output, normed(h, model.last))


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def tokens(
    bench: Bench, sizes: Sizes, blocks: int, variants: list[tuple[int, int, int]]
) -> list[Row]:
    """A token at half of the capacity; variants: parts of attention, pages of the ring and on their way."""
    model, position, token = Model(sizes, bench.device), sizes.capacity // 2, sizes.vocabulary // 3
    cache = model.cache()
    contenders: dict[str, Callable[[int], Any]] = {}
    errors = {}
    for parts, pages, flight in variants:
        name = f"token, {parts} parts, {flight} of {pages} pages on their way"
        machine, h, logits = token_of(model, blocks, parts, pages=pages, flight=flight)
        own = cache.clone()
        tensors = machine.tensors(own, model.table)
        launch = machine.launcher(tensors)
        launch(position=position, token=token)
        wanted = by_pytorch(model, cache.clone(), token, position, torch.float32)
        errors[name] = relative(machine.values(tensors, h), wanted[0])
        if int(tensors["chosen"][0]) != int(wanted[1].argmax()):
            errors[name] = float("inf")
        contenders[name] = launch_of(machine.program, tensors)
    at, work = torch.tensor([token], device=bench.device), cache.clone()
    contenders["PyTorch"] = lambda _: by_pytorch(model, work, at, position, torch.bfloat16)
    *ours, library = bench.measure(contenders, 1)
    shape = f"{sizes.layers} layers of {sizes.width}, position {position}"
    return [
        record.row(f.name, shape, bench.protocol, f, library, model.bytes, errors[f.name], "GB/s")
        for f in ours
    ]


def vectors(bench: Bench, shapes: list[tuple[int, int, int]], blocks: int) -> Iterator[Row]:
    """Matrices by one vector, beside PyTorch's product of all of them."""
    for count, rows, cols in shapes:
        machine = Machine(blocks, chunk=2048, pages=11, flight=4)
        x, all_weights = normal(cols, device=bench.device).float(), []
        given, outs = machine.vector(cols), []
        table = x.bfloat16()[None].repeat(machine.vocabulary, 1)
        machine.embedding(given)
        for _ in range(count):
            w = (normal(rows, cols, device=bench.device) / cols**0.5).bfloat16()
            outs.append(machine.vector(rows))
            machine.matvec(machine.weights(w), given, outs[-1])
            all_weights.append(w)
        tensors = machine.tensors(table=table)
        machine.launcher(tensors)(token=0)
        wide = table[0].float()
        error = max(
            relative(machine.values(tensors, y), w.float() @ wide)
            for w, y in zip(all_weights, outs, strict=True)
        )
        joined, narrow = torch.cat(all_weights), table[0]
        ours, library = bench.measure(
            {
                "matvec": launch_of(machine.program, tensors),
                "PyTorch": lambda _, w=joined, x=narrow: torch.mv(w, x),
            },
            1,
        )
        yield record.row(
            f"{count} products with a vector",
            f"{rows} x {cols}",
            bench.protocol,
            ours,
            library,
            joined.numel() * 2,
            error,
            "GB/s",
        )


def products(bench: Bench, shapes: list[tuple[int, int, int]], blocks: int) -> Iterator[Row]:
    """Matrices by matrices, beside cuBLAS."""
    for m, n, k in shapes:
        machine = Machine(blocks, pages=9, fetched=4)
        a, b = (normal(rows, k, device=bench.device).bfloat16() for rows in (m, n))
        x, y = machine.matrix(m, k), machine.matrix(m, n)
        machine.matmul(x, machine.weight_pages(b), y)
        tensors = machine.tensors()
        machine.set_matrix(tensors, x, a)
        machine.launcher(tensors)()
        error = relative(machine.matrix_values(tensors, y), a.double() @ b.double().T)
        ours, library = bench.measure(
            {
                "matmul": launch_of(machine.program, tensors),
                "cuBLAS": lambda _, a=a, b=b: torch.mm(a, b.T),
            },
            1,
        )
        yield record.row(
            "product", f"{m} x {n} x {k}", bench.protocol, ours, library, 2.0 * m * n * k, error
        )


def attentions(
    bench: Bench, shapes: list[tuple[int, int, int, bool]], blocks: int
) -> Iterator[Row]:
    """Attention of all tokens, beside this library's kernel."""
    for heads, n, head, causal in shapes:
        machine = Machine(blocks, pages=2, head=head, fetched=6)
        given = [normal(n, heads * head, device=bench.device).bfloat16() for _ in range(3)]
        places = [machine.matrix(n, heads * head) for _ in range(4)]
        machine.attention_of_all(*places, causal=causal)
        tensors = machine.tensors(like=given[0])
        for place, x in zip(places, given, strict=False):
            machine.set_matrix(tensors, place, x)
        machine.launcher(tensors)()
        q, k, v = (x.view(1, n, heads, head).transpose(1, 2).contiguous() for x in given)
        wanted = torch.nn.functional.scaled_dot_product_attention(
            q[:, :1].double(), k[:, :1].double(), v[:, :1].double(), is_causal=causal
        )
        found = machine.matrix_values(tensors, places[3])[:, :head]
        error = relative(found, wanted[0, 0])
        ours, library = bench.measure(
            {
                "attention": launch_of(machine.program, tensors),
                "own kernel": lambda _, given=(q, k, v), causal=causal: attention(
                    *given, causal=causal
                ),
            },
            1,
        )
        shape = f"{heads} heads of {n} x {head}{', causal' if causal else ''}"
        work = 4.0 * heads * n * n * head / (2 if causal else 1)
        yield record.row("attention", shape, bench.protocol, ours, library, work, error)


TOKENS = [(1, 11, 2), (1, 11, 3), (1, 11, 4), (2, 11, 3)]
VECTORS = [(1, 2048, 2048), (8, 65536, 2048), (7, 50000, 2048), (64, 8192, 2048), (20, 9001, 3072)]
PRODUCTS = [
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (3072, 5120, 1536),
    (1000, 4100, 8192),
    (777, 9000, 3000),
]
ATTENTIONS = [
    (1, 1024, 128, True),
    (1, 1024, 128, False),
    (16, 4096, 128, True),
    (16, 4096, 128, False),
    (16, 4096, 64, True),
    (24, 1900, 128, True),
    (40, 3000, 64, False),
]


def main() -> None:
    """Check, measure and write; exits 1 if a result is wrong."""
    options = record.parser(__doc__).parse_args()
    if not torch.cuda.is_available():
        sys.exit("generic: no CUDA device")
    torch.manual_seed(0)
    bench, where = bench_of("graphs", options.rounds), about()
    rows = tokens(bench, Sizes(), BLOCKS, TOKENS)
    torch.cuda.empty_cache()
    rows += vectors(bench, VECTORS, BLOCKS)
    rows += products(bench, PRODUCTS, BLOCKS)
    rows += attentions(bench, ATTENTIONS, BLOCKS)
    text = f"{record.heading(where)}\n\n{record.table(rows)}\n"
    print(text)
    record.save({"about": where, "rows": rows}, options.out, f"generic{options.label}", text)
    if wrong := [r["shape"] for r in rows if not r["error"] < 4e-3]:
        sys.exit(f"generic: wrong results: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
