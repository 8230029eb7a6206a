"""The ends of certificates and tokens are read from their own words."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dispatcher.model.errors import UTC_TIME, certificates_end, instant, token_end
from tests.scheduling.certificates import OF_SERVERS, Authority, pem, sequence
from tests.unit.logins import jwt

GENERALIZED_TIME = 0x18


def test_chain_has_the_ends_of_its_certificates_in_their_order(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    leaf = authority.pair("server", usage=OF_SERVERS)
    ends = certificates_end(leaf.certificate.read_text() + authority.certificate.read_text())
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    assert [end == pytest.approx(tomorrow, abs=60) for end in ends] == [True, True]


@pytest.mark.parametrize(
    "text", ["", "no certificate", pem("CERTIFICATE", b"\x30"), pem("CERTIFICATE", sequence()),
             "-----BEGIN CERTIFICATE-----!-----END CERTIFICATE-----", pem("CERTIFICATE", sequence(sequence()))],
)  # fmt: skip
def test_unreadable_certificate_has_no_end(text: str) -> None:
    assert certificates_end(text) == []


@pytest.mark.parametrize(
    ("kind", "written", "year"),
    [(UTC_TIME, "491231235959Z", 2049), (UTC_TIME, "500101000000Z", 1950), (GENERALIZED_TIME, "20610101000000Z", 2061)],
)
def test_year_of_a_certificate_is_that_of_its_kind_of_time(kind: int, written: str, year: int) -> None:
    assert instant(kind, written).year == year


def test_token_ends_as_it_says() -> None:
    assert token_end(jwt({"exp": 1763769600, "iss": "x"})) == 1763769600


def test_token_without_an_end_never_ends() -> None:
    assert token_end(jwt({"iss": "x"})) == float("inf")


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.é.b", "a.!!.b", jwt([1]), jwt({"exp": "soon"})])
def test_token_that_is_no_jwt_has_no_known_end(token: str) -> None:
    assert token_end(token) is None
