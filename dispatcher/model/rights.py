"""The accounts of our programs, and the verbs that each of them needs. Pure.

`run` asks for its own verbs before it needs them, and doctor asks for those of every program. A test compares the table
with the manifests.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

RUN: Final = "run"
JANITOR: Final = "janitor"
EXTENDER: Final = "extender"
CACHE_KEEPER: Final = "cache-keeper"
ACCOUNTS: Final = {
    RUN: "{installation}", JANITOR: "{installation}-janitor", EXTENDER: "{installation}-scheduler",
    CACHE_KEEPER: "{installation}-cache-keeper",
}  # fmt: skip
"""ServiceAccount of each program. The extender is a container of kube-scheduler's Pod, so they share an account."""
OURS, JOBS, CLUSTER = "ours", "jobs", "cluster"
"""Places of verbs: the namespace of our programs, the namespace of Jobs, the whole cluster."""
NODE_EVENTS: Final = "default"
"""The namespace of Events about nodes and NodeReservations, as the API server demands. It is a place of its own."""
Need = tuple[str, str, str, str, tuple[str, ...]]
"""Where, group, resource, name (empty: every object; `{i}` is the installation), verbs."""
LEASES: Final = "coordination.k8s.io"
RESERVATIONS: Final = "dispatcher.internal"
NEEDS: Final[dict[str, tuple[Need, ...]]] = {
    RUN: (
        (JOBS, "batch", "jobs", "", ("get", "list", "watch", "create", "delete", "patch")),
        (JOBS, "", "pods", "", ("delete",)),
        (JOBS, "", "events", "", ("list", "create")),
        (JOBS, "", "resourcequotas", "", ("list", "watch")),
        (JOBS, "kueue.x-k8s.io", "workloads", "", ("list",)),
        (OURS, LEASES, "leases", "", ("create",)),
        (OURS, LEASES, "leases", "{i}-leader", ("get", "update")),
        (OURS, "", "configmaps", "", ("create",)),
        (OURS, "", "configmaps", "{i}-status", ("update",)),
        (OURS, "", "configmaps", "{i}-reasons", ("get", "update")),
    ),
    JANITOR: (
        (JOBS, "batch", "jobs", "", ("get", "list", "create")),
        (JOBS, "", "pods", "", ("list",)),
        (OURS, "", "configmaps", "{i}-status", ("list", "watch")),
        (OURS, "", "configmaps", "{i}-reasons", ("list", "watch")),
    ),
    EXTENDER: (
        (CLUSTER, "", "nodes", "", ("list", "watch")),
        (CLUSTER, "", "pods", "", ("list", "watch")),
        (CLUSTER, RESERVATIONS, "nodereservations", "", ("list", "watch")),
        (CLUSTER, RESERVATIONS, "nodereservations/status", "", ("patch",)),
        (CLUSTER, "", "pods/status", "", ("patch",)),
        (CLUSTER, "", "events", "", ("create", "patch")),
    ),
    CACHE_KEEPER: (
        (JOBS, "", "pods", "", ("list", "watch")),
        (OURS, "", "configmaps", "", ("create", "update")),
        (OURS, "", "configmaps", "{i}-cache-orders", ("get",)),
        (NODE_EVENTS, "", "events", "", ("create", "patch")),
    ),
}
OF_ROOM: Final[tuple[Need, ...]] = (
    (CLUSTER, "", "nodes", "", ("list", "watch")),
    (CLUSTER, "", "pods", "", ("list", "watch")),
    (CLUSTER, "scheduling.k8s.io", "priorityclasses", "", ("list", "watch")),
)
"""Verbs of `run` for the room gate."""
WITHOUT_ROOM: Final[tuple[Need, ...]] = ((JOBS, "", "pods", "", ("list", "watch")),)
"""Verbs of `run` without a room gate, in place of `OF_ROOM`."""
OF_CACHES: Final[tuple[Need, ...]] = ((OURS, "", "configmaps", "", ("list", "watch")),)
"""Verbs of `run` for what cache keepers tell."""


class InstallationSite(Struct, frozen=True):
    """Where an installation is.

    ours: namespace of its programs.
    jobs: namespace of its Jobs.
    has_caches: whether CACHE_ROOT is set.
    """

    installation: str
    ours: str
    jobs: str
    check_room: bool = True
    has_caches: bool = False


class Verb(Struct, frozen=True):
    """One verb on one resource. Empty namespace: cluster-wide. Empty name: every object."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.resource, self.name)))


def account_of(program: str, site: InstallationSite) -> str:
    return ACCOUNTS[program].format(installation=site.installation)


def verbs_of(program: str, site: InstallationSite) -> Iterator[Verb]:
    """All verbs that the program needs at this site."""
    places = {OURS: site.ours, JOBS: site.jobs, CLUSTER: "", NODE_EVENTS: NODE_EVENTS}
    more: tuple[Need, ...] = ()
    if program == RUN:
        more = (*(OF_ROOM if site.check_room else WITHOUT_ROOM), *(OF_CACHES if site.has_caches else ()))
    for where, group, resource, name, verbs in (*NEEDS[program], *more):
        for verb in verbs:
            yield Verb(places[where], group, resource, verb, name.format(i=site.installation))
