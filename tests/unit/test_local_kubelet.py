"""What a node of processes decides about a Pod: what it refuses, what it does next, and what it says."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dispatcher.local.containers import build_order, why_refused, why_too_big
from dispatcher.local.facts import Order, Seen
from dispatcher.local.statuses import DEADLINE, Reasons, build_refusal, build_status
from dispatcher.local.syncing import Step, plan_step

Json = dict[str, Any]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
UP, FINE = Seen(started_at=NOW - 5), Seen(started_at=NOW - 5, ended_at=NOW - 1, exit_code=0)
BAD = Seen(started_at=NOW - 5, ended_at=NOW - 1, exit_code=3, tail="boom\n")


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
    def test_what_needs_more_than_a_process_is_named(self, pod: Json, words: str) -> None:
        assert words in why_refused(pod)

    def test_what_the_node_has_not_got_is_named(self) -> None:
        big = a_pod(a_container(resources={"requests": {"cpu": "1500m", "memory": "1Gi"}}))
        size = {"cpu": "2", "memory": "2Gi"}
        assert why_too_big(big, [a_pod()], size) == ("", "")
        reason, message = why_too_big(big, [big], size)
        assert reason == "OutOfcpu"
        assert message.endswith("resource: cpu, requested: 1500, used: 1500, capacity: 2000")
        assert why_too_big(big, [big], {"cpu": "9", "memory": "1Gi"})[0] == "OutOfmemory"


class TestOrders:
    def test_words_are_expanded_and_paths_below_a_mount_are_those_of_its_folder(self) -> None:
        container = a_container(
            command=["sh", "-c", "echo $(NAME) $(NOBODY) $$(NAME)"], args=["/cache/x", "/cached"], workingDir="/cache",
            env=[{"name": "NAME", "value": "n"}, {"name": "TASK_CACHE_DIR", "value": "/cache"}],
            volumeMounts=[{"name": "warm", "mountPath": "/cache/", "subPath": "q"}],
        )  # fmt: skip
        order = build_order(container, a_pod(container), {}, {"warm": Path("/disk/warm")})
        assert order.argv == ["sh", "-c", "echo n $(NOBODY) $(NAME)", "/disk/warm/q/x", "/cached"]
        assert (order.cwd, order.env["TASK_CACHE_DIR"]) == ("/disk/warm/q", "/disk/warm/q")

    def test_a_bare_container_gets_a_path_and_the_root_as_its_place(self) -> None:
        order = build_order(a_container(), a_pod(), {}, {})
        assert isinstance(order, Order)
        assert (order.argv, order.cwd, list(order.env)) == (["work"], "/", ["PATH"])


def step(pod: Json, seen: Seen | None, ending: Mapping[str, Any] | None = None) -> Step:
    return plan_step(pod, {"task": seen}, dict(ending or {}), NOW)


class TestSteps:
    def test_a_bound_pod_is_started_and_one_that_is_to_go_before_that_is_let_go(self) -> None:
        assert step(a_pod(), None) == Step(start=True)
        gone = step(a_pod(meta=DELETED), None)
        assert gone.delete
        assert gone.status is not None
        (container,) = gone.status["containerStatuses"]
        assert (gone.status["phase"], container["state"]["terminated"]["exitCode"]) == ("Failed", 137)

    def test_one_that_could_not_start_before_its_deadline_has_failed(self) -> None:
        pod = a_pod(status={"startTime": "2026-05-01T11:00:00Z"}, activeDeadlineSeconds=60)
        said = step(pod, None).status
        assert said is not None
        assert (said["phase"], said["reason"]) == ("Failed", DEADLINE[0])

    def test_a_pod_of_which_only_a_part_was_started_is_started_on_or_ended_as_far_as_it_came(self) -> None:
        half = {"a": UP, "b": None}
        assert plan_step(a_pod(a_container("a"), a_container("b")), half, {}, NOW) == Step(start=True)
        going = a_pod(a_container("a"), a_container("b"), meta=DELETED)
        assert plan_step(going, half, {}, NOW).end_as == ""
        assert plan_step(going, {"a": BAD, "b": None}, {"at": NOW, "reason": ""}, NOW).delete

    def test_an_order_of_which_there_is_no_word_yet_may_have_to_be_given_again(self) -> None:
        assert [one.is_ordered for one in (Seen(), UP, FINE, Seen(is_gone=True))] == [True, False, False, False]

    def test_what_changed_is_said_once(self) -> None:
        said = step(a_pod(), UP).status
        assert said is not None
        assert step(a_pod(status=said), UP) == Step()

    def test_a_pod_that_is_to_go_is_asked_first_killed_after_its_grace_and_let_go_when_it_is_over(self) -> None:
        running = a_pod(meta=DELETED)
        assert step(running, UP).end_as == ""
        asked = step(running, UP, {"at": NOW - 4, "reason": ""})
        assert (asked.end_as, asked.kill, asked.delete) == (None, False, False)
        assert step(running, UP, {"at": NOW - 5, "reason": ""}).kill
        over = step(running, BAD, {"at": NOW - 5, "reason": ""})
        assert over.delete
        assert over.status is not None
        assert step(a_pod(meta=DELETED, status=over.status), BAD) == Step(delete=True)

    def test_one_that_ended_stays_as_it_is(self) -> None:
        assert step(a_pod(status={"phase": "Failed"}), BAD) == Step()

    @pytest.mark.parametrize(("began", "is_late"), [("2026-05-01T11:59:50Z", True), ("2026-05-01T11:59:51Z", False)])
    def test_an_active_deadline_counts_from_the_pods_start(self, began: str, is_late: bool) -> None:
        pod = a_pod(status={"phase": "Running", "startTime": began}, activeDeadlineSeconds=10)
        assert step(pod, UP).end_as == (DEADLINE[0] if is_late else None)

    def test_the_grace_of_a_deadline_is_the_pods_own_and_it_fails_whatever_its_container_says(self) -> None:
        pod = a_pod(activeDeadlineSeconds=10, terminationGracePeriodSeconds=2)
        assert not step(pod, UP, {"at": NOW - 1.9, "reason": DEADLINE[0]}).kill
        assert step(pod, UP, {"at": NOW - 2, "reason": DEADLINE[0]}).kill
        said = step(pod, FINE, {"at": NOW - 2, "reason": DEADLINE[0]}).status
        assert said is not None
        assert (said["phase"], said["reason"], said["message"]) == ("Failed", *DEADLINE)


def said_of(seen: Mapping[str, Seen | None], told: Reasons | None = None, **container: Any) -> Json:
    pod = a_pod(*(a_container(name, **container) for name in seen))
    return build_status(pod, seen, told or Reasons(), NOW)


class TestStatuses:
    @pytest.mark.parametrize(
        ("seen", "phase"),
        [
            ({"a": None, "b": None}, "Pending"),
            ({"a": Seen(), "b": None}, "Pending"),
            ({"a": UP, "b": None}, "Running"),
            ({"a": FINE, "b": UP}, "Running"),
            ({"a": BAD, "b": UP}, "Running"),
            ({"a": FINE, "b": FINE}, "Succeeded"),
            ({"a": FINE, "b": BAD}, "Failed"),
            ({"a": FINE, "b": Seen(is_gone=True)}, "Failed"),
        ],
    )
    def test_the_phase_is_that_of_all_containers_together(self, seen: dict[str, Seen | None], phase: str) -> None:
        assert said_of(seen)["phase"] == phase

    def test_it_is_ready_while_all_of_it_runs(self) -> None:
        ready = {one["type"]: one["status"] for one in said_of({"a": UP, "b": UP})["conditions"]}
        assert ready["Ready"] == ready["ContainersReady"] == "True"
        half = {one["type"]: one for one in said_of({"a": UP, "b": FINE})["conditions"]}
        assert (half["Ready"]["status"], half["Ready"]["reason"]) == ("False", "ContainersNotReady")

    def test_conditions_of_others_stay_and_ours_keep_the_time_of_their_last_change(self) -> None:
        since = "2026-05-01T11:00:00Z"
        before = [
            {"type": "Ready", "status": "True", "lastTransitionTime": since},
            {"type": "Initialized", "status": "False", "lastTransitionTime": since},
            {"type": "PodScheduled", "status": "True"},
        ]
        status = build_status(a_pod(status={"conditions": before}), {"task": UP}, Reasons(), NOW)
        told = {one["type"]: one.get("lastTransitionTime") for one in status["conditions"]}
        assert (told["Ready"], told["Initialized"], told["PodScheduled"]) == (since, "2026-05-01T12:00:00Z", None)

    def test_what_keeps_a_container_waiting_is_told(self) -> None:
        told = Reasons(waiting=("CreateContainerConfigError", "no such secret"))
        (container,) = said_of({"task": None}, told)["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "CreateContainerConfigError", "message": "no such secret"}}
        (container,) = said_of({"task": Seen()})["containerStatuses"]
        assert container["state"] == {"waiting": {"reason": "ContainerCreating"}}

    def test_the_log_is_told_of_a_failure_where_the_container_asks_for_it(self) -> None:
        policy: dict[str, Any] = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        ends = [said_of({"task": seen}, **policy)["containerStatuses"][0]["state"] for seen in (BAD, FINE)]
        assert [end["terminated"].get("message") for end in ends] == ["boom\n", None]
        assert "message" not in said_of({"task": BAD})["containerStatuses"][0]["state"]["terminated"]

    def test_one_that_could_not_be_started_began_in_1970_as_the_real_one_has_it(self) -> None:
        never = Seen(ended_at=NOW, fault="no such file")
        ended = said_of({"task": never})["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"], ended["startedAt"]) == (128, "StartError", "1970-01-01T00:00:00Z")

    def test_a_refused_pod_has_no_containers(self) -> None:
        refused = build_refusal(a_pod(status={"qosClass": "Burstable"}), "OutOfcpu", "too big", NOW)
        assert refused == {
            "qosClass": "Burstable", "phase": "Failed", "reason": "OutOfcpu", "message": "too big",
            "startTime": "2026-05-01T12:00:00Z",
        }  # fmt: skip
