"""Jobs, lists and failures in JSON, and the facts that are read from them."""

import json
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.manifest import build_job
from dispatcher.kube.objects import encode, read_job, read_phase, read_status
from dispatcher.kube.wire import Event, ListPage, Meta, full_name
from dispatcher.model.jobs import Job, LaunchCache, Phase
from dispatcher.model.launches import Launch, is_same
from tests.rig.builders import DATABASE_ID, IMAGE, SITE, a_task, a_template, an_order
from tests.unit.wire import AT, DOMAIN, THEN, a_condition, a_wire_job, written


def job_of(wire: dict[str, Any]) -> Job:
    job = read_job(written(wire))
    assert job is not None
    return job


# Jobs


def test_a_job_that_we_sent_is_read_back_with_all_its_facts() -> None:
    job, order = job_of(a_wire_job()), an_order(task=a_task(attempt=2), launch=Launch(3))
    assert (job.name, job.uid, job.resource_version) == (
        build_job(order, a_template(), SITE)["metadata"]["name"],
        "u-1",
        "771",
    )
    assert (job.task_id, job.attempt, job.launch) == (42, 2, 3)
    assert (job.queue, job.template, job.image, job.submitted_by) == ("default", "default", IMAGE, "team_a")
    assert (job.database_id, len(job.identity)) == (DATABASE_ID, 64)
    assert (job.unstarted, job.disrupted, job.report) == (1, 1, "sql")
    assert (job.created_at, job.ended_at, job.phase, job.reason) == (THEN, None, Phase.ACTIVE, "")
    assert (job.deleting, job.suspended, job.container) == (False, False, "task")


def test_job_says_where_its_cache_was_if_it_has_one() -> None:
    assert job_of(a_wire_job()).cache is None
    wire = a_wire_job()
    notes = wire["spec"]["template"]["metadata"]["annotations"]
    notes[f"{DOMAIN}/cache-key"] = "maps"
    assert job_of(wire).cache == LaunchCache()
    notes |= {f"{DOMAIN}/history-nodes": '["b","a"]', f"{DOMAIN}/cold-nodes": '["b"]'}
    assert job_of(wire).cache == LaunchCache(("b", "a"), ("b",))
    notes |= {f"{DOMAIN}/history-nodes": "[5]", f"{DOMAIN}/cold-nodes": "{"}
    assert job_of(wire).cache == LaunchCache(), "somebody else wrote them"


@pytest.mark.parametrize("label", ["task-id", "attempt", "launch"])
@pytest.mark.parametrize("value", [None, "", "x", "1.5", "9" * 60 + "x"])
def test_a_job_without_our_numbers_is_not_ours(label: str, value: str | None) -> None:
    wire = a_wire_job()
    wire["metadata"]["name"] = "named-by-somebody"
    labels = wire["metadata"]["labels"]
    del labels[f"{DOMAIN}/{label}"]
    if value is not None:
        labels[f"{DOMAIN}/{label}"] = value
    assert read_job(written(wire)) is None


@pytest.mark.parametrize("number", ["0", str(2**63)])
def test_a_job_with_an_impossible_row_id_is_not_ours(number: str) -> None:
    wire = a_wire_job()
    wire["metadata"]["name"] = f"dispatcher-{number}-0123abcd-1"
    wire["metadata"]["labels"][f"{DOMAIN}/task-id"] = number
    assert read_job(written(wire)) is None


@pytest.mark.parametrize("number", [1, 2**63 - 1])
def test_a_job_with_any_possible_row_id_is_ours(number: int) -> None:
    wire = a_wire_job()
    wire["metadata"]["name"] = f"dispatcher-{number}-0123abcd-7r12"
    job = job_of(wire)
    assert (job.task_id, job.attempt, job.launch) == (number, 7, 12)


@pytest.mark.parametrize(
    ("label", "value"),
    [("app.kubernetes.io/managed-by", "argocd"), (f"{DOMAIN}/installation", "other"), (f"{DOMAIN}/launch", "9"),
     (f"{DOMAIN}/task-id", None)],
)  # fmt: skip
def test_a_job_whose_labels_were_changed_is_known_by_its_name(label: str, value: str | None) -> None:
    wire = a_wire_job()
    before = job_of(wire)
    assert before.lacks == ""
    wire["metadata"]["labels"] |= {label: value}
    if value is None:
        del wire["metadata"]["labels"][label]
    assert msgspec.structs.replace(job_of(wire), lacks="") == before
    assert job_of(wire).lacks == f"{label} is {'gone' if value is None else repr(value)}"


@pytest.mark.parametrize(("letters", "is_told"), [(100, False), (6000, False), (8300, True), (200_000, True)])
def test_size_is_that_of_much_text_alone(letters: int, is_told: bool) -> None:
    """A list leaves out apiVersion and kind, and a Job must be the same there as in a watch."""
    wire = a_wire_job()
    wire["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * letters]
    listed = {key: value for key, value in wire.items() if key not in {"apiVersion", "kind"}}
    assert job_of(listed) == job_of(wire)
    assert (job_of(wire).size > letters) is is_told


def test_copy_of_a_job_under_another_name_is_nobodys() -> None:
    """`kubectl get job -o yaml`, a new name, `kubectl create`: it has all labels and annotations of a launch."""
    wire = a_wire_job()
    wire["metadata"]["name"] = "named-by-somebody"
    assert read_job(written(wire)) is None


@pytest.mark.parametrize(
    ("note", "times"),
    [
        (AT, (THEN,)), (f"{AT},{AT}", (THEN, THEN)), (None, ()), ("", ()), ("yesterday", ()), (f"{AT},", ()),
        (f"{AT},2026-01-01T00:00:00", ()),
    ],
)  # fmt: skip
def test_times_of_disruptions_are_read_if_they_are_ours(note: str | None, times: object) -> None:
    wire = a_wire_job()
    wire["metadata"]["annotations"] |= {f"{DOMAIN}/disrupted-at": note} if note is not None else {}
    assert job_of(wire).disrupted_at == times


@pytest.mark.fault(51)
def test_a_job_without_our_identity_is_not_ours_despite_its_labels() -> None:
    wire = a_wire_job()
    wire["metadata"]["name"] = "named-by-somebody"
    del wire["metadata"]["annotations"][f"{DOMAIN}/identity"]
    assert read_job(written(wire)) is None
    squatting = a_wire_job()
    squatting["metadata"] |= {"annotations": {}, "labels": {}}
    assert read_job(written(squatting)) is None


@pytest.mark.parametrize("notes", [{}, None])
def test_a_job_whose_annotations_somebody_removed_is_known_by_its_name(notes: dict[str, str] | None) -> None:
    wire = a_wire_job()
    before = job_of(wire)
    wire["metadata"]["annotations"] = notes
    job = job_of(wire)
    assert (job.task_id, job.attempt, job.launch) == (before.task_id, before.attempt, before.launch)
    assert is_same(job.identity, before.identity)
    assert not is_same(job.identity, "0" * 64)
    assert job.lacks == f"{DOMAIN}/identity is gone"


def test_a_job_whose_identity_somebody_changed_is_known_by_its_name() -> None:
    wire = a_wire_job()
    before = job_of(wire)
    wire["metadata"]["annotations"][f"{DOMAIN}/identity"] = "x"
    job = job_of(wire)
    assert is_same(job.identity, before.identity)
    assert job.lacks == f"{DOMAIN}/identity is another"


def test_a_foreign_object_is_not_ours() -> None:
    assert read_job(b"{}") is None
    assert (
        read_job(written({"metadata": {"name": "theirs"}, "spec": {"template": {"spec": {"containers": []}}}})) is None
    )


@pytest.mark.parametrize("value", ["", "-1", "x", "1.0", "²", "٣٣x", "9" * 5000])
def test_an_unreadable_count_is_zero(value: str) -> None:
    wire = a_wire_job()
    wire["metadata"]["annotations"] |= {f"{DOMAIN}/unstarted": value, f"{DOMAIN}/disrupted": value}
    job = job_of(wire)
    assert (job.unstarted, job.disrupted) == (0, 0)


@pytest.mark.parametrize(
    ("written", "codes"), [("2,64-66", {2, 64, 65, 66}), (None, set()), ("x", set()), ("0", set()), ("1-999", set())]
)
def test_final_codes_that_somebody_has_spoilt_end_no_row(written: str | None, codes: set[int]) -> None:
    wire = a_wire_job()
    if written is not None:
        wire["metadata"]["annotations"][f"{DOMAIN}/final-codes"] = written
    assert job_of(wire).final_codes == codes


def test_fields_that_an_older_version_did_not_write_have_defaults() -> None:
    wire = a_wire_job()
    for name in ("unstarted", "disrupted", "report", "submitted-by"):
        del wire["metadata"]["annotations"][f"{DOMAIN}/{name}"]
    for name in ("queue", "template"):
        del wire["metadata"]["labels"][f"{DOMAIN}/{name}"]
    job = job_of(wire)
    assert (job.unstarted, job.disrupted, job.report, job.submitted_by, job.queue, job.template) == (
        0,
        0,
        "sql",
        "",
        "",
        "",
    )


@pytest.mark.fault(50)
@pytest.mark.parametrize(
    ("conditions", "phase", "reason"),
    [
        ([], Phase.ACTIVE, ""),
        ([a_condition("Suspended")], Phase.ACTIVE, ""),
        ([a_condition("SuccessCriteriaMet")], Phase.ACTIVE, ""),
        ([a_condition("Complete", "False"), a_condition("Failed", "Unknown")], Phase.ACTIVE, ""),
        ([a_condition("FailureTarget", reason="PodFailurePolicy")], Phase.FAILING, "PodFailurePolicy"),
        ([a_condition("FailureTarget"), a_condition("Failed", reason="X")], Phase.FAILED, "X"),
        ([a_condition("Failed", reason="DeadlineExceeded")], Phase.FAILED, "DeadlineExceeded"),
        ([a_condition("SuccessCriteriaMet"), a_condition("Complete", reason="CompletionsReached")], Phase.COMPLETE,
         "CompletionsReached"),
    ],
)  # fmt: skip
def test_conditions_give_the_phase_and_counts_are_never_used(
    conditions: list[dict[str, str]], phase: Phase, reason: str
) -> None:
    job = job_of(a_wire_job(status__succeeded=1, status__failed=1, status__conditions=conditions))
    assert (job.phase, job.reason) == (phase, reason)
    assert job.ended_at == (None if phase is Phase.ACTIVE else THEN)


def test_a_job_without_conditions_is_active() -> None:
    assert read_phase([])[0] is Phase.ACTIVE


def test_a_deleted_or_suspended_job_is_read_as_such() -> None:
    assert job_of(a_wire_job(metadata__deletionTimestamp=AT)).deleting_since == THEN
    assert job_of(a_wire_job(spec__suspend=True)).suspended
    assert not job_of(a_wire_job(spec__suspend=None)).suspended
    assert job_of(a_wire_job(spec__parallelism=0)).suspended
    assert not job_of(a_wire_job(spec__parallelism=1)).suspended


@pytest.mark.parametrize(
    ("containers", "image"),
    [
        ([{"name": "side", "image": "s"}, {"name": "task", "image": "t"}], "t"),
        ([{"name": "main", "image": "m"}, {"name": "side", "image": "s"}], "m"),
        ([{"name": "task"}], ""),
        ([], ""),
    ],
)
def test_the_image_is_the_one_that_was_asked_for(containers: list[dict[str, str]], image: str) -> None:
    job = a_wire_job(spec__template={"spec": {"containers": containers}})
    assert job_of(job).image == IMAGE
    del job["metadata"]["annotations"][f"{DOMAIN}/image"]  # of an older version
    assert job_of(job).image == image


# Lists, events, failures


@pytest.mark.parametrize(
    "body", [b"{}", b'{"items": []}', b'{"metadata": {}}', b'{"metadata": {"resourceVersion": ""}}']
)
def test_a_list_without_its_version_is_a_fault(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=ListPage)


def test_a_page_has_its_version_and_its_continue_token() -> None:
    page = msgspec.json.decode(
        b'{"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [{}]}', type=ListPage
    )
    assert (page.metadata.resource_version, page.metadata.continue_, len(page.items)) == ("7", "next", 1)


def test_an_event_keeps_its_object_raw() -> None:
    event = msgspec.json.decode(b'{"type": "ADDED", "object": {"kind":"Job"}}', type=Event)
    assert (event.type, bytes(event.object)) == ("ADDED", b'{"kind":"Job"}')


def test_a_failure_has_its_reason_and_its_retry_time() -> None:
    body = {"kind": "Status", "reason": "TooManyRequests", "message": "slow down", "code": 429,
            "details": {"retryAfterSeconds": 3, "causes": [{"reason": "R", "message": "m"}]}}  # fmt: skip
    status = read_status(written(body))
    assert (status.reason, status.message, status.code) == ("TooManyRequests", "slow down", 429)
    assert status.details is not None
    assert (status.details.retry_after_seconds, status.details.causes[0].reason) == (3, "R")
    assert read_status(b'{"message": "x", "details": null}').details is None


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"Bad Gateway", "Bad Gateway"), (b"", ""), (b"[]", "[]"), (b'{"code": "x"}', '{"code": "x"}'),
     (b"<html>\xff", "<html>�"), (b"x" * 5000, "x" * 300)],
)  # fmt: skip
def test_an_answer_without_a_status_becomes_the_message(body: bytes, message: str) -> None:
    status = read_status(body)
    assert (status.message, status.reason, status.code) == (message, "", 0)


def test_a_manifest_is_sent_as_json() -> None:
    assert json.loads(encode({"kind": "Job", "metadata": {"name": "ä"}})) == {"kind": "Job", "metadata": {"name": "ä"}}


def test_a_full_name_has_namespace_and_name() -> None:
    assert full_name(Meta(name="a", namespace="team")) == "team/a"
