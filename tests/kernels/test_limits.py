"""The limits of a GPU, and the first configuration that fits them."""

from __future__ import annotations

import numpy as np
import pytest

from pykittens import settings
from pykittens.errors import ResourceError
from pykittens.kernels.limits import Limits, first_that_fits, limits_of
from pykittens.targets.architectures import TARGETS


def test_an_array_of_the_cpu_has_the_limits_of_hopper():
    hopper = TARGETS["sm_90a"]
    assert limits_of(np.zeros(1)) == Limits("sm_90a", hopper.shared_bytes, warpgroups=True)
    assert limits_of(None) == limits_of(np.zeros(1))


def test_a_chosen_target_gives_its_limits(monkeypatch):
    monkeypatch.setattr(settings, "target", lambda: "sm_80")
    assert limits_of(np.zeros(1)) == Limits("sm_80", TARGETS["sm_80"].shared_bytes, False)


def test_the_first_configuration_that_fits_is_taken():
    limits = Limits("sm_89", 1000, False)
    sizes = {"larger": 2000, "large": 1001, "medium": 1000, "small": 10}
    found = first_that_fits("k", ["large", "medium", "small"], sizes.__getitem__, limits)
    assert found == "medium"
    with pytest.raises(
        ResourceError, match="k: no configuration fits sm_89: the smallest takes 1001"
    ):
        first_that_fits("k", ["larger", "large"], sizes.__getitem__, limits)
    with pytest.raises(ResourceError, match="there is none for its products"):
        first_that_fits("k", [], sizes.__getitem__, limits)
