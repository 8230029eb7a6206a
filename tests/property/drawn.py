"""Snapshots, candidates and requests, as hypothesis draws them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import Allowance, ClusterSnapshot, PendingPods, plan_load
from dispatcher.model.jobs import Job, LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.verdicts import Hold, HoldReason
from tests.contract.bodies import CONTAINER, POD, asking, node, whole
from tests.rig.builders import a_job, a_queue, a_snapshot, a_task, ago, later

QUEUES = ("a", "b", "undeclared")
SHAPES = ("small", "large")
IMAGES = ("app:1", "app:2")
queues, teams = st.sampled_from(QUEUES), st.sampled_from("xy")
few = st.integers(0, 5)
maybe = st.none() | few
sometimes = st.sampled_from([None, None, None, ago(5), later(60)])
offers: st.SearchStrategy[Offer | Hold] = st.builds(
    Offer, st.sampled_from(IMAGES), st.sampled_from(SHAPES), st.just("default")
) | st.just(Hold(HoldReason.POLICY_DENIED))
launches = st.builds(Launch, st.integers(1, 3), is_repeat=st.sampled_from([False, False, False, True]))
verdicts: st.SearchStrategy[Any] = st.one_of(
    launches, launches, launches, st.none(), st.sampled_from(
        [HoldReason.LAUNCHED, HoldReason.BACKOFF, HoldReason.FINISHING, HoldReason.POISON]).map(Hold),
)  # fmt: skip
jobs = st.lists(st.builds(lambda queue, team: a_job(queue=queue, submitted_by=team), queues, teams), max_size=5)
RICH = POD | {
    "spec": {
        "containers": [CONTAINER, {"name": "other", "resources": {"requests": {"cpu": "50m"}}}],
        "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"memory": "64Mi"}}}],
        "overhead": {"cpu": "10m"},
        "nodeSelector": None,
    },
    "status": {"phase": "Pending", "conditions": []},
}
META = {"a": {"Pods": [{"UID": "u1"}, {"UID": "u2"}], "NumPDBViolations": 1}, "b": {"Pods": [], "NumPDBViolations": 0}}
VICTIM = {"metadata": {"uid": "u1", "name": "x", "creationTimestamp": None, "annotations": {"x": "y"}}}
GOOD = [
    asking(RICH, NodeNames=["a", "c", "x", "b"]).decode(),
    asking(POD, NodeNames=["a", "b"]).decode(),
    whole(node("a"), node("b", annotations={"x": "y"}), node("x", creationTimestamp=None)).decode(),
    json.dumps({"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": META}),
    json.dumps({"Pod": POD, "NodeNameToVictims": {"a": {"Pods": [VICTIM]}}, "NodeNameToMetaVictims": None}),
]


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    number = draw(st.integers(0, 14))
    return [
        Candidate(
            a_task(id=id_, queue=draw(queues), submitted_by=draw(teams), priority=draw(st.integers(0, 2)),
                   run_at=draw(sometimes)),
            draw(offers), JobsVerdict(draw(verdicts)), draw(st.sampled_from([float("-inf"), 1.0, 2.0])),
        )
        for id_ in draw(st.permutations(range(number)))
    ]  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn, in_flight: Sequence[Job]) -> ClusterSnapshot:
    declared = [
        a_queue(name, max_jobs=draw(maybe), max_jobs_per_submitter=draw(maybe), max_pending=draw(maybe),
                paused_until=draw(sometimes), weight=draw(st.integers(1, 3)), fair_submitters=draw(st.booleans()))
        for name in QUEUES[:2]
    ]  # fmt: skip
    groups = [LaunchGroup(queue, "default", image, team) for queue in QUEUES for image in IMAGES for team in "xy"]
    not_ready = draw(st.sampled_from([None, None, None, Hold(HoldReason.DISPATCHER_NOT_READY)]))
    return a_snapshot(
        *declared, max_jobs=draw(st.integers(0, 12)), max_pending=draw(few), is_strict=draw(st.booleans()),
        load=plan_load((job.queue, job.submitted_by) for job in in_flight),
        pending=PendingPods(
            draw(few), draw(st.dictionaries(st.sampled_from(SHAPES), few)),
            draw(st.dictionaries(st.tuples(queues, st.sampled_from(SHAPES)), few)),
        ),
        allowance=Allowance(draw(st.integers(0, 20)), draw(st.integers(0, 20))), not_ready=not_ready,
        is_blind=not_ready is not None and draw(st.booleans()), is_probing=draw(st.booleans()),
        quota=draw(st.sampled_from([None, None, Hold(HoldReason.QUOTA_EXCEEDED)])),
        failing_groups=draw(st.frozensets(st.sampled_from(groups))),
        busy_groups=draw(st.frozensets(st.sampled_from(groups))),
    )  # fmt: skip
