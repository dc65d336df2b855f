"""A machine for models: a program of generic instructions, and the words that add them."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from pykittens.errors import ArgumentError
from pykittens.ir.numbers import check_below
from pykittens.mega.isa import attention, decode, vectors
from pykittens.mega.isa.core import CONSTANT, LIGHT, VECTOR, WEIGHTS, Function, Use
from pykittens.mega.isa.matrices import Matrices
from pykittens.mega.isa.memory import Matrix, Vector
from pykittens.mega.isa.packing import UNIT, rounded
from pykittens.mega.isa.vectors import PART

PARTS = 2 * PART  # elements of a unit of work of instructions on vectors
MOST = 2**20  # integers below are exact in a vector


class Machine(Matrices):
    """A program of generic instructions for one token of a model, or one of each of several sequences.

    Words for memory return places: `vector`, `constant`, `weights`. Words for instructions add them to `program`, in
    the order in which they could run: each vector is written once, before it is read. All take vectors of any length
    in f32, of which 20 bits of the significand are kept, and add up in f32. `run` and `run_coarse` run the program.

    blocks, dynamic: as of Program. chunk: columns that an instruction multiplies with a vector at a time, 1024 or 2048.
    head, heads: the width of a head of attention, 64 or 128, and the number of heads of keys. capacity, layers: of the
    cache, in positions. vocabulary: rows of the embedding. pages, flight: stages of the ring of weights, by default as
    many as there is room for, and how many may be on their way. fetched: stages of the ring of matrices, 0 for
    programs without `matmul` and `attention_of_all`. eps: of norms. widest: chunks of the widest vector that is
    multiplied as one tile, up to 8192 elements. below: as of `begin`, for the first program. batch: sequences, 1, 2, 4
    or 8, each with a token, a position, a cache, and vectors of its own; products read the weights once for all.

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
        self._check(WEIGHTS, w=w)
        is_short = self._chunks(w.cols) <= self.widest
        self._products(decode.matvec if is_short else decode.matvec_long, w, x, out)

    def matvec_add(self, w: Matrix, x: Vector, other: Vector, out: Vector) -> None:
        """out = other + w x."""
        self._products(decode.matvec_add, w, x, out, other=other)

    def norm_matvec(self, w: Matrix, x: Vector, gain: Vector, out: Vector) -> None:
        """out = w (rms_norm(x) * gain), of a vector of at most `widest` chunks."""
        self._products(decode.norm_matvec, w, x, out, gain=gain)

    def norm_gate(
        self, w: Matrix, x: Vector, gain: Vector, out: Vector, activation: str = "silu"
    ) -> None:
        """out = activation(a y) * (b y) with y = rms_norm(x) * gain, of a vector of at most `widest` chunks.

        w: 16 rows of a and of b in turn, weights(in_turn(a, b)). activation: as of `gate`.
        """
        self._products(decode.norm_gate, w, x, out, _checked(activation), gain=gain)

    def norm_rotary(
        self,
        w: Matrix,
        x: Vector,
        gain: Vector,
        rope: Vector,
        out: Vector,
        head_gain: Vector | None = None,
        squares: Vector | None = None,
    ) -> None:
        """out = the heads of w (rms_norm(x) * gain), rotated as `rotary` does, of a vector of at most `widest` chunks.

        w: 16 rows of the first half of a head and of the second in turn, weights(halves_in_turn(matrix, head)).
        head_gain: a constant as long as out, by which the heads are multiplied before; `squares`, half as long as out,
        then is what their norms are found of: `attention` and `append` divide by them. So a norm of heads needs no
        instruction between.
        """
        self._heads("out", out)
        if (head_gain is None) != (squares is None):
            raise ArgumentError("norm_rotary takes `head_gain` and `squares` together")
        more = {"gain": gain, "rope": rope}
        function: Function = decode.norm_rotary
        if head_gain is not None and squares is not None:
            more |= {"head_gain": head_gain, "squares": squares}
            function = decode.norm_rotary_squares
        self._products(function, w, x, out, **more)

    def _products(
        self,
        function: Function,
        w: Matrix,
        x: Vector,
        out: Vector,
        *options: str | int,
        **more: Vector,
    ) -> None:
        """Deal out the rows of a product, 16 of each of the matrices or halves in turn at a time."""
        self._check(WEIGHTS, w=w)
        self._check(VECTOR, out=out)
        rows, cols, is_pair = w.rows, w.cols, function is decode.norm_gate
        if rows != (2 * rounded(out.length, UNIT) if is_pair else out.length):
            of = f"{rows} rows" + " of two matrices in turn" * is_pair
            raise ArgumentError(f"`out` has {out.length} elements, and `w` has {of}")
        if "gain" in more and self._chunks(cols) > self.widest:
            raise ArgumentError(
                f"`x` must have at most {self.widest * self.chunk} elements, the widest vector, not {cols}",
                help="add machine.rms_norm(x, gain, y), and multiply y by machine.matvec",
            )
        uses: dict[str, tuple[Any, ...]] = {
            "other": (rows, UNIT),
            "gain": (cols, self.quarter, 0, CONSTANT),
            "rope": (self.capacity * self.head, UNIT, 0, CONSTANT),
            "head_gain": (rows, UNIT, 0, CONSTANT),
            "squares": (rows // 2, UNIT, 0, VECTOR, True),
            "x": (cols, self.quarter, self.chunk),
        }
        fields: dict[str, Any] = {
            name: Use(v, *uses[name]) for name, v in (more | {"x": x}).items()
        }
        fields |= {"page": w.page, "chunks": self._chunks(cols), "length": cols}
        fields["out"] = Use(out, None, UNIT, writes=True)
        vectors = {name: use for name, use in fields.items() if isinstance(use, Use)}
        fields |= {f"d{name}": use.x.step // use.unit for name, use in vectors.items()}
        if "gain" in more or function is decode.matvec:
            options = self._chunks(cols), *options
        turns = 2 if "rope" in more or is_pair else 1
        cost, count = self.count * turns * self._chunks(cols), rounded(rows, UNIT) // UNIT // turns
        self._add_runs(function, count, *options, cost=cost, rows=1, **fields)

    def _chunks(self, length: int) -> int:
        return rounded(length, self.chunk) // self.chunk

    # -- vectors ---------------------------------------------------------------------------------

    def embedding(self, out: Vector) -> None:
        """out = the row of the table for the token."""
        self._check(VECTOR, out=out)
        if self._row not in (0, out.length):
            raise ArgumentError(
                f"`out` must have {self._row} elements, as before, not {out.length}"
            )
        self._row = out.length
        self._elements(vectors.embedding, out)

    def add(self, a: Vector, b: Vector, out: Vector) -> None:
        """out = a + b."""
        self._elements(vectors.add, out, a=a, b=b)

    def shift(self, a: Vector, bias: Vector, out: Vector) -> None:
        """out = a + bias, a constant."""
        self._elements(vectors.shift, out, a=a, bias=bias)

    def gate(self, a: Vector, b: Vector, out: Vector, activation: str = "silu") -> None:
        """out = activation(a) * b; activation: "silu", "gelu" with erf, or "gelu_tanh"."""
        self._elements(vectors.gate, out, _checked(activation), a=a, b=b)

    def rms_norm(self, x: Vector, gain: Vector, out: Vector) -> None:
        """out = x / sqrt(mean(x^2) + eps) * gain."""
        self._elements(vectors.rms_norm, out, x=x, gain=gain)

    def layer_norm(self, x: Vector, gain: Vector, bias: Vector, out: Vector) -> None:
        """out = (x - mean(x)) / sqrt(variance(x) + eps) * gain + bias."""
        self._elements(vectors.layer_norm, out, x=x, gain=gain, bias=bias)

    def _elements(self, function: Function, out: Vector, *options: str, **more: Vector) -> None:
        """Deal out vectors of one length, 256 elements at a time; each instruction of a norm reads all of `x`."""
        self._check(VECTOR, out=out)
        uses: dict[str, tuple[Any, ...]] = dict.fromkeys("ab", (PART, PARTS))
        uses |= {"x": (self.chunk,)} | dict.fromkeys(("gain", "bias"), (PART, 0, CONSTANT))
        fields: dict[str, Any] = {n: Use(v, out.length, *uses[n]) for n, v in more.items()}
        fields |= {"chunks": self._chunks(out.length), "length": out.length}
        fields["out"] = Use(out, None, PART, PARTS, writes=True)
        self._add_runs(function, rounded(out.length, PARTS) // PARTS, *options, **fields)

    # -- heads -----------------------------------------------------------------------------------

    def rotary(
        self,
        x: Vector,
        rope: Vector,
        out: Vector,
        bias: Vector | None = None,
        gain: Vector | None = None,
    ) -> None:
        """out = the heads of x, rotated by the angles of the position: (a, b) to (a cos - b sin, b cos + a sin).

        a and b are the halves of a head. rope: a constant, (capacity, head), the cosines of a half and then the sines.
        Before that a bias is added, a constant as long as x, or each head h becomes rms_norm(h) * gain, a constant as
        long as a head.
        """
        half = self.head // 2
        fields: dict[str, Any] = {
            "x": Use(x, None, half),
            "out": Use(out, x.length, half, writes=True),
            "rope": Use(rope, self.capacity * self.head, half, word=CONSTANT),
        }
        function: Function = vectors.rotary
        if bias is not None and gain is not None:
            raise ArgumentError("rotary takes `bias` or `gain`, not both")
        if bias is not None:
            function, fields["bias"] = vectors.rotary_bias, Use(bias, x.length, half, word=CONSTANT)
        if gain is not None:
            function, fields["gain"] = (
                vectors.rotary_norm,
                Use(gain, self.head, half, word=CONSTANT),
            )
        self._add_runs(function, self._heads("x", x), **fields)

    def append(
        self, layer: int, keys: Vector, values: Vector, squares: Vector | None = None
    ) -> None:
        """Add the keys and the values of the position to the cache of a layer, rounded to bf16.

        squares: of the keys, by norm_rotary(squares=); the keys are divided by the roots of their means.
        """
        check_below("layer", layer, self.layers)
        size = self.heads * self.head
        unit = self.of_keys if squares is None else self.head
        fields: dict[str, Any] = {"keys": Use(keys, size, unit), "values": Use(values, size, unit)}
        if squares is not None:
            fields |= {"squares": self._squares(squares, size), "layer": layer}
            self._add_runs(vectors.append_scaled, self.heads, **fields)
            return
        for row in range(self.batch):
            self._add(vectors.append, row=row, layer=layer, cost=LIGHT, **fields)

    def attention(
        self,
        layer: int,
        q: Vector,
        keys: Vector,
        values: Vector,
        out: Vector,
        parts: int = 1,
        squares: tuple[Vector, Vector] | None = None,
    ) -> None:
        """out = softmax(q k / sqrt(head)) v for each head, of the keys and values up to the position.

        Those before the position are in the cache of the layer; keys, values: of the position, which are rounded to
        bf16. `append` adds them to the cache, best after attention, which then does not wait for it. q: heads, a
        multiple of those of the keys; neighbours share a head of keys. parts: of the pages of 64 positions
        before this one, each with instructions of its own, at most one for each page of the program. squares: of q and
        of keys, by norm_rotary(squares=); heads are divided by the roots of their means.
        """
        check_below("layer", layer, self.layers)
        heads, pages = self._heads("q", q), rounded(self.below, 64) // 64
        if heads % self.heads:
            raise ArgumentError(f"`q` must have a multiple of {self.heads} heads, not {heads}")
        if not 1 <= parts <= pages:
            raise ArgumentError(f"`parts` must be from 1 to {pages}, not {parts!r}")
        each = heads // self.heads  # of a head of keys
        size, of_parts, of = self.heads * self.head, out, "all"
        uses: dict[str, Any] = {"q": Use(q, None, self.head)}
        uses |= dict.fromkeys(("sums", "squares", "of_keys"), 0)
        uses |= {n: Use(x, size, self.head) for n, x in (("keys", keys), ("values", values))}
        if parts > 1:
            of_parts, of_sums, of = *(self.vector(q.length * parts) for _ in range(2)), "part"
            uses["sums"] = Use(of_sums, None, self.head, writes=True)
        if squares is not None:
            of = f"{of}_scaled"
            for name, x, n in zip(("squares", "of_keys"), squares, (q.length, size), strict=True):
                uses[name] = self._squares(x, n)
        uses["out"] = Use(of_parts, parts * q.length, self.head, writes=True)
        busy = zip(self._busy(q, keys, values), self.program.costs, range(self.blocks), strict=True)
        blocks = cycle([block for *_, block in sorted(busy)])
        if parts == 1:  # blocks that attend are later than others to begin what follows
            self._written_by_now(out)
        for row in range(self.batch):
            places = self._places(attention.attend, uses, row)
            for part in range(parts):
                for head in (
                    h for i in range(0, heads, each) for h in range(i, i + each, attention.QUERIES)
                ):
                    of_head = {"q": head, "keys": head // each, "values": head // each}
                    of_head |= dict.fromkeys(("out", "sums"), part * heads + head)
                    of_head |= {"squares": head, "of_keys": head // each}
                    self._add(
                        attention.attend,
                        of,
                        block=None if self.dynamic else next(blocks),
                        cost=pages / parts / 2 + LIGHT,  # on average
                        layer=layer * self.batch + row,
                        head=head // each,
                        n=min(attention.QUERIES, each - head % each),
                        part=part,
                        parts=parts,
                        **{name: places[name] + at for name, at in of_head.items()},
                    )
        if parts > 1:
            self._written_by_now(of_parts)
            more = {"sums": uses["sums"]._replace(writes=False), "heads": heads, "count": parts}
            more["out"] = Use(out, q.length, self.head, writes=True)
            self._add_runs(attention.merge, heads, x=Use(of_parts, None, self.head), **more)

    def _squares(self, x: Vector, length: int) -> Use:
        """The squares of heads of this length as an operand, a place for each head."""
        return Use(x, length // 2, self.head // 2, word=VECTOR)

    def _heads(self, name: str, x: Vector) -> int:
        self._check(VECTOR, **{name: x})
        if x.length % self.head:
            raise ArgumentError(f"`{name}` must be heads of {self.head}, not {x.length} elements")
        return x.length // self.head

    # -- the next token --------------------------------------------------------------------------

    def argmax(self, x: Vector) -> None:
        """chosen = the index of the largest element, the first of equals."""
        self._check(VECTOR, x=x)
        if x.length > MOST:
            raise ArgumentError(f"`x` must have at most {MOST} elements, not {x.length}")
        size = 2 * UNIT * self.blocks
        best, at = (self._vector(size, size) for _ in range(2))
        count, uses = rounded(x.length, PARTS) // PARTS, {"x": Use(x, None, PARTS)}
        uses |= {name: Use(v, None, UNIT) for name, v in (("best", best), ("at", at))}
        for row in range(self.batch):
            places = self._places(vectors.largest, uses, row)
            for block in range(self.blocks):
                self._add(
                    vectors.largest,
                    block=None if self.dynamic else block,
                    length=x.length,
                    first=count * block // self.blocks,
                    last=count * (block + 1) // self.blocks,
                    x=places["x"],
                    best=places["best"] + 2 * block,
                    at=places["at"] + 2 * block,
                )
            whole = {name: Use(v, None, size) for name, v in (("best", best), ("at", at))}
            self._add(vectors.choose, row=row, **whole)


def _checked(activation: str) -> str:
    if activation not in vectors.ACTIVATIONS:
        known = ", ".join(map(repr, vectors.ACTIVATIONS))
        raise ArgumentError(f"`activation` must be one of {known}, not {activation!r}")
    return activation
