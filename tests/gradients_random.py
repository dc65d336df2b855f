"""Results of random calls, and the gradients of what is given, beside those in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

SAMPLES = 4  # of other roundings
MOVED = 4  # times what a sample moves is as near as kernels are that round several times
_unit = list[float]()  # of results, while samples are drawn


def inside(p: Any, x: Any) -> Any:
    """The positions of packed sequences of a tensor (batch, heads, n, ...): others are what memory held."""
    is_whole = not p.lengths or x is None or x.dim() < 3
    return x if is_whole else x[:, :, p.first : p.first + sum(p.lengths)]


def rounded_otherwise(x: Any) -> Any:
    """Numbers of 16 bits as other numbers would be rounded to them, in float64."""
    if x.dtype not in (torch.bfloat16, torch.float16):
        return x.double()
    return moved(x.double(), torch.finfo(x.dtype).eps)


def moved(x: Any, unit: float) -> Any:
    """Numbers with other roundings."""
    return x * (1 + unit * (torch.rand_like(x) - 0.5))


def rounded(x: Any) -> Any:
    """The same, with a gradient that a kernel rounds before it goes on: so do samples of other roundings.

    It is for gradients that cancel others exactly, such as that of a score and that of the largest of a row.
    """
    y = x.view_as(x)
    if _unit and y.requires_grad:
        y.register_hook(lambda gradient: moved(gradient, _unit[-1]))
    return y


def as_operand(x: Any) -> Any:
    """The same, as a kernel has it for a product: rounded, as its gradient is."""
    return rounded(moved(x, _unit[-1]) if _unit else x)


def quotient(x: Any, y: Any) -> Any:
    """x / y, which a kernel rounds before it finds the gradient of y from it."""
    return x * rounded((1 / y).expand_as(x))


def with_gradients(
    function: Callable[..., Sequence[Any]], given: Sequence[Any], weights: Sequence[Any]
) -> list[Any]:
    """Results, and the gradients of what is given from those of the first results, or of all."""
    leaves = [x if x is None else x.detach().requires_grad_() for x in given]
    outs = function(*leaves)
    own = [x for x in leaves if x is not None]
    of_outs = [w.to(x.dtype) for w, x in zip(weights, outs, strict=False)]
    gradients = torch.autograd.grad(outs[: len(of_outs)], own, of_outs)
    return [*(x.detach() for x in outs), *gradients]


def check_gradients(
    p: Any,
    given: Sequence[Any],
    weights: Sequence[Any],
    ours: Callable[..., Sequence[Any]],
    exact: Callable[..., Sequence[Any]],
    *,
    bound: float,
    floor: float = 1e-5,
    along: int = 0,
) -> None:
    """Raise unless the results of a function, and their gradients, are near those of another in float64.

    An error is at most `bound` times the largest element, and `floor`. Where terms cancel, it is at most some times
    what other roundings of what is given make of it, or that of the other function in float32. p: the problem, for
    messages and `inside`. given: tensors, of which some may be None, and of which the first `along` have positions of
    packed sequences. weights: the gradients of results.
    """
    present = [i for i, x in enumerate(given) if x is not None]

    def of_positions(results: list[Any]) -> list[Any]:
        first = len(results) - len(present)
        cut = [*([False] * first), *(i < along for i in present)]
        return [inside(p, x) if is_cut else x for x, is_cut in zip(results, cut, strict=True)]

    def evaluated(change: Callable[[Any], Any]) -> list[Any]:
        some = [x if x is None else change(x) for x in given]
        return of_positions(with_gradients(exact, some, [change(w) for w in weights]))

    found = of_positions(with_gradients(ours, given, weights))
    wanted = evaluated(lambda x: x.double())
    for i, (f, e) in enumerate(zip(found, wanted, strict=True)):
        assert f.shape == e.shape, (p, i)
        assert f.isfinite().all(), (p, i)
    errors = largest_errors(found, wanted)
    sizes = largest_errors(wanted, [torch.zeros_like(e) for e in wanted])
    bounds = [bound * size + floor for size in sizes]
    if any(e > b for e, b in zip(errors, bounds, strict=True)):
        _unit.append(torch.finfo(weights[0].dtype).eps)
        samples = [largest_errors(evaluated(rounded_otherwise), wanted) for _ in range(SAMPLES)]
        _unit.pop()
        in_float32 = largest_errors(evaluated(lambda x: x.float()), wanted)
        moves = [MOVED * max(x) for x in zip(*samples, strict=True)]
        bounds = [max(x) for x in zip(bounds, moves, in_float32, strict=True)]
    for i, (error, most) in enumerate(zip(errors, bounds, strict=True)):
        assert error <= most, (p, i, error, most)


def largest_errors(found: list[Any], wanted: list[Any]) -> list[float]:
    """The largest error of each tensor; 0 of none."""
    pairs = zip(found, wanted, strict=True)
    return [float((f - e).abs().max()) if e.numel() else 0.0 for f, e in pairs]
