from decimal import Decimal

import numpy as np
import pytest
import torch

from gptlab.exercises.quantity import in_bytes, parse

STATE = parse(1_991_036_928)
STATE_BYTES = parse("1991036928 B")


@pytest.mark.parametrize(
    "text", ["1.854 GiB", "1,991 MB", "1.991 GB", "1.99 GB", "1899 MiB", "1991036928 B", "1,991,036,928"]
)
def test_the_training_state_in_many_units(text):
    assert parse(text).agrees_with(STATE_BYTES)


@pytest.mark.parametrize("text", ["1.991 GiB", "1.854 GB", "2 GB", "1.992 GB", "23 %"])
def test_units_that_are_mixed_up_do_not_agree(text):
    assert not parse(text).agrees_with(STATE_BYTES)


def test_percentages_are_shares():
    assert parse("23.67 %").value == Decimal("0.2367")
    assert parse("23.67 %").agrees_with(parse("0.23673956 "))
    assert not parse("23.76 %").agrees_with(parse("0.23673956"))


def test_signs_separators_and_exponents():
    assert parse("−1_000").value == -1000
    assert parse("1e3").value == 1000
    assert parse(".5").value == Decimal("0.5")
    assert parse(0.1).value == Decimal("0.1")


def test_plain_integers_are_exact():
    assert parse(124_439_808).step == 0
    assert not parse(124_439_809).agrees_with(parse(124_439_808))
    assert STATE.agrees_with(STATE_BYTES)


def test_a_plain_number_is_in_the_unit_asked_for_or_in_its_base_unit():
    for answer in ("23.67 %", 23.67, 0.2367, "0.236740"):
        assert parse(answer).agrees_with(parse("23.674 %"))
    assert not parse(2367).agrees_with(parse("23.67 %"))
    assert parse(1.854).agrees_with(parse("1.854 GiB"))
    assert not parse("1.854 GB").agrees_with(parse("1.854 GiB"))


@pytest.mark.parametrize("answer", [10.824904994, 10.824904441833496, "10.825", "10.82"])
def test_more_digits_than_the_exact_answer_has_are_not_compared(answer):
    assert parse(answer).agrees_with(parse("10.825"))
    assert not parse("10.826").agrees_with(parse("10.825"))


def test_an_exact_answer_of_two_digits_is_not_rounded_too_much():
    assert parse("36 MiB").agrees_with(parse("37748736 B"))
    assert not parse("38 MB").agrees_with(parse("37748736 B"))
    assert not parse("37 MiB").agrees_with(parse("37748736 B"))


def test_a_number_without_a_unit_is_compared_with_bytes():
    assert in_bytes(1_991_036_928) == parse("1991036928 B")
    assert parse("1.854 GB").agrees_with(in_bytes("1.854 GB"))
    assert not parse(1.854).agrees_with(in_bytes("1.854 GB"))


@pytest.mark.parametrize(
    "answer", [np.log(50_257), np.float32(10.825), np.array(10.825), torch.tensor(50_257.0).log()]
)
def test_a_number_of_numpy_or_pytorch_is_a_number(answer):
    assert parse(answer).agrees_with(parse("10.825"))
    assert parse(np.int64(124_439_808)).agrees_with(parse(124_439_808))


def test_a_vector_is_no_number():
    with pytest.raises(ValueError, match="cannot read"):
        parse(torch.tensor([10.825]))


def test_a_number_with_an_exponent_is_as_rounded_as_it_is_written():
    assert parse("5.25e7").agrees_with(parse(52_511_744))
    assert not parse("5.26e7").agrees_with(parse(52_511_744))
    assert not parse("5e7").agrees_with(parse(52_511_744))


def test_a_size_in_bytes_is_no_number_of_parameters():
    for answer in ("124.4 MB", "124,439,808 bytes", "12 %"):
        assert not parse(answer).agrees_with(parse(124_439_808))
