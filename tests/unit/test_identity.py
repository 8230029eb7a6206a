"""Names and labels on which two versions of the program agree, and what somebody else changed in a Job of ours."""

import copy
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.manifest import build_job
from dispatcher.model import launches as ids
from dispatcher.model.launches import Launch
from dispatcher.model.reservations import QUEUE_OF_KUEUE, changes_of
from tests.rig.builders import DATABASE_ID, OTHER_DATABASE, SITE, a_task, a_template, an_order

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
GOLDEN = "a3d5dc07414a7b13479338ea3dc8f0137c54731516b9823f4c3890f68dc452ff"

rows = st.tuples(st.uuids().map(str), st.integers(1, 2**63 - 1), st.datetimes(timezones=st.just(UTC)))


@pytest.mark.fault(34)
@pytest.mark.museum("version-dependent name")
def test_the_golden_identity_never_changes() -> None:
    """Jobs of living installations have this identity. Another value would launch every row a second time."""
    assert ids.task_identity(DATABASE_ID, 42, AT) == GOLDEN


@pytest.mark.fault(34)
@pytest.mark.museum("version-dependent name")
def test_the_golden_names_never_change() -> None:
    assert ids.job_name("dispatcher", 42, GOLDEN, 1, 1) == "dispatcher-42-a3d5dc07-1"
    assert ids.job_name("dispatcher", 42, GOLDEN, 3, 2) == "dispatcher-42-a3d5dc07-3r2"


@pytest.mark.fault(7)
def test_identity_depends_on_database_id_and_creation_of_the_row() -> None:
    others = {
        ids.task_identity(OTHER_DATABASE, 42, AT),
        ids.task_identity(DATABASE_ID, 43, AT),
        ids.task_identity(DATABASE_ID, 42, AT + timedelta(microseconds=1)),
    }
    assert len(others) == 3
    assert ids.task_identity(DATABASE_ID, 42, AT) not in others


@given(rows, st.integers(-14, 14))
def test_identity_is_the_same_in_every_time_zone(row: tuple[str, int, datetime], hours: int) -> None:
    database, number, at = row
    try:
        elsewhere = at.astimezone(timezone(timedelta(hours=hours)))
    except OverflowError:
        return  # the first or last day of the calendar
    assert ids.task_identity(database, number, elsewhere) == ids.task_identity(database, number, at)


@given(rows)
def test_an_identity_is_a_full_digest(row: tuple[str, int, datetime]) -> None:
    assert re.fullmatch(r"[0-9a-f]{64}", ids.task_identity(*row))


def test_the_longest_name_has_57_characters() -> None:
    longest = ids.job_name("a" * 16, 2**63 - 1, GOLDEN, 32767, 32767)
    assert len(longest) == 57
    assert DNS_LABEL.fullmatch(longest)


@pytest.mark.fault(57)
@pytest.mark.museum("label cut without hash")
@given(
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,14}[a-z0-9])?", fullmatch=True),
    st.integers(1, 2**63 - 1),
    st.integers(1, 32767),
    st.integers(1, 32767),
)
def test_every_name_is_a_legal_label_of_at_most_57_characters(
    installation: str, number: int, attempt: int, launch: int
) -> None:
    name = ids.job_name(installation, number, GOLDEN, attempt, launch)
    assert DNS_LABEL.fullmatch(name)
    assert len(name) <= 57


numbers = st.integers(1, 300)


@pytest.mark.museum("label cut without hash")
@given(numbers, numbers, numbers, numbers)
def test_two_launches_of_a_row_never_share_a_name(attempt: int, launch: int, other: int, number: int) -> None:
    one, two = (ids.job_name("d", 1, GOLDEN, *at) for at in ((attempt, launch), (other, number)))
    assert (one == two) == ((attempt, launch) == (other, number))


def test_an_orders_name_has_its_launch_or_a_given_one() -> None:
    order = an_order(task=a_task(attempt=2), launch=Launch(3))
    digest = ids.identity_of(order)[:8]
    assert ids.name_of(order, "dispatcher") == f"dispatcher-42-{digest}-2r3"
    assert ids.name_of(order, "dispatcher", 2) == f"dispatcher-42-{digest}-2r2"
    assert ids.name_of(order, "dispatcher", 1) == f"dispatcher-42-{digest}-2"


def test_an_order_has_the_identity_of_its_row() -> None:
    order = an_order()
    assert ids.identity_of(order) == ids.task_identity(DATABASE_ID, 42, order.task.created_at)


def test_selectors_find_an_installation_or_one_task_of_it() -> None:
    """By our own label alone: policies of clusters and other tools set those of app.kubernetes.io."""
    ours = "dispatcher.internal/installation=blue"
    assert ids.job_selector("blue") == ours
    assert ids.job_selector("blue", 42) == f"{ours},dispatcher.internal/task-id=42"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (ids.LABEL_INSTALLATION, "installation"), (ids.LABEL_TASK_ID, "task-id"), (ids.LABEL_QUEUE, "queue"),
        (ids.LABEL_ATTEMPT, "attempt"), (ids.LABEL_LAUNCH, "launch"), (ids.LABEL_TEMPLATE, "template"),
        (ids.IDENTITY, "identity"), (ids.DATABASE_ID, "database-id"), (ids.SUBMITTED_BY, "submitted-by"),
        (ids.UNSTARTED, "unstarted"), (ids.DISRUPTED, "disrupted"), (ids.REPORT, "report"),
        (ids.CACHE_KEY, "cache-key"), (ids.ROW_MAY_SET, "row-may-set"), (ids.MAX_CPU, "max-cpu"),
        (ids.MAX_MEMORY, "max-memory"), (ids.MAX_SECONDS, "max-seconds"), (ids.IMAGES, "images"),
    ],
)  # fmt: skip
def test_labels_and_annotations_have_their_public_names(name: str, key: str) -> None:
    assert name == f"dispatcher.internal/{key}"


SENT = build_job(an_order(), a_template(), SITE)
POD = "spec.template.spec"
TASK = f"{POD}.containers[task]"


def as_made(**changes: Any) -> dict[str, Any]:
    """The Job as an API server answers: with its defaults. `changes`: paths with `__` between their steps."""
    made = copy.deepcopy(SENT)
    made["spec"] |= {"parallelism": 1, "completions": 1, "suspend": False, "completionMode": "NonIndexed"}
    made["spec"]["template"]["spec"] |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    made["metadata"] |= {"uid": "u", "generation": 1}
    for path, value in changes.items():
        *steps, last = path.split("__")
        found: Any = made
        for step in steps:
            found = found[int(step)] if step.isdigit() else found[step]
        if value is None:
            del found[last]
        else:
            found[last] = value
    return made


def test_job_with_the_defaults_of_the_api_server_is_the_one_that_was_sent() -> None:
    assert changes_of(SENT, as_made()) == ()
    assert changes_of(SENT, SENT) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec__ttlSecondsAfterFinished": 20}, "spec.ttlSecondsAfterFinished is 20, not absent"),
        ({"spec__activeDeadlineSeconds": 600}, "spec.activeDeadlineSeconds is 600, not absent"),
        ({"spec__backoffLimit": 6}, "spec.backoffLimit is 6, not 0"),
        ({"spec__backoffLimit": None}, "spec.backoffLimit is absent, not 0"),
        ({"spec__parallelism": 0}, "spec.parallelism is 0, not 1"),
        ({"spec__completions": 2}, "spec.completions is 2, not 1"),
        ({"spec__suspend": True}, "spec.suspend is true, not false"),
        ({"spec__managedBy": "x.example/y"}, "spec.managedBy is x.example/y, not absent"),
        ({"spec__podFailurePolicy": None}, "spec.podFailurePolicy is absent, not {'rules'"),
        ({"spec__template__spec__restartPolicy": "OnFailure"}, f"{POD}.restartPolicy is OnFailure, not Never"),
        ({"spec__template__spec__activeDeadlineSeconds": 1}, f"{POD}.activeDeadlineSeconds is 1, not 3600"),
        (
            {"metadata__labels__app.kubernetes.io/managed-by": "argocd"},
            "metadata.labels[app.kubernetes.io/managed-by] is argocd, not dispatcher",
        ),
        (
            {"metadata__labels__dispatcher.internal/launch": None},
            "metadata.labels[dispatcher.internal/launch] is absent, not 1",
        ),
        ({"metadata__name": "other"}, "metadata.name is other, not "),
        (
            {"metadata__annotations__dispatcher.internal/report": "exit-code"},
            "metadata.annotations[dispatcher.internal/report] is exit-code, not sql",
        ),
        (
            {"spec__template__metadata__labels__dispatcher.internal/queue": "x"},
            "spec.template.metadata.labels[dispatcher.internal/queue] is x, not default",
        ),
        ({"spec__template__spec__containers__0__command": ["sh"]}, f"{TASK}.command is ['sh'], not absent"),
        ({"spec__template__spec__containers__0__args": ["x"]}, f"{TASK}.args is ['x'], not absent"),
        (
            {"spec__template__spec__containers__0__restartPolicy": "Always"},
            f"{TASK}.restartPolicy is Always, not absent",
        ),
        (
            {"spec__template__spec__containers__0__restartPolicyRules": ["x"]},
            f"{TASK}.restartPolicyRules is ['x'], not absent",
        ),
        ({"spec__template__spec__containers__0__name": "renamed"}, f"{TASK} is absent"),
        ({"spec__template__spec__containers__0__env": []}, f"{TASK}.env[JOB_UID] is another"),
    ],
)
def test_change_of_a_field_on_which_a_promise_rests_is_named(changes: dict[str, Any], said: str) -> None:
    found = changes_of(SENT, as_made(**changes))
    assert any(one.startswith(said) for one in found), found


def test_restarts_of_an_init_container_are_named() -> None:
    sent = copy.deepcopy(SENT)
    inits = [{"name": "load", "image": "a"}, {"name": "mesh", "image": "b", "restartPolicy": "Always"}]
    sent["spec"]["template"]["spec"]["initContainers"] = inits
    made = copy.deepcopy(sent)
    made["spec"]["template"]["spec"]["initContainers"].append({"name": "theirs", "restartPolicy": "Always"})
    assert changes_of(sent, made) == ()
    made["spec"]["template"]["spec"]["initContainers"][0]["restartPolicy"] = "OnFailure"
    assert changes_of(sent, made) == (f"{POD}.initContainers[load].restartPolicy is OnFailure, not absent",)


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata__labels__team": "a"},
        {"metadata__annotations__cost": "7"},
        {"spec__template__spec__containers__0__image": "mirror.example/app:1"},
        {"spec__template__spec__tolerations": [{"key": "x"}]},
        {"spec__template__spec__containers__0__resources": {"limits": {"cpu": "1"}}},
    ],
)
def test_other_changes_are_welcome(changes: dict[str, Any]) -> None:
    assert changes_of(SENT, as_made(**changes)) == ()


def test_label_of_a_template_that_a_policy_changes_or_takes_is_welcome() -> None:
    """No promise rests on it. A house rule for labels, or against do-not-disrupt, would hold all rows."""
    sent, made = copy.deepcopy(SENT), as_made(metadata__labels__owner="team-a")
    sent["metadata"]["labels"]["owner"] = "Team A"
    sent["spec"]["template"]["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "true"
    assert changes_of(sent, made) == ()


def test_sidecar_before_the_tasks_container_is_welcome() -> None:
    made = as_made()
    made["spec"]["template"]["spec"]["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})
    assert changes_of(SENT, made) == ()


def test_variable_of_somebody_else_is_welcome_and_ours_is_named_without_its_value() -> None:
    made = as_made()
    env = made["spec"]["template"]["spec"]["containers"][0]["env"]
    env.append({"name": "HTTPS_PROXY", "value": "http://proxy"})
    assert changes_of(SENT, made) == ()
    next(one for one in env if one["name"] == "TASK_ID")["value"] = "hush"
    assert changes_of(SENT, made) == (f"{TASK}.env[TASK_ID] is another",)


@pytest.mark.parametrize(("sent", "kept"), [(1, "1"), ("1000m", "1"), ("0.5", "500m"), ("1", "1")])
def test_amount_that_the_api_server_writes_in_its_own_way_is_no_change(sent: Any, kept: str) -> None:
    job, made = copy.deepcopy(SENT), as_made()
    for one, divisor in ((job, sent), (made, kept)):
        source = {"resourceFieldRef": {"resource": "limits.cpu", "divisor": divisor}}
        one["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "CPUS", "valueFrom": source})
    assert changes_of(job, made) == ()
    made["spec"]["template"]["spec"]["containers"][0]["env"][-1]["valueFrom"]["resourceFieldRef"]["divisor"] = "what?"
    assert changes_of(job, made) == (f"{TASK}.env[CPUS] is another",)


def test_variable_that_stands_twice_has_the_value_of_its_last_entry() -> None:
    """Kubernetes allows it, and the check of a template looks at the task's container alone."""
    sent = copy.deepcopy(SENT)
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    sent["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "b", "env": env})
    assert changes_of(sent, copy.deepcopy(sent)) == ()


def test_job_in_a_queue_of_kueue_may_be_suspended() -> None:
    made = as_made(spec__suspend=True)
    made["metadata"]["labels"][QUEUE_OF_KUEUE] = "team-a"
    assert changes_of(SENT, made) == ()
