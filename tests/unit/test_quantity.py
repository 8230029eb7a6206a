"""Quantities have the values that Kubernetes gives them."""

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.resources import TENS, TWOS, parse_quantity

# The forms that apimachinery's own tests use: every suffix, exponents, fractions, and "things written by trolls".
VALUES = {
    "0": 0, "0Ki": 0, "1": 1, "9": 9, "128974848": 128974848,
    "5n": Fraction(5, 10**9), "4u": Fraction(4, 10**6), "3m": Fraction(3, 1000), "128974848000m": 128974848,
    "8k": 8_000, "7M": 7 * 10**6, "129M": 129 * 10**6, "6G": 6 * 10**9, "40T": 40 * 10**12, "2P": 2 * 10**15,
    "1E": 10**18, "9E": 9 * 10**18, "12E": 2**63 - 1,
    "8Ki": 8 * 2**10, "123Mi": 128974848, "6Gi": 6 * 2**30, "100Ti": 100 * 2**40, "4Pi": 4 * 2**50, "3Ei": 3 * 2**60,
    "1e3": 1000, "1E-3": Fraction(1, 1000), "129e6": 129 * 10**6, "1E6": 10**6, "1.3E+6": 1_300_000, "1e14": 10**14,
    "0.5": Fraction(1, 2), "0.5e-2": Fraction(5, 1000), "100.035k": 100_035, "10.035M": 10_035_000,
    "0.5Mi": 2**19, "0.025Ti": Fraction(2**40, 40), "-1.025Ti": Fraction(-41 * 2**40, 40),
    "1e999": 2**63 - 1, "-1e999": 1 - 2**63, "9" * 36: 2**63 - 1, "9" * 5000: 2**63 - 1, "1e" + "9" * 5000: 2**63 - 1,
    "0e999": 0, "1e-999": Fraction(1, 10**9), "0." + "0" * 5000 + "1": Fraction(1, 10**9), "1e00000000005": 10**5,
    "0" * 5000 + "7": 7, "0.1" + "0" * 5000: Fraction(1, 10), "1" + "0" * 70 + "n": 2**63 - 1,
    "1" + "0" * 70 + "e-70": 1, f"0.{'0' * 70}1e71": 1,
    ".001": Fraction(1, 1000), ".0001k": Fraction(1, 10), "1.": 1, "1.G": 10**9, "+2": 2, "-3Ki": -3072, "007": 7,
}  # fmt: skip

NOT_QUANTITIES = [
    "", " ", ".", "+", "-", "m", "Ki", " 1", "1 ", "1 Gi", "1\n", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i",
    "1i", "-3.01i", "-3.01e-", "1e", "1e3k", "1K", "1ki", "1mi", "1g", "--1", "+-1", "1,5", "1_000", "0x10", "inf",
    "nan", "1/2", "½",
]  # fmt: skip


@pytest.mark.parametrize(("written", "value"), VALUES.items())
def test_a_quantity_has_the_value_that_kubernetes_gives_it(written: str, value: Fraction | int) -> None:
    assert parse_quantity(written) == value


@pytest.mark.parametrize("written", NOT_QUANTITIES)
def test_text_that_kubernetes_refuses_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(written)


@pytest.mark.parametrize("written", ["٣", "1٣Mi", "\uff11"])
def test_only_the_ten_ascii_digits_are_digits(written: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(written)


def test_the_message_shows_the_value_cut_short() -> None:
    with pytest.raises(ValueError, match=r'^"x{40}" is not') as fault:
        parse_quantity("x" * 5000)
    assert len(str(fault.value)) < 120


SUFFIXES = {name: Fraction(10) ** power for name, power in TENS.items()} | {
    name: Fraction(2) ** power for name, power in TWOS.items()
}


@given(st.integers(-(10**18), 10**18), st.sampled_from(sorted(SUFFIXES)))
def test_a_suffix_multiplies_exactly(number: int, suffix: str) -> None:
    assert parse_quantity(f"{number}{suffix}") == max(1 - 2**63, min(number * SUFFIXES[suffix], 2**63 - 1))


@given(st.integers(0, 10**12), st.integers(0, 10**9 - 1))
def test_fractions_are_never_rounded(whole: int, billionths: int) -> None:
    assert parse_quantity(f"{whole}.{billionths:09}") == whole + Fraction(billionths, 10**9)


@given(st.text(alphabet="0123456789.+-eEnumkMGTPKi \n", max_size=12))
def test_any_text_is_a_bounded_value_or_a_value_error(written: str) -> None:
    with contextlib.suppress(ValueError):
        assert abs(parse_quantity(written)) < 2**63
