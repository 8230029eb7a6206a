"""What somebody else changed in a Job of ours, in fields on which promises rest."""

import copy
from typing import Any

import pytest

from dispatcher.jobs.manifest import build_job
from dispatcher.model.reservations import QUEUE_OF_KUEUE, changes_of
from tests.rig.builders import SITE, a_template, an_order

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


def test_job_in_a_queue_of_kueue_may_be_suspended() -> None:
    made = as_made(spec__suspend=True)
    made["metadata"]["labels"][QUEUE_OF_KUEUE] = "team-a"
    assert changes_of(SENT, made) == ()
