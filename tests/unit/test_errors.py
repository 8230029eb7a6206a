"""The tree of faults, and that what the dispatcher fails on is held by itself, ends no cycle, and quotes no row."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.jobs import catalog as here
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.submit import Submitter
from dispatcher.jobs.templates import Template, parse_template
from dispatcher.model import errors
from dispatcher.model.launches import JobsVerdict, Offer
from dispatcher.model.reasons import Turn, advice_of
from dispatcher.model.verdicts import Hold, HoldReason, NotReady
from dispatcher.settings.definition import JobSettings
from tests.rig.builders import (
    FIRST_LAUNCH,
    NOT_PLACED,
    a_job,
    a_kind,
    a_manifest,
    a_picture,
    a_snapshot,
    a_task,
    a_template,
    an_indexed_row,
    an_order,
)
from tests.unit.rooms import a_node, room
from tests.unit.submitting import SITE, Cluster


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (errors.SettingsError(("a",)), errors.DispatcherError),
        (errors.TemplateError(errors.TemplateFault((), "a")), errors.DispatcherError),
        (errors.DatabaseAway("a"), errors.DatabaseError),
        (errors.DatabaseNotPrimary("a"), errors.DatabaseError),
        (errors.DatabaseUnfit("a"), errors.DatabaseError),
        (errors.DatabaseError("a"), errors.DispatcherError),
        (errors.ClusterAway("a"), errors.ClusterError),
        (errors.ClusterStale("a"), errors.ClusterError),
        (errors.ClusterRefused("list", 410, "Expired", "a"), errors.ClusterError),
        (errors.ClusterError("a"), errors.DispatcherError),
    ],
)
def test_each_fault_has_its_base_class(fault: Exception, kind: type[Exception]) -> None:
    assert isinstance(fault, kind)


def test_a_refusal_carries_the_servers_message_cut_short() -> None:
    fault = errors.ClusterRefused("list jobs", 403, "Forbidden", "no " * 500)
    assert (fault.status, fault.reason) == (403, "Forbidden")
    assert str(fault).startswith("list jobs: 403 Forbidden: no no")
    assert len(str(fault)) < 340


def test_each_database_fault_has_its_code() -> None:
    codes = [errors.DatabaseAway.code, errors.DatabaseNotPrimary.code, errors.DatabaseUnfit.code]
    assert codes == ["DbAway", "DbNotPrimary", "DbUnfit"]


SECRET = "planted-secret-7f3a"
BROKEN: Any = {SECRET: None}
"""Of no type that any code expects. A fault that quotes it would tell a row's value."""


def is_own_fault(verdict: object) -> bool:
    if not isinstance(verdict, Hold) or verdict.reason is not HoldReason.DISPATCHER_NOT_READY:
        return False
    return verdict.detail.startswith(f"{NotReady.OWN_FAULT}: ") and ".py:" in verdict.detail


@pytest.mark.parametrize("column", ["created_at", "attempt", "status", "launch"])
def test_row_that_cannot_be_judged_is_held_alone(column: str) -> None:
    picture, good = a_picture([a_job(), a_job(task_id=7)]), a_task(id=7)
    broken = msgspec.structs.replace(a_task(), **{column: BROKEN})
    found = picture.judge_row(broken)
    assert is_own_fault(found.verdict)
    assert SECRET not in str(found)
    carried = picture.carry([(broken, found), (good, picture.judge_row(good))])
    assert carried.resting.keys() == {7}


def test_kind_that_cannot_be_judged_is_held_alone() -> None:
    catalog = Catalog(JobSettings(image="app:1"), frozenset(), NOT_PLACED)
    catalog.refresh()
    assert is_own_fault(catalog.offer(a_kind(digest=b"other", timeout_seconds=BROKEN)))
    assert is_own_fault(catalog.known_offer(b"other")), "it is judged once"
    assert isinstance(catalog.offer(a_kind()), Offer)


def test_candidate_that_cannot_be_judged_is_held_alone() -> None:
    def candidate(number: int, **offer: Any) -> Candidate:
        return Candidate(a_task(id=number), Offer("app:1", "small", "default", **offer), JobsVerdict(FIRST_LAUNCH))

    plan = plan_cycle(a_snapshot(room=room([a_node()])), [candidate(1, needs=BROKEN), candidate(2)])
    assert [one.task.id for one in plan.launches] == [2]
    assert is_own_fault(plan.holds[1])
    assert SECRET not in plan.holds[1].detail


def test_candidate_that_cannot_be_counted_is_not_launched() -> None:
    """A launch that the caps do not count would break them."""
    broken = Candidate(a_task(id=1, submitted_by=BROKEN), Offer("app:1", "small", "default"), JobsVerdict(FIRST_LAUNCH))
    plan = plan_cycle(a_snapshot(), [broken])
    assert plan.launches == ()
    assert is_own_fault(plan.holds[1])


async def test_job_that_cannot_be_built_is_the_fault_of_its_launch() -> None:
    cluster, memory = Cluster(), Memory()
    submitter = Submitter(cluster, SITE, memory, lambda: None)
    orders = [an_order(task=a_task(id=1), env=BROKEN), an_order(task=a_task(id=2))]
    await submitter.submit(orders, {"default": a_template()})
    await submitter.drain()
    await submitter.submit([], {})  # a bug would be raised here
    assert [name.split("-")[1] for name in cluster.created] == ["2"]
    held = memory.known(0).refused.hold(an_indexed_row(1), 0)
    assert held is not None
    assert held.detail.startswith(f"{NotReady.OWN_FAULT}: ")
    assert SECRET not in held.detail


def test_own_fault_is_told_to_the_operator() -> None:
    advice = advice_of(Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.OWN_FAULT}: KeyError in f, a.py:1"))
    assert advice.whose_turn is Turn.OPERATOR
    assert "report the type and the place" in advice.next_step


def test_template_that_cannot_be_judged_is_faulty_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(name: str, text: str) -> Template:
        if name == "odd":
            raise RuntimeError(SECRET)
        return parse_template(name, text)

    monkeypatch.setattr(here, "parse_template", judge)
    for name in ("odd", "good"):
        (tmp_path / f"{name}.yaml").write_text(msgspec.yaml.encode(a_manifest()).decode())
    catalog = Catalog(JobSettings(templates_dir=str(tmp_path)), frozenset(), NOT_PLACED)
    assert catalog.refresh()
    assert isinstance(catalog.templates["good"], Template)
    told = catalog.templates["odd"]
    assert isinstance(told, str)
    assert told.startswith(f"template odd: {NotReady.OWN_FAULT}: RuntimeError in judge, ")
    assert SECRET not in told
