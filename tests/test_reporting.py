import doctest

import numpy as np
import pytest
import torch

from gptlab import reporting
from gptlab.reporting import report


def test_the_example_in_the_docstring():
    assert doctest.testmod(reporting).failed == 0


def test_what_is_printed_is_the_stored_number(capsys):
    report("first loss", torch.tensor(10.9724), "10.97")
    report("parameters", 124_439_808, "124,439,808")
    report("epsilon", 1.04e-5, "1.0e-5")
    assert capsys.readouterr().out == "first loss: 10.97\nparameters: 124,439,808\nepsilon: 1.0e-5\n"


@pytest.mark.parametrize("value", [10.985, 10.955, float("nan"), float("inf")])
def test_a_number_that_is_off_by_more_than_its_last_digit_fails(value):
    with pytest.raises(
        ValueError, match=r"first loss: this machine computes .*, the text says 10.97 \(± 0.01\)"
    ):
        report("first loss", value, "10.97")


def test_a_stated_tolerance_may_be_narrower_but_not_wider():
    report("x", 1.02, "1.0", tolerance=0.05)
    with pytest.raises(ValueError, match="computes 1.08"):
        report("x", 1.08, "1.0", tolerance=0.05)
    with pytest.raises(ValueError, match="write fewer digits instead"):
        report("x", 1.0, "1.0", tolerance=0.2)
    for tolerance in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be positive"):
            report("x", 1.0, "1.0", tolerance=tolerance)
    report("x", 1.0, "1.0", tolerance=np.float64(0.05))


@pytest.mark.parametrize("stored", ["about 3", "", "nan"])
def test_a_stored_value_that_is_no_number_is_refused(stored):
    with pytest.raises(ValueError, match="stored="):
        report("x", 3.0, stored)


def test_a_stored_number_that_is_no_string_is_named(as_a_user):
    with pytest.raises(ValueError, match=r"stored=3.14 must be a decimal number written as a string"):
        report("pi", 3.14159, 3.14)
