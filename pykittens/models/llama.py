"""Llama-shaped models: a token in one launch of generic instructions, a prompt by the kernels of the library.

The layers are those of Llama 2 and 3, Mistral, and Qwen 2 and 3: attention to cached keys with rotated heads, and a
gated product, each after a norm of the root mean square. Sources: Touvron et al., "LLaMA", 2023; "The Llama 3 Herd of
Models", 2024; "Qwen2 Technical Report", 2024; "Qwen3 Technical Report", 2025.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_count
from pykittens.mega.isa import Machine, Matrix, Vector, halves_in_turn, in_turn
from pykittens.mega.isa.packing import joined, rounded, zeros
from pykittens.models.config import Config
from pykittens.models.prefill import fill, like

CHUNKS = 2048, 1024  # columns that an instruction multiplies at a time
WIDEST = 8192  # elements of a hidden state, which is one tile
SHORT = 512  # positions of which a block attends to those of a head at least as fast as several do


@dataclass
class Llama:
    """A model with its weights and its cache, in the memory of a GPU or on the CPU.

    config: its sizes. weights: by the names of Hugging Face, arrays of NumPy or tensors of PyTorch, as
    `checkpoint.read` gives them. capacity: positions of the cache. blocks: of the program of a token, by default one
    for each multiprocessor. On a GPU a token is a launch; on the CPU each instruction runs as a whole. apart: a token
    is a launch for each step of dependences, so that its blocks need not run at once: for a GPU that others keep busy.
    batch: sequences, 1, 2, 4 or 8; a step then takes and gives lists, of one token of each.
    """

    config: Config
    weights: Mapping[str, Any]
    capacity: int
    blocks: int | None = None
    apart: bool = False
    batch: int = 1

    def __post_init__(self) -> None:
        c = self.config
        if c.head not in (64, 128):
            raise ArgumentError(f"heads must be 64 or 128 wide, not {c.head}")
        if c.hidden > WIDEST:
            raise ArgumentError(
                f"a hidden state must have at most {WIDEST} elements, not {c.hidden}"
            )
        check_count("capacity", self.capacity)
        if self.capacity > c.positions:
            raise ArgumentError(
                f"`capacity` must be at most {c.positions}, the positions of the model, not {self.capacity}"
            )
        table = self.weights["model.embed_tokens.weight"]
        shape = 2 * c.layers * self.batch, self.capacity, c.key_heads * c.head
        self.cache = zeros(table, shape)
        self.machine = Machine(
            self.blocks or multiprocessors(table),
            chunk=(chunk := chunk_of(c)),
            head=c.head,
            heads=c.key_heads,
            layers=c.layers,
            capacity=self.capacity,
            vocabulary=c.vocabulary,
            widest=rounded(c.hidden, chunk) // chunk,
            fetched=0,
            eps=c.eps,
            below=(short := min(SHORT, self.capacity)),
            batch=self.batch,
        )
        self._places: dict[tuple[str, ...], Any] = {}  # of weights, by their names
        self._rope = self.machine.constant(like(self.cache, c.angles(self.capacity)))
        # Programs with the positions below which each is the fastest, and their logits.
        self._programs = [(short, self.machine.program, self._add_token(1))]
        if short < self.capacity:
            self.machine.begin()
            long = self.machine.program, self._add_token(self._parts())
            self._programs.append((self.capacity, *long))
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
            q, k, v, squares = self._heads(name, h)
            mixed, middle = m.vector(q.length), m.vector(c.hidden)
            m.attention(layer, q, k, v, mixed, parts, squares)
            m.append(layer, k, v, squares and squares[1])
            m.matvec_add(self._matrix(f"{name}self_attn.o_proj"), mixed, h, middle)
            h = m.vector(c.hidden)
            m.matvec_add(self._matrix(f"{name}mlp.down_proj"), self._gated(name, middle), middle, h)
        output = "model.embed_tokens" if c.tied else "lm_head"
        logits = self._product(output, h, "model.norm.weight")
        m.argmax(logits)
        return logits

    def _parts(self) -> int:
        """Parts of a long cache that have instructions of their own: so many that all blocks attend."""
        most = max(self.machine.blocks // (self.config.key_heads * self.batch), 1)
        return min(most, -(-self.capacity // SHORT))

    def _heads(self, name: str, h: Vector) -> list[Any]:
        """The rotated heads of queries and of keys, and the values; the squares of the heads if these have norms."""
        c, m = self.config, self.machine
        sizes = [n * c.head for n in (c.heads, c.key_heads, c.key_heads)]
        w = [f"{name}self_attn.{x}_proj" for x in "qkv"]
        gain = f"{name}input_layernorm.weight"
        if c.biases:
            found, out = [self._product(x, h, gain) for x in w], [m.vector(n) for n in sizes]
            biases = [self._constant(f"{name}self_attn.{x}_proj.bias") for x in "qkv"]
            for product, to, bias in zip(found[:2], out[:2], biases[:2], strict=True):
                m.rotary(product, self._rope, to, bias)
            m.shift(found[2], biases[2], out[2])
            return [*out, None]
        rotated = m.vector(sizes[0] + sizes[1])
        rows = self._matrix(*w[:2], how=lambda q, k: halves_in_turn(joined([q, k]), c.head))
        ends, of_heads, squares = ((0, sizes[0]), (sizes[0], sizes[1])), {}, None
        if c.head_norms:
            norms = (f"{name}self_attn.{x}_norm.weight" for x in "qk")
            each = self._constant(
                *norms, how=lambda q, k: joined([q] * c.heads + [k] * c.key_heads)
            )
            of_heads = {"head_gain": each, "squares": m.vector(rotated.length // 2)}
            squares = tuple(of_heads["squares"].part(start // 2, n // 2) for start, n in ends)
        m.norm_rotary(rows, h, self._constant(gain), self._rope, rotated, **of_heads)
        values = self._product(w[2], h, gain)
        return [*(rotated.part(*end) for end in ends), values, squares]

    def _gated(self, name: str, h: Vector) -> Vector:
        """silu(gate x) * (up x) of the normed hidden state x."""
        gate, up = (f"{name}mlp.{x}_proj" for x in ("gate", "up"))
        gain = self._constant(f"{name}post_attention_layernorm.weight")
        out = self.machine.vector(self.config.inner)
        self.machine.norm_gate(self._matrix(gate, up, how=in_turn), h, gain, out)
        return out

    def _product(self, w: str, h: Vector, gain: str) -> Vector:
        """A matrix by a hidden state, of which a norm is taken with a gain."""
        rows = self._matrix(w)
        out = self.machine.vector(rows.rows)
        self.machine.norm_matvec(rows, h, self._constant(gain), out)
        return out

    def _constant(self, *names: str, how: Callable[..., Any] = lambda x: x) -> Vector:
        """A vector in the memory of the machine, once for all programs; how: makes it of those of these names."""
        given = (self.weights[name] for name in names)
        made: Vector = self._place(names, lambda: self.machine.constant(how(*given)))
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

    # -- runs ------------------------------------------------------------------------------------

    def step(self, token: Any, position: Any) -> Any:
        """Run the model on a token at a position, behind those in the cache; returns the likeliest next token."""
        self._last = self._program_at(position)
        if self._last not in self._launches:
            self._launches[self._last] = self.machine.launcher(
                self.tensors,
                coarse=not self.is_on_gpu,
                program=self._programs[self._last][1],
                apart=self.apart and self.is_on_gpu,
            )
        self._launches[self._last](token=token, position=position)
        chosen: list[int] = self.tensors["chosen"].tolist()
        return chosen if self.batch > 1 else chosen[0]

    def _program_at(self, position: Any) -> int:
        """The number of the program for a position; for one past the end the last, which refuses it."""
        last = max(self._rows(position))
        found = (i for i, (below, *_) in enumerate(self._programs) if last < below)
        return next(found, len(self._programs) - 1)

    def repeater(
        self, token: Any, position: Any, apart: bool | None = None
    ) -> tuple[Callable[[], None], dict[str, Any]]:
        """A function that runs the model on a token at a position, then on the token chosen last at the next one.

        It waits for nothing, so a CUDA graph holds any number of runs; keep the function as long as the graph, which
        reads its tensors. The program is that of the first position. Also returns the tensors of these runs: they share
        the cache with all others, and `token` and `chosen`, `position` and `following` change places after each. apart:
        by default as of the model.
        """
        tensors = self.machine.tensors(self.cache, self.weights["model.embed_tokens.weight"])
        program = self._programs[self._program_at(position)][1]
        apart = self.apart if apart is None else apart
        run = self.machine.repeater(tensors, program, apart, token=token, position=position)
        return run, tensors

    def logits(self) -> np.ndarray[Any, Any]:
        """The logits that the last step found: float32, (vocabulary,), or (batch, vocabulary) of several sequences."""
        found = self.machine.values(self.tensors, self._programs[self._last][2])
        return found if isinstance(found, np.ndarray) else found.cpu().numpy()

    def prefill(self, tokens: Any) -> np.ndarray[Any, Any]:
        """Run the model on tokens from position 0 on; returns the logits after the last."""
        fill(self, self._rows(tokens))
        return self.logits()

    def _rows(self, x: Any) -> Any:
        """What is given for each sequence, of which a single one has no list."""
        return x if self.batch > 1 else [x]

    @property
    def is_on_gpu(self) -> bool:
        """Whether its cache is in the memory of a GPU."""
        return bool(getattr(self.cache, "is_cuda", False))


def chunk_of(c: Config) -> int:
    """The chunk with which the matrices of a model have the fewest zeros at the ends of their rows."""
    rows = (c.heads + 2 * c.key_heads) * c.head + 2 * c.inner + c.vocabulary

    def size(chunk: int) -> int:
        of_hidden = rounded(c.inner, chunk) + rounded(c.heads * c.head, chunk)
        return rows * rounded(c.hidden, chunk) + c.hidden * of_hidden

    return min(CHUNKS, key=size)


def multiprocessors(x: Any) -> int:
    """The multiprocessors of the GPU that has a tensor; 4 if it is on the CPU, where their number does not matter."""
    if not getattr(x, "is_cuda", False):
        return 4
    import torch

    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)
