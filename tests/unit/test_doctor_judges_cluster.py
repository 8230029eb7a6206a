"""The judgement of the cluster, the scheduler, Prometheus and settings, and how findings are shown."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from dispatcher.doctor.cluster import (
    ClusterState,
    Permission,
    Policies,
    SchedulerPod,
    UnreadObject,
    is_usable,
    judge_cluster,
    judge_prometheus,
    judge_scheduling,
    misconfigured,
    misuses,
)
from dispatcher.doctor.cluster import SchedulingFacts as Scheduling
from dispatcher.doctor.finding import JANITOR as JANITOR_KEY
from dispatcher.doctor.finding import POLICY as POLICY_KEY
from dispatcher.doctor.finding import (
    RELEASE,
    Finding,
    FindingState,
    Installation,
    good,
    read_installation,
)
from dispatcher.doctor.look_at_cluster import delays_of, renewed_at
from dispatcher.doctor.program import exit_status, in_words, judge_settings
from dispatcher.model.rights import EXTENDER, JANITOR, RUN, InstallationSite, Verb, account_of, verbs_of

SITE = InstallationSite("dispatcher", "ours", "jobs")
VARIABLES = [{"name": "jobsNamespace", "expression": "'jobs'"}, {"name": "installation", "expression": "'dispatcher'"}]
POLICY = {"metadata": {"name": "dispatcher"}, "spec": {"variables": VARIABLES}}


def about(*accounts: str) -> dict[str, Any]:
    """The policy, about these ServiceAccounts."""
    listed = ", ".join(f"'system:serviceaccount:{account}'" for account in accounts)
    conditions = [{"name": "our-accounts", "expression": f"request.userInfo.username in [{listed}]"}]
    return {**POLICY, "spec": {"variables": VARIABLES, "matchConditions": conditions}}


BINDING = {"spec": {"policyName": "dispatcher", "validationActions": ["Deny"]}}
ACTIVE = {"status": {"phase": "Active"}}
GOING = {"status": {"phase": "Terminating"}}
FORBIDDEN = UnreadObject("403 Forbidden")
ABSENT = UnreadObject("404 NotFound", is_absent=True)
VERBS = tuple(Permission(RUN, verb, True) for verb in verbs_of(RUN, SITE))
MADE = Installation("ours", release="night", secret="login", wants_policy=True)
HEALTHY = ClusterState(
    SITE, ("1", "33+"), {"ours": ACTIVE, "jobs": ACTIVE}, VERBS, Policies([POLICY], [BINDING]), [0.1] * 5, MADE
)


CONFIGURATION = {
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "fast"}],
    "extenders": [{"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": True}],
}
POD = SchedulerPod("pod-1", True, True, [CONFIGURATION], "")
SCHEDULING = Scheduling("fast", "ours", [POD], 1.0, 30.0)


def states(found: list[Finding]) -> list[tuple[str, FindingState]]:
    return [(one.what, one.state) for one in found if one.state is not FindingState.GOOD]


def judged(**changes: Any) -> list[tuple[str, FindingState]]:
    return states(list(judge_cluster(replace(HEALTHY, **changes))))


def test_healthy_cluster_has_only_good_findings() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"policies": Policies([about("ours:dispatcher", "ours:dispatcher-janitor")], [BINDING])},
        # The Deployment was not found, so our programs may be in another namespace.
        {"policies": Policies([about("x:dispatcher")], [BINDING]), "installation": replace(MADE, secret="")},
    ],
)
def test_policy_about_the_account_of_our_programs_is_good(changes: dict[str, Any]) -> None:
    assert judged(**changes) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": ("1", "30")}, ("ApiServerTooOld", FindingState.FAULT)),
        ({"version": ("1", "")}, ("ApiServerTooOld", FindingState.FAULT)),
        ({"version": FORBIDDEN}, ("ApiServerTooOld", FindingState.NOT_CHECKED)),
        ({"namespaces": {"ours": ACTIVE, "jobs": ABSENT}}, ("NamespaceMissing", FindingState.FAULT)),
        ({"namespaces": {"ours": ACTIVE, "jobs": FORBIDDEN}}, ("NamespaceMissing", FindingState.NOT_CHECKED)),
        ({"namespaces": {"ours": GOING, "jobs": ACTIVE}}, ("NamespaceTerminating", FindingState.FAULT)),
        ({"policies": FORBIDDEN}, ("PolicyMissing", FindingState.NOT_CHECKED)),
        ({"policies": Policies([], [BINDING])}, ("PolicyMissing", FindingState.FAULT)),
        ({"policies": Policies([{"metadata": {"name": "x"}, "spec": {}}], [])}, ("PolicyMissing", FindingState.FAULT)),
        (
            {"policies": Policies([], []), "installation": replace(MADE, wants_policy=False)},
            ("PolicyMissing", FindingState.WARNING),
        ),
        (
            {"policies": Policies([], []), "installation": replace(MADE, wants_policy=None)},
            ("PolicyMissing", FindingState.WARNING),
        ),
        ({"policies": Policies([POLICY], [])}, ("PolicyUnbound", FindingState.FAULT)),
        (
            {"policies": Policies([POLICY], [{"spec": {"policyName": "dispatcher"}}])},
            ("PolicyUnbound", FindingState.FAULT),
        ),
        ({"policies": Policies([about("elsewhere:dispatcher")], [BINDING])}, ("PolicyUnbound", FindingState.FAULT)),
        ({"policies": Policies([about("ours:dispatcher-janitor")], [BINDING])}, ("PolicyUnbound", FindingState.FAULT)),
        (
            {"policies": Policies([], []), "site": replace(SITE, check_room=False)},
            ("PolicyMissing", FindingState.NOT_CHECKED),
        ),
        ({"delays": FORBIDDEN}, ("JobControllerSlow", FindingState.NOT_CHECKED)),
        ({"delays": [1.0] * 4}, ("JobControllerSlow", FindingState.NOT_CHECKED)),
        ({"delays": [1.0, 60.0, 60.0, 60.0, 2.0]}, ("JobControllerSlow", FindingState.WARNING)),
    ],
)
def test_fault_of_the_cluster_is_named_alone(changes: dict[str, Any], expected: tuple[str, FindingState]) -> None:
    assert judged(**changes) == [expected]


def test_commands_name_release_and_secret_or_say_that_they_do_not_know_them() -> None:
    assert MADE.words["release"] == "night"
    assert MADE.words["release_is"] == "night is the release of the Deployment"
    assert MADE.words["secret"] == "login"
    nothing = Installation("ours").words
    assert (nothing["release"], nothing["secret"]) == ("RELEASE", "dispatcher-database")
    assert nothing["release_is"] == "a name of `helm list -n ours`; without helm, apply the manifests again"
    assert nothing["secret_is"].startswith("the default")


def test_deployment_tells_how_the_installation_was_made() -> None:
    volumes = [{"name": "templates", "configMap": {}}, {"name": "database", "secret": {"secretName": "login"}}]
    pod = {"metadata": {"annotations": {RELEASE: "night"}}, "spec": {"template": {"spec": {"volumes": volumes}}}}
    assert read_installation(pod, "ours", None) == MADE
    bare: dict[str, Any] = {"metadata": {}, "spec": {"template": {"spec": {}}}}
    assert read_installation(bare, "ours", RUN) == Installation("ours", RUN, wants_policy=True)
    chosen = bare | {"metadata": {"annotations": {POLICY_KEY: "disabled"}}}
    assert read_installation(chosen, "ours", None).wants_policy is False
    alone = bare | {"metadata": {"annotations": {JANITOR_KEY: "disabled"}}}
    assert read_installation(alone, "ours", None).wants_janitor is False


def test_missing_verbs_are_named_by_account_and_namespace() -> None:
    denied = {"create", "patch"}
    answers = [replace(one, is_allowed=one.verb.verb not in denied or one.verb.resource == "events") for one in VERBS]
    answers = [replace(one, is_allowed=one.is_allowed and one.verb.resource != "nodes") for one in answers]
    found = [one for one in judge_cluster(replace(HEALTHY, allowed=answers)) if one.state is FindingState.FAULT]
    assert [(one.where, one.message) for one in found] == [
        ("account dispatcher, cluster-wide", "not allowed: list nodes, watch nodes"),
        ("account dispatcher in namespace jobs", "not allowed: create jobs, patch jobs"),
        ("account dispatcher in namespace ours", "not allowed: create leases, create configmaps"),
    ]


def test_verbs_in_a_namespace_that_is_gone_are_no_fault_of_their_own() -> None:
    answers = [replace(one, is_allowed=one.verb.namespace != "jobs") for one in VERBS]
    gone = {"ours": ACTIVE, "jobs": ABSENT}
    assert judged(allowed=answers, namespaces=gone) == [("NamespaceMissing", FindingState.FAULT)]


def test_account_that_may_not_be_asked_about_is_not_checked() -> None:
    answers = [*VERBS, Permission(JANITOR, Verb("jobs", "batch", "jobs", "get"), None, "403")]
    assert judged(allowed=answers) == [("MissingVerb", FindingState.NOT_CHECKED)]


def test_namespace_is_usable_unless_it_is_known_to_be_gone() -> None:
    usable = [is_usable(one) for one in (ACTIVE, GOING, ABSENT, FORBIDDEN)]
    assert usable == [True, False, False, True]


def test_verbs_depend_on_the_room_gate() -> None:
    without = {str(verb): verb.namespace for verb in verbs_of(RUN, replace(SITE, check_room=False))}
    assert without["list pods"] == "jobs"
    assert "list nodes" not in without
    assert "update configmaps dispatcher-status" in without
    assert account_of(EXTENDER, SITE) == "dispatcher-scheduler"


OF_ITS_HOLDER, OF_THE_API_SERVER = "2026-03-14T11:00:00.5Z", "2026-03-14T12:00:00Z"


@pytest.mark.parametrize(
    ("times", "own", "renewed"),
    [
        ([{"time": OF_THE_API_SERVER}, {}], OF_ITS_HOLDER, OF_THE_API_SERVER), (None, OF_ITS_HOLDER, OF_ITS_HOLDER),
        ([{"time": OF_THE_API_SERVER}], None, None),
    ],
    ids=["by the API server", "by the holder alone", "never"],
)  # fmt: skip
def test_lease_is_as_old_as_the_api_server_says(times: Any, own: str | None, renewed: str | None) -> None:
    """The clock of the leader's node may be wrong: a lease at work looked over, and one that is over at work."""
    assert renewed_at({"metadata": {"managedFields": times}, "spec": {"renewTime": own}}) == renewed


def test_healthy_scheduler_has_only_good_findings() -> None:
    assert states(list(judge_scheduling(SCHEDULING))) == []


NOT_READY = replace(POD, is_ready=False)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"lease_age": 3600.0, "bound_age": None, "pods": [NOT_READY]}, FindingState.FAULT),
        ({"lease_age": ABSENT, "bound_age": 5000.0, "pods": []}, FindingState.FAULT),
        ({"lease_age": FORBIDDEN, "bound_age": None, "pods": []}, FindingState.NOT_CHECKED),
        ({"lease_age": FORBIDDEN, "bound_age": None, "pods": [], "untried": 3}, FindingState.FAULT),
        ({"lease_age": 1.0, "bound_age": 30.0, "pods": [], "untried": 3}, FindingState.GOOD),
        ({"lease_age": FORBIDDEN, "bound_age": 30.0, "pods": FORBIDDEN}, FindingState.GOOD),
        ({"lease_age": 30.0, "bound_age": FORBIDDEN, "pods": FORBIDDEN}, FindingState.GOOD),
        ({"lease_age": ABSENT, "bound_age": None, "pods": [POD]}, FindingState.GOOD),
    ],
)
def test_scheduler_is_present_if_one_sign_shows_it(changes: dict[str, Any], state: FindingState) -> None:
    found = [one for one in judge_scheduling(replace(SCHEDULING, **changes)) if one.what == "SchedulerAbsent"]
    assert [one.state for one in found] == [state]


@pytest.mark.parametrize("pods", [[], FORBIDDEN])
def test_extender_without_a_pod_is_not_checked(pods: Any) -> None:
    found = states(list(judge_scheduling(replace(SCHEDULING, pods=pods))))
    assert {state for _, state in found} == {FindingState.NOT_CHECKED}
    assert [what for what, _ in found] == ["ExtenderNotConfigured", "ExtenderNotAnswering", "ExtenderMisused"]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"is_answering": False}, ("ExtenderNotAnswering", FindingState.FAULT)),
        ({"is_answering": None}, ("ExtenderNotAnswering", FindingState.NOT_CHECKED)),
        ({"configurations": []}, ("ExtenderNotConfigured", FindingState.FAULT)),
        ({"configurations": FORBIDDEN}, ("ExtenderNotConfigured", FindingState.NOT_CHECKED)),
        ({"metrics": FORBIDDEN}, ("ExtenderMisused", FindingState.NOT_CHECKED)),
    ],
)
def test_fault_of_the_extender_is_named_alone(pod: dict[str, Any], expected: tuple[str, FindingState]) -> None:
    assert states(list(judge_scheduling(replace(SCHEDULING, pods=[replace(POD, **pod)])))) == [expected]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"profiles": [{"schedulerName": "default-scheduler"}]}, "no profile has the schedulerName fast"),
        ({"profiles": None}, "no profile has the schedulerName fast"),
        ({"extenders": None}, "no extender has filterVerb: filter and prioritizeVerb: prioritize"),
        (
            {"extenders": [{"filterVerb": "filter"}]},
            "no extender has filterVerb: filter and prioritizeVerb: prioritize",
        ),
        (
            {"extenders": [{"filterVerb": "filter", "prioritizeVerb": "prioritize"}]},
            "the extender has no nodeCacheCapable: true",
        ),
    ],
)
def test_scheduler_that_calls_no_extender_is_told(change: dict[str, Any], told: str) -> None:
    assert list(misconfigured([CONFIGURATION | change], "fast")) == [told]
    assert list(misconfigured([{"kind": "Other"}, CONFIGURATION], "fast")) == []


def test_misuse_that_the_extender_counts_is_told() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("dispatcher_extender_config_faults", "Faults.", ["fault"], registry=registry)
    for name, value in (("two-callers", 1), ("uncached", 0), ("something-else", 1)):
        gauge.labels(name).set(value)
    (found,) = misuses(generate_latest(registry).decode(), "Pod x")
    assert found.message.startswith("two-callers: two schedulers ask in turn")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ({"a": True, "b": True}, []),
        ({"a": True, "b": False}, [("MetricUnknown", FindingState.FAULT)]),
        (UnreadObject("no answer"), [("PrometheusAway", FindingState.FAULT)]),
    ],
)
def test_prometheus_is_judged_by_what_it_knows(series: Any, expected: list[tuple[str, FindingState]]) -> None:
    assert states(list(judge_prometheus("http://prometheus:9090", series))) == expected


@pytest.mark.parametrize(
    ("host", "state"),
    [
        ("prometheus.monitoring.svc", FindingState.NOT_CHECKED),
        ("prometheus.monitoring.svc.cluster.example", FindingState.NOT_CHECKED),
        ("prometheus.example", FindingState.FAULT),
    ],
)
def test_name_of_a_service_is_no_fault_outside_of_the_cluster(host: str, state: FindingState) -> None:
    """A person runs the doctor on a laptop, with the settings of the installation."""
    url, away = f"http://{host}:9090", UnreadObject("Name or service not known")
    assert states(list(judge_prometheus(url, away, is_asked_in_pod=False))) == [("PrometheusAway", state)]
    assert states(list(judge_prometheus(url, away))) == [("PrometheusAway", FindingState.FAULT)]


def test_unknown_settings_are_faults() -> None:
    assert states(list(judge_settings([]))) == []
    (found,) = judge_settings(["DISPATCHER_X is not a setting; did you mean DISPATCHER_Y?"])
    assert (found.where, found.message) == ("DISPATCHER_X", "is not a setting; did you mean DISPATCHER_Y?")


def test_report_shows_faults_first_and_good_ones_on_one_line() -> None:
    found = [
        *judge_settings([]),
        good("NoNodeFits", "template a"),
        good("NoNodeFits", "template b"),
        *judge_scheduling(replace(SCHEDULING, pods=[replace(POD, is_answering=False, metrics=FORBIDDEN)])),
        *judge_cluster(replace(HEALTHY, delays=[60.0] * 5)),
    ]
    told = in_words(found).splitlines()
    assert told[0] == "settings: 1 good"
    (rooms,) = [one for one in told if "takes it?" in one]
    assert rooms.startswith("  good: Is there a node that is large enough")
    assert rooms.endswith("(template a and 1 more)")
    part = told[told.index("scheduler and extender: 1 fault, 1 not checked, 2 good") :]
    assert part[1].startswith("  FAULT ExtenderNotAnswering: Pod pod-1 in namespace ours: its container")
    assert [one.split(":")[0] for one in part[2:5]] == ["    why", "    mend", "  not checked ExtenderMisused"]
    assert any(one.startswith("  warning JobControllerSlow") for one in told)
    assert not any(one.startswith("Prometheus") for one in told)


def test_only_a_fault_changes_the_exit_status() -> None:
    slow = [*judge_cluster(replace(HEALTHY, delays=[60.0] * 5, policies=FORBIDDEN))]
    assert exit_status(slow) == 0
    assert exit_status([*slow, *judge_settings(["DISPATCHER_X is not a setting"])]) == 1


class ReadObjects:
    """The API server with two Jobs and their Pods. The first Job was suspended for ten minutes, the other never."""

    client = property(lambda self: self)

    def now(self) -> datetime:
        return datetime(2026, 3, 14, 12, 20, tzinfo=UTC)

    async def each(self, path: str, **_: str) -> list[dict[str, Any]]:
        resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-03-14T12:10:00Z"}
        times = {"u": ("12:00:00", "12:10:02", [resumed]), "v": ("12:12:00", "12:12:03", [])}
        return [
            {"metadata": {"creationTimestamp": f"2026-03-14T{pod}Z", "ownerReferences": [{"uid": uid}]}}
            if path.endswith("/pods")
            else {
                "metadata": {"uid": uid, "creationTimestamp": f"2026-03-14T{job}Z"},
                "spec": {},
                "status": {"conditions": conditions},
            }
            for uid, (job, pod, conditions) in times.items()
        ]


async def test_wait_of_a_job_begins_with_its_creation_or_the_end_of_its_suspension() -> None:
    assert await delays_of(cast("Any", ReadObjects()), SITE) == [2.0, 3.0]
