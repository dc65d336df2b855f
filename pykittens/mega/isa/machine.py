"""A machine for models: a program of generic instructions, and the words that add them."""

from __future__ import annotations

from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import is_int
from pykittens.mega.isa import decode, vectors
from pykittens.mega.isa.matrices import Matrices
from pykittens.mega.isa.memory import Matrix, Vector
from pykittens.mega.isa.packing import UNIT, rounded

PARTS = 2 * vectors.PART  # elements of a unit of work of instructions on vectors
MOST = 2**20  # integers below are exact in a vector


class Machine(Matrices):
    """A program of generic instructions for one token of a model.

    Words for memory return places: `vector`, `constant`, `weights`. Words for instructions add them to `program`, in
    the order in which they could run: each vector is written once, before it is read. All take vectors of any length
    in f32, of which 20 bits of the significand are kept, and add up in f32. `run` and `run_coarse` run the program.

    blocks, dynamic: as of Program. chunk: columns that an instruction multiplies with a vector at a time, 1024 or 2048.
    head, heads: the width of a head of attention, 64 or 128, and the number of heads of keys. capacity, layers: of the
    cache, in positions. vocabulary: rows of the embedding. pages, flight: stages of the ring of weights, and how many
    may be on their way. fetched: stages of the ring of keys, values and matrices. eps: of norms.

        >>> machine = Machine(blocks=2, chunk=1024, vocabulary=100)
        >>> table = np.ones((100, 48), ml_dtypes.bfloat16)
        >>> x, y = machine.vector(48), machine.vector(33)
        >>> machine.embedding(x)
        >>> machine.matvec(machine.weights(np.ones((33, 48), ml_dtypes.bfloat16)), x, y)
        >>> tensors = machine.tensors(table=table)
        >>> machine.run(tensors, token=3)
        >>> machine.values(tensors, y)[[0, 32]]
        array([48., 48.], dtype=float32)
    """

    # -- a matrix by a vector --------------------------------------------------------------------

    def matvec(self, w: Matrix, x: Vector, out: Vector) -> None:
        """out = w x."""
        if self._chunks(w, x, out) == 1:
            self._products(decode.matvec, w, x, out)
        else:
            self._products(decode.matvec_long, w, x, out, chunks=self._chunks(w, x, out))

    def matvec_add(self, w: Matrix, x: Vector, other: Vector, out: Vector) -> None:
        """out = other + w x."""
        chunks = self._chunks(w, x, out)
        self._check_lengths(other=(other, w.rows))
        at = self._read("other", other, UNIT)
        self._products(decode.matvec_add, w, x, out, chunks=chunks, other=at)

    def norm_matvec(self, w: Matrix, x: Vector, gain: Vector, out: Vector) -> None:
        """out = w (rms_norm(x) * gain), of a vector of at most one chunk."""
        self._normed(decode.norm_matvec, w, x, gain, out)

    def norm_gate(
        self, w: Matrix, x: Vector, gain: Vector, out: Vector, activation: str = "silu"
    ) -> None:
        """out = activation(a y) * (b y) with y = rms_norm(x) * gain, of a vector of at most one chunk.

        w: 16 rows of a and of b in turn, weights(in_turn(a, b)). activation: as of `gate`.
        """
        self._normed(decode.norm_gate, w, x, gain, out, _checked(activation))

    def norm_rotary(self, w: Matrix, x: Vector, gain: Vector, rope: Vector, out: Vector) -> None:
        """out = the heads of w (rms_norm(x) * gain), rotated as `rotary` does, of a vector of at most one chunk.

        w: 16 rows of the first half of a head and of the second in turn, weights(halves_in_turn(matrix, head)).
        """
        self._heads("out", out)
        angles = self._angles(rope)
        self._normed(decode.norm_rotary, w, x, gain, out, rope=angles * (self.head // 2 // UNIT))

    def _normed(
        self, make: Any, w: Matrix, x: Vector, gain: Vector, out: Vector, *options: str, **more: int
    ) -> None:
        blocks = 1 if make is decode.norm_matvec else 2
        if self._chunks(w, x, out, is_pair=make is decode.norm_gate) > 1:
            raise ArgumentError(
                f"`x` must have at most {self.chunk} elements, a chunk, not {x.length}",
                help="add machine.rms_norm(x, gain, y), and multiply y by machine.matvec",
            )
        self._check_lengths(gain=(gain, w.cols))
        more["gain"] = self._read_constant("gain", gain, self.quarter)
        self._products(make, w, x, out, *options, blocks=blocks, length=w.cols, **more)

    def _products(
        self,
        make: Any,
        w: Matrix,
        x: Vector,
        out: Vector,
        *options: str,
        blocks: int = 1,
        **more: int,
    ) -> None:
        """Deal out the rows of a product, 16 of each of some blocks of rows at a time."""
        at = {
            "x": self._read("x", x, self.quarter, self.chunk),
            "out": self._write("out", out, UNIT),
        }
        count = rounded(w.rows, UNIT) // UNIT // blocks
        self.program.add_runs(self._kind(make, *options), count, page=w.page, **at, **more)

    def _chunks(self, w: Matrix, x: Vector, out: Vector, is_pair: bool = False) -> int:
        """The chunks of a product, whose operands are checked; is_pair: of two matrices in turn."""
        self._check_matrix(w)
        self._check_lengths(x=(x, w.cols))
        rows = length = self._length("out", out)
        if is_pair:
            rows = 2 * rounded(length, UNIT)
        if rows != w.rows:
            of = f"{w.rows} rows" + " of two matrices in turn" * is_pair
            raise ArgumentError(f"`out` has {length} elements, and `w` has {of}")
        return rounded(w.cols, self.chunk) // self.chunk

    # -- vectors ---------------------------------------------------------------------------------

    def embedding(self, out: Vector) -> None:
        """out = the row of the table for the token."""
        if self._row not in (0, self._length("out", out)):
            raise ArgumentError(
                f"`out` must have {self._row} elements, as before, not {out.length}"
            )
        self._row = out.length
        self._elements(vectors.embedding, out)

    def add(self, a: Vector, b: Vector, out: Vector) -> None:
        """out = a + b."""
        self._elements(vectors.add, out, a=a, b=b)

    def gate(self, a: Vector, b: Vector, out: Vector, activation: str = "silu") -> None:
        """out = activation(a) * b; activation: "silu", "gelu" with erf, or "gelu_tanh"."""
        self._elements(vectors.gate, out, _checked(activation), a=a, b=b)

    def rms_norm(self, x: Vector, gain: Vector, out: Vector) -> None:
        """out = x / sqrt(mean(x^2) + eps) * gain."""
        self._norm(vectors.rms_norm, x, out, gain=gain)

    def layer_norm(self, x: Vector, gain: Vector, bias: Vector, out: Vector) -> None:
        """out = (x - mean(x)) / sqrt(variance(x) + eps) * gain + bias."""
        self._norm(vectors.layer_norm, x, out, gain=gain, bias=bias)

    def _norm(self, make: Any, x: Vector, out: Vector, **constants: Vector) -> None:
        length = self._length("x", x)
        self._check_lengths(out=(out, length), **{n: (c, length) for n, c in constants.items()})
        at = {n: self._read_constant(n, c, vectors.PART) for n, c in constants.items()}
        at |= {"x": self._read("x", x, self.chunk), "length": length}
        self._deal(make, out, chunks=rounded(length, self.chunk) // self.chunk, **at)

    def _elements(self, make: Any, out: Vector, *options: str, **operands: Vector) -> None:
        """Add an instruction on vectors of one length, element by element."""
        length = self._length("out", out)
        self._check_lengths(**{name: (x, length) for name, x in operands.items()})
        at = {name: self._read(name, x, vectors.PART, PARTS) for name, x in operands.items()}
        self._deal(make, out, *options, **at)

    def _deal(self, make: Any, out: Vector, *options: str, **fields: int) -> None:
        """Deal out the elements of a vector, 256 at a time."""
        at = self._write("out", out, vectors.PART, PARTS)
        count = rounded(out.length, PARTS) // PARTS
        self.program.add_runs(self._kind(make, *options), count, out=at, **fields)

    # -- heads -----------------------------------------------------------------------------------

    def rotary(self, x: Vector, rope: Vector, out: Vector) -> None:
        """out = the heads of x, rotated by the angles of the position: (a, b) to (a cos - b sin, b cos + a sin).

        a and b are the halves of a head. rope: a constant, (capacity, head), the cosines of a half and then the sines.
        """
        heads, half = self._heads("x", x), self.head // 2
        self._check_lengths(out=(out, x.length))
        at = {"x": self._read("x", x, half), "out": self._write("out", out, half)}
        self.program.add_runs(self._kind(vectors.rotary), heads, rope=self._angles(rope), **at)

    def append(self, layer: int, keys: Vector, values: Vector) -> None:
        """Add the keys and the values of the position to the cache of a layer, rounded to bf16."""
        size = self.heads * self.head
        self._check_lengths(keys=(keys, size), values=(values, size))
        unit = size & -size
        at = {"keys": self._read("keys", keys, unit), "values": self._read("values", values, unit)}
        self._add(vectors.append, layer=self._layer(layer), **at)

    def attention(self, layer: int, q: Vector, out: Vector, parts: int = 1) -> None:
        """out = softmax(q k / sqrt(head)) v for each head, of the keys and values of a layer up to the position.

        q: heads, a multiple of those of the keys; neighbours share a head of keys. parts: of the capacity, each with
        instructions of its own, at most one for 64 positions.
        """
        heads, pages = self._heads("q", q), rounded(self.capacity, 64) // 64
        self._check_lengths(out=(out, q.length))
        if heads % self.heads:
            raise ArgumentError(f"`q` must have a multiple of {self.heads} heads, not {heads}")
        if not 1 <= parts <= pages:
            raise ArgumentError(f"`parts` must be from 1 to {pages}, not {parts!r}")
        each, layer = heads // self.heads, self._layer(layer)
        to = out if parts == 1 else self.vector(q.length * parts)
        sums = self._write("sums", self.vector(UNIT * heads * parts), UNIT)
        x, y = self._read("q", q, self.head), self._write("out", to, self.head)
        step = 128 // self.head  # heads of an instruction
        for part in range(parts):
            for head in (h for i in range(0, heads, each) for h in range(i, i + each, step)):
                self._add(
                    decode.attend,
                    layer=layer,
                    head=head // each,
                    q=x + head,
                    count=min(step, each - head % each),
                    out=y + part * heads + head,
                    sums=sums + part * heads + head,
                    first=pages * part // parts,
                    last=pages * (part + 1) // parts,
                )
        if parts > 1:
            at = self._write("out", out, self.head)
            more = {"heads": heads, "count": parts}
            self.program.add_runs(self._kind(decode.merge), heads, x=y, sums=sums, out=at, **more)

    def _heads(self, name: str, x: Vector) -> int:
        if (length := self._length(name, x)) % self.head:
            raise ArgumentError(f"`{name}` must be heads of {self.head}, not {length} elements")
        return length // self.head

    def _angles(self, rope: Vector) -> int:
        self._check_lengths(rope=(rope, self.capacity * self.head))
        return self._read_constant("rope", rope, self.head // 2)

    def _layer(self, layer: int) -> int:
        if not is_int(layer) or not 0 <= layer < self.layers:
            raise ArgumentError(f"`layer` must be from 0 to {self.layers - 1}, not {layer!r}")
        return layer

    # -- the next token --------------------------------------------------------------------------

    def argmax(self, x: Vector) -> None:
        """chosen = the index of the largest element, the first of equals."""
        if (length := self._length("x", x)) > MOST:
            raise ArgumentError(f"`x` must have at most {MOST} elements, not {length}")
        size, start = 2 * UNIT * self.blocks, self._read("x", x, PARTS)
        best, at = (self._vectors.vector(size, size) for _ in range(2))
        count = rounded(x.length, PARTS) // PARTS
        for block in range(self.blocks):
            self._add(
                vectors.largest,
                block=None if self.dynamic else block,
                x=start,
                length=x.length,
                first=count * block // self.blocks,
                last=count * (block + 1) // self.blocks,
                best=best.start // UNIT + 2 * block,
                at=at.start // UNIT + 2 * block,
            )
        self._add(vectors.choose, best=best.start // size, at=at.start // size)


def _checked(activation: str) -> str:
    if activation not in vectors.ACTIVATIONS:
        known = ", ".join(map(repr, vectors.ACTIVATIONS))
        raise ArgumentError(f"`activation` must be one of {known}, not {activation!r}")
    return activation
