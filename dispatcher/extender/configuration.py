"""The KubeSchedulerConfiguration that the extender is made for (`kubescheduler.config.k8s.io/v1`)."""

from typing import Any, Final

from dispatcher.settings.definition import ExtenderSettings, Settings

SCHEDULER_NAME: Final = "dispatcher-scheduler"
"""Used if the setting SCHEDULER_NAME is empty."""
LEASE: Final = "dispatcher-scheduler"
CERTIFICATES: Final = "/etc/kubernetes/extender"
"""The directory of the client certificate and the extender's CA in the scheduler's Pod."""


def build_configuration(settings: Settings) -> dict[str, Any]:
    """Configures a second scheduler, which calls the extender. Its lease is in the namespace of the Jobs."""
    namespace = settings.kube.namespace or "default"
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": LEASE,
            "resourceNamespace": namespace,
        },
        # A node that is not scored cannot be chosen for its cache. The default scores 43 % of 1,000 nodes, and a
        # smaller share of more nodes. Each scored node costs time. Beyond 1,000 nodes speed may matter more
        # (docs/operator.md).
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": settings.placement.scheduler_name or SCHEDULER_NAME}],
        "extenders": [build_extender(settings.extender)],
    }


def build_extender(extender: ExtenderSettings) -> dict[str, Any]:
    return {
        "urlPrefix": f"{'https' if extender.tls_dir else 'http'}://{reached_at(extender.address)}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 1,
        "httpTimeout": "1s",
        "nodeCacheCapable": True,
        "ignorable": False,
    } | (tls() if extender.tls_dir else {})


def reached_at(address: str) -> str:
    """The host and port that kube-scheduler calls. An extender that listens on every address is called by a name."""
    host, _, port = address.rpartition(":")
    return f"dispatcher-extender:{port}" if host in {"", "0.0.0.0", "[::]"} else address  # noqa: S104  # compared, not bound


def tls() -> dict[str, Any]:
    """kube-scheduler needs the CA to verify the extender, and a certificate because the extender demands one."""
    return {
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": f"{CERTIFICATES}/ca.crt",
            "certFile": f"{CERTIFICATES}/tls.crt",
            "keyFile": f"{CERTIFICATES}/tls.key",
        },
    }
