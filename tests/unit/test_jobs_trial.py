"""The refusal that a trial finds for a row. A fake cluster gives the answers."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dispatcher.janitor.rows import Trial
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.templates import Template
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import Launch, LaunchSpec, identity_of, name_of
from dispatcher.model.verdicts import BY_POLICY, Hold, HoldReason
from tests.rig.builders import SITE, a_job, a_task, a_template, an_order

ABSENT = ApiAnswer(404, "NotFound")
ACCEPTED = ApiAnswer(201)
FOREIGN = ApiAnswer(200, job=a_job(identity="0" * 64))
CLOSED_IMAGE = "registry.example/elsewhere:1"


class Cluster:
    """A cluster with one answer for each kind of request. `asked`: the requests, in order."""

    def __init__(self, get: ApiAnswer = ABSENT, create: ApiAnswer = ACCEPTED) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._get, self._create = get, create

    async def get(self, name: str) -> ApiAnswer:
        self.asked.append(("get", name))
        return self._get

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        self.asked.append(("try", manifest))
        return self._create


async def refusal(cluster: Cluster, order: LaunchSpec | None = None, template: Template | None = None) -> Hold | None:
    templates: Mapping[str, Template | str] = {"default": template or a_template(), "broken": "no container"}
    return await Trial(cluster, SITE).refusal(order or an_order(), templates)


def found(order: LaunchSpec, **changes: Any) -> ApiAnswer:
    """The answer of the API server with the Job of this order."""
    attempt, number = order.task.attempt, order.launch.number
    made: Job = msgspec.structs.replace(a_job(attempt, number), identity=identity_of(order))
    return ApiAnswer(200, job=msgspec.structs.replace(made, **changes))


async def test_accepted_job_is_no_refusal() -> None:
    assert await refusal(Cluster()) is None


async def test_trial_gets_the_name_first_and_then_tries_the_same_job() -> None:
    cluster, order = Cluster(), an_order(task=a_task(attempt=2), launch=Launch(1))
    await refusal(cluster, order)
    wanted = build_job(order, a_template(), SITE)
    assert cluster.asked == [("get", name_of(order, "dispatcher")), ("try", wanted)]
    assert wanted["metadata"]["name"].endswith("-2")


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_invalid_job_is_poison_with_the_message_of_the_server(status: int) -> None:
    hold = await refusal(Cluster(create=ApiAnswer(status, "Invalid", "spec.x: must not be")))
    assert hold == Hold(HoldReason.POISON, f"{status} spec.x: must not be")


async def test_denied_admission_is_poison() -> None:
    hold = await refusal(Cluster(create=ApiAnswer(403, "Forbidden", "denied by policy no-gpus")))
    assert hold == Hold(HoldReason.POISON, f"{BY_POLICY}: 403 denied by policy no-gpus")


UNCLEAR = [
    ApiAnswer(0, message="timeout"),
    ApiAnswer(401, "Unauthorized"),
    ApiAnswer(403, "Forbidden", "jobs is forbidden: exceeded quota: q"),
    ApiAnswer(403, "Forbidden", 'jobs.batch is forbidden: User "x" cannot create resource "jobs"'),
    ApiAnswer(403, "Forbidden", "unable to create new content", ("NamespaceTerminating",)),
    ApiAnswer(403, message="a proxy's page", is_told=False),
    ApiAnswer(404, "NotFound", 'namespaces "jobs" not found'),
    ApiAnswer(409, "AlreadyExists"),
    ApiAnswer(409, "Conflict"),
    ApiAnswer(422, message="a proxy's page", is_told=False),
    ApiAnswer(429, "TooManyRequests"),
    ApiAnswer(500, "InternalError", "failed calling webhook"),
    ApiAnswer(503, "ServiceUnavailable"),
]


@pytest.mark.parametrize("answer", UNCLEAR, ids=lambda answer: f"{answer.status} {answer.message or answer.reason}")
async def test_answer_that_is_not_about_the_row_is_no_refusal(answer: ApiAnswer) -> None:
    assert await refusal(Cluster(create=answer)) is None


COLLISIONS = {
    "a foreign Job": FOREIGN,
    "no Job of a dispatcher": ApiAnswer(200),
    "a Job of another attempt": found(an_order(), attempt=2),
    "a Job of another launch": found(an_order(), launch=2),
}


@pytest.mark.parametrize("answer", COLLISIONS.values(), ids=COLLISIONS)
async def test_other_object_of_the_name_is_a_collision(answer: ApiAnswer) -> None:
    cluster = Cluster(get=answer)
    hold = await refusal(cluster)
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION
    assert cluster.asked[0][1] in hold.detail
    assert len(cluster.asked) == 1


async def test_row_that_has_its_job_is_not_tried() -> None:
    order = an_order()
    cluster = Cluster(get=found(order))
    assert await refusal(cluster, order) is None
    assert [question for question, _ in cluster.asked] == ["get"]


@pytest.mark.parametrize(
    "get",
    [ApiAnswer(0), ApiAnswer(403, "Forbidden"), ApiAnswer(429), ApiAnswer(500), ApiAnswer(404, is_told=False)],
    ids=lambda answer: f"{answer.status} {answer.reason}",
)
async def test_unclear_answer_of_get_ends_the_trial(get: ApiAnswer) -> None:
    cluster = Cluster(get, ApiAnswer(422, "Invalid"))
    assert await refusal(cluster) is None
    assert [question for question, _ in cluster.asked] == ["get"]


async def test_job_against_the_policy_causes_no_request() -> None:
    order = an_order(
        spec={"image": CLOSED_IMAGE}
    )  # for the second check: there is an offer, although the template is closed
    cluster = Cluster()
    hold = await refusal(cluster, order)
    assert hold is not None
    assert hold.reason is HoldReason.POLICY_DENIED
    assert CLOSED_IMAGE in hold.detail or "image" in hold.detail
    assert cluster.asked == []
