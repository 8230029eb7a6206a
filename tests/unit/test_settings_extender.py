"""The address of the extender. Its callers decide where Pods go."""

import pytest

from tests.unit.reading_settings import faults_of, read


@pytest.mark.parametrize("address", [":8888", "0.0.0.0:8888", "10.0.0.7:8888", "[::]:8888", "extender.example:8888"])
def test_the_extender_needs_certificates_off_loopback(address: str) -> None:
    (fault,) = faults_of({"EXTENDER_ADDRESS": address})
    assert fault == f"DISPATCHER_EXTENDER_ADDRESS is {address!r}: off loopback DISPATCHER_EXTENDER_TLS_DIR must be set"
    assert read({"EXTENDER_ADDRESS": address, "EXTENDER_TLS_DIR": "/etc/tls"}).settings.extender.address == address
