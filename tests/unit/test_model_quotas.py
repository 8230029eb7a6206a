"""ResourceQuotas: the first one that a further Job or its Pod would exceed."""

import pytest

from dispatcher.model.cluster import JOBS, Quota, Quotas, Scope, is_full_of_objects
from dispatcher.model.needs import PodNeeds
from tests.unit.rooms import amounts_of, needs

LIMITED = needs("1", "1Gi", limits=tuple(amounts_of({"cpu": "2", "memory": "1Gi"}).items()))
NOT_LIMITED = PodNeeds()


def a_quota(hard: dict[str, str], used: dict[str, str], *scopes: Scope, name: str = "team") -> Quota:
    return Quota(name, amounts_of(hard), amounts_of(used), scopes)


@pytest.mark.parametrize(
    ("name", "hard", "enough", "too_much"),
    [
        ("requests.cpu", "4", "3", "3001m"),
        ("cpu", "4", "3", "3001m"),
        ("limits.cpu", "4", "2", "2001m"),
        ("requests.memory", "2Gi", "1Gi", "1100Mi"),
        ("memory", "2Gi", "1Gi", "1100Mi"),
        ("limits.memory", "2Gi", "1Gi", "1100Mi"),
        ("requests.example.com/gpu", "2", "1", "2"),
        ("requests.hugepages-2Mi", "4Mi", "2Mi", "4Mi"),
        ("hugepages-2Mi", "4Mi", "2Mi", "4Mi"),
        ("requests.ephemeral-storage", "2Gi", "1Gi", "2Gi"),
        ("ephemeral-storage", "2Gi", "1Gi", "2Gi"),
        ("pods", "10", "9", "10"),
        ("count/pods", "10", "9", "10"),
        (JOBS, "10", "9", "10"),
    ],
)
def test_quota_counts_each_resource_by_its_name(name: str, hard: str, enough: str, too_much: str) -> None:
    more = {"example.com/gpu": "1", "hugepages-2Mi": "2Mi", "ephemeral-storage": "1Gi"}
    wanted = needs("1", "1Gi", more, limits=LIMITED.limits)
    enough_left = Quotas((a_quota({name: hard}, {name: enough}),))
    assert [enough_left.why_not(wanted) for _ in range(2)] == ["", ""]
    assert name in Quotas((a_quota({name: hard}, {name: too_much}),)).why_not(wanted)


@pytest.mark.parametrize(
    ("name", "used", "is_full"),
    [(JOBS, "9", False), (JOBS, "10", True), ("count/pods", "10", True), ("pods", "10", False), ("cpu", "10", False)],
)
def test_quota_that_counts_finished_objects_can_be_full_of_them(name: str, used: str, is_full: bool) -> None:
    assert is_full_of_objects([a_quota({name: "10"}, {name: used})]) is is_full
    assert not is_full_of_objects([])


def test_quota_tells_what_is_asked_used_and_allowed() -> None:
    quotas = Quotas((a_quota({"limits.memory": "4Gi"}, {"limits.memory": "3584Mi"}, name="builds"),))
    assert quotas.why_not(LIMITED) == "ResourceQuota builds: limits.memory 1Gi asked, 3584Mi of 4Gi used"


def test_launches_on_their_way_count_before_the_quota_shows_them() -> None:
    quotas = Quotas((a_quota({"cpu": "3", JOBS: "9"}, {"cpu": "0", JOBS: "7"}),))
    assert quotas.with_launches(LIMITED, 2).why_not(LIMITED) == f"ResourceQuota team: {JOBS} 1 asked, 9 of 9 used"
    of_known_jobs = quotas.with_launches(LIMITED, 2, with_job=False)
    assert of_known_jobs.why_not(LIMITED) == ""
    assert "cpu 1 asked, 3 of 3 used" in of_known_jobs.with_launches(LIMITED, with_job=False).why_not(LIMITED)


def test_quota_whose_use_is_not_counted_yet_holds_nothing() -> None:
    assert Quotas((a_quota({"cpu": "1", "services": "0"}, {"services": "5"}),)).why_not(LIMITED) == ""


def test_quota_below_zero_or_lowered_below_its_use_holds() -> None:
    assert Quotas((a_quota({"pods": "0"}, {"pods": "0"}),)).why_not(NOT_LIMITED)
    assert Quotas((a_quota({"pods": "5"}, {"pods": "50"}),)).why_not(None)


def test_no_quota_holds_nothing_and_counts_nothing() -> None:
    nothing = Quotas()
    assert nothing.why_not(LIMITED) == ""
    assert nothing.with_launches(LIMITED) is nothing


@pytest.mark.parametrize(
    ("scope", "wanted", "is_held"),
    [
        (Scope("Terminating"), LIMITED, True),
        (Scope("Terminating"), None, True),
        (Scope("NotTerminating"), LIMITED, False),
        (Scope("BestEffort"), LIMITED, False),
        (Scope("BestEffort"), NOT_LIMITED, True),
        (Scope("BestEffort"), None, False),
        (Scope("NotBestEffort"), LIMITED, True),
        (Scope("NotBestEffort"), NOT_LIMITED, False),
        (Scope("PriorityClass", "In", ("high", "low")), needs(priority_class="high"), True),
        (Scope("PriorityClass", "In", ("high",)), needs(priority_class="low"), False),
        (Scope("PriorityClass", "NotIn", ("high",)), needs(priority_class="low"), True),
        (Scope("PriorityClass"), needs(priority_class="low"), True),
        (Scope("PriorityClass", "DoesNotExist"), needs(priority_class="low"), False),
        (Scope("PriorityClass", "NotIn", ("high",)), needs(), False),  # the cluster may have a default class
        (Scope("CrossNamespacePodAffinity"), LIMITED, False),
        (Scope("NewInAFutureVersion"), LIMITED, False),
    ],
)
def test_scope_limits_the_pods_that_a_quota_counts(scope: Scope, wanted: PodNeeds | None, is_held: bool) -> None:
    quotas = Quotas((a_quota({"pods": "1"}, {"pods": "1"}, scope),))
    assert bool(quotas.why_not(wanted)) is is_held


def test_all_scopes_of_a_quota_must_be_met() -> None:
    scopes = [Scope("Terminating"), Scope("BestEffort")]
    assert Quotas((a_quota({"pods": "1"}, {"pods": "1"}, *scopes),)).why_not(LIMITED) == ""


def test_quota_with_scopes_counts_no_jobs() -> None:
    """The API server counts Jobs only in quotas without scopes."""
    assert Quotas((a_quota({JOBS: "1"}, {JOBS: "1"}, Scope("Terminating")),)).why_not(LIMITED) == ""
