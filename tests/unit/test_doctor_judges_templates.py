"""The judgement of templates: Pod Security, quotas, LimitRanges, Secrets, dry runs and nodes."""

from typing import Any

import msgspec
import pytest

from dispatcher.admission.room import RoomIndex
from dispatcher.doctor.cluster import UnreadObject
from dispatcher.doctor.finding import Finding, FindingState, Installation
from dispatcher.doctor.pod_rules import (
    BASELINE,
    PRIVILEGED,
    RESTRICTED,
    Defaults,
    defaults_of,
    level_of,
    quota_refusal,
    range_refusals,
    violations,
)
from dispatcher.doctor.templates import (
    ENFORCED,
    ENFORCED_VERSION,
    PodRules,
    TemplateTrial,
    judge_templates,
    named_objects,
)
from dispatcher.jobs.env import SecretReference, named_secrets
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.cluster import Node, Quota, Scope
from dispatcher.model.jobs import ApiAnswer
from dispatcher.model.launches import CONTAINER, REPORT
from tests.rig.pods_of_levels import PODS, a_pod, a_volume
from tests.rig.pods_of_ranges import RANGES, a_bound, with_server_defaults

SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
POD: dict[str, Any] = a_pod(container={"resources": SMALL})
NAMES = Installation("ours").words
FORBIDDEN, ABSENT = UnreadObject("403 Forbidden"), UnreadObject("404 NotFound", is_absent=True)
CREATED = ApiAnswer(201)


def a_room(cpu: int = 4000) -> Any:
    index = RoomIndex([])
    index.hear_node(None, Node("n1", ready=True, size={"cpu": cpu, "memory": 2**40, "pods": 110_000}))
    return index.view()


PLACE = PodRules("jobs", {}, [], [], {}, a_room())


def judged(pod: Any = POD, answer: ApiAnswer = CREATED, **place: Any) -> list[Finding]:
    job = {"spec": {"template": {"spec": pod}}}
    there = msgspec.structs.replace(PLACE, **place)
    return [
        one
        for one in judge_templates([TemplateTrial("default", job, answer)], there, NAMES)
        if one.state is not FindingState.GOOD
    ]


def told(found: list[Finding]) -> list[tuple[str, FindingState]]:
    return [(one.what, one.state) for one in found]


@pytest.mark.parametrize(("pod", "level"), PODS.values(), ids=PODS)
def test_strictest_level_that_a_pod_passes_is_found(pod: Any, level: str) -> None:
    assert level_of(pod) == level
    assert [bool(violations(pod, one)) for one in (PRIVILEGED, BASELINE, RESTRICTED)] == [
        False, level == PRIVILEGED, level != RESTRICTED,
    ]  # fmt: skip


def test_further_privileges_are_below_baseline() -> None:
    """Fields that the test of the real server leaves out, because other features have to be on for them."""
    assert violations(a_pod(context={"procMount": "Unmasked"}), BASELINE) == [
        "containers[task].securityContext.procMount: Unmasked"
    ]
    windows = a_pod(securityContext={"windowsOptions": {"hostProcess": True}})
    assert violations(windows, BASELINE) == ["securityContext.windowsOptions.hostProcess: true"]


def test_host_of_a_probe_is_forbidden_since_kubernetes_1_34() -> None:
    pod, _ = PODS["probe of a host"]
    assert (level_of(pod, 33), level_of(pod, 34)) == (RESTRICTED, PRIVILEGED)
    assert violations(pod, BASELINE, 33) == []


def test_template_without_a_fault_has_only_good_findings() -> None:
    assert judged() == []


def test_installation_without_templates_is_a_fault() -> None:
    (found,) = judge_templates([], PLACE, NAMES)
    assert (found.what, found.state) == ("NoTemplate", FindingState.FAULT)


def test_faulty_template_is_named_with_its_name_quoted() -> None:
    (found,) = [one for one in judge_templates([TemplateTrial("a b", "spec.suspend")], PLACE, NAMES) if one.mend]
    assert found.mend.startswith("dispatcher render --template 'a b'")


def test_templates_of_a_place_that_takes_no_job_are_not_checked() -> None:
    tried = [TemplateTrial("default", {"spec": {"template": {"spec": POD}}})]
    found = list(judge_templates(tried, UnreadObject("gone"), NAMES))
    assert [(one.what, one.state) for one in found if one.state is not FindingState.GOOD] == [
        ("JobRefused", FindingState.NOT_CHECKED)
    ]
    assert told(list(judge_templates(tried, PLACE, NAMES)))[3] == ("JobRefused", FindingState.NOT_CHECKED)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ApiAnswer(409, "AlreadyExists"), []),
        (ApiAnswer(422, "Invalid", "bad"), [("JobRefused", FindingState.FAULT)]),
        (ApiAnswer(403, "Forbidden", "denied by a policy"), [("JobRefused", FindingState.FAULT)]),
        (ApiAnswer(404, "NotFound"), [("NamespaceMissing", FindingState.FAULT)]),
        (ApiAnswer(403, "Forbidden", causes=("NamespaceTerminating",)), [("NamespaceTerminating", FindingState.FAULT)]),
        (ApiAnswer(403, "Forbidden", "exceeded quota: x"), [("JobRefused", FindingState.NOT_CHECKED)]),
        (ApiAnswer(0, message="no answer"), [("JobRefused", FindingState.NOT_CHECKED)]),
    ],
)
def test_answer_of_the_dry_run_is_judged(answer: ApiAnswer, expected: list[tuple[str, FindingState]]) -> None:
    assert told(judged(answer=answer)) == expected


@pytest.mark.parametrize("place", ["labels", "quotas", "ranges", "room"])
def test_place_that_may_not_be_read_is_not_checked(place: str) -> None:
    unread: dict[str, Any] = {place: FORBIDDEN}
    (found,) = judged(**unread)
    assert (found.state, found.message) == (FindingState.NOT_CHECKED, "403 Forbidden")


def test_level_that_the_pod_does_not_pass_is_named_with_the_level_that_it_needs() -> None:
    pod, _ = PODS["hostPath"]
    (found,) = judged(pod, labels={"pod-security.kubernetes.io/enforce": "baseline"})
    assert found.message == "namespace jobs enforces baseline: volumes[v].hostPath"
    assert "enforce=privileged" in found.mend


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("latest", FindingState.FAULT), ("v1.34", FindingState.FAULT), ("v1.40", FindingState.FAULT), ("v1.33",
         FindingState.NOT_CHECKED),
        ("v1.0", FindingState.NOT_CHECKED), ("what?", FindingState.NOT_CHECKED),
    ],
)  # fmt: skip
def test_level_of_older_rules_is_not_checked(version: str, state: FindingState) -> None:
    """The rules of other versions differ, so a fault of the newest rules may be none there, and the other way round."""
    labels = {ENFORCED: "restricted", ENFORCED_VERSION: version}
    pod, _ = PODS["hostPath"]
    (found,) = judged(pod, labels=labels, minor=34)
    assert (found.what, found.state) == ("PodSecurity", state)
    assert f"enforces restricted of {version}" in found.message or state is FindingState.FAULT
    assert judged(pod, labels=labels | {ENFORCED: "privileged"}, minor=34) == []


def test_cache_root_needs_a_privileged_namespace() -> None:
    assert judged(cache_root="/var/cache") == []
    (found,) = judged(cache_root="/var/cache", labels={"pod-security.kubernetes.io/enforce": "restricted"})
    assert found.what == "PodSecurity"


def a_quota(hard: dict[str, int], *scopes: Scope) -> Quota:
    return Quota("q", hard, dict(hard), scopes)


def refused(quota: Quota, pod: Any = POD, given: frozenset[str] = frozenset()) -> str:
    return quota_refusal(quota, pod, needs_of_manifest(pod), given)


def test_quota_is_judged_as_if_it_were_empty() -> None:
    assert refused(a_quota({"requests.cpu": 1000})) == ""
    assert refused(a_quota({"requests.cpu": 999})) == "ResourceQuota q: requests.cpu 1 asked, 0 of 999m used"
    assert refused(a_quota({"count/jobs.batch": 0})).startswith("ResourceQuota q: count/jobs.batch")
    assert refused(a_quota({"requests.cpu": 1}, Scope("BestEffort"))) == ""
    assert quota_refusal(a_quota({"requests.cpu": 1}), POD, None, frozenset()) == ""


def test_quota_demands_that_each_container_names_what_it_limits() -> None:
    pod = a_pod(container={"resources": {"limits": {"cpu": "1"}}}) | {"initContainers": [{"name": "first"}]}
    found = refused(a_quota({"limits.cpu": 10_000}), pod)
    assert found == "ResourceQuota q limits limits.cpu, and container first names none"
    assert refused(a_quota({"limits.cpu": 10_000}), pod, frozenset({"limits.cpu"})) == ""
    assert refused(a_quota({"cpu": 10_000}), POD) == ""


def test_quota_that_fits_no_job_is_named() -> None:
    (found,) = judged(quotas=[a_quota({"requests.cpu": 1})])
    assert (found.what, found.mend) == ("QuotaFitsNoJob", "kubectl -n jobs edit resourcequota q")
    assert told(judged(quotas=[a_quota({"pods": 0})], ranges=FORBIDDEN)) == [
        ("QuotaFitsNoJob", FindingState.FAULT),
        ("LimitRangeRefuses", FindingState.NOT_CHECKED),
    ]


def a_range(*items: Any) -> dict[str, Any]:
    return {"metadata": {"name": "low"}, "spec": {"limits": list(items)}}


@pytest.mark.parametrize(("items", "pod", "words"), RANGES.values(), ids=RANGES)
def test_limit_range_is_judged_with_its_defaults(items: list[Any], pod: Any, words: str) -> None:
    one = a_range(*with_server_defaults(items))
    found = list(range_refusals(one, pod, defaults_of([one])))
    assert bool(found) is bool(words)
    assert not words or words in found[0]


def test_limit_range_that_cannot_be_read_refuses_nothing() -> None:
    for one in ({"metadata": {"name": "low"}}, a_range(a_bound("Container", max={"cpu": "what?"}))):
        assert list(range_refusals(one, POD, Defaults())) == []


def test_limit_range_that_refuses_a_pod_is_named() -> None:
    (found,) = judged(ranges=[a_range(a_bound("Pod", max={"cpu": "1"})), a_range(a_bound("Pod", max={"cpu": "2"}))])
    assert (found.what, found.mend) == ("LimitRangeRefuses", "kubectl -n jobs edit limitrange low")


def test_defaults_of_limit_ranges_fill_in_amounts() -> None:
    ranges = [
        a_range(a_bound("Container", default={"cpu": "1"}, defaultRequest={"memory": "1Gi"})),
        a_range(a_bound("Pod")),
    ]
    assert defaults_of(ranges).names == {"limits.cpu", "requests.cpu", "requests.memory"}


def test_secrets_are_found_wherever_a_pod_names_them() -> None:
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "by-env", "key": "k"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "maybe", "key": "k", "optional": True}}},
        {"name": "C", "value": "plain"},
    ]
    container = {"env": env, "envFrom": [{"secretRef": {"name": "whole"}}, {"configMapRef": {"name": "no"}}]}
    projected = {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "no"}}]}
    volumes = [
        *a_volume("secret", secretName="files", items=[{"key": "a"}, {"key": "b"}]),
        *a_volume("secret", secretName="maybe", optional=True),
        *a_volume("projected", **projected),
        *a_volume("emptyDir"),
    ]
    pod = a_pod(container=container, volumes=volumes, imagePullSecrets=[{"name": "registry"}, {}])
    assert named_secrets(pod) == [
        SecretReference("by-env", "k"), SecretReference("files", "a"), SecretReference("files", "b"),
        SecretReference("projected"), SecretReference("registry"),
        SecretReference("whole"),
    ]  # fmt: skip


KEYED = a_pod(
    container={
        "resources": SMALL,
        "envFrom": [{"secretRef": {"name": "one"}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "it's"}}}],
    }
)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (frozenset({"it's"}), []),
        (frozenset({"other"}), [("SecretKeyMissing", FindingState.FAULT)]),
        (ABSENT, [("SecretMissing", FindingState.FAULT)]),
        (FORBIDDEN, [("SecretMissing", FindingState.NOT_CHECKED)]),
    ],
)
def test_secret_is_judged_once_by_what_is_known_of_it(keys: Any, expected: list[tuple[str, FindingState]]) -> None:
    found = judged(KEYED, secrets={"one": keys})
    assert told(found) == expected
    assert all("it's" not in one.mend for one in found)


def test_objects_without_which_a_pod_does_not_run_are_found() -> None:
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "by-env", "key": "k"}}},
        {"name": "B", "value": "plain"},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "maybe", "key": "k", "optional": True}}},
    ]  # fmt: skip
    volumes = [
        *a_volume("configMap", name="files"), *a_volume("projected", sources=[{"configMap": {"name": "projected"}}]),
        *a_volume("persistentVolumeClaim", claimName="data"), *a_volume("emptyDir"), *STORE["volumes"],
    ]  # fmt: skip
    first = {"name": "first", "envFrom": [{"configMapRef": {"name": "whole"}}, {"secretRef": {"name": "no"}}]}
    names: dict[str, Any] = {"serviceAccountName": "loader", "priorityClassName": "high", "runtimeClassName": "gvisor"}
    names["resourceClaims"] = [
        {"name": "a", "resourceClaimName": "shared"}, {"name": "b", "resourceClaimTemplateName": "gpu"}
    ]  # fmt: skip
    assert named_objects(a_pod(container={"env": env}, volumes=volumes, initContainers=[first], **names)) == [
        ("ConfigMap", "by-env"), ("ConfigMap", "files"), ("ConfigMap", "projected"), ("ConfigMap", "whole"),
        ("PersistentVolumeClaim", "data"), ("PriorityClass", "high"), ("ResourceClaim", "shared"),
        ("ResourceClaimTemplate", "gpu"), ("RuntimeClass", "gvisor"), ("SecretProviderClass", "keys"),
        ("ServiceAccount", "loader"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, []),
        (ABSENT, [("ObjectMissing", FindingState.FAULT)] * 2),
        (FORBIDDEN, [("ObjectMissing", FindingState.NOT_CHECKED)] * 2),
    ],
)
def test_object_that_a_template_names_is_judged(state: Any, expected: list[tuple[str, FindingState]]) -> None:
    pod = a_pod(container={"resources": SMALL}, serviceAccountName="loader", runtimeClassName="gvisor")
    found = judged(pod, objects={("ServiceAccount", "loader"): state, ("RuntimeClass", "gvisor"): state})
    assert told(found) == expected
    if state is ABSENT:
        assert [one.message for one in found] == [
            "RuntimeClass gvisor does not exist", "ServiceAccount loader in namespace jobs does not exist",
        ]  # fmt: skip
        assert found[1].mend.startswith("kubectl -n jobs get serviceaccount/loader ")


def test_template_that_no_node_can_hold_is_named() -> None:
    (found,) = judged(room=a_room(cpu=500))
    assert found.what == "NoNodeFits"
    assert "the largest, n1, has cpu 500m" in found.message


def test_node_that_is_full_now_is_no_fault() -> None:
    room = a_room(cpu=1000)
    busy = msgspec.structs.replace(room, asked={"n1": {0: {"cpu": 1000}}})
    assert judged(room=busy) == []


def test_pod_of_a_scheduler_that_is_not_known_is_not_checked() -> None:
    assert told(judged(POD | {"schedulerName": "other"})) == [("NoNodeFits", FindingState.NOT_CHECKED)]
    assert ("NoNodeFits", FindingState.NOT_CHECKED) in told(judged({"containers": [], "tolerations": "odd"}))


OPTIONAL = a_pod(
    container={"resources": SMALL, "envFrom": [{"secretRef": {"name": "keys", "optional": True}}]}
)  # fmt: skip
BESIDE = a_pod(container={"resources": SMALL, "envFrom": [{"secretRef": {"name": "keys"}}]})
STORE = POD | {"volumes": [{"name": "a", "csi": {"volumeAttributes": {"secretProviderClass": "keys"}}}]}
TOKEN = POD | {"volumes": [{"name": "keys", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]}


@pytest.mark.parametrize(
    ("pod", "keys", "opens_env", "is_told"),
    [
        (BESIDE, {"API_KEY"}, True, True),
        (BESIDE, {"TASK_DATABASE_URL", "API_KEY"}, True, True),
        (BESIDE, {"TASK_DATABASE_URL"}, True, False),
        (OPTIONAL, {"API_KEY"}, True, True),
        (BESIDE, {"API_KEY"}, False, False),
        (POD, set(), True, False),
        (STORE, set(), True, True),
        (STORE, set(), False, False),
        (TOKEN, set(), True, True),
    ],
)
def test_variables_are_open_beside_a_secret_or_not(pod: Any, keys: set[str], opens_env: bool, is_told: bool) -> None:
    tried = [TemplateTrial("default", {"spec": {"template": {"spec": pod}}}, CREATED, opens_env=opens_env)]
    there = {("SecretProviderClass", "keys"): None}
    place = msgspec.structs.replace(PLACE, secrets={"keys": frozenset(keys)}, objects=there)
    (found,) = [one for one in judge_templates(tried, place, NAMES) if one.what == "EnvOpen"]
    assert found.state is (FindingState.WARNING if is_told else FindingState.GOOD)
    assert ("next to Secret keys" in found.message) is is_told


@pytest.mark.parametrize(
    ("field", "key", "value", "is_told"),
    [
        ("annotations", "vault.hashicorp.com/agent-inject", "true", True),
        ("annotations", "vault.hashicorp.com/agent-inject", "false", False),
        ("annotations", "vault.hashicorp.com/role", "etl", False),
        ("annotations", "operator.1password.io/inject", "task", True),
        ("labels", "azure.workload.identity/use", "true", True),
    ],
)
def test_variables_are_open_beside_what_a_webhook_brings(field: str, key: str, value: str, is_told: bool) -> None:
    """No Secret of the cluster says so, and the container has them in its files or its environment."""
    template = {"metadata": {field: {key: value}}, "spec": POD}
    tried = [TemplateTrial("default", {"spec": {"template": template}}, CREATED, opens_env=True)]
    (found,) = [one for one in judge_templates(tried, PLACE, NAMES) if one.what == "EnvOpen"]
    assert (f"next to Secret {key} ({field[:-1]})" in found.message) is is_told


def test_doubts_of_a_template_are_warnings() -> None:
    trial = TemplateTrial("default", {"spec": {"template": {"spec": POD}}}, CREATED)
    doubtful = msgspec.structs.replace(trial, doubts=("nothing reports", "which container?"))
    found = [one for one in judge_templates([doubtful], PLACE, NAMES) if one.state is FindingState.WARNING]
    assert [(one.what, one.message) for one in found] == [
        ("TemplateDoubtful", "nothing reports"),
        ("TemplateDoubtful", "which container?"),
    ]
    (fine,) = [one for one in judge_templates([trial], PLACE, NAMES) if one.what == "TemplateDoubtful"]
    assert fine.state is FindingState.GOOD


@pytest.mark.parametrize(
    ("own", "keys", "report", "is_told"),
    [
        ({}, {"API_KEY"}, "sql", True),
        ({}, {"API_KEY", "TASK_DATABASE_URL"}, "sql", False),
        ({}, {"API_KEY"}, "exit-code", False),
        ({"env": [{"name": "TASK_DATABASE_URL", "value": "x"}]}, {"API_KEY"}, "sql", False),
        ({"envFrom": [{"secretRef": {"name": "keys"}, "prefix": "TASK_"}]}, {"DATABASE_URL"}, "sql", False),
        ({"envFrom": [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "c"}}]}, {"API_KEY"}, "sql", True),
        ({"envFrom": []}, {"API_KEY"}, "sql", False),
    ],
)
def test_task_whose_secrets_have_no_login_is_told(own: Any, keys: set[str], report: str, is_told: bool) -> None:
    """An application's own Secret looked like a login, and the rows of the template were parked when they ended."""
    template = {"metadata": {"annotations": {CONTAINER: "task"}}}
    template["spec"] = a_pod(container={"envFrom": [{"secretRef": {"name": "keys"}}], **own})
    job = {"metadata": {"annotations": {REPORT: report}}, "spec": {"template": template}}
    place = msgspec.structs.replace(PLACE, secrets={"keys": frozenset(keys)}, objects={("ConfigMap", "c"): None})
    found = [one.message for one in judge_templates([TemplateTrial("a", job, CREATED)], place, NAMES)]
    assert any("Secret keys has no key TASK_DATABASE_URL" in one for one in found) is is_told


def test_open_variables_beside_a_secret_are_a_warning() -> None:
    tried = [TemplateTrial("default", {"spec": {"template": {"spec": BESIDE}}}, CREATED, opens_env=True)]
    place = msgspec.structs.replace(PLACE, secrets={"keys": frozenset({"API_KEY"})})
    (found,) = [one for one in judge_templates(tried, place, NAMES) if one.state is FindingState.WARNING]
    assert found.what == "EnvOpen"
