"""Defaults that an API server adds to a Job or a Pod, and how it returns given fields."""

from tests.contract.wire import Wire, a_job, a_pod
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

LIMITS = {"cpu": "1", "memory": "1Gi"}


def bare(**container: object) -> Json:
    """A Job with only the required fields."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "task", "image": "localhost/x:1", **container}]}
    return {"metadata": {"name": "a"}, "spec": {"suspend": True, "template": {"spec": pod}}}


def container_of(pod_or_template: Json) -> Json:
    (container,) = pod_or_template["spec"]["containers"]
    found: Json = container
    return found


class TestJob:
    async def test_job_runs_once_with_six_retries(self, wire: Wire) -> None:
        spec = (await wire.made("jobs", bare()))["spec"]
        told = {key: value for key, value in spec.items() if key not in {"selector", "template", "suspend"}}
        assert told == {
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "podReplacementPolicy": "TerminatingOrFailed",
            "manualSelector": False,
        }

    async def test_job_is_not_suspended_unless_it_says_so(self, wire: Wire) -> None:
        for suspend in (None, False, True):
            made = await wire.made("jobs", a_job(f"is-{suspend}".lower(), {"suspend": suspend, "parallelism": 0}))
            assert made["spec"]["suspend"] is bool(suspend)

    async def test_job_with_a_failure_policy_replaces_failed_pods_only(self, wire: Wire) -> None:
        rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
        made = await wire.made("jobs", a_job("a", {"podFailurePolicy": {"rules": rules}}))
        assert made["spec"]["podReplacementPolicy"] == "Failed"
        assert made["spec"]["podFailurePolicy"]["rules"] == rules

    async def test_pods_of_a_job_are_labelled_with_its_name_and_uid(self, wire: Wire) -> None:
        body = a_job("a")
        body["metadata"]["labels"] = {"own": "1"}
        body["spec"]["template"]["metadata"] = {"labels": {"pods": "2"}, "annotations": {"note": "3"}}
        made = await wire.made("jobs", body)
        uid = made["metadata"]["uid"]
        given = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "a"}
        old = {"controller-uid": uid, "job-name": "a"}
        template = made["spec"]["template"]["metadata"]
        assert template == {"labels": given | old | {"pods": "2"}, "annotations": {"note": "3"}}
        assert made["metadata"]["labels"] == {"own": "1"}
        assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}

    async def test_job_without_labels_gets_those_of_its_pods(self, wire: Wire) -> None:
        made = await wire.made("jobs", a_job("a"))
        assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"]

    async def test_template_gets_the_defaults_of_a_pod(self, wire: Wire) -> None:
        spec = (await wire.made("jobs", bare()))["spec"]["template"]["spec"]
        assert {key: value for key, value in spec.items() if key != "containers"} == {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        }

    async def test_given_fields_are_kept(self, wire: Wire) -> None:
        said = {"imagePullPolicy": "Never", "terminationMessagePolicy": "FallbackToLogsOnError", "command": ["a", ""]}
        pod = {"terminationGracePeriodSeconds": 5, "schedulerName": "own", "nodeSelector": {"a": "b"}}
        made = (await wire.made("jobs", a_job("a", {"backoffLimit": 0}, pod, **said)))["spec"]
        assert made["backoffLimit"] == 0
        assert pod.items() <= made["template"]["spec"].items()
        assert said.items() <= container_of(made["template"]).items()

    async def test_limits_of_a_template_are_no_requests_yet(self, wire: Wire) -> None:
        """The limits become requests in the Pods that are made from the template."""
        made = await wire.made("jobs", bare(resources={"limits": LIMITS}))
        assert container_of(made["spec"]["template"])["resources"] == {"limits": LIMITS}

    async def test_null_counts_as_a_missing_field(self, wire: Wire) -> None:
        made = await wire.made("jobs", a_job("a", {"backoffLimit": None, "activeDeadlineSeconds": None}))
        assert made["spec"]["backoffLimit"] == 6
        assert "activeDeadlineSeconds" not in made["spec"]


class TestPod:
    async def test_limits_of_a_pod_become_its_requests(self, wire: Wire) -> None:
        resources = {"limits": LIMITS, "requests": {"cpu": "500m"}}
        container = {"name": "task", "image": "localhost/x:1", "resources": resources}
        made = await wire.made("pods", a_pod("a", containers=[container]))
        assert container_of(made)["resources"] == {"limits": LIMITS, "requests": {"cpu": "500m", "memory": "1Gi"}}

    async def test_pod_of_a_job_requests_the_limits_of_the_template(self, wire: Wire) -> None:
        await wire.made("jobs", a_job("a", {"suspend": False}, resources={"limits": LIMITS}))

        async def look() -> list[Json]:
            found: list[Json] = (await wire.found("pods", labelSelector="job-name=a"))["items"]
            return found

        (pod,) = await wire.plane.wait_for(look, "the Pod of the Job")
        assert container_of(pod)["resources"] == {"limits": LIMITS, "requests": LIMITS}

    async def test_pod_gets_the_defaults_of_restart_and_scheduler(self, wire: Wire) -> None:
        made = (await wire.made("pods", a_pod("a", schedulerName=None, nodeName="nowhere")))["spec"]
        wanted = {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "nodeName": "nowhere",
        }
        assert wanted.items() <= made.items()
