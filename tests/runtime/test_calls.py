"""The form of a call: what distinguishes two calls, and what is kept for all calls of one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from pykittens.runtime import calls as calls_file
from pykittens.runtime.calls import Calls
from tests.runtime.c_programs import needs_compiler
from tests.runtime.calling import matrix, shifted
from tests.runtime.fake_gpu import STREAM

torch = pytest.importorskip("torch")
pytestmark = needs_compiler

NOTHING = (None, None, [], 0)


def form_of(calls: Calls[Any], *args: Any, **words: Any) -> Any:
    return calls.find(args, words)[1]


def test_what_was_kept_for_a_call_is_found_for_all_of_its_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0})
    x, y = matrix(), matrix()
    prepared, form, values, stream = calls.find((x, None, y, 1.5), {"alpha": 2.0, "mode": "fast"})
    assert (prepared, stream) == (None, STREAM)
    assert values == [x.data_ptr(), y.data_ptr(), 1.5, 2.0]
    calls.keep(form, "this")
    other = matrix()
    found = calls.find((other, None, y, 0.5), {"alpha": 3.0, "mode": "fast"})
    assert found == ("this", form, [other.data_ptr(), y.data_ptr(), 0.5, 3.0], STREAM)
    assert len(calls) == 1
    calls.forget()
    assert calls.find((x, None, y, 1.5), {"alpha": 2.0, "mode": "fast"})[0] is None


def test_what_distinguishes_two_calls_is_in_the_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0, "operands": ()})
    x, y = matrix(), matrix()
    forms = [
        form_of(calls, x, y),
        form_of(calls, x, None),
        form_of(calls, None, x),
        form_of(calls, x),
        form_of(calls, x, matrix(101)),
        form_of(calls, x, matrix(100, 144)[:, :72]),
        form_of(calls, x, matrix(72, 100).t()),
        form_of(calls, x, matrix(dtype=torch.bfloat16)),
        form_of(calls, x, shifted(y)),
        *(form_of(calls, x, number) for number in (1, 1.0, True, 0.0, -0.0)),
        form_of(calls, x, out=y),
        form_of(calls, x, bias=y),
        form_of(calls, x, out=None),
        form_of(calls, x, out=y, bias=x),
        form_of(calls, x, bias=x, out=y),
        form_of(calls, x, y, bias=x),
        form_of(calls, x, y, operands=(x,)),
        *(form_of(calls, x, y, mode=c) for c in (1, 1.0, True, "1", None, (1,), int)),
        *(form_of(calls, x, y, mode=c) for c in (0.0, -0.0, (0.0,), (-0.0,), (1.0,), (True,))),
        form_of(calls, x, y, mode=1, other=2),
        form_of(calls, x, y, mode=2, other=1),
        *(form_of(calls, x, y, alpha=c) for c in (1.0, 2, 2.0, -0.0, x)),
        *(form_of(calls, x, operands=c) for c in ((), (x,), (x, x), (x, 1), (1, x), (None,))),
    ]
    assert None not in forms
    assert len(set(forms)) == len(forms)


def test_numbers_that_are_passed_on_and_addresses_are_not_in_the_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0, "operands": ()})
    x, y = matrix(), matrix()
    assert form_of(calls, x, 1.5) == form_of(calls, y, 2.5)
    assert form_of(calls, x, alpha=1.5) == form_of(calls, x, alpha=2.5)
    assert (
        form_of(calls, x, alpha=1.0) == form_of(calls, x, alpha=1) == form_of(calls, x, alpha=None)
    )
    assert form_of(calls, x, operands=(y, 2.0)) == form_of(calls, x, operands=[x, 3.0])
    constants: Calls[str] = Calls()
    assert form_of(constants, x, 1.5) == form_of(constants, y, 2.5)
    assert form_of(constants, x, alpha=1.5) != form_of(constants, x, alpha=2.5)
    assert constants.find((x,), {}, [1])[1] != constants.find((x,), {}, [2])[1]


def test_values_come_with_their_names(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0, "beta": 0.0, "operands": ()})
    x, y = matrix(), matrix()
    parameters = ("a", "b", "out", "mode", "alpha")
    for args, words, names in (
        ((x, y), {}, "a b"),
        ((x, None, y), {}, "a out"),
        ((x,), {"out": y, "b": x}, "a out b"),
        ((), {"b": x, "mode": "fast", "a": y}, "b a"),
        ((x,), {"alpha": 2.0, "beta": 0.0, "out": None}, "a alpha"),
        ((x,), {"beta": 2, "alpha": 1}, "a beta"),
        ((x,), {"alpha": y}, "a alpha"),
        ((x, 3), {"mode": 3, "operands": (y, 2.0), "out": y}, "a b operand0 operand1 out"),
    ):
        values = calls.find(args, words)[2]
        assert calls.names(parameters, args, words) == names.split()
        assert len(values) == len(names.split())


def test_a_weight_is_a_tensor_and_other_subclasses_have_no_form(gpu_tensors: None) -> None:
    class Wrapped(torch.Tensor):
        pass

    calls: Calls[str] = Calls({"alpha": 1.0})
    x = matrix()
    weight = torch.nn.Parameter(matrix())
    assert form_of(calls, x, weight) == form_of(calls, x, matrix())
    wrapped = matrix().as_subclass(Wrapped)
    assert calls.find((x, wrapped), {}) == NOTHING
    assert calls.find((x,), {"alpha": wrapped}) == NOTHING


@pytest.mark.parametrize("other", [np.zeros((2, 2), np.float32), np.float32(1), [1], "fast"])
def test_arguments_of_other_libraries_have_no_form(gpu_tensors: None, other: Any) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0, "operands": ()})
    assert calls.find((matrix(), other), {}) == NOTHING
    if not isinstance(other, list | np.number):
        assert calls.find((matrix(),), {"alpha": other}) == NOTHING
        assert calls.find((matrix(),), {"operands": other}) == NOTHING
    assert calls.find((matrix(),), {"operands": (other,)}) == NOTHING
    assert calls.find((), {}) == calls.find((None,), {}) == calls.find((1.0,), {}) == NOTHING


def test_a_keyword_number_of_numpy_is_a_float(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"alpha": 1.0})
    for number in (np.float32(0.5), np.float64(-2.0), np.int64(3), np.float32(1), np.int32(0)):
        found, plain = (
            calls.find((), {"x": matrix(), "alpha": f(number)}) for f in (lambda n: n, float)
        )
        assert found[1] == plain[1]
        assert found[2][1:] == plain[2][1:]
        assert all(type(x) is float for x in found[2][1:])


class Two(NamedTuple):
    a: Any
    b: Any = None


@dataclass
class Other:
    a: Any
    b: Any = None


def test_the_form_of_a_kernels_call_has_the_structure_of_its_arguments(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls()
    x, y = matrix(), matrix()
    given = [
        *((x, p) for p in (y, (y,), (y, y), (y, None), (None, y), ((y,),), (y, ()))),
        *((x, p) for p in (Two(y), Two(y, y), Other(y), Other(y, y), Two((y, None)), Other(y, 1))),
        *((x, p) for p in (Other(y, 1.0), Two(y, True), (y, True))),
        (x, y, None),
        (None, x, y),
        ((x, y), None),
        ((x,), y),
    ]
    forms = [form_of(calls, *args) for args in given]
    assert None not in forms
    assert len(set(forms)) == len(forms)
    assert form_of(calls, Two(x, 1.0), y) == form_of(calls, Two(y, 2.0), x)
    found = calls.find((Two(x, Other(np.int64(3), y)), np.float32(0.5), None), {"mode": 1})
    assert found[2] == [x.data_ptr(), 3, y.data_ptr(), 0.5]
    calls.keep(found[1], "this")
    assert calls.find((Two(y, Other(4, x)), 0.25, None), {"mode": 1})[0] == "this"


@pytest.mark.parametrize(
    "other", [[1], Two(np.zeros(4)), Two([1]), {"a": 1}, Two(np.longdouble(1))]
)
def test_a_structure_of_what_has_no_form_has_none(gpu_tensors: None, other: Any) -> None:
    assert Calls[str]().find((matrix(), other), {}) == NOTHING
    loop = Other(matrix())
    loop.b = loop
    assert Calls[str]().find((loop,), {}) == NOTHING


def test_negated_views_have_no_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls({"operands": ()})
    x = matrix()
    calls.keep(form_of(calls, x), "this")
    negated = torch._neg_view(x)
    assert calls.find((negated,), {}) == NOTHING
    assert calls.find((x,), {"out": negated}) == NOTHING
    assert calls.find((x,), {"operands": (negated,)}) == NOTHING


@pytest.mark.filterwarnings("ignore")  # such tensors are prototypes
def test_tensors_without_dense_memory_have_no_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls()
    x = matrix()
    for sparse in (x.to_sparse(), x.to_sparse_csr(), torch.nested.nested_tensor([x, x])):
        assert calls.find((x, sparse), {}) == NOTHING


def test_tensors_of_the_cpu_or_of_two_gpus_have_no_form(
    gpu_tensors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Calls[str] = Calls()
    cpu, first, second = matrix(), matrix(), matrix()
    places = {cpu.data_ptr(): -1, first.data_ptr(): 0, second.data_ptr(): 1}
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: places[self.data_ptr()])
    for tensors in ((cpu,), (cpu, cpu), (cpu, first), (first, cpu), (first, second)):
        assert calls.find(tensors, {}) == NOTHING
    forms = {form_of(calls, tensor, tensor) for tensor in (first, second)}
    assert len(forms) == 2
    assert None not in forms


def test_a_list_as_a_constant_is_its_items(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls()
    forms = [calls.find((matrix(),), {"mode": mode})[1] for mode in ([1], [1], [2])]
    assert forms[0] == forms[1] != forms[2]


def test_calls_whose_constant_is_nan_have_one_form(gpu_tensors: None) -> None:
    calls: Calls[str] = Calls()
    x = matrix()
    assert form_of(calls, x, mode=float("nan")) == form_of(calls, x, mode=float("nan"))


def test_forms_are_not_kept_without_end(gpu_tensors: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_file, "MAX_FORMS", 3)
    calls: Calls[int] = Calls()
    x = matrix()
    for i in range(10):
        calls.keep(form_of(calls, x, mode=i), i)
        assert calls.find((x,), {"mode": i})[0] == i
        assert len(calls) <= 3
    kept = [calls.find((x,), {"mode": i})[0] for i in range(10)]
    assert sum(found is not None for found in kept) <= 3
