"""Calls that bypass the dispatcher, and calls that must not."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from pykittens.errors import ArgumentError  # noqa: E402
from pykittens.torch import gated_mlp, grouped_mm, linear, matmul, scaled_mm  # noqa: E402
from pykittens.torch.registration import is_direct, needs_gradient  # noqa: E402
from tests.torch.operators import BF16, whole  # noqa: E402

OFFS = torch.tensor([1, 3], dtype=torch.int32)
A, WEIGHT, BIAS = whole(3, 5), whole(7, 5, seed=1), whole(7, seed=2)
GROUPS, DOWN = whole(2, 5, 7, seed=3), whole(2, 7, seed=4)

# Calls of one tensor.
DERIVED = {
    "matmul": lambda a: matmul(a, WEIGHT.mT),
    "linear": lambda x: linear(x, WEIGHT, BIAS, "gelu"),
    "gated_mlp": lambda x: gated_mlp(x, WEIGHT, WEIGHT, DOWN),
    "grouped_mm": lambda a: grouped_mm(a, GROUPS, OFFS),
}


class Tagged(torch.Tensor):
    """A tensor with a class of its own."""


class Seen(TorchDispatchMode):
    """Remembers the operators that it sees."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Lets functions be as they are."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("context", "direct"),
    [
        (nullcontext, True),
        (torch.no_grad, True),
        (torch.inference_mode, True),
        (Seen, False),
        (Functions, False),
        (lambda: torch.autocast("cpu", dtype=BF16), False),
    ],
    ids=["nothing", "no_grad", "inference_mode", "dispatch mode", "function mode", "autocast"],
)
def test_modes_have_a_say(context, direct):
    with context():
        assert is_direct(torch.empty(2), None) is direct


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_a_class_of_their_own_have_a_say():
    plain = torch.empty(2, 3)
    nested = torch.nested.nested_tensor([plain, plain])
    assert is_direct(plain, torch.nn.Parameter(plain), None)
    assert not is_direct(plain, plain.as_subclass(Tagged))
    assert not is_direct(plain.to("meta"))
    assert not is_direct(plain.to_sparse())
    assert not is_direct(torch._neg_view(plain))
    assert not is_direct(nested)
    assert not is_direct(3)
    told = []
    torch.vmap(lambda x: told.append(is_direct(x)) or x)(plain)
    assert told == [False]


def test_a_tensor_that_a_transform_has_wrapped_is_unwrapped_after_its_end():
    kept = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(A)
    with torch.no_grad():
        assert not is_direct(*kept)
        for _ in range(2):
            assert torch.equal(matmul(*kept, WEIGHT.mT), matmul(A, WEIGHT.mT))


def test_a_mode_sees_the_operator():
    a, b = whole(3, 5), whole(5, 7)
    with Seen() as seen:
        found = matmul(a, b)
    assert seen.names == ["pykittens.matmul.default"]
    assert torch.equal(found, matmul(a, b))


def test_a_subclass_comes_out_where_one_goes_in():
    found = matmul(whole(3, 5).as_subclass(Tagged), whole(5, 7))
    assert type(found) is Tagged
    assert torch.equal(found.as_subclass(torch.Tensor), matmul(whole(3, 5), whole(5, 7)))


def test_a_gradient_is_asked_for_by_the_tensors_and_the_mode():
    plain, leaf = torch.empty(2), torch.empty(2, requires_grad=True)
    assert needs_gradient(plain, leaf)
    assert not needs_gradient(plain, None, 3, "relu")
    with torch.no_grad():
        assert not needs_gradient(leaf)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by forward_ad itself
@pytest.mark.parametrize("name", DERIVED)
def test_a_tangent_is_not_lost(name):
    call, x = DERIVED[name], A
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(ArgumentError, match=f"^{name}: there is no derivative in forward mode"):
            call(dual)
        assert torch.equal(call(x.clone()), call(x))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "hessian"])
@pytest.mark.parametrize("name", DERIVED)
def test_a_transform_in_forward_mode_is_refused_in_a_sentence(name, transform):
    call, x = DERIVED[name], A
    asked = {
        "jvp": lambda: torch.func.jvp(call, (x,), (x,)),
        "jacfwd": lambda: torch.func.jacfwd(call)(x),
        "hessian": lambda: torch.func.hessian(lambda x: call(x).sum())(x),
    }
    with pytest.raises(ArgumentError, match="there is no derivative in forward mode") as fault:
        asked[transform]()
    assert fault.value.help == "torch.func.grad, vjp and jacrev work, and so does .backward()"
    assert fault.value.loc.file == __file__


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_transform_leaves_products_of_constants_alone():
    a, b = whole(3, 5), whole(5, 7)
    ones = torch.ones(3, 7, dtype=BF16)
    found = torch.func.grad(lambda x: (matmul(a, b) * x).sum())(ones)
    assert torch.equal(found, matmul(a, b))
    tangent = torch.func.jvp(lambda x: matmul(a, b) * x, (ones,), (ones,))[1]
    assert torch.equal(tangent, matmul(a, b))


@pytest.mark.filterwarnings("error")  # PyTorch warns of an operator without a rule
def test_vmap_works_with_and_without_a_gradient():
    a, b = whole(2, 3, 5), whole(2, 5, 7, seed=1)
    assert torch.equal(torch.vmap(matmul)(a, b), torch.matmul(a, b))
    twice = torch.vmap(torch.vmap(matmul, in_dims=(0, None)), in_dims=(None, 0))
    assert torch.equal(twice(a, b), torch.matmul(a[None], b[:, None]))
    leaf = a.clone().requires_grad_()
    torch.vmap(matmul)(leaf, b).sum().backward()
    assert torch.equal(leaf.grad, b.sum(2)[:, None].expand(2, 3, 5))


def mlp(x, w1, w3, w2):
    hidden = functional.silu(functional.linear(x, w1)) * functional.linear(x, w3)
    return functional.linear(hidden, w2)


COUNTED = {
    "matmul": (matmul, torch.matmul, (A, WEIGHT.mT)),
    "matmul of a batch": (matmul, torch.matmul, (whole(2, 3, 5), whole(2, 5, 7))),
    "matmul of a shared matrix": (matmul, torch.matmul, (whole(2, 3, 5), whole(5, 7))),
    "matmul of vectors": (matmul, torch.matmul, (whole(5), whole(5, 7))),
    "linear": (linear, functional.linear, (A, WEIGHT, BIAS)),
    "linear of a batch": (linear, functional.linear, (whole(2, 3, 5), WEIGHT)),
    "gated_mlp": (gated_mlp, mlp, (whole(2, 3, 5), WEIGHT, WEIGHT, DOWN)),
}


def operations(call, *given):
    """What FlopCounterMode counts for a call and its gradients."""
    leaves = [x.clone().requires_grad_() for x in given]
    with FlopCounterMode(display=False) as forward:
        call(*given)
    with FlopCounterMode(display=False) as both:
        call(*leaves).sum().backward()
    return forward.get_total_flops(), both.get_total_flops()


@pytest.mark.parametrize("name", COUNTED)
def test_operations_are_counted_as_those_of_torch(name):
    ours, theirs, given = COUNTED[name]
    assert operations(ours, *given) == operations(theirs, *given)


def test_operations_of_groups_and_of_fp8_are_counted():
    e4m3, one = torch.float8_e4m3fn, torch.ones(())
    with FlopCounterMode(display=False) as counter:
        grouped_mm(A, GROUPS, OFFS)
        scaled_mm(A.to(e4m3), WEIGHT.to(e4m3).mT, one, one)
        matmul(A, WEIGHT.mT, out=torch.empty(3, 7, dtype=BF16))
    assert counter.get_total_flops() == 3 * (2 * 3 * 5 * 7)


@pytest.mark.parametrize("name", DERIVED)
def test_a_profiler_shows_the_name_of_an_operator(name):
    DERIVED[name](A)  # later calls bypass the dispatcher
    assert is_direct(A)
    with torch.profiler.profile() as profile:
        assert not is_direct(A)
        DERIVED[name](A)
    found = {e.key: e.count for e in profile.key_averages()}
    assert found[f"pykittens::{name}"] == 1
    with torch.profiler.profile() as profile:
        matmul(A.clone().requires_grad_(), WEIGHT.mT).sum().backward()
    found = {e.key: e.count for e in profile.key_averages()}
    assert found["pykittens::matmul"] == 2  # and its gradient


def test_the_package_is_there_without_torch():
    program = "import sys, pykittens, pykittens.kernels.gemm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
