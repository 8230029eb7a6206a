"""The results of creates, by the answers of a cluster that gives exactly these answers."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from dispatcher.jobs.memory import CreateResult, Memory
from dispatcher.jobs.refusals import (
    SLOW_AT_A_TIME,
    SLOW_FOR_SECONDS,
    SLOW_SECONDS,
    TOO_SLOW,
    UNKNOWN_AT_A_TIME,
    CreateOutcome,
    origin_of,
)
from dispatcher.jobs.submit import AT_A_TIME, RESOLVE_AFTER_SECONDS, TRIES, Submitter
from dispatcher.model.jobs import ApiAnswer, Job, Manifest, Phase
from dispatcher.model.launches import IDENTITY, SUBMITTED_BY, Ask, Launch, LaunchSpec, identity_of, name_of
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.clock import elapsed
from tests.rig.builders import a_job, a_task, a_template, an_order
from tests.unit.submitting import ABSENT, LOST, SITE, Cluster

FOREIGN = a_job(identity="0" * 64)  # of another database: the same number, another identity
EXISTS = ApiAnswer(409, "AlreadyExists")
HELD_BACK = ApiAnswer(0, message="not sent", is_sent=False)


def made(order: LaunchSpec, launch: int = 1) -> Job:
    """The Job of an order, as the API server shows it."""
    attempt = order.task.attempt
    return msgspec.structs.replace(
        a_job(attempt, launch), name=name_of(order, "dispatcher"), identity=identity_of(order)
    )


async def submitted(cluster: Cluster, order: LaunchSpec, memory: Memory | None = None) -> Memory:
    memory = memory or Memory()
    templates: Mapping[str, object] = {"default": a_template()}
    submitter = Submitter(cluster, SITE, memory, lambda: None)
    await submitter.submit([order], templates)  # type: ignore[arg-type]  # one of them
    await submitter.drain()
    return memory


def parked(memory: Memory, order: LaunchSpec) -> Hold | None:
    return memory.refusals.rows().hold(order.task, elapsed())


async def test_create_with_a_lost_answer_stays_unseen_and_pauses_creates() -> None:
    memory = await submitted(Cluster(), an_order())
    (unseen,) = memory.creates.by_name.values()
    assert not unseen.is_answered
    assert memory.api.hold(elapsed()) is not None


async def test_create_that_finds_its_own_job_is_a_success() -> None:
    order = an_order()
    memory = await submitted(Cluster([EXISTS], [ApiAnswer(200, job=made(order))]), order)
    assert [unseen.is_answered for unseen in memory.creates.by_name.values()] == [True]
    assert parked(memory, order) is None


@pytest.mark.fault(7)
async def test_foreign_job_of_the_name_parks_the_row() -> None:
    order = an_order()
    hold = parked(await submitted(Cluster([EXISTS], [ApiAnswer(200, job=FOREIGN)]), order), order)
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION


async def test_unclear_get_parks_no_row() -> None:
    for get in (ApiAnswer(429, "TooManyRequests"), ApiAnswer(403, "Forbidden"), LOST, ABSENT):
        order = an_order()
        memory = await submitted(Cluster([EXISTS], [get]), order)
        assert parked(memory, order) is None
        assert len(memory.creates.by_name) == 1


@pytest.mark.fault(14)
@pytest.mark.museum("403 quota taken as final")
async def test_full_quota_that_hides_our_own_job_is_success() -> None:
    order = an_order()
    full = ApiAnswer(403, "Forbidden", "jobs is forbidden: exceeded quota: q")
    memory = await submitted(Cluster([full], [ApiAnswer(200, job=made(order))]), order)
    assert memory.quota.hold(elapsed()) is None
    assert len(memory.creates.by_name) == 1


async def test_success_without_our_job_is_unknown() -> None:
    memory = await submitted(Cluster([ApiAnswer(200)]), an_order())
    assert [unseen.is_answered for unseen in memory.creates.by_name.values()] == [False]
    assert memory.api.is_probing


CHANGED = ("spec.ttlSecondsAfterFinished is 20, not absent",)


async def test_template_of_a_changed_job_is_held_until_a_dry_run_is_unchanged() -> None:
    order, memory = an_order(), Memory()
    cluster = Cluster([ApiAnswer(201, job=made(order), changes=CHANGED, is_compared=True)])
    await submitted(cluster, order, memory)
    of_the_same_burst = CreateResult(order, "another", CreateOutcome.CREATED, ApiAnswer(201), made(order))
    memory.learn(of_the_same_burst, elapsed())  # only some answers are compared
    now = elapsed()
    hold = memory.known(now).why_wait(order.task, now)
    assert hold == Hold(HoldReason.JOB_CHANGED, CHANGED[0])
    assert memory.known(now + 31).why_wait(order.task, now + 31) is None
    cluster.trial = ApiAnswer(201, changes=CHANGED, is_compared=True)
    await submitted(cluster, order, memory)
    assert (len(cluster.created), len(cluster.tried)) == (1, 1)
    cluster.trial = ApiAnswer(201, is_compared=True)
    cluster._creates = [ApiAnswer(201, job=made(order))]
    await submitted(cluster, order, memory)
    await submitted(cluster, order, memory)
    assert (len(cluster.created), len(cluster.tried)) == (3, 2)
    assert memory.known(now).why_wait(order.task, now) is None


async def test_policy_for_one_team_holds_no_row_of_another() -> None:
    """Its first create is tried before. After that its rows go on at full speed."""
    order, memory = an_order(), Memory()
    other = replace(order, task=replace(order.task, submitted_by="team_b"))
    await submitted(Cluster([ApiAnswer(201, job=made(order), changes=CHANGED, is_compared=True)]), order, memory)
    cluster, now = Cluster([ApiAnswer(201, job=made(other))]), elapsed()
    cluster.trial = ApiAnswer(201, is_compared=True)
    for _ in range(3):
        assert memory.known(now).why_wait(other.task, now) is None
        await submitted(cluster, other, memory)
    assert (len(cluster.created), len(cluster.tried)) == (3, 1)
    assert memory.known(now).why_wait(order.task, now) == Hold(HoldReason.JOB_CHANGED, CHANGED[0])


class LateForOne(Cluster):
    """Makes all Jobs. The answers to creates of team_a come when `answers` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()

    async def create(self, manifest: Manifest) -> ApiAnswer:
        notes = manifest["metadata"]["annotations"]
        if notes[SUBMITTED_BY] == "team_a":
            await self.answers.wait()
        job = msgspec.structs.replace(a_job(), name=manifest["metadata"]["name"], identity=notes[IDENTITY])
        return ApiAnswer(201, job=job)


async def test_creates_that_take_long_leave_places_to_those_of_others() -> None:
    """A webhook verifies images, and the registry of one team answers late. Its creates used every place."""
    now, cluster, memory = [0.0], LateForOne(), Memory()
    submitter = Submitter(cluster, SITE, memory, lambda: None, lambda: now[0])

    async def begun(*orders: LaunchSpec) -> int:
        def rests(order: LaunchSpec) -> bool:
            return not memory.slow_origins(now[0]).may_begin(origin_of(order.task))

        return await asyncio.wait_for(submitter.submit(orders, {"default": a_template()}, rests), 5)

    late, others = (
        [an_order(task=a_task(id=first + number, submitted_by=team)) for number in range(20)]
        for first, team in ((100, "team_a"), (200, "team_b"))
    )
    assert await begun(others.pop()) == 1
    await submitter.drain()
    assert await begun(*late) == UNKNOWN_AT_A_TIME
    now[0] += SLOW_SECONDS
    holds = [memory.known(now[0]).why_wait(order.task, now[0]) for order in (late[-1], others[0])]
    assert holds == [TOO_SLOW, None]
    cluster.answers.set()
    await submitter.drain()
    cluster.answers.clear()
    stranger = an_order(task=a_task(id=300, submitted_by="team_c"))
    assert await begun(*late, stranger, *others) == SLOW_AT_A_TIME + 1 + len(others)
    cluster.answers.set()
    await submitter.drain()
    now[0] += SLOW_FOR_SECONDS
    assert memory.slow_origins(now[0]).origins == frozenset()


async def test_create_waits_while_an_earlier_answer_asks_for_a_pause() -> None:
    memory, cluster = Memory(), Cluster()
    memory.api.trip(Hold(HoldReason.DISPATCHER_NOT_READY), elapsed(), 60)
    await submitted(cluster, an_order(), memory)
    assert (cluster.created, memory.creates.by_name) == ([], {})


@pytest.mark.parametrize("found", ["nothing", "the Job", "no answer"])
async def test_lost_create_is_asked_for_once_no_post_can_land(found: str) -> None:
    now, order, memory = [5.0], an_order(), Memory()
    answers = {"nothing": ABSENT, "the Job": ApiAnswer(200, job=made(order)), "no answer": LOST}
    cluster = Cluster(gets=[answers[found]])
    submitter = Submitter(cluster, SITE, memory, lambda: None, lambda: now[0])
    await submitter.submit([order], {"default": a_template()})
    await submitter.drain()
    now[0] += RESOLVE_AFTER_SECONDS
    await submitter.resolve()
    assert cluster.asked == []
    now[0] += 1
    await submitter.resolve()
    assert cluster.asked == [name_of(order, "dispatcher")]
    known = [one.is_answered for one in memory.creates.by_name.values()]
    assert known == {"nothing": [], "the Job": [True], "no answer": [False]}[found]
    await submitter.resolve()
    assert len(cluster.asked) == (2 if found == "no answer" else 1)


async def test_fault_of_the_program_in_a_create_ends_the_next_cycle() -> None:
    submitter = Submitter(Cluster(creates=[]), SITE, Memory(), lambda: None)
    await submitter.submit([an_order()], {"default": a_template()})
    await submitter.drain()
    with pytest.raises(IndexError):
        await submitter.submit([], {})


async def test_job_whose_labels_were_changed_is_found_by_its_name_and_followed() -> None:
    order, memory = an_order(), Memory()
    stray = msgspec.structs.replace(made(order), lacks="app.kubernetes.io/managed-by")
    cluster = Cluster([EXISTS], [ApiAnswer(200, job=stray)])
    await submitted(cluster, order, memory)
    assert memory.strays == {stray.name: stray}
    submitter = Submitter(cluster, SITE, memory, lambda: None)
    ended = msgspec.structs.replace(stray, phase=Phase.COMPLETE)
    for answer, found in (
        (LOST, {stray.name: stray}), (ApiAnswer(200, job=ended), {stray.name: ended}), (ABSENT, {}),
    ):  # fmt: skip
        cluster._gets = [answer]
        await submitter.follow()
        assert memory.strays == found


TOO_MANY = ApiAnswer(429, "TooManyRequests", retry_after=1)


async def test_create_that_is_asked_to_wait_is_sent_again_by_itself() -> None:
    """Others go on meanwhile, and nothing is paused: the server answers."""
    order, memory = an_order(), Memory()
    cluster = Cluster([TOO_MANY, TOO_MANY, ApiAnswer(201, job=made(order))])
    submitter, waits = Submitter(cluster, SITE, memory, lambda: None), list[float]()
    submitter.sleep = waited(waits)
    await submitter.submit([order], {"default": a_template()})
    await submitter.drain()
    assert len(cluster.created) == 3
    assert all(1 <= wait <= 1.3 for wait in waits)
    assert (len(waits), memory.api.is_probing, memory.api.hold(elapsed())) == (2, False, None)


class SlowCluster(Cluster):
    """Answers creates when `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()

    async def create(self, manifest: Manifest) -> ApiAnswer:
        await self.goes_on.wait()
        return await super().create(manifest)


async def test_creates_that_take_long_hold_no_cycle_for_more_than_a_second() -> None:
    """A webhook asks a slow registry about the images of one team. The rows of others are judged meanwhile."""
    cluster = SlowCluster()
    submitter = Submitter(cluster, SITE, Memory(), lambda: None)
    orders = [an_order(task=a_task(id=number)) for number in range(1, AT_A_TIME + 9)]
    async with asyncio.timeout(5):
        assert await submitter.submit(orders, {"default": a_template()}) == AT_A_TIME
    cluster.goes_on.set()
    await submitter.drain()
    assert len(cluster.created) == AT_A_TIME


async def test_create_that_is_asked_to_wait_again_and_again_pauses_all_creates() -> None:
    cluster, memory = Cluster([TOO_MANY] * 99), Memory()
    submitter = Submitter(cluster, SITE, memory, lambda: None)
    submitter.sleep = waited([])
    await submitter.submit([an_order()], {"default": a_template()})
    await submitter.drain()
    assert (len(cluster.created), memory.api.is_probing) == (TRIES, True)


@pytest.mark.parametrize("status", [401, 404, 409, 429, 500, 503])
async def test_webhook_that_denies_one_job_pauses_no_other_create(status: int) -> None:
    words = 'admission webhook "w.example" denied the request: configmap "x" not found'
    cluster = Cluster([ApiAnswer(status, "NotFound", words, retry_after=1)])
    memory = await submitted(cluster, order := an_order())
    assert (len(cluster.created), memory.api.is_probing, memory.api.hold(elapsed())) == (1, False, None)
    assert (hold := parked(memory, order)) is not None
    assert "w.example" in hold.detail


async def test_long_pause_is_a_pause_of_all_creates() -> None:
    cluster = Cluster([ApiAnswer(429, "TooManyRequests", retry_after=30)])
    memory = await submitted(cluster, an_order())
    assert (len(cluster.created), memory.api.is_probing) == (1, True)


def waited(waits: list[float]) -> Callable[[float], Coroutine[None, None, None]]:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return sleep


async def test_500_pauses_its_template_and_submitter_alone() -> None:
    """A webhook may fail for what one team asks for."""
    memory = await submitted(Cluster([ApiAnswer(500, "InternalError", "failed calling webhook")]), an_order())
    now = elapsed()
    assert memory.api.hold(now) is None
    rows = [a_task(), a_task(submitted_by="team_b"), a_task(template="other")]
    assert [memory.known(now).why_wait(row, now) is None for row in rows] == [False, True, True]


@pytest.mark.fault(11)
async def test_refused_repeat_keeps_the_first_create_unseen() -> None:
    again = an_order(launch=Launch(1, is_repeat=True))
    refused = ApiAnswer(401, "Unauthorized")
    assert len((await submitted(Cluster([refused]), again)).creates.by_name) == 1
    assert (await submitted(Cluster([refused]), an_order())).creates.by_name == {}


@pytest.mark.fault(49)
async def test_job_is_gone_only_by_a_404_of_the_api_server() -> None:
    order = an_order(task=a_task(launch=1), launch=Launch(2, 0, 1, Ask.THAT_JOB))
    page = ApiAnswer(404, message="default backend", is_told=False)
    for answer in (page, ApiAnswer(429, "TooManyRequests"), LOST):
        cluster = Cluster(gets=[answer])
        memory = await submitted(cluster, order)
        assert cluster.created == []
        assert memory.api.hold(elapsed()) is not None
    gone = Cluster()
    await submitted(gone, order)
    assert len(gone.created) == 1


async def test_row_with_an_existing_job_is_deferred() -> None:
    order = an_order(task=a_task(launch=1), launch=Launch(2, 0, 1, Ask.THAT_JOB))
    cluster = Cluster(gets=[ApiAnswer(200, job=made(order))])
    memory = await submitted(cluster, order)
    assert cluster.created == []
    assert order.task.id in memory.known(elapsed()).deferred


async def test_later_attempt_waits_for_every_unfinished_job_of_its_row() -> None:
    order = an_order(task=a_task(attempt=2), launch=Launch(1, ask=Ask.ALL_JOBS))
    busy = Cluster(jobs=[made(order)])
    memory = await submitted(busy, order)
    assert busy.created == []
    assert order.task.id in memory.known(elapsed()).deferred
    free = Cluster(jobs=[FOREIGN])
    await submitted(free, order)
    assert len(free.created) == 1
    away = Cluster(jobs=None)
    await submitted(away, order)
    assert away.created == []


class TestHeldBack:
    """A create that this replica may not send any more, so that no request was sent."""

    async def test_unsent_create_leaves_no_trace_in_the_memory(self) -> None:
        order, memory, now = an_order(), Memory(), elapsed()
        cluster = Cluster([HELD_BACK], [LOST])
        await submitted(cluster, order, memory)
        assert len(cluster.created) == 1
        assert memory.creates.by_name == {}
        for brake in (memory.api, memory.quota, memory.of_template(("default", "team_a"))):
            assert brake.hold(now) is None
            assert not brake.is_probing
        assert parked(memory, order) is None
        assert order.task.id not in memory.known(now).tried_at
        assert order.task.id not in memory.known(now).deferred

    async def test_unsent_create_needs_no_get(self) -> None:
        cluster = Cluster([HELD_BACK], [ApiAnswer(200, job=FOREIGN)])  # a GET would show that the name is taken
        memory = await submitted(cluster, an_order())
        await Submitter(cluster, SITE, memory, lambda: None).resolve()
        assert cluster.asked == []

    async def test_unsent_repeat_keeps_the_first_create_unseen(self) -> None:
        memory = await submitted(Cluster([LOST]), an_order())
        (first,) = memory.creates.by_name
        await submitted(Cluster([HELD_BACK]), an_order(launch=Launch(1, is_repeat=True)), memory_at_rest(memory))
        assert list(memory.creates.by_name) == [first]
        assert not memory.creates.by_name[first].is_answered

    async def test_unsent_create_ends_no_pause(self) -> None:
        memory = Memory()
        memory.quota.trip(Hold(HoldReason.QUOTA_EXCEEDED), elapsed(), 10)
        await submitted(Cluster([HELD_BACK]), an_order(), memory)
        assert memory.quota.is_probing

    async def test_unsent_create_does_not_check_our_rights(self) -> None:
        asked: list[bool] = []
        templates: Mapping[str, object] = {"default": a_template()}
        submitter = Submitter(Cluster([HELD_BACK]), SITE, Memory(), lambda: asked.append(True))
        await submitter.submit([an_order()], templates)  # type: ignore[arg-type]  # one of them
        assert asked == []


def count(name: str, **labels: str) -> float:
    found = REGISTRY.get_sample_value(name, labels)
    assert found is not None, f"{name} {labels} has no series"
    return found


async def test_series_of_every_outcome_exist_before_the_first_create() -> None:
    """Prometheus sees no increase in a counter that begins at 1."""
    Submitter(Cluster(), SITE, Memory(), lambda: None)
    for meaning in CreateOutcome:
        count("dispatcher_job_creates_total", outcome=meaning)


@pytest.mark.parametrize(
    ("launch", "counted"),
    [
        (Launch(1), "first"), (Launch(2, unplaced=1), "first"),
        (Launch(2, 1), "again"), (Launch(3, 1, unplaced=1), "again"),
    ],
    ids=["first", "first after one without a node", "second", "second after one without a node"],
)  # fmt: skip
async def test_launch_is_counted_by_whether_its_attempt_had_one(launch: Launch, counted: str) -> None:
    Submitter(Cluster(), SITE, Memory(), lambda: None)
    order = an_order(task=a_task(launch=launch.number - 1), launch=launch)
    before = {name: count("dispatcher_launches_total", launch=name) for name in ("first", "again")}
    await submitted(Cluster([ApiAnswer(201, job=made(order, launch.number))]), order)
    after = {name: count("dispatcher_launches_total", launch=name) for name in ("first", "again")}
    assert after == before | {counted: before[counted] + 1}


async def test_create_that_is_refused_is_no_launch() -> None:
    Submitter(Cluster(), SITE, Memory(), lambda: None)
    before = count("dispatcher_launches_total", launch="first")
    await submitted(Cluster(), an_order())
    assert count("dispatcher_launches_total", launch="first") == before


def memory_at_rest(memory: Memory) -> Memory:
    """The memory after the pause for the lost answer is over."""
    memory.api.reset()
    return memory
