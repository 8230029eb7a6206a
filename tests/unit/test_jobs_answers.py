"""What an answer to a create means (docs/protocol.md, section 4), which rows it holds, and pauses that it asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dispatcher.jobs.memory import CreateResult, Memory
from dispatcher.jobs.refusals import (
    LONGEST_PAUSE_SECONDS,
    MOST_REMEMBERED,
    Breaker,
    CreateOutcome,
    Refusals,
    origin_of,
    read_create,
)
from dispatcher.model.caches import Placement, Pool
from dispatcher.model.jobs import ApiAnswer
from dispatcher.model.launches import LaunchSpec, identity_of, name_of
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import a_job, a_task, an_indexed_row, an_order

QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: team, requested: count/jobs.batch=1, used: 5, limited: 5'
NO_LIMITS = 'jobs.batch "x" is forbidden: failed quota: team: must specify limits.cpu'
RBAC = 'jobs.batch is forbidden: User "system:serviceaccount:a:b" cannot create resource "jobs" in API group "batch" in the namespace "a"'  # noqa: E501  # text of the API server
ENDING = 'jobs.batch "x" is forbidden: unable to create new content in namespace a because it is being terminated'
WEBHOOK = 'admission webhook "policy.example" denied the request: image is not signed'
BEGINS = 'jobs.batch "x" is forbidden: not yet ready to handle request'
POD_SECURITY = 'jobs.batch "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
BY_POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Fridays"

TABLE = [
    (ApiAnswer(201), CreateOutcome.CREATED),
    (ApiAnswer(200), CreateOutcome.CREATED),
    (ApiAnswer(202), CreateOutcome.CREATED),
    (ApiAnswer(409, "AlreadyExists", 'jobs.batch "x" already exists'), CreateOutcome.EXISTS),
    (ApiAnswer(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "team"'), CreateOutcome.UNKNOWN),
    (ApiAnswer(409), CreateOutcome.UNKNOWN),
    (ApiAnswer(403, "Forbidden", QUOTA), CreateOutcome.QUOTA),
    (ApiAnswer(403, "Forbidden", ENDING, ("NamespaceTerminating",)), CreateOutcome.TERMINATING),
    (ApiAnswer(403, "Forbidden", RBAC), CreateOutcome.FORBIDDEN),
    (ApiAnswer(403, "Forbidden", WEBHOOK), CreateOutcome.DENIED),
    (ApiAnswer(403, "Forbidden", 'jobs.batch "x" is forbidden: User quotas are elsewhere'), CreateOutcome.DENIED),
    (ApiAnswer(403, "Forbidden", "a policy says: team a cannot create resource jobs at night"), CreateOutcome.DENIED),
    (ApiAnswer(403, "Forbidden", POD_SECURITY), CreateOutcome.DENIED),
    (ApiAnswer(403, "Forbidden", NO_LIMITS), CreateOutcome.DENIED),
    (ApiAnswer(403, "Forbidden", BEGINS), CreateOutcome.UNKNOWN),
    (ApiAnswer(403, "Forbidden", f"a policy says: {BEGINS}"), CreateOutcome.DENIED),
    (ApiAnswer(403), CreateOutcome.DENIED),
    (ApiAnswer(404, "NotFound", 'namespaces "a" not found'), CreateOutcome.NO_NAMESPACE),
    (ApiAnswer(401, "Unauthorized", "Unauthorized"), CreateOutcome.UNAUTHORIZED),
    (ApiAnswer(400, "BadRequest", "json: cannot unmarshal"), CreateOutcome.POISON),
    (ApiAnswer(413, "RequestEntityTooLarge"), CreateOutcome.POISON),
    (ApiAnswer(422, "Invalid", 'Job.batch "x" is invalid'), CreateOutcome.POISON),
    (ApiAnswer(422, "Invalid", f'jobs.batch "x" is forbidden: {BY_POLICY}'), CreateOutcome.DENIED),
    (ApiAnswer(422, "Invalid", f"pods is forbidden: {BY_POLICY}"), CreateOutcome.POISON),
    (ApiAnswer(422, "Invalid", f'Job.batch "x" is invalid: a: Invalid value: "{BY_POLICY}"'), CreateOutcome.POISON),
    (ApiAnswer(400, "BadRequest", 'admission webhook "a.b.c" denied the request: no'), CreateOutcome.DENIED),
    *((ApiAnswer(code, "Odd", WEBHOOK), CreateOutcome.DENIED) for code in (401, 404, 409, 410, 429, 500, 503, 599)),
    (ApiAnswer(409, "AlreadyExists", WEBHOOK), CreateOutcome.DENIED),
    (ApiAnswer(422, "Invalid", "policy 'm' with binding 'm' denied request: no such key: nodes"), CreateOutcome.DENIED),
    (ApiAnswer(500, "InternalError", 'failed calling webhook "w": admission webhook "w" denied the request'),
     CreateOutcome.UNKNOWN),
    (ApiAnswer(429, "TooManyRequests", retry_after=3), CreateOutcome.UNKNOWN),
    (ApiAnswer(500, "InternalError", "failed calling webhook"), CreateOutcome.UNKNOWN),
    (ApiAnswer(502, "", "Bad Gateway"), CreateOutcome.UNKNOWN),
    (ApiAnswer(503, "ServiceUnavailable"), CreateOutcome.UNKNOWN),
    (ApiAnswer(504, "Timeout"), CreateOutcome.UNKNOWN),
    (ApiAnswer(0, message="connection reset"), CreateOutcome.UNKNOWN),
    (ApiAnswer(302), CreateOutcome.UNKNOWN),
    (ApiAnswer(405), CreateOutcome.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "meaning"), TABLE)
def test_every_answer_has_its_meaning(answer: ApiAnswer, meaning: CreateOutcome) -> None:
    assert read_create(answer) is meaning


def test_cause_of_a_terminating_namespace_wins_over_the_message() -> None:
    assert (
        read_create(ApiAnswer(403, "Forbidden", QUOTA, ("Other", "NamespaceTerminating"))) is CreateOutcome.TERMINATING
    )


@pytest.mark.fault(20)
@given(
    st.builds(
        ApiAnswer,
        st.integers(0, 599),
        st.sampled_from(["", "AlreadyExists", "x"]),
        st.sampled_from(["", QUOTA, RBAC, WEBHOOK]),
    )
)
def test_create_may_have_been_made_unless_its_answer_excludes_it(answer: ApiAnswer) -> None:
    """docs/protocol.md, section 4: only these statuses say that nothing was made, or that the name is taken."""
    certain = {400, 401, 403, 404, 413, 422}
    meaning = read_create(answer)
    if 200 <= answer.status < 300:
        assert meaning is CreateOutcome.CREATED
    elif answer.message == WEBHOOK:  # it was asked, so nothing was made
        assert meaning is CreateOutcome.DENIED
    elif answer.status == 409 and answer.reason == "AlreadyExists":
        assert meaning is CreateOutcome.EXISTS
    else:
        assert (meaning is CreateOutcome.UNKNOWN) == (answer.status not in certain)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422])
def test_answer_of_a_proxy_is_unknown(status: int) -> None:
    assert read_create(ApiAnswer(status, message="<html>", is_told=False)) is CreateOutcome.UNKNOWN


@given(st.builds(ApiAnswer, st.integers(0, 599), is_sent=st.just(False), is_told=st.booleans()))
def test_unsent_create_is_only_not_sent(answer: ApiAnswer) -> None:
    assert read_create(answer) is CreateOutcome.NOT_SENT


POISON = Hold(HoldReason.POISON, "422")
NINTH = an_order(task=a_task(id=9))


def refused(count: int, **asked: Any) -> Refusals:
    """The refusals after `count` refused rows of one submitter and kind. Each of these rows is parked."""
    refusals = Refusals()
    for number in range(count):
        refusals.park(a_task(id=number), POISON)
        refusals.refused(an_order(task=a_task(id=number), **asked), 0)
    return refusals


def test_rows_are_held_after_three_refusals_of_similar_rows() -> None:
    assert not refused(2).rests(NINTH, 0)
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    held = Hold(HoldReason.POISON, "3 rows of this submitter, of this kind and placed alike were refused")
    assert refusals.rows().hold(an_indexed_row(9), 0) == held
    assert refusals.rows().hold(an_indexed_row(10), 0) is None, "a row that was not looked at has no reason yet"


@pytest.mark.parametrize(
    "other",
    [
        an_order(task=a_task(id=9, submitted_by="team_b")),
        an_order(task=a_task(id=9, kind=b"other")),
        an_order(task=a_task(id=9), cache_key="warm"),
        an_order(task=a_task(id=9), placement=Placement(preferred=("node-1",))),
        an_order(task=a_task(id=9), placement=Placement(pool=Pool("machine", "m1"))),
    ],
    ids=["submitter", "kind", "cache key", "history", "machine"],
)
def test_refusals_hold_no_rows_that_differ(other: LaunchSpec) -> None:
    refusals = refused(5)
    assert not refusals.rests(other, 0)
    assert refusals.rows().hold(a_task(id=9), 0) is None


def test_similar_rows_are_tried_again_after_a_minute() -> None:
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    assert refusals.rows().hold(an_indexed_row(9), 59) is not None
    assert refusals.rows().hold(an_indexed_row(9), 60) is None
    assert not refusals.rests(NINTH, 60)
    for number in range(3):
        refusals.refused(an_order(task=a_task(id=number)), 60)
    assert refusals.rests(an_order(task=a_task(id=10)), 61)


def of_many_keys(count: int) -> Refusals:
    """The refusals after `count` rows of one submitter with different cache keys, all refused at second 0."""
    refusals = Refusals()
    for number in range(count):
        refusals.refused(an_order(task=a_task(id=number), cache_key=f"key-{number}"), 0)
    return refusals


def test_many_refused_rows_of_a_submitter_let_one_a_second_through() -> None:
    assert not of_many_keys(9).rests(NINTH, 0.5)
    refusals = of_many_keys(10)
    assert refusals.rests(NINTH, 0.5)
    assert not refusals.rests(an_order(task=a_task(id=10)), 1)
    assert refusals.rests(an_order(task=a_task(id=12)), 1), "one of a batch is enough"
    refusals.refused(an_order(task=a_task(id=10)), 1)
    assert refusals.rests(an_order(task=a_task(id=11), cache_key="other"), 1.5)
    assert refusals.rows().hold(an_indexed_row(9), 60) is not None, "a row that rests does so for a minute"


def test_many_refused_rows_hold_no_other_submitter_and_no_accepted_kind() -> None:
    refusals = of_many_keys(20)
    assert not refusals.rests(an_order(task=a_task(id=9, submitted_by="team_b")), 0.5)
    good = an_order(task=a_task(id=9, kind=b"good"))
    assert refusals.rests(good, 0.5)
    refusals.accepted(good)
    assert not refusals.rests(good, 0.5)
    refusals.refused(good, 0.6)
    assert refusals.rests(good, 0.7), "it was refused since"


def test_refusals_of_more_than_a_minute_ago_do_not_count() -> None:
    refusals = of_many_keys(20)
    refusals.refused(NINTH, 60)
    assert not refusals.rests(an_order(task=a_task(id=10), cache_key="other"), 60.5)


def test_accepted_row_releases_similar_rows_but_no_parked_rows() -> None:
    refusals = refused(3)
    refusals.accepted(an_order(task=a_task(id=7)))
    assert not refusals.rests(NINTH, 0)
    assert refusals.rows().hold(an_indexed_row(0), 0) == POISON


@pytest.mark.parametrize("meaning", [CreateOutcome.POISON, CreateOutcome.DENIED, CreateOutcome.EXISTS,
                                     CreateOutcome.QUOTA, CreateOutcome.UNKNOWN])  # fmt: skip
def test_answer_holds_similar_rows_if_it_refuses_the_row_as_it_is(meaning: CreateOutcome) -> None:
    memory, is_of_the_row = Memory(), meaning in {CreateOutcome.POISON, CreateOutcome.DENIED}
    for number in range(3):
        order = an_order(task=a_task(id=number))
        memory.learn(CreateResult(order, f"job-{number}", meaning, ApiAnswer(422)), 0)
    assert memory.refusals.rests(NINTH, 1) is is_of_the_row
    job = a_job(task_id=order.task.id, identity=identity_of(order))
    memory.learn(CreateResult(order, "job", CreateOutcome.CREATED, ApiAnswer(201), job), 1)
    assert not memory.refusals.rests(an_order(task=a_task(id=10)), 1)


def test_forgetting_releases_all_held_rows() -> None:
    refusals = refused(3)
    assert refusals.rests(NINTH, 0)
    refusals.forget()
    assert refusals.rows().hold(an_indexed_row(0), 0) is None
    assert refusals.rows().hold(an_indexed_row(9), 0) is None
    assert not refusals.rests(NINTH, 0)


@pytest.mark.fault(17)
@pytest.mark.museum("422 retried forever")
def test_parked_row_stays_parked_in_its_attempt_alone() -> None:
    refusals = Refusals()
    collision = Hold(HoldReason.NAME_COLLISION, "taken")
    refusals.park(a_task(), collision)
    assert refusals.rows().hold(a_task(), 0) == refusals.rows().hold(an_indexed_row(42), 0) == collision
    assert refusals.rows().hold(a_task(attempt=2), 0) is None
    assert refusals.rows().hold(a_task(id=43), 0) is None


def test_refusals_forget_the_oldest_of_too_many_parked_rows() -> None:
    refusals = Refusals()
    hold = Hold(HoldReason.POLICY_DENIED)
    task = a_task(id=0)
    refusals.park(task, hold)
    for number in range(1, MOST_REMEMBERED):
        refusals.park(a_task(id=number), hold)
    assert refusals.rows().hold(task, 0) == hold
    refusals.park(a_task(id=MOST_REMEMBERED), hold)
    assert refusals.rows().hold(task, 0) is None
    assert refusals.rows().hold(a_task(id=1), 0) == refusals.rows().hold(a_task(id=MOST_REMEMBERED), 0) == hold


def test_rests_that_are_over_are_forgotten() -> None:
    refusals = Refusals()
    for number in range(100):
        refusals.rest(a_task(id=number), POISON, number)
    assert len(refusals.rows(50).resting) == 49
    assert refusals.rows(50).hold(a_task(id=60), 50) == POISON
    assert len(refusals.rows(1000).resting) == 0


STOP = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled")
OTHER = Hold(HoldReason.DISPATCHER_NOT_READY, "Forbidden")


def pause_of(breaker: Breaker, now: float) -> float:
    """Length of the pause from `now`, in seconds, to the millisecond."""
    return next(step / 1000 for step in range(200_000) if breaker.hold(now + step / 1000) is None)


def test_new_breaker_holds_nothing() -> None:
    breaker = Breaker()
    assert breaker.hold(0) is None
    assert not breaker.is_probing


def test_pause_doubles_with_each_failure_up_to_30_seconds() -> None:
    breaker, now, pauses = Breaker(), 100.0, []
    for _ in range(9):
        breaker.trip(STOP, now)
        pauses.append(pause_of(breaker, now))
        now += pauses[-1]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_failures_without_end_keep_the_longest_pause() -> None:
    breaker = Breaker()
    for number in range(3000):
        breaker.trip(STOP, number * 100.0)
    assert pause_of(breaker, 299_900) == LONGEST_PAUSE_SECONDS


def test_failures_during_a_pause_count_once() -> None:
    breaker = Breaker()
    for number in range(16):
        breaker.trip(STOP, 100 + number / 1000)
    assert breaker.hold(100.499) == STOP
    assert breaker.hold(100.5) is None
    breaker.trip(STOP, 101)
    assert pause_of(breaker, 101) == 1


@pytest.mark.fault(19)
def test_server_may_ask_for_a_longer_pause_but_not_for_a_shorter_one() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 7)
    assert pause_of(breaker, 100) == 7
    breaker.trip(STOP, 101, 1)
    assert pause_of(breaker, 101) == 6
    breaker.trip(STOP, 102, 9)
    assert pause_of(breaker, 102) == 9
    breaker.trip(STOP, 200, 0.001)
    assert pause_of(breaker, 200) == 1


def test_newest_answer_is_the_reason() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(OTHER, 100.1)
    assert breaker.hold(100.2) == OTHER


@pytest.mark.fault(19, 23)
def test_breaker_probes_after_a_pause_until_a_success() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    assert (breaker.hold(101), breaker.is_probing) == (None, True)
    breaker.reset()
    assert (breaker.hold(101), breaker.is_probing) == (None, False)


def test_success_resets_the_length_of_the_pause() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100)
    breaker.trip(STOP, 101)
    breaker.reset()
    breaker.trip(STOP, 102)
    assert pause_of(breaker, 102) == 0.5


def test_success_ends_a_pause_at_once() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 100, 60)
    breaker.reset()
    assert breaker.hold(100.1) is None


def test_retry_after_of_a_day_pauses_for_5_minutes() -> None:
    breaker = Breaker()
    breaker.trip(STOP, 0, at_least=86_400)
    assert breaker.hold(299) == STOP
    assert breaker.hold(301) is None


@pytest.mark.parametrize(("status", "is_of_all"), [(403, False), (413, False), (401, True), (429, True), (503, True)])
def test_page_of_a_firewall_about_one_job_pauses_its_template_and_submitter_alone(status: int, is_of_all: bool) -> None:
    """A firewall before the API server may dislike a word of one row, or the size of its Job."""
    memory, order = Memory(), an_order()
    page = ApiAnswer(status, message="<html>", is_told=False)
    memory.learn(CreateResult(order, name_of(order, "dispatcher"), read_create(page), page), 0)
    known = memory.known(0)
    assert (known.brakes.api is not None, origin_of(order.task) in known.templates) == (is_of_all, not is_of_all)


@pytest.mark.parametrize(
    "meaning", [CreateOutcome.QUOTA, CreateOutcome.TERMINATING, CreateOutcome.FORBIDDEN, CreateOutcome.UNKNOWN, None]
)
def test_hold_of_the_rows_of_all_teams_names_no_job(meaning: CreateOutcome | None) -> None:
    """The name has the id of the row whose Job was asked for."""
    memory, order = Memory(), an_order()
    name = name_of(order, "dispatcher")
    answer = ApiAnswer(500, message=f'jobs.batch "{name}" is forbidden: exceeded quota: q')
    asked, sent = CreateResult(order, name, question=answer), CreateResult(order, name, answer=answer)
    memory.learn(replace(sent, meaning=meaning) if meaning else asked, 0)
    known = memory.known(0)
    held = known.brakes.api or known.brakes.quota or known.templates[origin_of(order.task)].hold
    assert held is not None
    assert held.detail.endswith('jobs.batch "..." is forbidden: exceeded quota: q')
