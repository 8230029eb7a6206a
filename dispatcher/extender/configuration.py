"""The KubeSchedulerConfiguration that the extender is made for (`kubescheduler.config.k8s.io/v1`)."""

from typing import Any, Final

from dispatcher.settings.definition import ExtenderSettings, Settings

SCHEDULER_NAME: Final = "dispatcher-scheduler"
"""Where SCHEDULER_NAME is not set."""
LEASE: Final = "dispatcher-scheduler"
CERTIFICATES: Final = "/etc/kubernetes/extender"
"""Where the scheduler's Pod finds its client certificate and the extender's CA."""


def build_configuration(settings: Settings) -> dict[str, Any]:
    """A second scheduler, with the extender beside it; its leader's lease is in the namespace of the Jobs."""
    namespace = settings.kube.namespace or "default"
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": LEASE,
            "resourceNamespace": namespace,
        },
        # A node that is not looked at cannot be chosen for its cache: with the default, 43 % of 1,000 are, and fewer of
        # more. It costs time with every node; beyond 1,000 of them speed may matter more (docs/operator.md).
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
    """Where it listens on every address, a name has to take the place of none."""
    host, _, port = address.rpartition(":")
    return f"dispatcher-extender:{port}" if host in {"", "0.0.0.0", "[::]"} else address  # noqa: S104  # compared, not bound


def tls() -> dict[str, Any]:
    """Without a CA kube-scheduler verifies nothing, and without a certificate of its own it is nobody."""
    return {
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": f"{CERTIFICATES}/ca.crt",
            "certFile": f"{CERTIFICATES}/tls.crt",
            "keyFile": f"{CERTIFICATES}/tls.key",
        },
    }
