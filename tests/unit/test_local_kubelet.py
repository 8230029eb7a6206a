"""The decisions of a process kubelet about a Pod, the environment of its container, and the played tasks."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dispatcher_demo.node.containers import (
    CreateContainerConfigFault,
    build_order,
    expand,
    field,
    references,
    resolve,
    why_refused,
    why_too_big,
)
from dispatcher_demo.node.kubelet import PodRound, plan_step
from dispatcher_demo.node.statuses import (
    DEADLINE,
    ContainerReasons,
    ProcessOrder,
    ProcessState,
    build_refusal,
    build_status,
)
from tests.controlplane.api import Json
from tests.controlplane.player import played_container
from tests.controlplane.programs import TaskCalls, play_task

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
UP, FINE = ProcessState(started_at=NOW - 5), ProcessState(started_at=NOW - 5, ended_at=NOW - 1, exit_code=0)
BAD = ProcessState(started_at=NOW - 5, ended_at=NOW - 1, exit_code=3, tail="boom\n")


def a_container(name: str = "task", **fields: Any) -> Json:
    return {"name": name, "command": ["work"], **fields}


def a_pod(*containers: Json, status: Json | None = None, meta: Json | None = None, **spec: Any) -> Json:
    listed = list(containers) or [a_container()]
    return {
        "metadata": {"uid": "u", **(meta or {})},
        "spec": {"restartPolicy": "Never", "containers": listed, **spec},
        "status": {"phase": "Pending", **(status or {})},
    }


DELETED = {"deletionTimestamp": "2026-05-01T12:00:30Z", "deletionGracePeriodSeconds": 5}


class TestRefusals:
    def test_a_plain_pod_is_taken(self) -> None:
        folders: list[Json] = [
            {"name": name, name: {}} for name in ("emptyDir", "hostPath", "configMap", "secret", "projected")
        ]
        assert why_refused(a_pod(volumes=folders)) == ""

    @pytest.mark.parametrize(
        ("pod", "words"),
        [
            (a_pod(restartPolicy="Always"), "restartPolicy must be Never"),
            (a_pod(initContainers=[{}]), "no initContainers"),
            (a_pod(a_container(livenessProbe={"exec": {}})), "has a livenessProbe, and nothing here asks it"),
            (a_pod({"name": "bare"}), "no images here, so container bare needs a command"),
            (a_pod(volumes=[{"name": "v", "nfs": {}}]), "volume v is of a kind that is no folder: nfs"),
        ],
    )
    def test_refusal_names_what_needs_more_than_a_process(self, pod: Json, words: str) -> None:
        assert words in why_refused(pod)

    def test_refusal_names_the_resource_that_the_node_lacks(self) -> None:
        big = a_pod(a_container(resources={"requests": {"cpu": "1500m", "memory": "1Gi"}}))
        size = {"cpu": "2", "memory": "2Gi"}
        assert why_too_big(big, [a_pod()], size) == ("", "")
        reason, message = why_too_big(big, [big], size)
        assert reason == "OutOfcpu"
        assert message.endswith("resource: cpu, requested: 1500, used: 1500, capacity: 2000")
        assert why_too_big(big, [big], {"cpu": "9", "memory": "1Gi"})[0] == "OutOfmemory"


class TestOrders:
    def test_arguments_are_expanded_and_paths_below_a_mount_become_its_folder(self) -> None:
        container = a_container(
            command=["sh", "-c", "echo $(NAME) $(NOBODY) $$(NAME)"], args=["/cache/x", "/cached"], workingDir="/cache",
            env=[{"name": "NAME", "value": "n"}, {"name": "TASK_CACHE_DIR", "value": "/cache"}],
            volumeMounts=[{"name": "warm", "mountPath": "/cache/", "subPath": "q"}],
        )  # fmt: skip
        order = build_order(container, a_pod(container), {}, {"warm": Path("/disk/warm")})
        assert order.argv == ["sh", "-c", "echo n $(NOBODY) $(NAME)", "/disk/warm/q/x", "/cached"]
        assert (order.cwd, order.env["TASK_CACHE_DIR"]) == ("/disk/warm/q", "/disk/warm/q")

    def test_bare_container_gets_a_path_and_works_in_the_root_folder(self) -> None:
        order = build_order(a_container(), a_pod(), {}, {})
        assert isinstance(order, ProcessOrder)
        assert (order.argv, order.cwd, list(order.env)) == (["work"], "/", ["PATH"])


def step(pod: Json, seen: ProcessState | None, ending: Mapping[str, Any] | None = None) -> PodRound:
    return plan_step(pod, {"task": seen}, dict(ending or {}), NOW)


class TestSteps:
    def test_bound_pod_is_started_and_one_deleted_before_that_is_removed(self) -> None:
        assert step(a_pod(), None) == PodRound(start=True)
        gone = step(a_pod(meta=DELETED), None)
        assert gone.delete
        assert gone.status is not None
        (container,) = gone.status["containerStatuses"]
        assert (gone.status["phase"], container["state"]["terminated"]["exitCode"]) == ("Failed", 137)

    def test_pod_that_did_not_start_before_its_deadline_fails(self) -> None:
        pod = a_pod(status={"startTime": "2026-05-01T11:00:00Z"}, activeDeadlineSeconds=60)
        status = step(pod, None).status
        assert status is not None
        assert (status["phase"], status["reason"]) == ("Failed", DEADLINE[0])

    def test_half_started_pod_is_started_further_or_ended(self) -> None:
        half = {"a": UP, "b": None}
        assert plan_step(a_pod(a_container("a"), a_container("b")), half, {}, NOW) == PodRound(start=True)
        going = a_pod(a_container("a"), a_container("b"), meta=DELETED)
        assert plan_step(going, half, {}, NOW).end_as == ""
        assert plan_step(going, {"a": BAD, "b": None}, {"at": NOW, "reason": ""}, NOW).delete

    def test_order_stays_open_until_its_container_starts_or_ends(self) -> None:
        assert [one.is_ordered for one in (ProcessState(), UP, FINE, ProcessState(is_gone=True))] == [
            True,
            False,
            False,
            False,
        ]

    def test_status_is_written_once_for_each_change(self) -> None:
        status = step(a_pod(), UP).status
        assert status is not None
        assert step(a_pod(status=status), UP) == PodRound()

    def test_deleted_pod_is_terminated_killed_after_its_grace_and_then_removed(self) -> None:
        running = a_pod(meta=DELETED)
        assert step(running, UP).end_as == ""
        asked = step(running, UP, {"at": NOW - 4, "reason": ""})
        assert (asked.end_as, asked.kill, asked.delete) == (None, False, False)
        assert step(running, UP, {"at": NOW - 5, "reason": ""}).kill
        over = step(running, BAD, {"at": NOW - 5, "reason": ""})
        assert over.delete
        assert over.status is not None
        assert step(a_pod(meta=DELETED, status=over.status), BAD) == PodRound(delete=True)

    def test_ended_pod_stays_as_it_is(self) -> None:
        assert step(a_pod(status={"phase": "Failed"}), BAD) == PodRound()

    @pytest.mark.parametrize(("began", "is_late"), [("2026-05-01T11:59:50Z", True), ("2026-05-01T11:59:51Z", False)])
    def test_an_active_deadline_counts_from_the_pods_start(self, began: str, is_late: bool) -> None:
        pod = a_pod(status={"phase": "Running", "startTime": began}, activeDeadlineSeconds=10)
        assert step(pod, UP).end_as == (DEADLINE[0] if is_late else None)

    def test_pod_past_its_deadline_has_its_own_grace_and_fails_in_any_case(self) -> None:
        pod = a_pod(activeDeadlineSeconds=10, terminationGracePeriodSeconds=2)
        assert not step(pod, UP, {"at": NOW - 1.9, "reason": DEADLINE[0]}).kill
        assert step(pod, UP, {"at": NOW - 2, "reason": DEADLINE[0]}).kill
        status = step(pod, FINE, {"at": NOW - 2, "reason": DEADLINE[0]}).status
        assert status is not None
        assert (status["phase"], status["reason"], status["message"]) == ("Failed", *DEADLINE)


def status_of(
    seen: Mapping[str, ProcessState | None], reasons: ContainerReasons | None = None, **container: Any
) -> Json:
    pod = a_pod(*(a_container(name, **container) for name in seen))
    return build_status(pod, seen, reasons or ContainerReasons(), NOW)


class TestStatuses:
    @pytest.mark.parametrize(
        ("seen", "phase"),
        [
            ({"a": None, "b": None}, "Pending"),
            ({"a": ProcessState(), "b": None}, "Pending"),
            ({"a": UP, "b": None}, "Running"),
            ({"a": FINE, "b": UP}, "Running"),
            ({"a": BAD, "b": UP}, "Running"),
            ({"a": FINE, "b": FINE}, "Succeeded"),
            ({"a": FINE, "b": BAD}, "Failed"),
            ({"a": FINE, "b": ProcessState(is_gone=True)}, "Failed"),
        ],
    )
    def test_the_phase_is_that_of_all_containers_together(
        self, seen: dict[str, ProcessState | None], phase: str
    ) -> None:
        assert status_of(seen)["phase"] == phase

    def test_pod_is_ready_while_all_its_containers_run(self) -> None:
        ready = {one["type"]: one["status"] for one in status_of({"a": UP, "b": UP})["conditions"]}
        assert ready["Ready"] == ready["ContainersReady"] == "True"
        half = {one["type"]: one for one in status_of({"a": UP, "b": FINE})["conditions"]}
        assert (half["Ready"]["status"], half["Ready"]["reason"]) == ("False", "ContainersNotReady")

    def test_conditions_of_others_stay_and_ours_keep_the_time_of_their_last_change(self) -> None:
        since = "2026-05-01T11:00:00Z"
        before = [
            {"type": "Ready", "status": "True", "lastTransitionTime": since},
            {"type": "Initialized", "status": "False", "lastTransitionTime": since},
            {"type": "PodScheduled", "status": "True"},
        ]
        status = build_status(a_pod(status={"conditions": before}), {"task": UP}, ContainerReasons(), NOW)
        times = {one["type"]: one.get("lastTransitionTime") for one in status["conditions"]}
        assert (times["Ready"], times["Initialized"], times["PodScheduled"]) == (since, "2026-05-01T12:00:00Z", None)

    def test_status_names_what_keeps_a_container_waiting(self) -> None:
        reasons = ContainerReasons(waiting=("CreateContainerConfigError", "no such secret"))
        (container,) = status_of({"task": None}, reasons)["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "CreateContainerConfigError", "message": "no such secret"}}
        (container,) = status_of({"task": ProcessState()})["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}

    def test_status_of_a_failure_has_the_log_if_the_container_asks_for_it(self) -> None:
        policy: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        ends = [status_of({"task": seen}, **policy)["containerStatuses"][0]["state"] for seen in (BAD, FINE)]
        assert [end["terminated"].get("message") for end in ends] == ["boom\n", None]
        assert "message" not in status_of({"task": BAD})["containerStatuses"][0]["state"]["terminated"]

    def test_container_that_could_not_start_began_in_1970_as_with_the_real_kubelet(self) -> None:
        never = ProcessState(ended_at=NOW, fault="no such file")
        ended = status_of({"task": never})["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["startedAt"]) == (128, "StartError", "1970-01-01T00:00:00Z")

    def test_a_refused_pod_has_no_containers(self) -> None:
        refused = build_refusal(a_pod(status={"qosClass": "Burstable"}), "OutOfcpu", "too big", NOW)
        assert refused == {
            "qosClass": "Burstable", "phase": "Failed", "reason": "OutOfcpu", "message": "too big",
            "startTime": "2026-05-01T12:00:00Z",
        }  # fmt: skip


POD: Json = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"batch.kubernetes.io/controller-uid": "j"},
        "annotations": {"a": "b"},
    },
    "spec": {"nodeName": "m", "containers": [{"name": "sidecar"}, {"name": "task"}]},
    "status": {"podIP": "10.0.0.9"},
}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(A)", "x1y1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("$(A$(A)", "$(A$(A)"),
        ("$()", "$()"),
        ("cost: 5$", "cost: 5$"),
        ("$(NESTED)", "$(A)"),
        ("line\n$(A)", "line\n1"),
    ],
)
def test_expansion_of_values_follows_kubelet(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "NESTED": "$(A)"}) == expanded


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.labels['batch.kubernetes.io/controller-uid']", "j"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['a']", "b"),
        ("spec.nodeName", "m"),
        ("status.podIP", "10.0.0.9"),
        ("status.hostIP", ""),
    ],
)
def test_field_references_give_the_values_of_the_pod(path: str, value: str) -> None:
    assert field(POD, path) == value


def env(
    *entries: Json, sources: Mapping[tuple[str, str], Mapping[str, str]] | None = None, **container: object
) -> Json:
    return dict(resolve({"env": list(entries), **container}, POD, sources or {}))


def key(kind: str, name: str, field_key: str, **more: object) -> Json:
    return {"valueFrom": {f"{kind}KeyRef": {"name": name, "key": field_key, **more}}}


def test_variables_refer_to_earlier_ones_and_the_last_entry_wins() -> None:
    made = env(
        {"name": "FIRST", "value": "$(SECOND)"},
        {"name": "SECOND", "value": "2"},
        {"name": "THIRD", "value": "$(SECOND)"},
        {"name": "SECOND", "value": "$(SECOND)2"},
        {"name": "EMPTY"},
    )
    assert made == {"FIRST": "$(SECOND)", "SECOND": "22", "THIRD": "2", "EMPTY": ""}


def test_values_of_references_are_not_expanded() -> None:
    sources = {("Secret", "s"): {"k": "$(A)"}, ("ConfigMap", "c"): {"k": "$$"}}
    made = env(
        {"name": "A", "value": "1"},
        {"name": "B", **key("secret", "s", "k")},
        {"name": "C", **key("configMap", "c", "k")},
        {"name": "D", "value": "$(B)"},
        sources=sources,
    )
    assert made == {"A": "1", "B": "$(A)", "C": "$$", "D": "$(A)"}


def test_sources_come_first_with_their_prefix() -> None:
    container = {"envFrom": [{"prefix": "P_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}}]}
    sources = {("Secret", "s"): {"K": "secret"}, ("ConfigMap", "c"): {"P_K": "map", "X": "old"}}
    made = env({"name": "X", "value": "$(P_K)"}, sources=sources, **container)
    assert made == {"P_K": "map", "X": "map"}
    assert references(container) == {("Secret", "s"), ("ConfigMap", "c")}


def test_an_optional_reference_to_nothing_is_no_variable() -> None:
    assert env({"name": "A", **key("secret", "s", "k", optional=True)}) == {}
    assert env(envFrom=[{"secretRef": {"name": "s", "optional": True}}]) == {}


@pytest.mark.parametrize(
    ("container", "fault"),
    [
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'secret "s" not found'),
        ({"env": [{"name": "A", **key("configMap", "c", "k")}]}, "couldn't find key k in ConfigMap c"),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]},
            "cannot be given here",
        ),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, "cannot be given here"),
    ],
)
def test_unresolvable_references_raise_a_config_fault(container: Json, fault: str) -> None:
    with pytest.raises(CreateContainerConfigFault, match=fault):
        resolve(container, POD, {})


def test_the_task_is_the_container_of_that_name() -> None:
    assert played_container(POD)["name"] == "task"
    assert played_container({"spec": {"containers": [{"name": "x"}, {"name": "y"}]}})["name"] == "x"


@pytest.mark.parametrize(("play", "code"), [("exit-0-without-start", 0), ("exit-1-without-start", 1)])
async def test_a_task_may_end_without_any_call(play: str, code: int) -> None:
    calls = TaskCalls(None)
    assert await play_task({"PLAY": play}, calls) == code
    assert not calls.asked


async def test_unknown_play_is_named() -> None:
    with pytest.raises(ValueError, match="'explode', not one of succeed"):
        await play_task({"PLAY": "explode"}, TaskCalls(None))
