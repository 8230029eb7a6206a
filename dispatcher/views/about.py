"""The page about this installation and this replica: versions, settings, rights, and how old each store is. Pure.

The names of the fields are public: they are the names in JSON. No secret is among them: `settings.loading` hides it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.model.cluster import StoreAge
from dispatcher.settings.loading import PREFIX, SettingSource
from dispatcher.views.status import InstallationIdentity

LEAST_STALE_SECONDS: Final = 30
"""A store that is read in rounds is stale after this number of seconds at the earliest."""
MISSED_ROUNDS: Final = 3
"""Rounds that such a store may miss."""
DOCS: Final[Mapping[str, str]] = {
    "docs/operator.md": "runs the dispatcher: metrics, surfaces, what to do",
    "docs/install.md": "installs it",
    "docs/submitter.md": "inserts rows",
    "docs/author.md": "writes templates and tasks",
    "docs/settings.md": "every setting",
    "docs/metrics.md": "every metric",
    "docs/rights.md": "every right that it needs",
    "docs/protocol.md": "the rules of rows, Jobs and launches",
    "docs/faults.md": "what happens when a part fails",
    "docs/runbooks": "what to do at an alert, one page for each",
}
"""Files of the repository, and who reads them."""


class Freshness(Struct, frozen=True):
    """How old a store is.

    age_seconds: seconds since the last sign of life; None: there was none.
    stale_after_seconds: an older store is stale; None: it is read on demand, and never stale.
    is_stale: it is too old, or has a fault.
    fault: what is wrong; empty: nothing is known.
    """

    store: str
    age_seconds: float | None
    stale_after_seconds: float | None
    is_stale: bool
    fault: str = ""


class ReadinessLine(Struct, frozen=True):
    """One line of /readyz. `fault`: what is missing; empty: nothing is."""

    name: str
    fault: str


class AboutPage(Struct, frozen=True, kw_only=True):
    """The installation and the replica that answers.

    as_of: when it answered, by its own clock.
    own_namespace: namespace of the Lease and the ConfigMaps.
    lease: name of the Lease.
    leader: holder of the Lease, as this replica read it last; None: nobody holds it, or it was not read.
    is_ready: whether /readyz answers 200.
    checks: the checks of /readyz.
    missing_rights: verbs that its account lacks, by namespace; also those without which launches go on.
    stores: the stores on which its decisions and answers rest.
    docs: pages of the repository, with their purpose.
    """

    as_of: datetime
    installation: str
    version: str
    jobs_namespace: str
    own_namespace: str
    replica: str
    leads: bool
    lease: str
    leader: str | None
    is_ready: bool
    checks: Sequence[ReadinessLine]
    missing_rights: Sequence[str]
    stores: Sequence[Freshness]
    settings: Sequence[SettingSource]
    docs: Mapping[str, str]


class Election(Struct, frozen=True):
    """The Lease. `holder`: None: nobody holds it, or it was not read."""

    own_namespace: str
    lease: str
    holder: str | None
    leads: bool


class ReplicaCondition(Struct, frozen=True):
    """The state of this replica.

    checks: the checks of /readyz, with what is missing.
    rights: the missing verbs, in one line.
    stores: the age of each store.
    """

    checks: Mapping[str, str]
    rights: str
    stores: Iterable[StoreAge]


class AboutSources(Struct, frozen=True):
    """The sources of the page. Each function is called for each request."""

    installation: InstallationIdentity
    settings: Sequence[SettingSource]
    election: Callable[[], Election]
    condition: Callable[[], ReplicaCondition]


def about_page(sources: AboutSources, now: datetime) -> AboutPage:
    named, election, condition = sources.installation, sources.election(), sources.condition()
    return AboutPage(
        as_of=now, installation=named.installation, version=named.version, jobs_namespace=named.jobs_namespace,
        replica=named.replica, own_namespace=election.own_namespace, leads=election.leads, lease=election.lease,
        leader=election.holder, is_ready=not any(condition.checks.values()),
        checks=[ReadinessLine(name, fault) for name, fault in condition.checks.items()],
        missing_rights=list(filter(None, condition.rights.split("; "))),
        stores=[freshness(one) for one in condition.stores],
        settings=[replace(one, name=PREFIX + one.name) for one in sources.settings],
        docs=DOCS,
    )  # fmt: skip


def freshness(one: StoreAge) -> Freshness:
    is_stale = one.age > one.most or bool(one.fault)
    return Freshness(one.store, finite(one.age), finite(one.most), is_stale, one.fault)


def finite(seconds: float) -> float | None:
    """The seconds; None for infinity, for which JSON has no number."""
    return round(max(0.0, seconds), 3) if isfinite(seconds) else None


def stale_after(round_seconds: float) -> float:
    """Seconds after which a store that is read in rounds is stale."""
    return max(LEAST_STALE_SECONDS, MISSED_ROUNDS * round_seconds)
