"""Who has a say in a call: the dispatcher is asked where somebody may, and gone past elsewhere."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.autograd import forward_ad  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pykittens.torch import matmul  # noqa: E402
from pykittens.torch.registration import is_direct, needs_gradient  # noqa: E402
from tests.torch.operators import BF16, whole  # noqa: E402


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
        assert is_direct(torch.empty(2), None, optional=1) is direct


def test_tensors_of_a_class_of_their_own_have_a_say():
    plain = torch.empty(2, 3)
    assert is_direct(plain, torch.nn.Parameter(plain), None, optional=1)
    assert not is_direct(plain, None)
    assert not is_direct(None, plain, optional=1)
    assert not is_direct(plain, plain.as_subclass(Tagged))
    assert not is_direct(plain.to("meta"))
    assert not is_direct(plain.to_sparse())
    assert not is_direct(3)
    told = []
    torch.vmap(lambda x: told.append(is_direct(x)) or x)(plain)
    assert told == [False]


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
def test_a_tangent_is_not_lost():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(whole(3, 5), whole(3, 5))
        with pytest.raises(NotImplementedError, match="jvp"):
            matmul(dual, whole(5, 7))


def test_the_package_is_there_without_torch():
    program = "import sys, pykittens, pykittens.kernels.gemm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
