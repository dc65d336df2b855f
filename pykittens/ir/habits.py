"""What users of Python, NumPy, PyTorch, Triton and CUDA write by habit, and the words of the language for it.

`word` answers a name that the language lacks, as a function or as an attribute of a value; `at` answers what stands at
a place of the source, from its syntax tree: builtins that ask a run-time value for its truth, loops that recording
cannot see, functions of other libraries.
"""

from __future__ import annotations

import ast
import difflib
import linecache
import re
import sys
from collections.abc import Iterator

from pykittens.errors import Loc
from pykittens.ir.signature import signature_of
from pykittens.types.dtypes import DTYPES

_REDUCE = "pk.row_{0}(t) works along the rows, pk.col_{0}(t) along the columns, pk.{0}(t) over all"
_CREATE = "pk.zeros(dtype, rows, cols) and pk.full(dtype, value, rows, cols) are tiles, and vectors without `cols`"
_SHAPE = (
    "tiles keep their shape: a[i:j, k:l] is a part, pk.transpose and pk.concat make others; a vector combines with a "
    "tile by its layout, pk.per_row or pk.per_column"
)
_CONVERT = "`.to(dtype)` converts each element, as in x.to(pk.bf16)"
_NO_THREADS = "the warps of a group run an operation together; pk.row_index(n) and pk.col_index(n) are positions"
_BLOCK = "`row, col = pk.grid(m, n)` makes the grid and returns the coordinates of this block"
_PRODUCT = "pk.mma_AB(a, b, acc) is a @ b + acc, mma_ABt a @ b.T + acc; `b` is in shared memory"
_EXTENTS = "`.shape` has the extents; `.rows` and `.cols` are the last two"
_RANDOM = (
    "pk.uniform(pk.random_bits(seed, row, col, rows=r, cols=c)) is a tile of numbers in [0, 1)"
)
_MEMORY = "x[i, j] is a tile of a tensor, counted in tiles; pk.load and pk.store move it, and cut it at the edges"
_SYNC = "pk.sync() lets the warps of a group wait for one another"
_SHARED = (
    "pk.shared(pk.st(dtype, rows, cols)) is a shared tile, pk.pipeline(stages, tile) a ring of them"
)
_HOST = "a value exists while the kernel runs: pk.store writes it to a tensor, pk.print prints it"
_ARRAY = "the kernel reads arrays that it is called with: pass them as arguments"
BROADCAST = (
    "no axis is added: a per-row or per-column vector combines with a tile as it is; pk.spread(v, pk.per_row) or "
    "pk.spread(v, pk.per_column) lays out a plain one"
)
_GATHER = "pk.gather(A[..., j], index, cols=n) loads rows, or elements, by an index"

# Names of other libraries that the language lacks, or has with another meaning.
_WORDS = {
    "arange linspace": "pk.iota(n) is 0, 1, … as a vector; pk.row_index(n) and pk.col_index(n) are those of a tile; "
    "pk.range(n) is a loop",
    "program_id blockIdx block_id": _BLOCK,
    "num_programs gridDim": "an extent of the grid is what pk.grid was called with; `tasks.blocks` of pk.persistent",
    "threadIdx blockDim thread_id tid lane_id warp_id": _NO_THREADS,
    "dot matmul mm bmm einsum mma inner": _PRODUCT,
    "static_range": "Python's `range` is unrolled while the kernel is recorded, pk.range is a loop that runs",
    "constexpr": "keyword-only parameters of a kernel are constants; pk.static(x) makes an extent one",
    "Config heuristics": 'pk.autotune takes dicts with values of constants: [{"rows": 64}, {"rows": 128}]',
    "jit": "@pk.kernel marks a kernel, @pk.function a helper",
    "trans T mT t permute swapaxes": "pk.transpose(t) is the transpose; pk.load and pk.store take transposed=True",
    "cat concatenate hstack vstack stack": "pk.concat(a, b, axis) joins two tiles",
    "ones ones_like zeros_like full_like empty empty_like": _CREATE,
    "array asarray tensor as_tensor from_numpy": _ARRAY,
    "mean var std average": "pk.row_sum(t) / t.cols is the mean along the rows, pk.col_sum(t) / t.rows that of columns",
    "amax nanmax": _REDUCE.format("max"),
    "amin nanmin": _REDUCE.format("min"),
    "softmax log_softmax": "`e = pk.exp(t - pk.row_max(t))`, then `e / pk.row_sum(e)`; pk.online_softmax takes parts",
    "logsumexp": "`m = pk.row_max(t)`, then `m + pk.log(pk.row_sum(pk.exp(t - m)))`",
    "reshape view flatten ravel expand expand_dims unsqueeze squeeze broadcast_to broadcast repeat tile": _SHAPE,
    "astype type float half bfloat16 double int long cast": _CONVERT,
    "item tolist numpy cpu cuda detach": _HOST,
    "syncthreads syncwarp barrier debug_barrier synchronize": _SYNC,
    "shared_memory smem local_memory alloc": _SHARED,
    "isnan": "`t != t` is true where t is NaN",
    "isinf isfinite": "`pk.abs(t) == pk.inf` is true where t is infinite",
    "ndim dim": "`len(x.shape)` is the rank of a tensor; a register tile has rows and columns",
    "size numel itemsize nbytes": _EXTENTS,
    "stride strides data_ptr make_block_ptr make_tensor_descriptor advance ptr": _MEMORY,
    "device_print printf": 'pk.print("x is {}", x) prints scalars, tiles and vectors',
    "device_assert static_assert": "pk.assert_(condition, text) checks while the kernel runs",
    "sort argsort": "pk.row_sort(t) sorts the rows: (values, indices)",
    "topk argpartition": "pk.row_topk(t, k) is (values, indices) of the k largest elements of each row",
    "rand randn randint random dropout": _RANDOM,
    "atomic_xchg": "pk.atomic_exchange(x[i], value) returns the element before",
    "take index_select take_along_axis": _GATHER,
    "put scatter_ index_put index_add": 'pk.scatter(A[..., j], index, t, op="add") stores rows or elements by an index',
    "bincount histogram histc": 'pk.scatter(bins, index, 1, op="add") counts in a shared vector of int32',
    "clip": "pk.clamp(x, low, high)",
    "masked_fill": "pk.where(mask, value, t)",
    "next_power_of_2": "the columns of a tile are a multiple of 16, its rows one of 16 times the group's warps; a "
    "vector has any length",
    "assume multiple_of max_contiguous": "the alignment of tensors is read at each call; pk.require(condition, text) "
    "states a condition",
    "square": "x * x",
    "sign": "pk.where(x > 0, 1.0, pk.where(x < 0, -1.0, 0.0))",
    "floor ceil trunc rint fix": "x.to(pk.int32) truncates; pk.floor_div and `//` of integers round down",
    "fmod mod remainder": "`%` of integers has the sign of the divisor",
    "divide true_divide": "a / b",
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "negative": "-a",
    "power": "pk.pow(x, y), or x ** 2",
    "roll": "x.window(axis, start, stop) shifts the coordinates of a tensor before it is loaded",
    "cuda_kernel raw_kernel RawKernel": "pk.inline_cuda(text, *operands, like=x) is an expression of CUDA C++",
    "float32 single": "pk.f32",
    "float16": "pk.f16",
    "float8_e4m3fn": "pk.e4m3",
    "float8_e5m2": "pk.e5m2",
}
WORDS = {name: text for names, text in _WORDS.items() for name in names.split()}
WORDS |= {
    n: _REDUCE.format(n) for n in ("sum", "max", "min", "prod", "any", "all", "argmax", "argmin")
}
WORDS |= {
    n: f"pk.row_{n}(t) runs along the rows, pk.col_{n}(t) down the columns, pk.{n}(v) along a vector"
    for n in ("cumsum", "cumprod", "cummax", "cummin")
}

# Words that other libraries call with other arguments.
_USES = {
    "load": "sizes are given by name: pk.load(x[i, j], rows=64, cols=64)",
    "pk.shared": _SHARED,
}

# Values that have no subscript, by class.
_SUBSCRIPTS = {
    "TileRef": "all indices of a tensor stand in one pair of brackets: x[i, j]",
}

# Keyword arguments of other libraries.
KEYWORDS = {
    "axis": "the name has the direction: row_* works along the rows, col_* along the columns",
    "mask": "no mask is needed: outside a tensor a load reads `fill` and a store writes nothing",
    "other": "`fill` is what a load reads outside a tensor",
    "keepdims": "a per-row or per-column vector combines with a tile as it is",
    "num_warps": "`warps` is the number of warps of a kernel without roles, as in @pk.kernel(warps=4)",
    "num_stages": "pk.pipeline(stages, tile) has a number of stages",
    "boundary_check": "every load and store is checked at the edges",
    "out": "pk.store writes a value to a tensor",
    "configs": 'the candidates come first: pk.autotune([{"rows": 64}, {"rows": 128}])',
    "prune_configs_by": "`prune` returns those that are measured, as in prune=lambda candidates, x, y: candidates[:3]",
    "reset_to_zero": "candidates write to copies, which have the contents of the originals before each launch",
    "check": "`reference` has the expected outputs, as in pk.autotune(candidates, reference=lambda x, y: 2 * x)",
    "rep": "how often a candidate is launched follows from its time",
}
KEYWORDS |= {"dim": KEYWORDS["axis"], "keepdim": KEYWORDS["keepdims"]}
KEYWORDS |= {"restore_value": KEYWORDS["reset_to_zero"], "warmup": KEYWORDS["rep"]}

# What a call of a kernel takes in other libraries.
_LAUNCH = {
    "grid": "pk.grid makes the grid inside of the kernel",
    "num_warps": KEYWORDS["num_warps"],
    "num_stages": KEYWORDS["num_stages"],
    "num_ctas": "@pk.kernel(cluster=2) makes clusters of two blocks",
}

COORDINATES = "pk.grid returns a tuple, with a coordinate for each extent: `(i,) = pk.grid(n)`"
# What is no index of a tensor, by class.
_INDICES = {
    "slice": "an index counts tiles: {0}[i, j] with rows=r begins at row i * r; `:` keeps an axis, "
    "{0}.window(axis, start, stop) is a part of one",
    "tuple": COORDINATES,
    "RegVector": _GATHER,
}
_LOOP = "`for i in pk.range(n):`, a statement of its own, is a loop that runs"
_EXTREME = "pk.{}imum(a, b) compares run-time values, element by element; pk.row_{} and pk.{} reduce a tile"
# Python's builtins on run-time values.
_BUILTINS = {
    "range": f"{_LOOP}; Python's `range` is unrolled while the kernel is recorded and needs pk.static(n)",
    "min": _EXTREME.format("min", "min", "min"),
    "max": _EXTREME.format("max", "max", "max"),
    "sum": _REDUCE.format("sum"),
    "any": _REDUCE.format("any"),
    "all": _REDUCE.format("all"),
    "sorted": "pk.row_sort(t) sorts the rows of a tile: (values, indices)",
    "enumerate": f"{_LOOP}; i counts",
    "zip": f"{_LOOP}; index the others by i",
    "list": _LOOP,
    "tuple": _LOOP,
    "map": _LOOP,
    "reversed": "`pk.range(n - 1, -1, -1)` counts down",
    "len": _EXTENTS,
    "iter": _LOOP,
    "next": _LOOP,
    "int": "x.to(pk.int32) is an int32 when the kernel runs; pk.static(x) makes an extent or argument a Python int",
    "float": "x.to(pk.f32) is an f32 when the kernel runs; a scalar combines with tiles as it is",
    "bool": "a comparison is a run-time bool as it is; `if` and `while` take it",
    "round": "x.to(pk.int32) truncates; (x + 0.5).to(pk.int32) rounds numbers that are not negative",
    "divmod": "`//` and `%` of run-time integers round down",
    "str": 'pk.print("x is {}", x) prints it when the kernel runs',
    "format": 'pk.print("x is {}", x) prints it when the kernel runs',
    "complex": "the dtypes are real",
}
_LIBRARIES = {"np", "numpy", "torch", "F", "tl", "math", "jnp", "cp", "cupy", "scipy", "tf"}
_STATEMENTS: dict[type[ast.AST], str] = {
    ast.Assert: "pk.assert_(condition, text) checks while the kernel runs, pk.require(condition, text) on the host, "
    "before it runs",
    ast.IfExp: "pk.where(condition, a, b) chooses between run-time values; or write an `if` statement",
    ast.ListComp: f"a comprehension is unrolled while the kernel is recorded; {_LOOP}",
    ast.match_case: "compare with `==` in an `if` statement; `match` takes values that are known when it is recorded",
    ast.JoinedStr: 'pk.print("x is {}", x) prints it when the kernel runs',
}
_STATEMENTS |= dict.fromkeys(
    (ast.SetComp, ast.DictComp, ast.GeneratorExp), _STATEMENTS[ast.ListComp]
)


def word(name: str) -> str | None:
    """What the language has for a name of another library."""
    if name in WORDS:
        return WORDS[name]
    if name in _known():
        return f"use {_call(name)}"
    return WORDS.get(name.removeprefix("row_").removeprefix("col_"))


def use(name: str) -> str | None:
    """How a function of the language is called, if its signature does not say what other libraries do otherwise."""
    return _USES.get(name) or WORDS.get(name)


def launch(name: str) -> str | None:
    """What the language has for a keyword of a call of a kernel in another library."""
    constant = f"a constant is a keyword-only parameter, `def k(x, y, *, {name})`"
    return _LAUNCH.get(name) or (constant if name.isupper() else None)


def converted(name: str, dtype: str) -> str:
    """How an array of float64, which NumPy makes unless told otherwise, becomes one of f32."""
    return (
        f"{name}.astype(np.float32), or {name}.float() in PyTorch; " if dtype == "float64" else ""
    )


def index(kind: str, tensor: str) -> str | None:
    """What stands in the brackets of a tensor of this name, in place of a value of a class."""
    return _INDICES[kind].format(tensor) if kind in _INDICES else None


def subscript(message: str) -> str | None:
    """The word for Python's error about a value that has no subscript."""
    found = re.match(r"'(\w+)' object is not subscriptable", message)
    return _SUBSCRIPTS.get(found[1]) if found else None


def meant(name: str) -> str | None:
    """What the language has for a name that is looked up in it, which may be misspelt."""
    close = difflib.get_close_matches(name, _known(), 1, 0.75)
    return word(name) or (f"did you mean pk.{close[0]}?" if close else None)


def _known() -> list[str]:
    """The names that the language has."""
    return sys.modules[__name__.partition(".")[0]].__all__  # type: ignore[no-any-return]


def _call(name: str) -> str:
    """A function of the language with the names of its operands."""
    function = getattr(sys.modules[__name__.partition(".")[0]], name)
    if not callable(function):
        return f"pk.{name}"
    parameters = signature_of(function).parameters.values()
    operands = [p.name for p in parameters if p.default is p.empty and p.kind is not p.KEYWORD_ONLY]
    return f"pk.{name}({', '.join(operands)})"


def at(loc: Loc | None) -> str | None:
    """The word for what the expression at a location, or the one around it, asks of a run-time value."""
    path = _path(loc)
    for depth, node in enumerate(path):
        if depth and isinstance(node, ast.Call | ast.Subscript | ast.Lambda):
            return None  # what follows is an argument of another call
        if (found := _help(node)) is not None:
            return found
    return None


def _help(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in _BUILTINS:
            return _BUILTINS[name]
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in DTYPES:
            return _CONVERT
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if _root(value) in _LIBRARIES:
            return word(name)
        case ast.Call(func=ast.Attribute(attr=name)) if name in WORDS:
            return WORDS[name]
        case ast.BinOp(op=ast.MatMult()):
            return _PRODUCT
        case ast.Subscript(ctx=ast.Store()):
            return (
                f"pk.store({ast.unparse(node)}, value) writes to a tensor or a shared tile; a register tile is never "
                "changed: pk.where, pk.with_row and pk.concat make a new one"
            )
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return "compare with each: `(x == a) | (x == b)`"
        case _:
            return _STATEMENTS.get(type(node))


def _root(value: ast.expr) -> str:
    """The first name of a path such as torch.nn.functional."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def names_in(loc: Loc) -> set[str]:
    """The names in the expression at a location."""
    path = _path(loc)
    return {n.id for n in ast.walk(path[0]) if isinstance(n, ast.Name)} if path else set()


def _path(loc: Loc | None) -> list[ast.AST]:
    """The expression at a location and the nodes around it up to its statement, the innermost first."""
    if loc is None or (columns := loc.columns) is None:
        return []
    try:
        tree = ast.parse("".join(linecache.getlines(loc.file)))
    except (SyntaxError, ValueError):
        return []
    return list(reversed(list(_enclosing(tree, loc.line, *columns))))


def _enclosing(node: ast.AST, line: int, start: int, end: int) -> Iterator[ast.AST]:
    """The nodes from a statement down to the expression that begins at a place and ends there or on a later line."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.match_case | ast.comprehension | ast.FormattedValue):
            inside = [*_enclosing(child, line, start, end)]
            if inside:
                yield child
                yield from inside
                return
        elif isinstance(child, ast.expr | ast.stmt | ast.pattern):
            first, last = (child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset)
            if first <= (line, start) and (line, end) <= last:
                if not isinstance(child, ast.stmt) or isinstance(child, ast.Assert):
                    yield child
                yield from _enclosing(child, line, start, end)
                return
