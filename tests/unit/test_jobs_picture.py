"""Verdicts of one picture: by the Jobs, by this process's memory and unseen creates, and by the server's answers."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dispatcher.jobs.memory import (
    REFUSED_SECONDS,
    CreateResult,
    KnownCreates,
    Memory,
    TemplatePause,
    UnobservedCreate,
    UnseenCreates,
    plan_create,
)
from dispatcher.jobs.picture import CarriedState, know_jobs, with_jobs
from dispatcher.jobs.refusals import CreateOutcome, RefusedRows
from dispatcher.model.cluster import ClusterView, PodRefusal
from dispatcher.model.jobs import ApiAnswer, LaunchGroup, Phase
from dispatcher.model.launches import Launch, LaunchSpec, Offer, PodKind, PodRun, identity_of, name_of
from dispatcher.model.needs import PodNeeds
from dispatcher.model.verdicts import BY_POLICY, Hold, HoldReason
from dispatcher.views.node_room import ours_on
from dispatcher.views.nodes import limits_by_node
from tests.rig.builders import (
    NOW,
    OneOffer,
    a_cluster,
    a_failed_job,
    a_job,
    a_picture,
    a_pod,
    a_task,
    ago,
    an_indexed_row,
    an_order,
    later,
)

STOP = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled: 500 webhook")
STOPPED = {("default", "team_a"): TemplatePause(STOP, is_probing=True)}
PROBING = {("default", "team_a"): TemplatePause(is_probing=True)}
POISON = Hold(HoldReason.POISON, "422")
CHANGED = Hold(HoldReason.JOB_CHANGED, "spec.ttlSecondsAfterFinished is 2, not absent")
OTHER_CREATE = UnobservedCreate("other", 7, 1, "q", "team_b", Offer("app:1", "small", "default"), 0, is_under_way=True)
OWN_CREATE = replace(OTHER_CREATE, submitted_by="team_a")


@pytest.mark.parametrize(
    ("creates", "verdict"),
    [
        (KnownCreates(), Launch(1)),
        (KnownCreates(deferred=frozenset({42})), HoldReason.LAUNCHED),
        (KnownCreates(refused=RefusedRows({(42, 1): POISON})), HoldReason.POISON),
        (KnownCreates(refused=RefusedRows({(42, 2): POISON})), Launch(1)),
        (KnownCreates(templates=STOPPED), HoldReason.DISPATCHER_NOT_READY),
        (KnownCreates(templates=PROBING), Launch(1)),
        (KnownCreates(templates=PROBING, unseen={7: OWN_CREATE}), HoldReason.DISPATCHER_NOT_READY),
        (KnownCreates(templates=PROBING, unseen={7: OTHER_CREATE}), Launch(1)),
        (KnownCreates(templates={("other", "team_a"): STOPPED["default", "team_a"]}), Launch(1)),
        (KnownCreates(templates={("default", "team_b"): STOPPED["default", "team_a"]}), Launch(1)),
    ],
)
def test_launch_waits_for_holds_that_answers_asked_for(creates: KnownCreates, verdict: Launch | HoldReason) -> None:
    found = a_picture(creates=creates).judge_row(a_task()).verdict
    assert (found.reason if isinstance(found, Hold) else found) == verdict


def test_row_is_judged_by_its_own_jobs() -> None:
    foreign = a_job(identity="0" * 64)
    assert a_picture([foreign]).judge_row(a_task()).verdict == Launch(1)
    found = a_picture([foreign, a_job()]).judge_row(a_task()).verdict
    assert isinstance(found, Hold)
    assert found.reason is HoldReason.LAUNCHED


def test_deleted_job_kept_by_a_finalizer_gives_its_place_back_after_a_minute() -> None:
    job = a_job(deleting=True)
    first = ClusterView(NOW, {job.name: job}, {}, {})
    views = [msgspec.structs.replace(first, now=later(seconds)) for seconds in (0, 59, 60)]
    known = know_jobs(first, NOW)
    assert [known.is_of(view) for view in views] == [True, True, False]
    assert [sum(know_jobs(view, NOW).counted.every.values()) for view in views] == [1, 1, 0]


def test_jobs_of_one_task_can_be_replaced_by_those_of_a_live_list() -> None:
    picture = a_picture([a_job(), a_job(task_id=7)])
    assert with_jobs(picture, 42, []).judge_row(a_task()).verdict == Launch(1)
    assert with_jobs(picture, 42, []).jobs.keys() == {42, 7}


def test_rows_with_a_stuck_pod_or_several_jobs_do_not_rest() -> None:
    task, job = a_task(), a_job()
    stuck = a_cluster([a_pod(job, waiting_reason="ImagePullBackOff")])
    for picture in (a_picture([job], stuck), a_picture([job, a_failed_job(1, 2)]), a_picture()):
        assert picture.carry([(task, picture.judge_row(task))]).resting == {}
    for told in ({"suspensions": {job.uid: "no quota"}}, {"refusals": {job.uid: PodRefusal(NOW, "no")}}):
        picture = a_picture([job], a_cluster(**told))
        assert picture.carry([(task, picture.judge_row(task))]).resting == {}
    quiet = a_picture([job])
    (rest,) = quiet.carry([(task, quiet.judge_row(task))]).resting.values()
    assert (rest.attempt, rest.priority) == (task.attempt, task.priority)
    assert OTHER_CREATE.priority is None, "its Pod is not seen, so nobody asks"


def test_states_are_first_seen_once() -> None:
    task, job = a_task(), a_job()
    cluster = a_cluster([a_pod(job, waiting_reason="ImagePullBackOff")])
    picture = a_picture([job], cluster)
    first = picture.carry([(task, picture.judge_row(task))]).first_seen
    assert list(first.values()) == [cluster.cluster_now]
    assert a_picture().carry([]).first_seen == {}
    ahead = a_picture([job], cluster, carried=CarriedState({key: later(3600) for key in first}))
    again = ahead.carry([(task, ahead.judge_row(task))]).first_seen
    assert again == first, "after a clock that was set back, its grace counts from now on"


NEEDS = PodNeeds((("cpu", 1000),))


@pytest.mark.parametrize(
    ("job", "pod", "is_unplaced"),
    [
        ({}, None, True),
        ({}, {"node_name": "", "created_at": NOW}, True),
        ({}, {"node_name": "n1"}, False),
        ({}, {"node_name": "", "nominated_node": "n1"}, False),
        ({}, {"node_name": "", "deleting": True}, False),
        ({"suspended": True}, None, False),
        ({"deleting": True}, None, False),
        ({"phase": Phase.FAILED}, None, False),
        ({"phase": Phase.FAILING}, None, False),
    ],
)
def test_launch_is_unplaced_while_kube_scheduler_looks_for_a_node(
    job: dict[str, Any], pod: dict[str, Any] | None, is_unplaced: bool
) -> None:
    made = a_job(shape="small", needs=NEEDS, **job)
    picture = a_picture([made], a_cluster(pods=[a_pod(made, **pod)] if pod else []))
    assert picture.in_flight().unplaced == ({PodKind("default", "team_a", "small", NEEDS): 1} if is_unplaced else {})


def test_refused_pod_needs_no_node() -> None:
    made = a_job()
    assert a_picture([made], a_cluster(refusals={made.uid: PodRefusal(NOW, "no")})).in_flight().unplaced == {}


@pytest.mark.parametrize(
    ("job", "is_refused", "is_held"),
    [({}, False, False), ({"suspended": True}, False, True), ({}, True, True), ({"phase": Phase.FAILED}, True, False)],
)
def test_job_that_somebody_keeps_from_running_is_held(job: dict[str, Any], is_refused: bool, is_held: bool) -> None:
    made = a_job(shape="small", needs=NEEDS, **job)
    found = a_picture([made], a_cluster(refusals={made.uid: PodRefusal(NOW, "no")} if is_refused else {})).in_flight()
    kind = PodKind("default", "team_a", "small", NEEDS)
    assert found.held == ({kind: 1} if is_held else {})
    assert found.with_room == ({} if is_held or made.is_finished else {kind: 1})


@pytest.mark.parametrize(
    ("other", "is_held"),
    [
        (None, True),
        ({"node_name": "n1", "scheduled_at": ago(29)}, False),
        ({"node_name": "n1", "scheduled_at": ago(30)}, True),
        ({"node_name": "", "unschedulable_since": ago(5)}, False),
        ({"node_name": "n1", "scheduled_at": ago(5), "scheduler": "default-scheduler"}, True),
    ],
    ids=["the scheduler is away", "it works slowly", "it is silent since", "it finds no node", "another one works"],
)
def test_job_whose_pod_no_scheduler_looks_at_is_held(other: dict[str, Any] | None, is_held: bool) -> None:
    """A second scheduler that is away must not use up MAX_JOBS, which all teams share."""
    made, second = a_job(shape="small", needs=NEEDS), a_job(1, 2, shape="small", needs=NEEDS)
    pods = [a_pod(made, node_name="", scheduler="volcano", created_at=ago(40))]
    pods += [a_pod(second, **{"scheduler": "volcano"} | other)] if other else []
    picture = a_picture([made], a_cluster(pods=pods))
    kind = PodKind("default", "team_a", "small", NEEDS)
    assert picture.in_flight().held == ({kind: 1} if is_held else {})
    assert picture.in_flight().unplaced == ({} if is_held else {kind: 1})


def test_counts_are_made_anew_when_a_scheduler_has_been_silent_for_long() -> None:
    """No event shows it."""
    made = a_job()
    pod = a_pod(made, node_name="", created_at=ago(10))
    view = ClusterView(NOW, {made.name: made}, {pod.name: pod}, {})
    known = know_jobs(view, NOW)
    assert [known.is_of(replace(view, now=later(seconds))) for seconds in (19.9, 20)] == [True, False]


def test_job_whose_pod_has_scheduling_gates_is_held_and_needs_no_node() -> None:
    made = a_job(shape="small", needs=NEEDS)
    found = a_picture([made], a_cluster(pods=[a_pod(made, node_name="", is_gated=True)])).in_flight()
    assert (found.unplaced, found.held) == ({}, {PodKind("default", "team_a", "small", NEEDS): 1})


def test_launches_are_counted_by_what_the_api_server_makes_of_their_pods() -> None:
    """Two templates of one shape differ in what they say, and their Pods are made alike."""
    jobs = [a_job(task_id=n, uid=f"j-{n}", shape="small", needs=needs) for n, needs in enumerate([NEEDS, None])]
    made = PodNeeds((("cpu", 3000),))
    found = a_picture(jobs, a_cluster(made={"small": made})).in_flight()
    assert found.every == found.unplaced == {PodKind("default", "team_a", "small", made): 2}


def test_offer_tells_what_the_api_server_makes_of_its_pods() -> None:
    made, offer = PodNeeds((("cpu", 3000),)), Offer("app:1", "small", "default", NEEDS)
    picture = a_picture(cluster=a_cluster(made={"small": made}), offers=OneOffer(offer))
    assert picture.known_offer(b"kind") == Offer("app:1", "small", "default", made)
    assert picture.known_offer(b"kind") is picture.known_offer(b"kind")
    assert a_picture(cluster=a_cluster(made={"other": made}), offers=OneOffer(offer)).known_offer(b"kind") is offer
    assert a_picture(cluster=a_cluster(made={"small": made}), offers=OneOffer(STOP)).known_offer(b"kind") is STOP


@pytest.mark.parametrize(
    "creates",
    [
        KnownCreates(refused=RefusedRows({(42, 1): POISON})),
        KnownCreates(templates=STOPPED),
        KnownCreates(changed={("default", "team_a"): TemplatePause(CHANGED, is_probing=True)}),
        KnownCreates(changed={("default", "team_b"): TemplatePause(CHANGED, is_probing=True)}),
    ],
    ids=["refused row", "template", "changed Jobs", "changed Jobs of another submitter"],
)
def test_scan_passes_over_the_rows_that_answers_hold(creates: KnownCreates) -> None:
    """Otherwise the first hundred of them would hide the rows of others in their queue, in every cycle."""
    picture, row = a_picture(creates=creates, offers=OneOffer(Offer("app:1", "small", "default"))), an_indexed_row(42)
    verdict = picture.judge_row(a_task()).verdict
    assert (picture.refused(row) or Launch(1)) == verdict


def test_unseen_create_is_unplaced_until_its_pod_has_a_node() -> None:
    creates, made = KnownCreates(unseen={7: OTHER_CREATE}), a_job()
    both = a_picture([made, a_job(launch=2)], creates=creates).in_flight().unplaced
    assert [(one.submitted_by, count) for one, count in both.items()] == [("team_a", 2), ("team_b", 1)]
    assert [one.submitted_by for one in a_picture(creates=creates).in_flight().unplaced] == ["team_b"]
    pod = a_pod(made, name=f"{OTHER_CREATE.name}-x1y2z", node_name="n1")
    assert a_picture(cluster=a_cluster(pods=[pod]), creates=creates).in_flight().unplaced == {}


@pytest.mark.parametrize(("phases", "has_room"), [(["Running"], True), (["Succeeded"], False), (["Failed"], False),
                                                  (["Failed", "Pending"], True), ([], True)])  # fmt: skip
def test_job_whose_pods_have_ended_holds_no_room(phases: list[str], has_room: bool) -> None:
    """The Job controller finishes the Job a moment later. Until then it counts for the caps."""
    made = a_job(shape="small", needs=NEEDS)
    pods = [a_pod(made, uid=f"pod-{n}", name=f"pod-{n}", phase=phase) for n, phase in enumerate(phases)]
    in_flight = a_picture([made], a_cluster(pods)).in_flight()
    kind = PodKind("default", "team_a", "small", NEEDS)
    assert (in_flight.every, in_flight.with_room) == ({kind: 1}, {kind: 1} if has_room else {})


def test_runs_are_our_pods_on_nodes_until_their_run_limit() -> None:
    needs = PodNeeds((("cpu", 1000),))
    job = a_job(needs=needs, limit_seconds=60)
    placed = a_pod(job, node_name="n1", scheduled_at=ago(20))
    jobs = [job, a_job(launch=2, uid="over", phase=Phase.FAILED, needs=needs), a_job(launch=3, uid="unknown")]
    pods = [placed, a_pod(jobs[1]), a_pod(jobs[2]), a_pod(job, node_name="", name="waits")]
    assert list(a_picture(jobs, a_cluster(pods)).runs()) == [PodRun("n1", {"cpu": 1000}, later(40))]


def test_pod_uses_what_admission_made_of_it_wherever_it_counts() -> None:
    """A LimitRange, a sidecar of a mesh or Autopilot adds to the requests of the template."""
    bare, made = PodNeeds((("pods", 1000),)), PodNeeds((("cpu", 1000), ("pods", 1000)))
    running, waits = (a_job(task_id=n, uid=str(n), shape="small", needs=bare, limit_seconds=60) for n in (1, 2))
    cluster = a_cluster([a_pod(running, node_name="n1", scheduled_at=ago(20))], made={"small": made})
    offer = Offer("app:1", "small", "default", bare)
    creates = KnownCreates({3: UnobservedCreate("new", 3, 1, "default", "team_a", offer, 0)})
    picture = a_picture([running, waits], cluster, creates=creates)
    kind = PodKind("default", "team_a", "small", made)
    assert (picture.to_come().pods, picture.to_come().jobs) == ({kind: 1}, {kind: 1})
    assert [run.asks for run in picture.runs()] == [{"cpu": 1000, "pods": 1000}]
    assert ours_on({"n1"}, [running, waits], cluster) == {"n1": {"cpu": 1000, "pods": 1000}}
    assert [one.asks["cpu"] for one in limits_by_node([running], cluster, "", NOW)["n1"]] == [1000]


FULL = ApiAnswer(403, message="exceeded quota")
REFUSED = ApiAnswer(422, message="no such field")


def result(order: LaunchSpec, meaning: CreateOutcome, answer: ApiAnswer = REFUSED) -> CreateResult:
    return CreateResult(order, name_of(order, "dispatcher"), meaning, answer)


def a_success(order: LaunchSpec) -> CreateResult:
    made = a_job(uid="made", identity=identity_of(order), task_id=order.task.id)
    return CreateResult(order, name_of(order, "dispatcher"), CreateOutcome.CREATED, ApiAnswer(201), made)


def test_failed_create_is_remembered_until_a_create_of_the_row_succeeds() -> None:
    memory, order = Memory(), an_order(task=a_task(id=1))
    memory.learn(result(order, CreateOutcome.QUOTA, FULL), 5)
    assert memory.known(5).tried_at == {1: 5}
    memory.learn(a_success(order), 6)
    assert memory.known(6).tried_at == {}


def test_template_has_a_brake_of_its_own_that_a_success_ends() -> None:
    memory, order = Memory(), an_order(task=a_task(template="bad"))
    memory.learn(result(order, CreateOutcome.UNKNOWN, ApiAnswer(500, message="webhook")), 0)
    held = Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled: 500 webhook")
    known = memory.known(0)
    assert (known.templates, known.brakes.api) == ({("bad", "team_a"): TemplatePause(held, is_probing=True)}, None)
    memory.learn(a_success(order), 1)
    assert memory.known(1).templates == {}


def test_row_with_a_job_that_the_watch_lacks_is_deferred_for_2_seconds() -> None:
    memory, order = Memory(), an_order(task=a_task(id=1))
    memory.learn(CreateResult(order, "x", question=ApiAnswer(200)), 0)
    assert [memory.known(seconds).deferred for seconds in (0, 1.9, 2)] == [{1}, {1}, frozenset()]


@pytest.mark.parametrize(
    ("meaning", "reason"),
    [
        (CreateOutcome.POISON, HoldReason.POISON),
        (CreateOutcome.DENIED, HoldReason.POISON),
        (CreateOutcome.EXISTS, HoldReason.NAME_COLLISION),
        (CreateOutcome.CREATED, HoldReason.POISON),
        (CreateOutcome.QUOTA, None),
        (CreateOutcome.UNKNOWN, None),
        (CreateOutcome.FORBIDDEN, None),
        (CreateOutcome.NOT_SENT, None),
    ],
)
def test_result_parks_its_row_only_if_it_is_about_the_row(meaning: CreateOutcome, reason: HoldReason | None) -> None:
    memory, order = Memory(), an_order()
    memory.learn(result(order, meaning), 0)
    hold = memory.known(0).refused.hold(order.task, 0)
    assert (hold and hold.reason) == reason


@pytest.mark.parametrize(
    ("meaning", "hold"),
    [
        (CreateOutcome.DENIED, Hold(HoldReason.POISON, f"{BY_POLICY}: 422 no such field")),
        (CreateOutcome.POISON, Hold(HoldReason.POISON, "422 no such field")),
        (
            CreateOutcome.EXISTS,
            Hold(HoldReason.NAME_COLLISION, "Job dispatcher-42-acb5fbef-1 exists and is not this task's"),
        ),
    ],
)
def test_row_that_was_refused_is_tried_again_after_five_minutes(meaning: CreateOutcome, hold: Hold) -> None:
    """A policy that made the Job illegal, or the foreign Job of its name, may be gone."""
    memory, order = Memory(), an_order()
    memory.learn(result(order, meaning), 0)
    holds = [memory.known(now).refused.hold(order.task, now) for now in (0, REFUSED_SECONDS - 1, REFUSED_SECONDS)]
    assert holds == [hold] * 2 + [None]


def test_webhook_that_is_silent_for_one_template_stops_no_other() -> None:
    """Only where the creates of two templates time out, it is the API server or its proxy."""
    memory, first, second = Memory(), an_order(), an_order(task=a_task(id=7, template="other"))
    memory.learn(result(first, CreateOutcome.UNKNOWN, ApiAnswer(504, message="timeout")), 0)
    known = memory.known(0.1)
    assert (known.brakes.api, known.why_wait(second.task, 0.1)) == (None, None)
    assert known.why_wait(first.task, 0.1) == Hold(HoldReason.DISPATCHER_NOT_READY, "ApiThrottled: 504 timeout")
    memory.learn(result(second, CreateOutcome.UNKNOWN, ApiAnswer(504, message="timeout")), 1)
    assert memory.known(1.1).brakes.api is not None


@pytest.mark.parametrize(("silent", "seconds", "stops"), [(2, 64, False), (4, 64, False), (5, 64, True), (2, 65, True)])
def test_webhook_that_is_silent_for_few_templates_stops_none_whose_jobs_are_made(
    silent: int, seconds: float, stops: bool
) -> None:
    """One team may have several templates and one webhook. Each of them keeps one of the creates at a time."""
    memory = Memory()
    memory.learn(a_success(an_order()), 5)
    for number in range(silent):
        order = an_order(task=a_task(id=7 + number, template=f"silent-{number}"))
        memory.learn(result(order, CreateOutcome.UNKNOWN, ApiAnswer(504, message="timeout")), seconds)
    assert (memory.known(seconds).brakes.api is not None) == stops


def test_copy_of_the_memory_does_not_change() -> None:
    memory, order = Memory(), an_order()
    memory.creates.begin("x", order.task, Offer("app:1", "small", "default"), 0)
    before = memory.known(0)
    memory.learn(result(order, CreateOutcome.POISON), 0)
    memory.creates.end("x")
    assert before.refused.hold(order.task, 0) is None
    assert (before.unseen[order.task.id].is_under_way, before.brakes.under_way) == (True, 1)


def test_job_that_breaks_the_policy_parks_its_row() -> None:
    memory, order = Memory(), an_order()
    memory.learn(CreateResult(order, "x", violation="hostPath is not allowed"), 0)
    assert memory.known(0).refused.hold(order.task, 0) == Hold(HoldReason.POLICY_DENIED, "hostPath is not allowed")


@pytest.mark.parametrize(
    ("meaning", "code"),
    [
        (CreateOutcome.TERMINATING, "NamespaceTerminating"),
        (CreateOutcome.FORBIDDEN, "Forbidden"),
        (CreateOutcome.QUOTA, ""),
    ],
)
def test_missing_right_and_full_quota_pause_all_creates(meaning: CreateOutcome, code: str) -> None:
    memory = Memory()
    memory.learn(result(an_order(), meaning, FULL), 0)
    brakes = memory.known(9).brakes
    held = brakes.api or brakes.quota
    assert held is not None
    assert (held.detail.partition(":")[0] == code) is bool(code)
    assert (memory.known(10).brakes.api, memory.known(10).brakes.quota) == (None, None)


GROUP = LaunchGroup("q", "default", "app:1", "team_a")
OFFER = Offer("app:1", "small", "default")


def view(*names: str, version: str = "") -> ClusterView:
    return ClusterView(NOW, {name: a_job(name=name) for name in names}, {}, {}, jobs_version=version)


def sent(*names: str) -> UnseenCreates:
    creates = UnseenCreates()
    for name in names:
        creates.begin(name, a_task(queue="q"), OFFER, now=5)
        creates.end(name)
    return creates


def test_create_is_unseen_from_its_begin() -> None:
    (unseen,) = sent("x").by_name.values()
    assert (unseen.name, unseen.task_id, unseen.group, unseen.submitted_by) == ("x", 42, GROUP, "team_a")
    assert unseen.sent_at == 5
    assert not unseen.is_answered


@pytest.mark.fault(11)
def test_unanswered_create_is_forgotten_only_when_the_view_shows_it() -> None:
    creates = sent("x", "y")
    creates.observe(view("other", version="999999"))
    assert set(creates.by_name) == {"x", "y"}
    creates.observe(view("x"))
    assert set(creates.by_name) == {"y"}


def test_answered_create_is_forgotten_when_the_view_is_newer() -> None:
    creates = sent("x")
    creates.answered("x", "100")
    assert creates.by_name["x"].is_answered
    creates.observe(view(version="99"))
    assert set(creates.by_name) == {"x"}
    creates.observe(view(version="100"))
    assert creates.by_name == {}


def test_forgetting_a_failed_create_is_idempotent() -> None:
    creates = sent("x")
    creates.forget("x")
    creates.forget("x")
    creates.answered("x", "100")
    assert creates.by_name == {}


def test_repeated_create_waits_for_its_answer_again() -> None:
    creates = sent("x")
    creates.begin("x", a_task(), OFFER, now=9)
    (unseen,) = creates.by_name.values()
    assert (unseen.sent_at, unseen.is_answered, unseen.is_under_way) == (9, False, True)
    assert creates.under_way() == [unseen]
    creates.sent("x", now=20)  # its question took a while, and it can land as late as after any other POST
    creates.sent("never begun", now=20)
    assert [one.sent_at for one in creates.by_name.values()] == [20]
    creates.end("x")
    creates.end("never begun")
    assert creates.under_way() == []


def an_unseen(**changes: Any) -> UnobservedCreate:
    return UnobservedCreate("x", 42, 1, "q", "team_a", OFFER, 0, **changes)


@pytest.mark.parametrize(
    ("unseen", "plan"),
    [
        (None, Launch(2)),
        (an_unseen(is_under_way=True), HoldReason.LAUNCHED),
        (an_unseen(resource_version="7"), HoldReason.LAUNCHED),
        (an_unseen(), Launch(2, is_repeat=True)),
        (UnobservedCreate("another", 42, 1, "q", "team_a", OFFER, 0), HoldReason.FINISHING),
    ],
    ids=["none", "under way", "answered", "unanswered, the same name", "unanswered, another name"],
)
def test_row_has_one_unanswered_create_at_a_time(unseen: UnobservedCreate | None, plan: Launch | HoldReason) -> None:
    found = plan_create(Launch(2), unseen, "x")
    assert (found.reason if isinstance(found, Hold) else found) == plan


def test_unanswered_lists_only_creates_without_an_answer() -> None:
    creates = sent("x", "y")
    creates.answered("x", "100")
    assert creates.unanswered() == {"y"}
