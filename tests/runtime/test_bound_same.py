"""Launches are found again by where their tensors lie, what else was said, and the stream."""

from __future__ import annotations

import pytest

from pykittens.runtime import bound
from tests.runtime.c_programs import needs_compiler
from tests.runtime.fake_gpu import STREAM

torch = pytest.importorskip("torch")
pytestmark = needs_compiler


def test_the_same_tensors_are_those_of_one_place_form_and_word(gpu_tensors: None) -> None:
    launches: list[int] = []

    def launch(stream: int) -> bool:
        launches.append(stream)
        return True

    same, whole = bound.SameTensors(), torch.zeros(128, 64)
    x, y, z = whole[:64], torch.zeros(64, 64), torch.zeros(64, 64)
    same.keep((x, y, z), True, launch)
    assert same.launch((x, y, z), True)
    assert same.launch((whole[:64], y, z), True)  # another object
    assert launches == [STREAM, STREAM]
    others = [
        ((whole, y, z), True),
        ((x.view(32, 128), y, z), True),
        ((x.t(), y, z), True),
        ((x.view(torch.int32), y, z), True),
        ((x, z, y), True),
        ((x, y), True),
        ((x, y, z), False),
        ((x, y, z), [True]),
        ((torch.nn.Parameter(x), y, z), True),
        ((torch._neg_view(x), y, z), True),
        ((x.numpy(), y, z), True),
    ]
    assert not any(same.launch(*other) for other in others)
    same.forget()
    assert not same.launch((x, y, z), True)


def test_the_same_tensors_on_another_stream_are_another_call(
    gpu_tensors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, x = bound.SameTensors(), torch.zeros(8)
    same.recurs((x,), "word")
    same.keep((x,), "word", lambda stream: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda i: STREAM + 1)
    assert not same.recurs((x,), "word")
    assert not same.launch((x,), "word")


def test_a_launch_may_decline(gpu_tensors: None) -> None:
    same, x = bound.SameTensors(), torch.zeros(8)
    same.keep((x,), "word", lambda stream: False)
    assert not same.launch((x,), "word")


def test_a_call_recurs_from_the_second_time_on(gpu_tensors: None) -> None:
    same, x, y = bound.SameTensors(), torch.zeros(8), torch.zeros(8)
    assert [same.recurs((x, y), "word") for _ in range(3)] == [False, True, True]
    assert not same.recurs((y, x), "word")
    assert not same.recurs((x, y), "other")
    assert [same.recurs((x, y), [1]) for _ in range(2)] == [False, False]
