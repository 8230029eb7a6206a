"""ResourceQuotas: what one more Job and its Pod would use of them.

The rules are those of the API server's quota admission. It counts a Job when it is created, and its Pod when the Job
controller creates it. A quota that cannot be judged here holds nothing: a row is held only if its Pod would be refused.
A LimitRange may only add to what a Pod asks for, so its defaults are left out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import NOTHING, Amounts, added, written
from dispatcher.model.needs import PodNeeds, is_met

ONE: Final = 1000
"""One object, in thousandths."""
JOBS: Final = "count/jobs.batch"
OF_A_POD: Final = {"pods": ONE, "count/pods": ONE}
WITHOUT_PREFIX: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources whose requests a quota may name without `requests.`. Huge pages are the others."""


class Scope(Struct, frozen=True):
    """A condition on the Pods that a quota counts."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Quota(Struct, frozen=True):
    """A ResourceQuota.

    hard: the limits that the API server enforces, from its status, in thousandths.
    used: what is used of them.
    scopes: it counts only Pods that meet all of them.
    """

    name: str
    hard: Amounts
    used: Amounts
    scopes: tuple[Scope, ...] = ()


class Quotas(Struct, frozen=True):
    """All quotas of a namespace, less what is on its way there.

    every: the quotas.
    coming: by quota, what Jobs and Pods will use that are not counted yet.
    answers: answers of `why_not`, which never change.
    """

    every: tuple[Quota, ...] = ()
    coming: Mapping[str, Amounts] = {}
    answers: dict[PodNeeds | None, str] = {}

    def why_not(self, needs: PodNeeds | None) -> str:
        """The first quota that one more Job would exceed, with its numbers. Empty: there is none."""
        if not self.every:
            return ""
        if needs not in self.answers:
            self.answers[needs] = next(self._excesses(needs), "")
        return self.answers[needs]

    def _excesses(self, needs: PodNeeds | None) -> Iterator[str]:
        for quota in self.every:
            coming = self.coming.get(quota.name, NOTHING)
            for name, asked in usage(quota, needs, with_job=True).items():
                used = quota.used[name] + coming.get(name, 0)
                if used + asked > quota.hard[name]:
                    numbers = [written(bare(name), amount) for amount in (asked, used, quota.hard[name])]
                    yield f"ResourceQuota {quota.name}: {name} {numbers[0]} asked, {numbers[1]} of {numbers[2]} used"

    def with_launches(self, needs: PodNeeds | None, count: int = 1, *, with_job: bool = True) -> "Quotas":
        """The quotas after `count` equal Pods more. `with_job`: False for Pods whose Jobs are counted already."""
        if not self.every:
            return self
        coming = dict(self.coming)
        for quota in self.every:
            more = {name: amount * count for name, amount in usage(quota, needs, with_job=with_job).items()}
            coming[quota.name] = added(coming.get(quota.name, NOTHING), more)
        return Quotas(self.every, coming)


def usage(quota: Quota, needs: PodNeeds | None, *, with_job: bool) -> Amounts:
    """What one Pod uses of the quota, and with it its Job. Only resources whose limit and use are known."""
    found: dict[str, int] = {JOBS: ONE} if with_job and not quota.scopes else {}
    if all(meets(needs, scope) for scope in quota.scopes):
        found |= OF_A_POD
        found |= dict(named(needs)) if needs is not None else {}
    return {name: amount for name, amount in found.items() if name in quota.hard and name in quota.used}


def named(needs: PodNeeds) -> Iterator[tuple[str, int]]:
    """The requests and limits of a Pod by the names that quotas give them."""
    for name, amount in needs.asks:
        yield f"requests.{name}", amount
        if name in WITHOUT_PREFIX or name.startswith("hugepages-"):
            yield name, amount
    for name, amount in needs.limits:
        yield f"limits.{name}", amount


def meets(needs: PodNeeds | None, scope: Scope) -> bool:
    """Whether a Pod of ours certainly meets the scope. Every Pod of ours has a run limit, so it is `Terminating`."""
    if scope.name == "Terminating":
        return True
    if needs is None:
        return False
    if scope.name in {"BestEffort", "NotBestEffort"}:
        return is_best_effort(needs) is (scope.name == "BestEffort")
    # The cluster's default class is not known here, so a Pod without a class may meet the scope or not.
    known = scope.name == "PriorityClass" and needs.priority_class
    return bool(known) and is_met(scope.operator, needs.priority_class, scope.values)


def is_best_effort(needs: PodNeeds) -> bool:
    """Whether the Pod has no request and no limit of cpu or memory."""
    return not any(name in {"cpu", "memory"} for name, _ in (*needs.asks, *needs.limits))


def bare(name: str) -> str:
    """The resource that a name of a quota is about: `memory` for `limits.memory`."""
    return name.removeprefix("requests.").removeprefix("limits.")
