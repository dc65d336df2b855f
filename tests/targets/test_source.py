"""The emitted CUDA C++ of each example, kept to be read and reviewed."""

import pytest

from tests.targets.compiling import CASES

KEPT = [name for name, case in CASES.items() if case.golden]


@pytest.mark.parametrize("name", KEPT)
def test_the_emitted_text_is_the_reviewed_one(name, golden):
    case = CASES[name]
    text = case.kernel.source(*case.args, **case.constants)
    # The device functions are in the package; what is kept is what the kernel adds.
    golden(f"cuda/{name}.cu", text[text.index('extern "C" __global__') :])


@pytest.mark.parametrize("name", KEPT)
def test_the_emitted_text_is_the_same_every_time(name):
    from pykittens.runtime.kernel import KernelFunction

    case = CASES[name]
    again = KernelFunction(case.kernel.function, case.kernel.options)
    assert again.source(*case.args, **case.constants) == case.kernel.source(
        *case.args, **case.constants
    )


def test_all_examples_are_kept():
    assert {name.split("-")[0] for name in KEPT} == {
        "add",
        "softmax",
        "matmul",
        "attention",
        "rms_norm",
    }
