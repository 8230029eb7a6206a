"""The dispatcher's writes at the real API server: creates, how answers are read, and ends of what was judged."""

from collections.abc import Callable

import msgspec
import pytest

from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.refusals import CreateOutcome, read_create
from dispatcher.jobs.templates import judge_template
from dispatcher.kube.job_api import JobApi
from dispatcher.model.jobs import ApiAnswer, EndedBy, Job, Manifest, ObjectWrite, Phase
from tests.contract.in_force import quota_in_force
from tests.contract.own_jobs import Account
from tests.contract.submitting import dying_namespace
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES
from tests.rig.builders import DATABASE_ID, SITE, a_manifest, an_order

pytestmark = [BOTH_SIDES, pytest.mark.usefixtures("nodes")]


async def refused(account: Account, meaning: CreateOutcome, namespace: str | None = None) -> ApiAnswer:
    """The first answer to a new Job with this meaning.

    Rights and policies come into force a moment after their write.
    """

    async def look() -> ApiAnswer | None:
        answer = await account.job_api(namespace).create(account.manifest(namespace=namespace))
        return answer if read_create(answer) is meaning else None

    answer = await account.plane.wait_for(look, f"a create is answered with {meaning}")
    assert answer is not None
    return answer


def policy(name: str) -> list[Json]:
    """A policy that denies every create of a Job in the namespace of that name."""
    creates = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    never = {"expression": "false", "message": "not on Fridays", "reason": "Forbidden"}
    match = {"namespaceSelector": here, "resourceRules": [creates]}
    top = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return [
        top | {"kind": "ValidatingAdmissionPolicy", "spec": {"matchConstraints": match, "validations": [never]}},
        top | {"kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": name, "validationActions": ["Deny"]}},
    ]


def wrong_field(manifest: Manifest) -> None:
    manifest["spec"]["template"]["spec"]["restartPolicy"] = "Always"


def unknown_field(manifest: Manifest) -> None:
    manifest["spec"]["nonsense"] = 1


def wrong_type(manifest: Manifest) -> None:
    manifest["spec"]["backoffLimit"] = "0"


def too_large(manifest: Manifest) -> None:
    manifest["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 4_000_000]


class TestCreate:
    async def test_new_job_is_created_and_comes_back_as_ours(self, account: Account) -> None:
        answer = await account.api.create(account.manifest(77, attempt=2, launch=3))
        job = answer.job
        assert job is not None
        assert (answer.status, read_create(answer)) == (201, CreateOutcome.CREATED)
        assert (job.task_id, job.attempt, job.launch, job.database_id) == (77, 2, 3, DATABASE_ID)
        assert (job.phase, job.suspended, job.deleting) == (Phase.ACTIVE, False, False)

    async def test_manifest_that_the_api_server_writes_in_its_own_way_is_unchanged(self, account: Account) -> None:
        """Blanks that helm left, amounts, and a name that stands twice: nobody else has changed them."""
        sizes = [{"resourceFieldRef": {"resource": "limits.cpu", "divisor": one}} for one in (1, "1000m", None)]
        env = [{"name": f"CPUS{number}", "valueFrom": one} for number, one in enumerate(sizes)]
        twice = {"name": "side", "image": "b", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
        blank = a_manifest(spec=dict.fromkeys(("completions", "parallelism", "suspend")), container={"env": env})
        blank["metadata"]["labels"] = {"team": None}
        blank["spec"]["template"]["metadata"] = {"labels": {"team": None}}
        blank["spec"]["template"]["spec"]["containers"].append(twice)
        template = judge_template("default", blank)
        site = msgspec.structs.replace(SITE, namespace=account.namespace)
        answer = await account.api.try_create(build_job(an_order(template), template, site))
        assert (answer.status, answer.is_compared, answer.changes) == (201, True, ())

    async def test_taken_name_exists_and_a_get_tells_whose_it_is(self, account: Account) -> None:
        manifest = account.manifest()
        made = await account.created(manifest)
        answer = await account.api.create(manifest)
        assert (answer.status, answer.reason, read_create(answer)) == (409, "AlreadyExists", CreateOutcome.EXISTS)
        assert (await account.the_job(made.name)).uid == made.uid

    @pytest.mark.fault(7)
    async def test_foreign_job_of_the_name_is_not_ours(self, account: Account) -> None:
        manifest = account.manifest()
        pod = {"spec": manifest["spec"]["template"]["spec"]}  # the API server copies the labels of a Pod to its Job
        spec = {**manifest["spec"], "template": pod}
        foreign = {**manifest, "metadata": {"name": manifest["metadata"]["name"]}, "spec": spec}
        await account.plane.admin("POST", account.path("jobs"), foreign)
        assert read_create(await account.api.create(manifest)) is CreateOutcome.EXISTS
        assert await account.api.get(manifest["metadata"]["name"]) == ApiAnswer(200, job=None)

    @pytest.mark.fault(17)
    @pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
    @pytest.mark.parametrize(
        ("spoil", "status", "reason", "named", "causes"),
        [
            (wrong_field, 422, "Invalid", "spec.template.spec.restartPolicy", ("FieldValueRequired",)),
            (unknown_field, 400, "BadRequest", 'strict decoding error: unknown field "spec.nonsense"', ()),
            (wrong_type, 400, "BadRequest", "spec.backoffLimit of type int32", ()),
            (too_large, 413, "RequestEntityTooLarge", "limit is", ()),
        ],
    )
    async def test_invalid_job_is_poison(
        self,
        account: Account,
        spoil: Callable[[Manifest], None],
        status: int,
        reason: str,
        named: str,
        causes: tuple[str, ...],
    ) -> None:
        manifest = account.manifest()
        spoil(manifest)
        answer = await account.api.create(manifest)
        assert (answer.status, answer.reason, answer.causes) == (status, reason, causes)
        assert named in answer.message
        assert read_create(answer) is CreateOutcome.POISON

    @pytest.mark.fault(14, 15)
    @pytest.mark.museum("403 quota taken as final")
    async def test_full_quota_hides_that_the_job_exists(self, account: Account) -> None:
        await quota_in_force(account.plane, account.namespace, {"count/jobs.batch": "1"}, name="jobs")
        manifest = account.manifest()
        made = await account.created(manifest)
        for sent in (manifest, account.manifest()):
            answer = await account.api.create(sent)
            assert (answer.status, answer.reason, read_create(answer)) == (403, "Forbidden", CreateOutcome.QUOTA)
            assert "exceeded quota: jobs, requested: count/jobs.batch=1, used: count/jobs.batch=1" in answer.message
        assert (await account.the_job(made.name)).uid == made.uid

    async def test_missing_verb_is_forbidden(self, account: Account) -> None:
        await account.allow(jobs=["get", "list", "watch", "delete"])
        answer = await refused(account, CreateOutcome.FORBIDDEN)
        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert f'cannot create resource "jobs" in API group "batch" in the namespace "{account.namespace}"' in (
            answer.message
        )

    @pytest.mark.fault(18)
    async def test_policy_denies_a_job(self, account: Account) -> None:
        await account.plane.apply(policy(account.namespace), namespace=account.namespace)
        answer = await refused(account, CreateOutcome.DENIED)
        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert "denied request: not on Fridays" in answer.message
        for kept in policy(account.namespace):
            group = f"/apis/{kept['apiVersion']}/{kept['kind'].lower()}s"
            await account.plane.admin("DELETE", f"{group.replace('policys', 'policies')}/{account.namespace}")

    @pytest.mark.fault(16)
    async def test_terminating_namespace_says_so(self, account: Account) -> None:
        async with dying_namespace(account) as dying:
            answer = await refused(account, CreateOutcome.TERMINATING, dying)
        assert (answer.status, answer.reason, answer.causes) == (403, "Forbidden", ("NamespaceTerminating",))

    @pytest.mark.fault(16)
    async def test_missing_namespace_is_forbidden_or_not_found(self, account: Account) -> None:
        assert (await refused(account, CreateOutcome.FORBIDDEN, "nowhere")).status == 403
        account.token_file.with_name("admin").write_text(account.plane.admin_token)
        mighty = JobApi(account.open_client(account.token_file.with_name("admin")), "nowhere", SITE.installation)
        answer = await mighty.create(account.manifest(namespace="nowhere"))
        assert (answer.status, answer.reason, read_create(answer)) == (404, "NotFound", CreateOutcome.NO_NAMESPACE)
        assert 'namespaces "nowhere" not found' in answer.message


class TestRead:
    async def test_missing_job_is_not_found(self, account: Account) -> None:
        answer = await account.api.get("nothing")
        assert (answer.status, answer.reason) == (404, "NotFound")

    async def test_list_has_the_jobs_of_the_task_and_no_others(self, account: Account) -> None:
        mine = {(await account.created(account.manifest(5, launch=launch))).name for launch in (1, 2)}
        await account.created(account.manifest(55))
        theirs = account.manifest(5, launch=3)
        theirs["metadata"]["labels"]["dispatcher.internal/installation"] = "other"
        await account.created(theirs)
        assert {job.name for job in await account.api.list_task(5)} == mine
        assert await account.api.list_task(6) == []


def end(job: Job, **changes: str | int | None) -> ObjectWrite:
    return msgspec.structs.replace(ObjectWrite("jobs", job.name, job.uid, "test"), **changes)


def is_running(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def waiting_for_no_node(account: Account) -> Manifest:
    """A Job whose Pod no node may have."""
    job = account.manifest()
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "no-such-node"}
    return job


class TestEnd:
    @pytest.mark.museum("default propagation")
    async def test_deleted_job_is_gone_after_its_pods(self, account: Account) -> None:
        made = await account.created(account.manifest(steer={"stop-seconds": "0.5"}))
        await account.the_pod(made, "runs", is_running)
        job = await account.the_job(made.name)
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert answer.status == 200
        assert answer.job is not None
        assert answer.job.deleting
        assert await account.pods_of(job)

        async def is_gone() -> bool:
            return not await account.plane.exists(account.path("jobs", job.name))

        await account.plane.wait_for(is_gone, "the Job is gone", 20)
        assert not await account.pods_of(job)

    @pytest.mark.fault(47)
    @pytest.mark.museum("GC without UID")
    async def test_delete_with_another_uid_is_a_conflict(self, account: Account) -> None:
        job = await account.created()
        answer = await account.api.end(end(job, uid="00000000-0000-4000-8000-000000000000"))
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert "the UID in the precondition" in answer.message
        found = await account.the_job(job.name)
        assert (found.uid, found.deleting) == (job.uid, False)

    @pytest.mark.fault(47)
    async def test_job_that_changed_since_it_was_judged_stays(self, account: Account) -> None:
        job = await account.created()
        changed = {"metadata": {"annotations": {"somebody": "was here"}}}
        await account.plane.admin("PATCH", account.path("jobs", job.name), changed)
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert not (await account.the_job(job.name)).deleting

    async def test_deadline_fails_the_job_that_was_judged_and_keeps_it(self, account: Account) -> None:
        """The launch of a refused Pod ends so. Another uid or an older version changes nothing."""
        made = await account.created(account.manifest(steer={"never-starts": "true"}))
        await account.the_pod(made, "is there", lambda _: True)
        job = await account.the_job(made.name)
        wrong = [{"uid": "00000000-0000-4000-8000-000000000000"}, {"resource_version": "1"}]
        for change in wrong:
            call = end(job, **({"kind": "deadline", "resource_version": job.resource_version} | change))
            assert (await account.api.end(call)).status in {409, 422}, "422: the uid of an object cannot change"

        async def is_failed() -> bool:
            now = await account.the_job(job.name)
            await account.api.end(end(now, kind="deadline", resource_version=now.resource_version))
            return now.phase is Phase.FAILED

        await account.plane.wait_for(is_failed, "the Job failed", 20)
        assert (await account.the_job(job.name)).reason == "DeadlineExceeded"

    async def test_delete_of_a_job_that_is_gone_is_not_found(self, account: Account) -> None:
        job = await account.created()
        await account.plane.admin("DELETE", account.path("jobs", job.name), {"propagationPolicy": "Background"})
        answer = await account.api.end(end(job, resource_version=job.resource_version))
        assert (answer.status, answer.reason) == (404, "NotFound")

    @pytest.mark.parametrize("grace_seconds", [None, 0])
    async def test_deleted_pod_fails_its_job_and_gets_no_successor(
        self, account: Account, grace_seconds: int | None
    ) -> None:
        job = await account.created(account.manifest(steer={"never-starts": "true"}))
        pod = await account.the_pod(job, "waits", lambda pod: "containerStatuses" in pod["status"])
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        assert (await account.api.end(end(job, kind="pods", name=name))).status == 409
        answer = await account.api.end(end(job, kind="pods", name=name, uid=uid, grace_seconds=grace_seconds))
        assert answer.status == 200

        async def has_failed() -> Job | None:
            found = (await account.api.get(job.name)).job
            return found if found and found.phase is Phase.FAILED else None

        failed = await account.plane.wait_for(has_failed, "the Job failed", 20)
        assert failed is not None
        assert (failed.reason, failed.was_disrupted) == ("BackoffLimitExceeded", False)
        assert [found for found in await account.pods_of(job) if found["metadata"]["uid"] != uid] == []

    async def test_mark_changes_only_the_annotation_of_the_job_that_was_judged(self, account: Account) -> None:
        made = await account.created(waiting_for_no_node(account))
        await account.the_pod(made, "is there", lambda _: True)
        old = ObjectWrite("mark", made.name, made.uid, "test", resource_version="1")
        assert (await account.api.end(old)).status == 409
        before = await account.the_job(made.name)
        assert not before.is_unplaced

        async def is_marked() -> bool:
            now = await account.the_job(made.name)
            await account.api.end(msgspec.structs.replace(old, resource_version=now.resource_version))
            return (await account.the_job(made.name)).is_unplaced

        await account.plane.wait_for(is_marked, "the mark hits the version that was judged", 20)
        now = await account.the_job(made.name)
        assert now == msgspec.structs.replace(before, is_unplaced=True, resource_version=now.resource_version)

    @pytest.mark.parametrize("who", EndedBy)
    async def test_deleter_of_a_pod_is_noted_on_any_version_of_its_job(self, account: Account, who: EndedBy) -> None:
        made = await account.created(waiting_for_no_node(account))
        await account.the_pod(made, "is there", lambda _: True)  # its controller has changed the Job since
        before = await account.the_job(made.name)
        assert (await account.api.end(ObjectWrite(who, made.name, "another", "test"))).status in {409, 422}
        assert (await account.api.end(ObjectWrite(who, made.name, made.uid, "test"))).status == 200
        now = await account.the_job(made.name)
        assert now == msgspec.structs.replace(before, ended_by=str(who), resource_version=now.resource_version)

    @pytest.mark.slow
    async def test_unplaced_pod_is_deleted_and_its_job_fails(self, account: Account) -> None:
        job = await account.created(waiting_for_no_node(account))
        pod = await account.the_pod(job, "is there", lambda _: True)
        call = ObjectWrite("unplaced-pods", pod["metadata"]["name"], pod["metadata"]["uid"], "test")
        other = msgspec.structs.replace(call, uid="00000000-0000-4000-8000-000000000000")
        assert (await account.api.end(other)).status == 409
        assert (await account.api.end(call)).status == 200

        async def has_failed() -> bool:
            return (await account.the_job(job.name)).phase is Phase.FAILED

        await account.plane.wait_for(has_failed, "the Job fails", 45)  # Pods without a node are collected each 20 s

    async def test_pod_that_got_a_node_meanwhile_is_not_taken_back(self, account: Account) -> None:
        job = await account.created(account.manifest(steer={"stop-seconds": "0.5"}))
        pod = await account.the_pod(job, "runs", is_running)
        answer = await account.api.end(
            ObjectWrite("unplaced-pods", pod["metadata"]["name"], pod["metadata"]["uid"], "test")
        )
        assert (answer.status, answer.message) == (409, "the Pod has a node, or is gone")
        assert [one["metadata"].get("deletionTimestamp") for one in await account.pods_of(job)] == [None]
