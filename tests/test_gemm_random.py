"""Random matrix products are right in the emulator; `pytest --first 100000` takes others."""

import pytest

from tests.gemm_random import drawn, fault_of


@pytest.mark.parametrize("number", range(60))
def test_a_random_product_is_right_in_the_emulator(number, request):
    number += request.config.getoption("--first")
    assert fault_of(drawn(number)) == "", drawn(number)


def test_a_number_draws_the_same_product_each_time():
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_products_of_one_form_differ_in_sizes_and_values():
    first, second = drawn(3, forms=10), drawn(13, forms=10)
    assert (first.extras, first.layouts) == (second.extras, second.layouts)
    assert first.config == second.config
    assert first.seed != second.seed
