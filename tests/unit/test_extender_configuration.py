"""The configuration of kube-scheduler, written out here in full, so that any change shows."""

from typing import Any

import msgspec
import pytest

from dispatcher.extender.configuration import build_configuration
from dispatcher.settings.loading import load

EXTENDER = {
    "urlPrefix": "http://127.0.0.1:8888",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "weight": 1,
    "httpTimeout": "1s",
    "nodeCacheCapable": True,
    "ignorable": False,
}
TLS = {
    "enableHTTPS": True,
    "tlsConfig": {
        "caFile": "/etc/kubernetes/extender/ca.crt",
        "certFile": "/etc/kubernetes/extender/tls.crt",
        "keyFile": "/etc/kubernetes/extender/tls.key",
    },
}


def configuration(**environ: str) -> dict[str, Any]:
    """The printed configuration for these settings."""
    settings = load({f"DISPATCHER_{name}": value for name, value in environ.items()}, read_file=str).settings
    printed: dict[str, Any] = msgspec.yaml.decode(msgspec.yaml.encode(build_configuration(settings)))
    return printed


def test_default_configuration_is_a_second_scheduler_with_the_extender() -> None:
    assert configuration() == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "dispatcher-scheduler",
            "resourceNamespace": "default",
        },
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": "dispatcher-scheduler"}],
        "extenders": [EXTENDER],
    }


def test_profile_has_the_scheduler_name_of_the_pods() -> None:
    assert configuration(SCHEDULER_NAME="warm")["profiles"] == [{"schedulerName": "warm"}]


def test_lease_is_in_the_namespace_of_the_jobs() -> None:
    assert configuration(NAMESPACE="builds")["leaderElection"]["resourceNamespace"] == "builds"


@pytest.mark.parametrize("address", ["127.0.0.1:9999", "localhost:1", "[::1]:8443"])
def test_url_is_the_address_of_the_extender(address: str) -> None:
    assert configuration(EXTENDER_ADDRESS=address)["extenders"] == [EXTENDER | {"urlPrefix": f"http://{address}"}]


@pytest.mark.parametrize("address", ["10.0.0.7:8443", "extender.example:8443"])
def test_url_off_loopback_uses_mutual_tls(address: str) -> None:
    extenders = configuration(EXTENDER_ADDRESS=address, EXTENDER_TLS_DIR="/etc/tls")["extenders"]
    assert extenders == [EXTENDER | TLS | {"urlPrefix": f"https://{address}"}]


@pytest.mark.parametrize("address", [":8443", "0.0.0.0:8443", "[::]:8443"])
def test_extender_that_listens_on_every_address_is_called_by_name(address: str) -> None:
    extenders = configuration(EXTENDER_ADDRESS=address, EXTENDER_TLS_DIR="/etc/tls")["extenders"]
    assert extenders == [EXTENDER | TLS | {"urlPrefix": "https://dispatcher-extender:8443"}]
