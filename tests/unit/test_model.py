"""Nouns of the model: rows, Jobs, backoff, needs of Pods and ResourceQuotas."""

import re
from collections.abc import Collection, Mapping

import msgspec
import pytest
import yaml

from dispatcher.admission.dispatch import COMES_AGAIN
from dispatcher.model.cluster import JOBS, Quota, Quotas, Scope, is_full_of_objects
from dispatcher.model.errors import doubled
from dispatcher.model.jobs import LaunchGroup, Phase
from dispatcher.model.needs import (
    CORDON,
    PodNeeds,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
    is_met,
    is_selected,
    untolerated,
)
from dispatcher.model.tasks import TERMINAL, Status
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.views import explanation
from tests.prometheus.promtool import RULES
from tests.rig.builders import IMAGE, a_complete_job, a_disrupted_job, a_failed_job, a_job, a_pod, a_snapshot, a_task
from tests.unit.rooms import amounts_of, needs

ORDER_OF_THE_GATES = [
    "UnknownTemplate", "InvalidTemplate", "PolicyDenied", "NotDue", "Paused",
    "NameCollision", "Poison", "ExitedWithoutReport", "LaunchesExhausted", "DisruptedTooOften",
    "FailuresExhausted", "Finishing", "Backoff", "JobChanged", "TemplateFailing",
    "DispatcherNotReady",
    "NeverFits",
    "SubmitterCap", "QueueCap", "JobCap", "QuotaExceeded", "PendingPods", "NoRoomNow", "RateLimited", "NextCycle",
    "InLine",
]  # fmt: skip


def test_hold_reasons_are_declared_in_the_order_of_the_gates() -> None:
    told_by_no_gate = {"Launched", "NodeLost", "Unjudged"}
    assert [reason for reason in HoldReason if reason not in told_by_no_gate] == ORDER_OF_THE_GATES


EXPRESSIONS = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
SETS: Mapping[str, Collection[str]] = {
    "parked": PARKED,
    "later": explanation.LATER,
    "priority": explanation.BY_PRIORITY,
    "ending": explanation.ENDING,
    "room": explanation.OF_ROOM,
    "time": explanation.OF_TIME,
    "turn": explanation.IN_TURN,
    "jobs": explanation.FROM_JOBS,
    "again": COMES_AGAIN,
    "nothing launched": {"DispatcherNotReady", "NextCycle", "RateLimited", "InLine", "JobChanged"},
    "not launched for a cause": {
        "JobCap", "NeverFits", "NoRoomNow", "PendingPods", "QueueCap", "QuotaExceeded", "SubmitterCap",
        "TemplateFailing",
    },
}  # fmt: skip
"""The sets of reasons that the code asks. The last two are those of the alert DispatcherNothingLaunched."""
CLASSES = {
    "ending, parked": {"UnknownTemplate", "InvalidTemplate", "PolicyDenied"},
    "ending, jobs, parked": {
        "NameCollision", "Poison", "ExitedWithoutReport", "LaunchesExhausted", "DisruptedTooOften", "FailuresExhausted",
    },
    "ending, jobs": {"Finishing", "NodeLost"},
    "jobs": {"Backoff", "Launched"},
    "not launched for a cause": {"TemplateFailing", "NeverFits"},
    "nothing launched": {"DispatcherNotReady", "JobChanged"},
    "not launched for a cause, priority, time": {"SubmitterCap", "QueueCap", "JobCap"},
    "not launched for a cause, time": {"QuotaExceeded"},
    "not launched for a cause, room": {"PendingPods"},
    "not launched for a cause, priority, room": {"NoRoomNow"},
    "again, later, nothing launched, priority, time, turn": {"RateLimited", "NextCycle"},
    "nothing launched, priority, time, turn": {"InLine"},
    "": {"NotDue", "Paused", "Unjudged"},
}  # fmt: skip
"""The reasons by the sets that they stand in. For a new reason, ask each set whether it belongs there."""


def test_each_reason_stands_in_the_sets_of_its_class() -> None:
    found = dict[str, set[str]]()
    for reason in HoldReason:
        found.setdefault(", ".join(sorted(name for name in SETS if reason in SETS[name])), set()).add(str(reason))
    assert found == CLASSES


def test_alert_of_nothing_launched_asks_for_its_two_sets_of_reasons() -> None:
    asked = re.findall(r'reason=~?"([^"]*)"', EXPRESSIONS["DispatcherNothingLaunched"])
    counted, in_line, held = (set(names.split("|")) for names in asked)
    assert (counted | in_line, held) == (SETS["nothing launched"], SETS["not launched for a cause"])


def test_parked_reasons_are_those_that_the_janitor_may_end() -> None:
    """docs/protocol.md, section 6, the list under the table."""
    assert {str(reason) for reason in PARKED} == {
        "UnknownTemplate", "InvalidTemplate", "PolicyDenied", "NameCollision", "Poison", "ExitedWithoutReport",
        "LaunchesExhausted", "DisruptedTooOften", "FailuresExhausted",
    }  # fmt: skip


@pytest.mark.fault(9)
def test_three_statuses_are_terminal_and_unknown_is_not() -> None:
    assert {str(status) for status in Status} == {
        "waiting",
        "processing",
        "succeeded",
        "failed",
        "cancelled",
        "unknown",
    }
    assert {str(status) for status in TERMINAL} == {"succeeded", "failed", "cancelled"}


@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("phase", "is_finished"),
    [(Phase.ACTIVE, False), (Phase.FAILING, False), (Phase.COMPLETE, True), (Phase.FAILED, True)],
)
@pytest.mark.parametrize("deleting", [False, True])
def test_conditions_decide_whether_a_job_is_finished_and_deletion_does_not(
    phase: Phase, is_finished: bool, deleting: bool
) -> None:
    assert a_job(phase=phase, deleting=deleting).is_finished is is_finished


def test_a_disruption_is_known_only_by_the_pod_failure_policy() -> None:
    assert a_disrupted_job().was_disrupted
    assert not a_failed_job(reason="BackoffLimitExceeded").was_disrupted
    assert not a_failed_job(reason="DeadlineExceeded").was_disrupted
    assert not a_complete_job().was_disrupted
    assert not a_job(phase=Phase.FAILING, reason="PodFailurePolicy").was_disrupted, "its Pod is not gone yet"


def test_launches_of_one_image_template_queue_and_submitter_share_a_group() -> None:
    assert a_job(launch=1).group == a_job(2, 3, task_id=7).group == LaunchGroup("default", "default", IMAGE, "team_a")
    others = [a_job(queue="q").group, a_job(template="t").group, a_job(image="i").group, a_job(submitted_by="b").group]
    assert len({*others, a_job().group}) == 5


@pytest.mark.parametrize("noun", [a_task(), a_job(), a_pod(), a_snapshot()])
def test_judged_objects_are_immutable(noun: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(noun, noun.__struct_fields__[0], None)


@pytest.mark.parametrize(("times", "pause"), [(0, 0.5), (1, 1), (4, 8), (5, 15), (10**6, 15)])
def test_pause_doubles_up_to_its_limit(times: int, pause: float) -> None:
    assert doubled(0.5, times, 15) == pause


TAINT = Taint("k", "v", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "other"), False),
        (Toleration("other", "Equal", "v"), False),
        (Toleration("k", "Equal", "v", "NoExecute"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoSchedule"), True),
        (Toleration("k", "Gt", "5"), False),
        (Toleration("k", "of a later version", "5"), True),
    ],
)
def test_toleration_matches_a_taint(toleration: Toleration, is_tolerated: bool) -> None:
    assert (untolerated([TAINT], [toleration]) is None) is is_tolerated


@pytest.mark.parametrize(
    ("operator", "value", "is_tolerated"),
    [("Gt", "4", True), ("Gt", "5", False), ("Lt", "6", True), ("Lt", "x", False)],
)
def test_toleration_compares_numbers(operator: str, value: str, is_tolerated: bool) -> None:
    """KEP-5471: the taint's value is greater, or less, than the toleration's."""
    assert (untolerated([Taint("k", "5")], [Toleration("k", operator, value)]) is None) is is_tolerated


def test_every_taint_must_be_tolerated() -> None:
    other = Taint("other", "", "NoExecute")
    assert untolerated([TAINT, other], [Toleration("k", "Exists")]) == other
    assert untolerated([TAINT, other], [Toleration("k", "Exists"), Toleration("other", "Exists")]) is None
    assert untolerated([Taint("k", "v", "PreferNoSchedule")], []) is None
    assert untolerated([CORDON], []) == CORDON


@pytest.mark.parametrize(
    ("operator", "value", "values", "met"),
    [
        ("In", "a", ("a", "b"), True), ("In", "c", ("a",), False), ("In", None, ("a",), False),
        ("NotIn", "a", ("a",), False), ("NotIn", "c", ("a",), True), ("NotIn", None, ("a",), True),
        ("Exists", "a", (), True), ("Exists", "", (), True), ("Exists", None, (), False),
        ("DoesNotExist", "a", (), False), ("DoesNotExist", None, (), True),
        ("Gt", "5", ("4",), True), ("Gt", "4", ("4",), False), ("Gt", "07", ("6",), True), ("Gt", "-3", ("-4",), True),
        ("Gt", "x", ("4",), False), ("Gt", None, ("4",), False), ("Gt", "5", ("x",), False), ("Gt", "5", (), False),
        ("Lt", "3", ("4",), True), ("Lt", "4", ("4",), False), ("Lt", "+3", ("4",), True),
        ("Lt", "1_0", ("99",), False),
        ("of a later version", "a", (), True),
    ],
)  # fmt: skip
def test_operator_meets_a_label(operator: str, value: str | None, values: tuple[str, ...], met: bool) -> None:
    assert is_met(operator, value, values) is met


A, B = Requirement("a", "Exists"), Requirement("b", "Exists")
NAMED = Requirement("metadata.name", "In", ("n1",))


@pytest.mark.parametrize(
    ("needs", "is_taken"),
    [
        (PodNeeds(), True),
        (PodNeeds(selector=(("a", "1"),)), True),
        (PodNeeds(selector=(("a", "2"),)), False),
        (PodNeeds(selector=(("a", "1"), ("b", "1"))), False),
        (PodNeeds(terms=(SelectorTerm((A,)),)), True),
        (PodNeeds(terms=(SelectorTerm((A, B)),)), False),
        (PodNeeds(terms=(SelectorTerm((B,)), SelectorTerm((A,)))), True),
        (PodNeeds(terms=(SelectorTerm((A,), (NAMED,)),)), True),
        (PodNeeds(terms=(SelectorTerm((), (Requirement("metadata.name", "NotIn", ("n1",)),)),)), False),
        (PodNeeds(terms=(SelectorTerm((A,), (Requirement("metadata.name", "In", ("n2",)),)),)), False),
        (PodNeeds(terms=(SelectorTerm(),)), False),
        (PodNeeds(terms=()), False),
        (PodNeeds(selector=(("a", "2"),), terms=(SelectorTerm((A,)),)), False),
    ],
)
def test_selector_and_one_term_of_the_affinity_must_match(needs: PodNeeds, is_taken: bool) -> None:
    assert is_selected(needs, "n1", {"a": "1"}) is is_taken


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
