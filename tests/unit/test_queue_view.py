"""The page of a queue: what holds for it, what it inherits, and what a wrong name is told."""

from typing import Any

from msgspec.structs import replace

from dispatcher.model.history import DeclaredQueue
from dispatcher.views.queue import QueueSettings, effective_settings, no_queue
from tests.rig.builders import NOW, ago, later

PLAIN = DeclaredQueue("default", 1, None, None, None, None, None, None, None, False, None)
CAPS = ("max_jobs", "max_jobs_per_submitter", "max_pending", "max_waiting_per_submitter")


def settings(own: dict[str, Any], **defaults: Any) -> QueueSettings:
    return effective_settings(replace(PLAIN, **own), replace(PLAIN, name="*", **defaults), 1, NOW)


def test_without_any_setting_nothing_is_inherited() -> None:
    found = settings({})
    assert (found.max_jobs, found.submit_role, found.paused_until, found.inherited) == (None, None, None, [])
    assert found.max_pending == 1, "the setting of the dispatcher"


def test_caps_that_are_null_are_those_of_the_defaults() -> None:
    found = settings({"max_jobs": 3}, **dict.fromkeys(CAPS, 7))
    assert [getattr(found, name) for name in CAPS] == [3, 7, 7, 7]
    assert found.inherited == sorted(CAPS[1:])


def test_a_cap_of_nothing_is_a_cap() -> None:
    assert settings({"max_jobs": 0}, max_jobs=7).max_jobs == 0


def test_weight_note_owner_and_fairness_are_never_inherited() -> None:
    found = settings({}, weight=5, note="defaults", owner_role="ops", fair_submitters=True)
    assert (found.weight, found.note, found.owner_role, found.fair_submitters) == (1, None, None, False)
    assert found.inherited == []


def test_submit_role_is_the_queues_own_then_its_owner_then_the_default() -> None:
    assert settings({"submit_role": "a", "owner_role": "b"}, submit_role="c").submit_role == "a"
    owned = settings({"owner_role": "b"}, submit_role="c")
    assert (owned.submit_role, owned.inherited) == ("b", [])
    plain = settings({}, submit_role="c")
    assert (plain.submit_role, plain.inherited) == ("c", ["submit_role"])


def test_the_longer_pause_holds() -> None:
    assert settings({"paused_until": later(60)}, paused_until=later(30)).inherited == []
    found = settings({"paused_until": later(30)}, paused_until=later(60))
    assert (found.paused_until, found.inherited) == (later(60), ["paused_until"])


def test_a_pause_that_is_over_is_none() -> None:
    assert settings({"paused_until": ago(1)}, paused_until=NOW).paused_until is None


def test_unknown_queue_is_told_the_nearest_name_and_what_to_do() -> None:
    known = ["default", "nightly", "builds"]
    assert no_queue("nigtly", known) == (
        "there is no queue 'nigtly' in dispatch.queues: the nearest name is 'nightly'; "
        "/api/v1/queues lists all, and an operator declares a queue by an INSERT"
    )
    assert "nearest" not in no_queue("zzzzzz", known)
    assert len(no_queue("x" * 9000, known)) < 250


def test_nearest_name_is_found_among_a_thousand_that_are_alike() -> None:
    known = [f"team-{number}-{'abcdefgh-' * 6}z" for number in range(1000)]
    for wrong in (known[500][1:], known[500][:-1], known[500].replace("-a", "-xa", 1)):
        assert f"the nearest name is {known[500]!r}" in no_queue(wrong, known)


def test_queue_of_the_defaults_says_that_it_has_no_rows() -> None:
    assert "holds the defaults" in no_queue("*", ["default"])
