"""What a definition of one's own operator takes, what is said of mistakes, and a newer definition."""

from __future__ import annotations

from types import FunctionType
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import op  # noqa: E402
from tests.torch.test_op import scaled_rows  # noqa: E402


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def function(annotation):
    def scale(x: torch.Tensor, eps: float = 1.0) -> torch.Tensor:
        return x * eps

    scale.__annotations__ = annotation
    return scale


@op("pykittens_tests::halves")
def halves(x: torch.Tensor, *, at: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:at].clone(), x[at:].clone()


TYPED = {"x": torch.Tensor, "eps": float, "return": torch.Tensor}
MISTAKES = {
    "no namespace": (
        lambda: op("scale"),
        "op: takes the name of an operator with its namespace, not 'scale'",
        'write @op("mine::scale") above the function',
    ),
    "no name": (
        lambda: op(scaled_rows),
        "op: takes the name of an operator with its namespace, not <kernel scaled_rows",
        'write @op("mine::scaled_rows") above the function',
    ),
    "a kernel": (
        lambda: op("mine::scale")(scaled_rows),
        "op: mine::scale must be a function that calls kernels, not a kernel",
        "y = torch.empty_like(x); scaled_rows(x, y); return y",
    ),
    "no function": (
        lambda: op("mine::scale")(3),
        "op: mine::scale must be a function that calls kernels, not 3",
        None,
    ),
    "no annotation": (
        lambda: op("mine::scale")(function({"return": torch.Tensor})),
        "mine::scale: `x` has no annotation, from which PyTorch takes",
        "as in `def scale_rows(x: torch.Tensor",
    ),
    "no annotation of the result": (
        lambda: op("mine::scale")(function({"x": torch.Tensor, "eps": float})),
        "mine::scale: its result has no annotation",
        "-> torch.Tensor`",
    ),
    "an annotation that PyTorch does not know": (
        lambda: op("mine::scale")(function(TYPED | {"eps": dict})),
        "mine::scale: torch.library refuses the function: Parameter eps has unsupported type <class 'dict'>.",
        "parameters are of torch.Tensor, int, float,",
    ),
    "a named tuple": (
        lambda: op("mine::scale")(function(TYPED | {"x": Pair})),
        "mine::scale: torch.library refuses the function: Parameter x has unsupported type",
        "the parts of a tuple are parameters of their own",
    ),
    "a result of another type": (
        lambda: op("mine::scale")(function(TYPED | {"return": Pair})),
        "mine::scale: torch.library refuses the function: Return has unsupported type",
        "tuple[torch.Tensor, ...]",
    ),
    "a number as result": (
        lambda: op("mine::scale")(function(TYPED | {"return": int})),
        "mine::scale: its result is of int, and compilers trace tensors only",
        "let it return a tensor",
    ),
    "nothing returned and nothing written": (
        lambda: op("mine::scale")(function(TYPED | {"return": None})),
        "mine::scale: it returns None and `mutates` names nothing",
        'mutates={"y"}',
    ),
    "no parameter": (
        lambda: op("mine::scale", mutates="cache")(function(TYPED)),
        "mine::scale: `mutates` has 'cache', which is no parameter",
        "they are x, eps",
    ),
    "no names": (
        lambda: op("mine::scale", mutates=3)(function(TYPED)),
        "mine::scale: `mutates` must be names of parameters, not 3",
        "of x, eps",
    ),
    "a number that is written": (
        lambda: op("mine::scale", mutates="eps")(function(TYPED)),
        "mine::scale: torch.library refuses the function: Parameter eps is in mutable_args",
        "parameters are of",
    ),
    "no count": (
        lambda: op("mine::scale", flops=3)(function(TYPED)),
        "mine::scale: `flops` must be a function that takes (x, eps)",
        None,
    ),
    "a count of other arguments": (
        lambda: op("mine::scale", flops=lambda x: x.numel())(function(TYPED)),
        "mine::scale: `flops` must be a function that takes (x, eps)",
        None,
    ),
    "setup_context with other names": (
        lambda: halves.setup_context(lambda c, inputs, output, keyword_only_inputs: None),
        "pykittens_tests::halves: `setup_context` must be a function that takes"
        " (ctx, inputs, output, keyword_only_inputs)",
        None,
    ),
    "setup_context without keywords": (
        lambda: halves.setup_context(lambda ctx, inputs, output: None),
        "pykittens_tests::halves: `setup_context` must be a function that takes (ctx, inputs, ",
        None,
    ),
    "backward of one result": (
        lambda: halves.backward(lambda ctx, of_first: None),
        "pykittens_tests::halves: `backward` must be a function that takes (ctx, d0, d1)",
        None,
    ),
    "a kernel as backward": (
        lambda: halves.backward(scaled_rows),
        "pykittens_tests::halves: `backward` must be a function that takes (ctx, d0, d1)",
        None,
    ),
    "a namespace of PyTorch": (
        lambda: op("load_library::scale"),
        "op: the namespace of load_library::scale is taken",
        "choose another",
    ),
    "a name of PyTorch": (
        lambda: op("aten::mm")(function(TYPED)),
        "aten::mm: the name is taken",
        "choose another",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained(mistake):
    call, message, help = MISTAKES[mistake]
    with pytest.raises(ArgumentError) as e:
        call()
    assert e.value.message.startswith(message)
    assert e.value.help is help or help in e.value.help
    assert e.value.loc.file == __file__


@pytest.mark.parametrize(
    ("name", "help"),
    [
        ("mine::sc-ale", "mine::sc_ale"),
        ("mine::scale rows", "mine::scale_rows"),
        ("mine::größe", "mine::gr__e"),
        ("größe::scale", "mine::scale"),
        ("mine::class", "mine::scale_rows"),
        ("lambda::scale", "mine::scale"),
        ("mine::1", "mine::scale_rows"),
        ("mine::", "mine::scale_rows"),
        ("mine::scale.out", "mine::scale_out"),
        ("a::b::c", "mine::c"),
        ("mine::scale\n", "mine::scale_"),
        (None, "mine::scale_rows"),
    ],
)
def test_a_name_that_pytorch_does_not_take_is_refused_with_one_that_it_takes(name, help):
    with pytest.raises(ArgumentError) as e:
        op(name)
    assert e.value.message == (
        f"op: takes the name of an operator with its namespace, not {name!r}"
    )
    assert e.value.help.startswith(f'write @op("{help}") above the function')


def test_a_newer_definition_replaces_the_older():
    def define(factor):
        @op("pykittens_tests::again", flops=lambda x: factor)
        def again(x: torch.Tensor) -> torch.Tensor:
            return x * factor

        return again

    x = torch.ones(3)
    for factor in (2, 3):
        again = define(factor)
        with FlopCounterMode(display=False) as counter:
            assert torch.equal(again(x), x * factor)
        assert counter.get_total_flops() == factor
        assert torch.equal(torch.ops.pykittens_tests.again(x), x * factor)
    older, newer = define(4), define(5)
    for given in (x, x.clone().requires_grad_()):
        assert torch.equal(older(given), newer(given))
    elsewhere = FunctionType(function(TYPED).__code__, {"__name__": "other", "torch": torch})
    elsewhere.__annotations__ = {"x": torch.Tensor, "eps": float, "return": torch.Tensor}
    for other in (elsewhere, function(TYPED)):
        with pytest.raises(ArgumentError, match=f"the name is taken by {__name__}.test_a_newer"):
            op("pykittens_tests::again")(other)
    assert torch.equal(newer(x), x * 5)


def results_of(annotation, result):
    def function(x: torch.Tensor) -> torch.Tensor:
        return result(x)

    function.__annotations__ = {"x": torch.Tensor, "return": annotation}
    return op("pykittens_tests::results")(function)


PAIR = tuple[torch.Tensor, torch.Tensor]


@pytest.mark.parametrize(
    ("annotation", "result", "said"),
    [
        (torch.Tensor, lambda x: None, "returns None, and its annotation says torch.Tensor"),
        (torch.Tensor, lambda x: 1.0, "returns float, and"),
        (PAIR, lambda x: x + 1, "returns Tensor, and its annotation says tuple["),
        (PAIR, lambda x: [x + 1, x + 2], "returns list, and"),
        (PAIR, lambda x: Pair(x + 1, x + 2), "returns Pair, and"),
        (PAIR, lambda x: (x + 1,), "returns tuple, and"),
        (list[torch.Tensor], lambda x: (x + 1, x + 2), "returns tuple, and"),
        (torch.Tensor, lambda x: x, "returns memory of `x`"),
        (PAIR, lambda x: (x + 1, x[1:]), "returns memory of `x`"),
    ],
)
def test_a_result_is_what_the_annotation_says_and_no_argument(annotation, result, said):
    with pytest.raises(ArgumentError) as e:
        results_of(annotation, result)(torch.ones(2))
    assert said in e.value.message
    assert e.value.loc.file == __file__


@pytest.mark.parametrize("given", [lambda g: g, lambda g: (g, None, None), lambda g: [g, None]])
def test_backward_returns_a_gradient_for_each_argument(given):
    @op("pykittens_tests::with_factor")
    def with_factor(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor

    with_factor.backward(lambda ctx, g: given(2 * g))
    x = torch.ones(3)
    leaf = x.clone().requires_grad_()
    for call in (
        lambda: with_factor(leaf).sum().backward(),
        lambda: torch.func.grad(lambda x: with_factor(x).sum())(x),
    ):
        with pytest.raises(
            ArgumentError, match="`backward` must return 2 gradients, not [13]"
        ) as e:
            call()
        assert e.value.help == "return a gradient or None for each of x, factor"
