"""Calls with tensors that have no memory, as compilers make them to learn shapes: checked, but not launched.

Such a tensor is one of FakeTensorMode or of the device meta. Its extents, and numbers of the call, may be symbols of a
compiler. A comparison of a symbol would restrict the compiled program to some sizes. So the checks use the size from
which the compiler started; if there is none, they take the size as 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pykittens.lang.structures import flatten, rebuild
from pykittens.runtime.arguments import Parameters, check
from pykittens.runtime.arrays import Array, check_dense, name_of_torch

ADDRESS = 256  # aligned, as the memory of a new tensor is


def is_fake(x: Any) -> bool:
    """Whether an argument is a tensor without memory, in a call of which no graph is traced."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor) or _is_traced(torch):
        return False
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return x.is_meta or (fakes is not None and isinstance(x, fakes.FakeTensor))


def _is_traced(torch: Any) -> bool:
    """Whether PyTorch traces the operators of a function, which would lose a call of a kernel."""
    key = torch._C._TorchDispatchModeKey.PROXY
    return (
        torch._C._get_dispatch_mode(key) is not None
        or torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0
    )


def described(x: Any) -> Array:
    """The description of a tensor without memory; extents may be symbols, and strides are those of the example."""
    check_dense(x)
    kind, index = x.device.type, x.device.index
    place: Any = kind if index is None else (kind, index)  # of the device meta, too
    return Array(name_of_torch(x.dtype), tuple(x.shape), known(x.stride()), ADDRESS, place, True, x)


def known(x: Any) -> Any:
    """A number in place of a symbol of a compiler: that of its example, without a guard. Anything else as it is."""
    if type(x) in (tuple, list):
        return type(x)(map(known, x))
    node = getattr(x, "node", None) if type(x).__module__ == "torch" else None
    if node is None:
        return x
    return 1 if node.hint is None else node.hint


def is_equal(a: Any, b: Any) -> bool:
    """Whether two extents are equal; a compiler that knows no size of a symbol assumes so."""
    equal = a == b
    if type(equal) is bool:
        return equal
    symbols: Any = sys.modules["torch.fx.experimental.symbolic_shapes"]
    return bool(getattr(symbols, "guard_or_true", bool)(equal))  # older releases lack it


def has_fakes(args: Sequence[Any], words: Mapping[str, Any]) -> bool:
    """Whether some tensors of a call have no memory."""
    leaves: list[Any] = []
    for x in (*args, *words.values()):
        flatten(x, leaves)
    return any(map(is_fake, leaves))


def check_fakes(parameters: Parameters, args: Sequence[Any], words: Mapping[str, Any]) -> None:
    """Check a call with tensors without memory as far as it is known."""
    leaves: list[Any] = []
    forms = [flatten(x, leaves) for x in (*args, *words.values())]
    values = iter([_stand_in(x) for x in leaves])
    given = [rebuild(form, values) for form in forms]
    count = len(args)
    check(parameters, tuple(given[:count]), dict(zip(words, given[count:], strict=True)))


def _stand_in(x: Any) -> Any:
    if not is_fake(x):
        return known(x)
    array = described(x)
    array.shape = known(array.shape)
    return array
