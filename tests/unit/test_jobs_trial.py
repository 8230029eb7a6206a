"""What a trial finds out about a row, with a cluster that says just that."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.templates import Template
from dispatcher.jobs.trial import Trial
from dispatcher.model.identity import identity_of, name_of
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import Launch, Order
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import SITE, a_job, a_task, a_template, an_order

ABSENT = ApiAnswer(404, "NotFound")
TAKEN = ApiAnswer(201)
FOREIGN = ApiAnswer(200, job=a_job(identity="0" * 64))
CLOSED = "registry.example/elsewhere:1"


class Cluster:
    """One answer to each kind of question; remembers what it was asked, in order."""

    def __init__(self, get: ApiAnswer = ABSENT, create: ApiAnswer = TAKEN) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._get, self._create = get, create

    async def get(self, name: str) -> ApiAnswer:
        self.asked.append(("get", name))
        return self._get

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        self.asked.append(("try", manifest))
        return self._create


async def refusal(cluster: Cluster, order: Order | None = None, template: Template | None = None) -> Hold | None:
    templates: Mapping[str, Template | str] = {"default": template or a_template(), "broken": "no container"}
    return await Trial(cluster, SITE).refusal(order or an_order(), templates)


def found(order: Order, **changes: Any) -> ApiAnswer:
    """The Job of that name, as the API server shows it."""
    attempt, number = order.task.attempt, order.launch.number
    made: Job = msgspec.structs.replace(a_job(attempt, number), identity=identity_of(order))
    return ApiAnswer(200, job=msgspec.structs.replace(made, **changes))


async def test_a_job_that_would_be_taken_is_no_refusal() -> None:
    assert await refusal(Cluster()) is None


async def test_it_asks_for_the_name_first_and_then_tries_the_very_job() -> None:
    cluster, order = Cluster(), an_order(task=a_task(attempt=2), launch=Launch(1))
    await refusal(cluster, order)
    wanted = build_job(order, a_template(), SITE)
    assert cluster.asked == [("get", name_of(order, "dispatcher")), ("try", wanted)]
    assert wanted["metadata"]["name"].endswith("-2")


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_job_that_the_server_cannot_take_is_poison_in_its_words(status: int) -> None:
    hold = await refusal(Cluster(create=ApiAnswer(status, "Invalid", "spec.x: must not be")))
    assert hold == Hold(HoldReason.POISON, f"{status} spec.x: must not be")


async def test_an_admission_that_denies_is_poison() -> None:
    hold = await refusal(Cluster(create=ApiAnswer(403, "Forbidden", "denied by policy no-gpus")))
    assert hold == Hold(HoldReason.POISON, "403 denied by policy no-gpus")


SILENT = [
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


@pytest.mark.parametrize("answer", SILENT, ids=lambda answer: f"{answer.status} {answer.message or answer.reason}")
async def test_what_does_not_speak_of_the_row_is_not_held_against_it(answer: ApiAnswer) -> None:
    assert await refusal(Cluster(create=answer)) is None


async def test_a_name_that_somebody_else_has_is_a_collision() -> None:
    cluster = Cluster(get=FOREIGN)
    hold = await refusal(cluster)
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION
    assert cluster.asked[0][1] in hold.detail
    assert len(cluster.asked) == 1


async def test_an_object_of_the_name_that_is_no_job_of_any_installation_is_a_collision() -> None:
    hold = await refusal(Cluster(get=ApiAnswer(200)))
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION


@pytest.mark.parametrize("changes", [{"attempt": 2}, {"launch": 2}])
async def test_a_job_of_our_row_under_a_name_that_is_not_its_own_is_a_collision(changes: dict[str, int]) -> None:
    order = an_order()
    hold = await refusal(Cluster(get=found(order, **changes)), order)
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION


async def test_a_row_that_has_its_job_by_now_is_not_tried() -> None:
    order = an_order()
    cluster = Cluster(get=found(order))
    assert await refusal(cluster, order) is None
    assert [question for question, _ in cluster.asked] == ["get"]


@pytest.mark.parametrize(
    "get",
    [ApiAnswer(0), ApiAnswer(403, "Forbidden"), ApiAnswer(429), ApiAnswer(500), ApiAnswer(404, is_told=False)],
    ids=lambda answer: f"{answer.status} {answer.reason}",
)
async def test_a_get_that_says_nothing_ends_the_trial(get: ApiAnswer) -> None:
    cluster = Cluster(get, ApiAnswer(422, "Invalid"))
    assert await refusal(cluster) is None
    assert [question for question, _ in cluster.asked] == ["get"]


async def test_a_job_against_the_policy_is_not_even_asked_for() -> None:
    order = an_order(spec={"image": CLOSED})  # the second check: an offer was made, yet the template is closed
    cluster = Cluster()
    hold = await refusal(cluster, order)
    assert hold is not None
    assert hold.reason is HoldReason.POLICY_DENIED
    assert CLOSED in hold.detail or "image" in hold.detail
    assert cluster.asked == []
