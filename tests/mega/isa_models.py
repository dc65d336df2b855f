"""Programs of generic instructions beside what they compute in float64, one instruction after another."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from pykittens.mega.isa import Machine, halves_in_turn, in_turn

bf16 = ml_dtypes.bfloat16
BOUND = 2**-16  # a vector times a matrix is exact to 2^-17 or so, and a tag cuts off 2^-19
_erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def exact(x):
    return np.asarray(x).astype(np.float64)


class Model:
    """A machine and, for each vector of it, its value in float64.

    array: makes what the machine is given of an array of NumPy, such as a tensor of a GPU.
    """

    def __init__(self, array=lambda x: x, seed=0, **words):
        self.machine = Machine(**{"blocks": 3, "chunk": 1024, "pages": 4, "flight": 2} | words)
        self.array, self.rng = array, np.random.default_rng(seed)
        self.found, self.steps = {}, []
        self.table, self.cache, self.kept, self.chosen = None, None, None, None
        if words.get("capacity"):
            m = self.machine
            shape = 2 * m.layers * m.batch, m.capacity, m.heads * m.head
            self.cache = self.rng.standard_normal(shape).astype(bf16)
            self.kept = self.of_row(exact(self.cache), 0)

    # -- operands ---------------------------------------------------------------------------------

    def constant(self, values):
        made = self.machine.constant(self.array(values.astype(np.float32)))
        self.found[made] = exact(values.astype(np.float32)).ravel()
        return made

    def gains(self, length):
        return self.constant(1 + 0.1 * self.rng.standard_normal(length))

    def matrix(self, rows, cols):
        return (self.rng.standard_normal((rows, cols)) / cols**0.5).astype(bf16)

    def angles(self):
        head, capacity = self.machine.head, self.machine.capacity
        angle = np.arange(capacity)[:, None] / 10000 ** (np.arange(head // 2) / (head // 2))
        return self.constant(np.concatenate([np.cos(angle), np.sin(angle)], 1))

    def vector(self, length):
        return self.machine.vector(length)

    def _then(self, out, value, size=None):
        """Note what an instruction computes, and the size of the terms, to which errors are relative."""
        self.steps.append((out, value, size or (lambda: np.abs(value()).max())))
        return out

    def _(self, x):
        """The value of a vector, or of a part of one."""
        if x in self.found:
            return self.found[x]
        for whole, value in self.found.items():
            if whole.word == x.word and whole.start <= x.start < whole.start + whole.length:
                return value[x.start - whole.start :][: x.length]
        raise KeyError(x)

    # -- words: each adds an instruction, and what it computes -------------------------------------

    def embedding(self, length):
        out = self.vector(length)
        shape = self.machine.vocabulary, length
        self.table = (
            self.rng.standard_normal(shape).astype(bf16) if self.table is None else self.table
        )
        self.machine.embedding(out)
        return self._then(out, lambda: exact(self.table)[self.token])

    def matvec(self, x, rows, out=None, w=None):
        w, out = self.matrix(rows, x.length) if w is None else w, out or self.vector(rows)
        self.machine.matvec(self.machine.weights(self.array(w)), x, out)
        return self._then(out, lambda: exact(w) @ self._(x), lambda: self._terms(w, self._(x)))

    def matvec_add(self, x, other):
        w, out = self.matrix(other.length, x.length), self.vector(other.length)
        self.machine.matvec_add(self.machine.weights(self.array(w)), x, other, out)
        return self._then(
            out,
            lambda: self._(other) + exact(w) @ self._(x),
            lambda: self._terms(w, self._(x)) + np.abs(self._(other)).max(),
        )

    def norm_matvec(self, x, gain, rows, out=None):
        w, out = self.matrix(rows, x.length), out or self.vector(rows)
        self.machine.norm_matvec(self.machine.weights(self.array(w)), x, gain, out)
        return self._then(
            out,
            lambda: exact(w) @ self._normed(x, gain),
            lambda: self._terms(w, self._normed(x, gain)),
        )

    def norm_gate(self, x, gain, rows, activation="silu"):
        a, b, out = self.matrix(rows, x.length), self.matrix(rows, x.length), self.vector(rows)
        w = self.machine.weights(self.array(in_turn(a, b)))
        self.machine.norm_gate(w, x, gain, out, activation)

        def value():
            y = self._normed(x, gain)
            return ACTIVATIONS[activation](exact(a) @ y) * (exact(b) @ y)

        def size():
            y = self._normed(x, gain)
            return self._terms(a, y) * self._terms(b, y)

        return self._then(out, value, size)

    def norm_rotary(self, x, gain, rope, out, normed=False):
        """normed: heads have norms, by squares; these are returned, otherwise the heads."""
        w = self.matrix(out.length, x.length)
        packed = self.machine.weights(self.array(halves_in_turn(w, self.machine.head)))
        more, squares, head_gain = {}, None, 1.0
        if normed:
            head_gain = self.gains(out.length)
            squares = self.vector(out.length // 2)
            more = {"head_gain": head_gain, "squares": squares}
        self.machine.norm_rotary(packed, x, gain, rope, out, **more)

        def product():
            return exact(w) @ self._normed(x, gain)

        self._then(
            out,
            lambda: self._rotated(product() * (self._(head_gain) if normed else 1), rope),
            lambda: 3 * self._terms(w, self._normed(x, gain)),
        )
        if not normed:
            return out

        def sums():
            halves = product().reshape(-1, 2, self.machine.head // 32, 16)
            return np.repeat((halves**2).sum(axis=(1, 3)).ravel(), 16)

        return self._then(squares, sums)

    def _scaled(self, x, squares):
        """Heads divided by the roots of their mean squares, if there are squares."""
        heads = self._(x).reshape(-1, self.machine.head)
        if squares is None:
            return heads
        total = self._(squares).reshape(len(heads), -1).sum(axis=1, keepdims=True)
        return heads / np.sqrt(total / 16 / self.machine.head + self.machine.eps)

    def rotary(self, x, rope, bias=None, gain=None):
        out = self.vector(x.length)
        self.machine.rotary(x, rope, out, bias, gain)

        def before():
            y = self._(x) if bias is None else self._(x) + self._(bias)
            if gain is None:
                return y
            heads = y.reshape(-1, self.machine.head)
            scale = 1 / np.sqrt((heads * heads).mean(axis=1, keepdims=True) + self.machine.eps)
            return (heads * scale * self._(gain)).ravel()

        return self._then(
            out, lambda: self._rotated(before(), rope), lambda: 2 * np.abs(before()).max()
        )

    def shift(self, a, bias):
        out = self.vector(a.length)
        self.machine.shift(a, bias, out)
        return self._then(out, lambda: self._(a) + self._(bias))

    def add(self, a, b):
        out = self.vector(a.length)
        self.machine.add(a, b, out)
        return self._then(
            out,
            lambda: self._(a) + self._(b),
            lambda: max(np.abs(self._(x)).max() for x in (a, b)),
        )

    def gate(self, a, b, activation="silu"):
        out = self.vector(a.length)
        self.machine.gate(a, b, out, activation)
        return self._then(out, lambda: ACTIVATIONS[activation](self._(a)) * self._(b))

    def rms_norm(self, x, gain):
        out = self.vector(x.length)
        self.machine.rms_norm(x, gain, out)
        return self._then(out, lambda: self._normed(x, gain))

    def layer_norm(self, x, gain, bias):
        out = self.vector(x.length)
        self.machine.layer_norm(x, gain, bias, out)

        def value():
            y = self._(x) - self._(x).mean()
            scale = 1 / np.sqrt((y * y).mean() + self.machine.eps)
            return y * scale * self._(gain) + self._(bias)

        def size():
            y = np.abs(self._(x))
            scale = 1 / np.sqrt(self._(x).var() + self.machine.eps)
            return 2 * y.max() * scale * np.abs(self._(gain)).max() + np.abs(self._(bias)).max()

        return self._then(out, value, size)

    def append(self, layer, keys, values, squares=None):
        self.machine.append(layer, keys, values, squares)

        def value():
            for i, (x, of) in enumerate(((keys, squares), (values, None))):
                self.kept[2 * layer + i, self.position] = self._scaled(x, of).astype(bf16).ravel()

        self._then(None, value)

    def attention(self, layer, q, keys, values, parts=1, squares=None):
        out, m = self.vector(q.length), self.machine
        m.attention(layer, q, keys, values, out, parts, squares)
        of_q, of_keys = squares or (None, None)

        def operands():
            found = self._scaled(keys, of_keys).ravel(), self._(values)
            own = np.stack([x.astype(bf16).astype(float) for x in found])
            before = self.kept[2 * layer :][:2, : self.position]
            seen = np.concatenate([before, own[:, None]], axis=1).reshape(2, -1, m.heads, m.head)
            x = self._scaled(q, of_q).reshape(m.heads, -1, m.head)
            return np.einsum("hgd,phd->hgp", x, seen[0]) / m.head**0.5, seen[1]

        def value():
            score, of = operands()
            p = np.exp(score - score.max(axis=2, keepdims=True))
            p /= p.sum(axis=2, keepdims=True)
            return np.einsum("hgp,phd->hgd", p, of).ravel()

        def size():
            # Parts are merged by logarithms of their sums, of which a vector keeps 20 bits.
            score, of = operands()
            log = np.abs(score).max() + np.log(score.shape[2])
            return np.abs(of).max() * (1 + log)

        return self._then(out, value, size)

    def argmax(self, x):
        self.machine.argmax(x)

        def value():
            self.chosen = int(self._(x).argmax())

        self._then(None, value)

    @staticmethod
    def _terms(w, x):
        return (np.abs(exact(w)) @ np.abs(x)).max()

    def _normed(self, x, gain):
        v = self._(x)
        return v / np.sqrt((v * v).mean() + self.machine.eps) * self._(gain)

    def _rotated(self, x, rope):
        half = self.machine.head // 2
        cos, sin = self._(rope).reshape(self.machine.capacity, 2, half)[self.position]
        a, b = x.reshape(-1, 2, half).transpose(1, 0, 2)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], 1).ravel()

    # -- runs -------------------------------------------------------------------------------------

    def tensors(self):
        given = (None if x is None else self.array(x.copy()) for x in (self.cache, self.table))
        return self.machine.tensors(*given)

    def expect(self, position=0, token=0):
        """Compute the values of a run in float64, with a cache as earlier runs left it."""
        self.position, self.token = position, token
        for out, value, _ in self.steps:
            found = value()
            if out is not None:
                self.found[out] = found

    def check(self, tensors, position=0, token=0, bound=BOUND):
        """Compare each instruction of a run with float64, computed from what the others wrote in this run.

        position, token: one, or one of each sequence.
        """
        batch = self.machine.batch
        outs = {out: self.read(tensors, out) for out, *_ in self.steps if out is not None}
        cache = exact(self.host(tensors["cache"])) if "cache" in tensors else None
        for row, (at, of) in enumerate(zip(*map(self.each, (position, token)), strict=True)):
            self.position, self.token = at, of
            self.found |= {out: exact(x.reshape(batch, -1)[row]) for out, x in outs.items()}
            if cache is not None:
                self.kept = self.of_row(cache, row).copy()
            before = None if self.kept is None else self.kept.copy()
            for out, value, size in self.steps:
                wanted = value()
                if out is not None:
                    error = np.abs(self.found[out] - wanted).max()
                    assert error <= bound * size(), (out, error, size())
            if before is not None:
                np.testing.assert_allclose(before, self.kept, rtol=2**-7, atol=1e-30)
            if self.chosen is not None:
                assert int(tensors["chosen"][row]) == self.chosen
                assert int(tensors["following"][row]) == at + 1

    def each(self, number):
        """A number of each sequence."""
        return number if isinstance(number, list) else [number] * self.machine.batch

    def of_row(self, cache, row):
        """The keys and values of a sequence, layer after layer."""
        shape = self.machine.layers, self.machine.batch, 2, *cache.shape[1:]
        return cache.reshape(shape)[:, row].reshape(-1, *cache.shape[1:])

    def read(self, tensors, x):
        return self.host(self.machine.values(tensors, x))

    @staticmethod
    def host(x):
        """An array of NumPy with the elements of an array or a tensor."""
        return x if isinstance(x, np.ndarray) else x.float().cpu().numpy()

    def numbers(self, tensors, position, token):
        given = {"position": self.each(position), "token": self.each(token)}
        return {name: value for name, value in given.items() if name in tensors}

    def checked(self, position=0, token=0, bound=BOUND):
        """Run in the emulator and the coarse machine: the same bits, and each instruction within a bound of float64."""
        runs = []
        for word in ("run", "run_coarse"):
            tensors = self.tensors()
            getattr(self.machine, word)(tensors, **self.numbers(tensors, position, token))
            self.check(tensors, position, token, bound)
            runs.append(tensors)
        for name in runs[0]:
            assert runs[0][name].tobytes() == runs[1][name].tobytes(), name
        return runs[0]


def llama(
    width=192,
    heads=2,
    queries=4,
    hidden=320,
    layers=2,
    vocabulary=300,
    parts=1,
    head=64,
    capacity=100,
    **words,
):
    """A small Llama, and its vectors of logits."""
    words |= {"head": head, "heads": heads, "layers": layers, "capacity": capacity}
    m = Model(vocabulary=vocabulary, **words)
    rope, h = m.angles(), m.embedding(width)
    for layer in range(layers):
        first, second = m.gains(width), m.gains(width)
        qkv = m.vector((queries + 2 * heads) * head)
        ends = np.cumsum([0, queries * head, heads * head, heads * head])
        q, k, v = (qkv.part(int(a), int(b - a)) for a, b in zip(ends, ends[1:], strict=False))
        qk = qkv.part(0, int(ends[2]))
        m.norm_rotary(h, first, rope, qk)
        m.norm_matvec(h, first, v.length, v)
        mixed = m.attention(layer, q, k, v, parts)
        m.append(layer, k, v)
        h = m.matvec_add(mixed, h)
        h = m.matvec_add(m.norm_gate(h, second, hidden), h)
    logits = m.norm_matvec(h, m.gains(width), vocabulary)
    m.argmax(logits)
    return m, logits


def all_kinds(**words):
    """A model with an instruction of each kind."""
    m = Model(vocabulary=300, capacity=100, heads=3, **words)
    width = 1000
    gain, rope, keys = m.gains(width), m.angles(), 3 * m.machine.head
    x = m.rms_norm(m.embedding(width), gain)
    y = m.add(x, m.layer_norm(x, gain, gain))
    for activation in ACTIVATIONS:
        m.gate(x, y, activation)
        m.norm_gate(y, gain, 72, activation)
    q = m.vector(2 * keys)
    m.norm_rotary(y, gain, rope, q)
    of_k = m.norm_rotary(y, gain, rope, normed := m.vector(keys), normed=True)
    of_q = m.norm_rotary(y, gain, rope, other := m.vector(2 * keys), normed=True)
    k = m.rotary(m.rotary(m.matvec(y, keys), rope, bias=m.gains(keys)), rope)
    k = m.shift(m.rotary(k, rope, gain=m.gains(m.machine.head)), m.gains(keys))
    mixed = m.attention(0, q, k, k, 2)
    m.append(0, k, k)
    mixed = m.attention(0, other, normed, k, 2, (of_q, of_k))
    long = m.matvec(mixed, 2100)
    m.matvec_add(long, m.matvec(long, 70))
    m.argmax(m.norm_matvec(y, gain, 300))
    return m


def resources_of(m):
    """What the program of a model takes of a Hopper GPU; called here, one program is compiled once for all tests.

    Its text has the line of its caller.
    """
    tensors, program = m.tensors(), m.machine.program
    arguments = program.arguments(program.scheduled(**tensors), **tensors)
    return program.kernel().compile(*arguments, arch="sm_90a").resources
