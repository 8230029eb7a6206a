"""kube-scheduler's configuration: the one that the extender needs, and a check of the one that its calls show.

`build_configuration`: a KubeSchedulerConfiguration (`kubescheduler.config.k8s.io/v1`).

`ConfigurationCheck`: kube-scheduler does not report that it drops answers, calls too seldom or sends whole nodes. So
the faults that the calls show are reported, by a metric and a log line. `/readyz` stays ready, because to take the
extender out of service would repair nothing.
"""

from collections import deque
from typing import Any, Final

from dispatcher.settings.definition import ExtenderSettings, Settings

SCHEDULER_NAME: Final = "dispatcher-scheduler"
"""Used if the setting SCHEDULER_NAME is empty."""
CERTIFICATES: Final = "/etc/kubernetes/extender"
"""The directory of the client certificate and the extender's CA in the scheduler's Pod."""


def build_configuration(settings: Settings, own_namespace: str | None = None) -> dict[str, Any]:
    """The configuration of a second scheduler, which calls the extender. Its lease has its name.

    own_namespace: of the Pod that asks, where the lease is. None: it is no Pod; the lease is beside the Jobs.
    """
    name, namespace = settings.placement.scheduler_name or SCHEDULER_NAME, own_namespace or settings.kube.namespace
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceName": name, "resourceNamespace": namespace or "default"},
        # A node that is not scored cannot be chosen for its cache. The default scores 42 % of 1,000 nodes, and a
        # smaller share of more nodes. Each scored node costs time. Beyond 1,000 nodes speed may matter more
        # (docs/operator.md).
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": name}],
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
    """The TLS part: kube-scheduler needs the extender's CA, and a certificate of its own."""
    return {
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": f"{CERTIFICATES}/ca.crt",
            "certFile": f"{CERTIFICATES}/tls.crt",
            "keyFile": f"{CERTIFICATES}/tls.key",
        },
    }


UNCACHED: Final = "uncached"
NO_PRIORITIZE: Final = "no-prioritize"
NO_FILTER: Final = "no-filter"
TWO_CALLERS: Final = "two-callers"
FAULTS: Final = {
    UNCACHED: "whole nodes are sent: set nodeCacheCapable: true, or every node looks idle to kube-scheduler",
    NO_PRIORITIZE: "filter is called and prioritize never is: set prioritizeVerb and a weight, or no cache is warm",
    NO_FILTER: "prioritize is called and filter never is: set filterVerb, or reservations will not hold",
    TWO_CALLERS: "two schedulers ask in turn: give each an extender of its own, or neither sees what the other takes",
}
ENOUGH_CALLS: Final = 20
"""Calls of one kind before the lack of the other kind is a fault."""
TURNS: Final = 3
"""Turns between two connections that show two callers."""
TURNS_WITHIN_SECONDS: Final = 60
"""Seconds within which these turns happen."""
REMEMBERED: Final = 16
"""Connections that are remembered, at most."""
STANDS_SECONDS: Final = 600
"""Seconds for which a fault stays after the last call that shows it. A mended configuration needs no restart here."""
Peer = tuple[str, int]


class ConfigurationCheck:
    """Learns of each call. `faults`: the keys of FAULTS that stood at the last call."""

    def __init__(self) -> None:
        self.faults: frozenset[str] = frozenset()
        self._shown: dict[str, float] = {}
        self._calls = {"filter": 0, "prioritize": 0}
        self._peers: deque[Peer] = deque(maxlen=REMEMBERED)
        self._turns: deque[float] = deque(maxlen=TURNS)

    def hear(self, verb: str, peer: Peer, now: float, *, has_choice: bool, is_cached: bool) -> frozenset[str]:
        """Learns of a call, and returns new faults. `has_choice`: several nodes. A single one is never scored."""
        found = set() if is_cached else {UNCACHED}
        if verb in self._calls and has_choice:
            self._calls[verb] += 1
        for called, silent, fault in (("filter", "prioritize", NO_PRIORITIZE), ("prioritize", "filter", NO_FILTER)):
            if self._calls[called] >= ENOUGH_CALLS and not self._calls[silent]:
                found.add(fault)
        if self._are_two(peer, now):
            found.add(TWO_CALLERS)
        self._shown |= dict.fromkeys(found, now)
        before, self.faults = self.faults, self.standing(now)
        return self.faults - before

    def standing(self, now: float) -> frozenset[str]:
        """The faults that calls of the last STANDS_SECONDS showed. It needs no further call: there may be none."""
        return frozenset(fault for fault, at in self._shown.items() if now - at < STANDS_SECONDS)

    def _are_two(self, peer: Peer, now: float) -> bool:
        """Whether two connections take turns. A single scheduler may replace its connection, but does not return."""
        if self._peers and peer != self._peers[-1]:
            if peer in self._peers:
                self._turns.append(now)
                self._peers.remove(peer)
            self._peers.append(peer)
        elif not self._peers:
            self._peers.append(peer)
        return len(self._turns) == TURNS and now - self._turns[0] <= TURNS_WITHIN_SECONDS
