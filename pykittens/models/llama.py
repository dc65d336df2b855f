"""Llama-shaped models: a token in one launch of generic instructions, a prompt by the kernels of the library.

The layers are those of Llama 2 and 3, Mistral, and Qwen 2 and 3: attention to cached keys with rotated heads, and a
gated product, each after a norm of the root mean square. Sources: Touvron et al., "LLaMA", 2023; "The Llama 3 Herd of
Models", 2024; "Qwen2 Technical Report", 2024; "Qwen3 Technical Report", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.kernels.attention import attention
from pykittens.kernels.gemm import gemm
from pykittens.kernels.rms_norm import rms_norm
from pykittens.mega.isa import Machine, Matrix, Vector, halves_in_turn, in_turn
from pykittens.mega.isa.packing import cast, joined, zeros
from pykittens.models.config import Config
from pykittens.types.dtypes import bf16, f32

CHUNK = 2048  # columns that an instruction multiplies at a time
SHORT = 512  # positions of which a block attends to those of a head at least as fast as several do


@dataclass
class Llama:
    """A model with its weights and its cache, in the memory of a GPU or on the CPU.

    config: its sizes. weights: by the names of Hugging Face, arrays of NumPy or tensors of PyTorch, as
    `checkpoint.read` gives them. capacity: positions of the cache. blocks: of the program of a token, by default one
    for each multiprocessor. On a GPU a token is a launch; on the CPU each instruction runs as a whole.
    """

    config: Config
    weights: Mapping[str, Any]
    capacity: int
    blocks: int | None = None

    def __post_init__(self) -> None:
        c = self.config
        if c.head not in (64, 128):
            raise ArgumentError(f"heads must be 64 or 128 wide, not {c.head}")
        check_count("capacity", self.capacity)
        if self.capacity > c.positions:
            raise ArgumentError(
                f"`capacity` must be at most {c.positions}, the positions of the model, not {self.capacity}"
            )
        table = self.weights["model.embed_tokens.weight"]
        shape = 2 * c.layers, self.capacity, c.key_heads * c.head
        self.cache = zeros(table, shape)
        self.machine = Machine(
            self.blocks or multiprocessors(table),
            chunk=1024 if c.hidden <= 1024 else CHUNK,
            head=c.head,
            heads=c.key_heads,
            layers=c.layers,
            capacity=self.capacity,
            vocabulary=c.vocabulary,
            pages=10 if c.head == 64 else 9,  # keys and values take the rest of the shared memory
            eps=c.eps,
        )
        self._places: dict[tuple[str, ...], Any] = {}  # of weights, by their names
        self._rope = self.machine.constant(self._like(c.angles(self.capacity)))
        # Programs with the positions below which each is the fastest, and their logits.
        self._programs = [(min(SHORT, self.capacity), self.machine.program, self._add_token(1))]
        if (parts := self._parts()) > 1:
            self.machine.begin()
            self._programs.append((self.capacity, self.machine.program, self._add_token(parts)))
        self.tensors = self.machine.tensors(self.cache, table)
        self._launches: dict[int, Callable[..., None]] = {}
        self._last = 0  # the program of the last step

    # -- the program of a token ------------------------------------------------------------------

    def _add_token(self, parts: int) -> Vector:
        """Add the instructions of a token, with attention in so many parts; returns the logits."""
        c, m = self.config, self.machine
        h = m.vector(c.hidden)
        m.embedding(h)
        for layer in range(c.layers):
            name = f"model.layers.{layer}."
            q, k, v = self._heads(name, h)
            mixed, middle = m.vector(q.length), m.vector(c.hidden)
            m.attention(layer, q, k, v, mixed, parts)
            m.append(layer, k, v)
            m.matvec_add(self._matrix(f"{name}self_attn.o_proj"), mixed, h, middle)
            h = m.vector(c.hidden)
            m.matvec_add(self._matrix(f"{name}mlp.down_proj"), self._gated(name, middle), middle, h)
        output = self._matrix("model.embed_tokens" if c.tied else "lm_head")
        y = h if self._is_short else self._normed(h, "model.norm.weight")
        logits = self._product(output, y, "model.norm.weight")
        m.argmax(logits)
        return logits

    def _parts(self) -> int:
        """Parts of a long cache that have instructions of their own: so many that all blocks attend."""
        of_one = -(-self.config.heads // self.config.key_heads // (128 // self.config.head))
        most = max(self.machine.blocks // (self.config.key_heads * of_one), 1)
        return min(most, -(-self.capacity // SHORT))

    def _heads(self, name: str, h: Vector) -> list[Vector]:
        """The rotated heads of queries and of keys, and the values."""
        c, m = self.config, self.machine
        sizes = [n * c.head for n in (c.heads, c.key_heads, c.key_heads)]
        w = [f"{name}self_attn.{x}_proj" for x in "qkv"]
        gain = f"{name}input_layernorm.weight"
        if self._is_short and not c.biases and not c.head_norms:
            rotated, values = m.vector(sizes[0] + sizes[1]), m.vector(sizes[2])
            g = self._constant(gain)
            rows = self._matrix(*w[:2], how=lambda q, k: halves_in_turn(joined([q, k]), c.head))
            m.norm_rotary(rows, h, g, self._rope, rotated)
            m.norm_matvec(self._matrix(w[2]), h, g, values)
            return [rotated.part(0, sizes[0]), rotated.part(*sizes[:2]), values]
        y = h if self._is_short else self._normed(h, gain)
        found = [self._product(self._matrix(x), y, gain) for x in w]
        out = [m.vector(n) for n in sizes]
        for x, product, to in zip("qk", found, out, strict=False):
            options = {"bias": f"{x}_proj.bias"} if c.biases else {}
            options |= {"gain": f"{x}_norm.weight"} if c.head_norms else {}
            made = {o: self._constant(f"{name}self_attn.{n}") for o, n in options.items()}
            m.rotary(product, self._rope, to, **made)
        if not c.biases:
            return [*out[:2], found[2]]
        m.shift(found[2], self._constant(f"{name}self_attn.v_proj.bias"), out[2])
        return out

    def _gated(self, name: str, h: Vector) -> Vector:
        """silu(gate x) * (up x) of the normed hidden state x."""
        m = self.machine
        gate, up = (f"{name}mlp.{x}_proj" for x in ("gate", "up"))
        gain, out = f"{name}post_attention_layernorm.weight", m.vector(self.config.inner)
        if self._is_short:
            m.norm_gate(self._matrix(gate, up, how=in_turn), h, self._constant(gain), out)
            return out
        x = self._normed(h, gain)
        a, b = (m.vector(self.config.inner) for _ in range(2))
        m.matvec(self._matrix(gate), x, a)
        m.matvec(self._matrix(up), x, b)
        m.gate(a, b, out)
        return out

    @property
    def _is_short(self) -> bool:
        """Whether a hidden state is one chunk."""
        return self.config.hidden <= self.machine.chunk

    def _normed(self, h: Vector, gain: str) -> Vector:
        out = self.machine.vector(h.length)
        self.machine.rms_norm(h, self._constant(gain), out)
        return out

    def _constant(self, name: str) -> Vector:
        """A vector in the memory of the machine, once for all programs."""
        made: Vector = self._place((name,), lambda: self.machine.constant(self.weights[name]))
        return made

    def _matrix(self, *names: str, how: Callable[..., Any] = lambda w: w) -> Matrix:
        """A matrix in the memory of the machine, once for all programs; how: makes it of those of these names."""
        given = (self.weights[f"{name}.weight"] for name in names)
        made: Matrix = self._place(names, lambda: self.machine.weights(how(*given)))
        return made

    def _place(self, names: tuple[str, ...], make: Callable[[], Any]) -> Any:
        if names not in self._places:
            self._places[names] = make()
        return self._places[names]

    def _product(self, w: Matrix, h: Vector, gain: str) -> Vector:
        """A matrix by a hidden state, of which a norm is taken with this gain if it is one chunk."""
        m, out = self.machine, self.machine.vector(w.rows)
        if self._is_short:
            m.norm_matvec(w, h, self._constant(gain), out)
        else:
            m.matvec(w, h, out)
        return out

    # -- runs ------------------------------------------------------------------------------------

    def step(self, token: int, position: int) -> int:
        """Run the model on a token at a position, behind those in the cache; returns the likeliest next token."""
        found = (i for i, (below, *_) in enumerate(self._programs) if position < below)
        self._last = next(found, 0)  # which refuses a position past the end
        if self._last not in self._launches:
            program = self._programs[self._last][1]
            self._launches[self._last] = self.machine.launcher(
                self.tensors, coarse=not self._is_on_gpu, program=program
            )
        self._launches[self._last](token=token, position=position)
        return int(self.tensors["chosen"][0])

    def logits(self) -> np.ndarray[Any, Any]:
        """The logits that the last step found: float32, (vocabulary,)."""
        found = self.machine.values(self.tensors, self._programs[self._last][2])
        return found if isinstance(found, np.ndarray) else found.cpu().numpy()

    def prefill(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Run the model on tokens from position 0 on; returns the logits after the last."""
        if not 1 <= len(tokens) <= self.capacity:
            raise ArgumentError(
                f"`tokens` must be from 1 to {self.capacity}, the capacity, not {len(tokens)}"
            )
        before = len(tokens) - 1
        if before and self._is_on_gpu:
            self._prefill(tokens[:before])
        else:
            for position in range(before):
                self.step(tokens[position], position)
        self.step(tokens[before], before)
        return self.logits()

    @property
    def _is_on_gpu(self) -> bool:
        return bool(getattr(self.cache, "is_cuda", False))

    def _prefill(self, tokens: Sequence[int]) -> None:
        """Fill the cache of the first tokens by the kernels of the library, all at once."""
        c, w, n = self.config, self.weights, len(tokens)
        h = cast(w["model.embed_tokens.weight"][[*tokens]], f32)
        cos, sin = (self._like(x) for x in np.split(c.angles(n)[:, None], 2, axis=2))

        def normed(x: Any, gain: str) -> Any:
            return rms_norm(x, w[gain], c.eps)

        def heads_of(name: str, which: str, x: Any) -> Any:
            y = gemm(
                x,
                w[f"{name}{which}_proj.weight"],
                bias=w.get(f"{name}{which}_proj.bias"),
                out_dtype=f32,
            )
            y = y.reshape(-1, c.head)
            if which != "v" and c.head_norms:
                y = normed(y, f"{name}{which}_norm.weight")
            y = y.reshape(n, -1, c.head)
            if which != "v":
                a, b = y[..., : c.head // 2], y[..., c.head // 2 :]
                y = joined([a * cos - b * sin, b * cos + a * sin], 2)
            return cast(y, bf16)

        for layer in range(c.layers):
            name = f"model.layers.{layer}."
            x = cast(normed(h, f"{name}input_layernorm.weight"), bf16)
            q, k, v = (heads_of(f"{name}self_attn.", which, x) for which in "qkv")
            for i, kept in enumerate((k, v)):
                self.cache[2 * layer + i, :n] = kept.reshape(n, -1)
            q, k, v = (y.swapaxes(0, 1)[None] for y in (q, k, v))
            mixed = attention(q, k, v, causal=True)[0].swapaxes(0, 1).reshape(n, -1)
            h = h + gemm(mixed, w[f"{name}self_attn.o_proj.weight"], out_dtype=f32)
            x = cast(normed(h, f"{name}post_attention_layernorm.weight"), bf16)
            gate, up, down = (w[f"{name}mlp.{i}_proj.weight"] for i in ("gate", "up", "down"))
            h = h + gemm(gemm(x, gate, gate=up, activation="silu"), down, out_dtype=f32)

    def _like(self, values: np.ndarray[Any, Any]) -> Any:
        """An array where the weights are."""
        if isinstance(self.cache, np.ndarray):
            return values
        import torch

        return torch.from_numpy(values).to(self.cache.device)


def multiprocessors(x: Any) -> int:
    """The multiprocessors of the GPU that has a tensor; 4 if it is on the CPU, where their number does not matter."""
    if not getattr(x, "is_cuda", False):
        return 4
    import torch

    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)
