"""Arguments that are None, and tuples, named tuples and dataclasses of tensors, numbers and None."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

import pykittens as pk
from pykittens.lang.structures import classes, flatten, names, rebuild
from tests.running import recorded


class Weights(NamedTuple):
    q: Any
    k: Any = None


@dataclass(frozen=True)
class Layer:
    weights: Weights
    scale: Any = 1.0
    bias: Any = None

    def scaled(self, t):
        """A method of the user, called while the kernel is recorded."""
        return t * self.scale


@dataclass(slots=True)
class Pair:
    left: Any
    right: Any
    total: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        assert isinstance(self.left, np.ndarray), "no code of the class runs on handles"


def tile(tensor):
    return pk.load(tensor[0, 0], rows=64, cols=64)


@pk.kernel
def layered(x, layer, bias, y, *more):
    """y = scale * (x + q + k) + biases - the further tensors."""
    pk.grid(1)
    assert type(layer) is Layer
    assert type(layer.weights) is Weights
    total = tile(x) + tile(layer.weights.q)
    if layer.weights.k is not None:
        total = total + tile(layer.weights.k)
    total = layer.scaled(total)
    for b in (bias, layer.bias):
        if b is not None:
            total = total + tile(b)
    for tensor in more:
        if tensor is not None:
            total = total - tile(tensor)
    pk.store(y[0, 0], total)


def full(value: float, *shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape or (64, 64), value, np.float32)


# -- the structure ---------------------------------------------------------------------------------


def test_an_argument_is_its_form_and_its_leaves():
    leaves: list[Any] = []
    given = (Layer(Weights(1, None), 2.0), None, ())
    form = flatten(given, leaves)
    assert leaves == [1, 2.0]
    assert [*names(form, "a")] == [
        ("a[0].weights.q", True),
        ("a[0].weights.k", False),
        ("a[0].scale", True),
        ("a[0].bias", False),
        ("a[1]", False),
    ]
    assert rebuild(form, iter(leaves)) == given
    assert [*classes([form])] == [tuple, Layer, Weights, tuple]


def test_no_code_of_a_class_runs_when_it_is_rebuilt():
    form = flatten(Pair(full(1), full(2)), [])
    made = rebuild(form, iter("ab"))
    assert (type(made), made.left, made.right, made.total) == (Pair, "a", "b", None)


class Wide(tuple):
    """A tuple without names."""


@dataclass
class Odd:
    """A dataclass that is made in a way of its own."""

    a: Any

    def __new__(cls, *args):
        return object.__new__(cls)


@pytest.mark.parametrize(
    "other", [[1], {"a": 1}, Wide((1,)), Odd(1), pk.f32, pk.st(pk.f32, 16, 16), Layer]
)
def test_other_objects_have_no_parts(other):
    assert flatten(other, []) == "leaf"


def test_an_object_that_holds_itself_is_refused_by_name():
    pair = Pair(full(1), full(2))
    pair.right = pair
    with pytest.raises(
        pk.KernelError, match="`layer(.right){8}` must be an array or a number, not Pair"
    ):
        layered(full(1), pair, None, full(0))


# -- calls -----------------------------------------------------------------------------------------


CALLS = {
    "least": (Layer(Weights(full(2))), None, (), 3),
    "bias": (Layer(Weights(full(2))), full(10), (), 13),
    "all": (Layer(Weights(full(2), full(4)), 2.0, full(20)), full(10), (full(5),), 39),
    "further": (Layer(Weights(full(2)), 3.0), None, (None, full(5), None), 4),
    "a number of NumPy": (Layer(Weights(full(2)), np.float32(0.5)), None, (), 1.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_parts_that_are_given_and_parts_that_are_none_are_what_the_kernel_computes_with(name):
    layer, bias, more, wanted = CALLS[name]
    y = full(0)
    layered(full(1), layer, bias, y, *more)
    assert (y == wanted).all()
    layered.debug(full(1), layer, bias, y, *more)
    assert (y == wanted).all()
    report = pk.check(layered, full(1), layer, bias, y, *more, costs=False, compile=False)
    assert report.ok, report


def test_structures_of_tensors_of_pytorch_are_written_and_their_versions_raised():
    torch = pytest.importorskip("torch")

    @pk.kernel(inplace=True)
    def doubled(state, scale):
        pk.grid(1)
        pk.store(state[1].q[0, 0], tile(state[1].q) * 2.0)

    q, k = torch.ones(64, 64), torch.ones(64, 64)
    doubled((k, Weights(q, k)), None)
    assert bool((q == 2).all())
    assert (q._version, k._version) == (1, 0)


def test_the_form_and_the_class_are_part_of_the_specialisation():
    @pk.kernel
    def kernel(pair, y):
        pk.grid(1)
        first = pair[0] if isinstance(pair, tuple) else pair.left
        pk.store(y[0, 0], tile(first) + (1.0 if isinstance(pair, Weights) else 0.0))

    y = full(0)
    for pair, wanted in (
        ((full(1), full(2)), 1),
        (Weights(full(1), full(2)), 2),
        (Pair(full(1), full(2)), 1),
        (Weights(full(1), None), 2),
        ((full(1), None), 1),
    ):
        for _ in range(2):
            kernel(pair, y)
            assert (y == wanted).all()
    assert sum(map(len, kernel._recorded.values())) == 5


def test_a_kernel_is_recorded_again_if_a_method_of_an_argument_changes(monkeypatch):
    y = full(0)
    layered(full(1), Layer(Weights(full(2))), None, y)
    monkeypatch.setattr(Layer, "scaled", lambda self, t: t * 100.0)
    layered(full(1), Layer(Weights(full(2))), None, y)
    assert (y == 300).all()


def test_a_class_that_holds_an_array_is_refused_by_name(monkeypatch):
    @pk.kernel
    def kernel(pair):
        pk.grid(1)
        pk.store(pair.right[0, 0], tile(pair.left))

    monkeypatch.setattr(Pair, "table", full(1), raising=False)
    with pytest.raises(pk.KernelError, match="what the class Pair holds is an array"):
        kernel(Pair(full(1), full(2)))


def test_a_number_in_a_structure_is_a_run_time_number_and_may_be_static():
    class Sizes(NamedTuple):
        rows: int
        factor: float

    @pk.kernel
    def kernel(sizes, y):
        (row,) = pk.grid(sizes.rows)
        assert isinstance(pk.static(sizes.rows), int)
        pk.store(y[row], pk.zeros(pk.f32, 64) + sizes.factor)

    y = full(0)
    for rows in (2, 4):
        kernel(Sizes(rows, 3.0), y)
        assert (y[:rows] == 3).all()
        assert not y[rows:].any()
    assert recorded(kernel, Sizes(2, 3.0), y).params[0].name == "sizes.rows"


def test_a_structure_may_be_read_in_loops_and_branches():
    @pk.kernel
    def kernel(layer, y, n):
        pk.grid(1)
        total = pk.zeros(pk.f32, 64, 64)
        for i in pk.range(n):
            if i > 0:
                total = total + tile(layer.weights.q)
            total = layer.scaled(total)
        pk.store(y[0, 0], total)

    y = full(0)
    kernel(Layer(Weights(full(1)), 2.0), y, 3)
    assert (y == 6).all()


def test_emitted_parameters_are_named_after_the_parts():
    text = layered.source(full(1), Layer(Weights(full(2))), None, full(0), (full(1),)[0])
    assert "layer_weights_q" in text
    assert "layer_scale" in text
    assert "bias" not in text.partition('extern "C"')[2]


def test_a_kernel_and_its_errors_are_pickled():
    assert pickle.loads(pickle.dumps(layered)) is layered
    with pytest.raises(pk.KernelError) as caught:
        layered(full(1), Layer(Weights([full(2)])), None, full(0))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# -- faults ----------------------------------------------------------------------------------------


def test_an_output_in_a_structure_may_not_share_memory_with_another_part():
    @pk.kernel
    def kernel(pair):
        pk.grid(1)
        pk.store(pair.right[0, 0], tile(pair.left))

    x = full(1)
    with pytest.raises(pk.KernelError, match="`pair.right` shares memory with `pair.left`"):
        kernel(Pair(x, x))
    report = pk.check(kernel, Pair(x, x))
    assert not report.ok
    assert "pair.left" in str(report)


def test_a_requirement_names_the_parts():
    @pk.kernel
    def kernel(pair, y):
        pk.require(pair.left.shape == y.shape, "another shape")
        pk.grid(1)
        pk.store(y[0, 0], tile(pair.left))

    with pytest.raises(pk.KernelError, match="another shape") as caught:
        kernel(Pair(full(1, 8, 8), full(1)), full(0))
    assert {"pair.left", "pair.right", "y"} <= set(caught.value.operands)


def use_none(kind: str) -> Any:
    @pk.kernel
    def kernel(x, bias, y, layer):
        pk.grid(1)
        t = tile(x)
        match kind:
            case "item":
                t = t + pk.load(bias[0, 0], rows=64, cols=64)
            case "load":
                t = t + pk.load(bias, rows=64, cols=64)
            case "operand":
                t = t + bias
            case "attribute":
                t = t * bias.cols
            case "helper":
                t = t + tile(bias)
            case "part":
                t = t + layer.bias * 2.0
            case "static":
                t = t + pk.static(bias)
            case "unpacked":
                t, _ = bias
        pk.store(y[0, 0], t)

    return kernel


@pytest.mark.parametrize(
    "kind", ["item", "load", "operand", "attribute", "helper", "part", "static", "unpacked"]
)
def test_an_operation_on_none_names_the_argument_and_says_when_that_is_decided(kind):
    name = "layer.bias" if kind == "part" else "bias"
    with pytest.raises(pk.KernelError) as caught:
        use_none(kind)(full(1), None, full(0), Layer(Weights(full(1))))
    assert caught.value.operands[name] == "None in this call"
    assert f"`if {name} is not None:`" in caught.value.help
    assert "recorded" in caught.value.help
    assert "NoneType" not in str(caught.value)


def test_none_of_the_user_s_own_is_python_s_error():
    @pk.kernel
    def kernel(y):
        pk.grid(1)
        nothing: Any = None
        pk.store(y[0, 0], nothing[0])

    with pytest.raises(TypeError, match="not subscriptable"):
        kernel(full(0))


@pytest.mark.parametrize(
    ("part", "name", "kind", "help"),
    [
        ([full(1)], "pair.right", "list", "a tuple, a NamedTuple or a dataclass"),
        ({"a": full(1)}, "pair.right", "dict", "a NamedTuple or a dataclass"),
        ("fast", "pair.right", "str", "constants are keyword-only"),
        ((full(1), pk.f32), "pair.right[1]", "DType", "constants are keyword-only"),
        ((object(),), "pair.right[0]", "object", "anything with __dlpack__"),
        (Wide((full(1),)), "pair.right", "Wide", "makes a plain tuple"),
    ],
)
def test_a_part_that_is_no_tensor_or_number_is_refused_by_name(part, name, kind, help):
    with pytest.raises(pk.KernelError) as caught:
        layered(full(1), Pair(full(1), part), None, full(0))
    wanted = name.replace("pair", "layer")
    assert f"`{wanted}` must be an array or a number, not {kind}" in caught.value.message
    assert help in caught.value.help


def test_a_report_names_the_parts_and_calls_with_the_whole():
    layer = Layer(Weights(full(2)))

    @pk.kernel
    def kernel(layer, bias, y):
        pk.grid(1)
        pk.store(y[0, 0], tile(y) + tile(layer.weights.q))

    options = {"costs": False, "compile": False}
    report = pk.check(kernel, layer, None, full(0), undefined="y", **options)
    assert [*report.arguments] == [
        "layer.weights.q",
        "layer.weights.k",
        "layer.scale",
        "layer.bias",
        "bias",
        "y",
    ]
    assert report.arguments["bias"] == "None"
    assert "pk.check(kernel, layer, bias, y, " in str(report)
    with pytest.raises(pk.KernelError, match="no argument of kernel `layer`") as caught:
        pk.check(kernel, layer, None, full(0), undefined="layer", **options)
    assert "layer.weights.q" in caught.value.help
