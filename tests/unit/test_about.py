"""The page about the installation: how old its stores are, where its settings are from, and nothing secret."""

from pathlib import Path

import msgspec
import pytest

from dispatcher.model.snapshot import StoreAge
from dispatcher.settings.loading import load
from dispatcher.views.about import DOCS, AboutPage, AboutSources, Election, ReplicaCondition, about_page, stale_after
from dispatcher.views.status import InstallationIdentity
from tests.rig.builders import NOW

ROOT = Path(__file__).parents[2]
NEVER = float("inf")
PASSWORD = "planted-secret-30be"


WELL = ReplicaCondition({}, "", ())


def a_page(condition: ReplicaCondition = WELL, **environ: str) -> AboutPage:
    settings = load(
        {f"DISPATCHER_{name}": value for name, value in environ.items()}, lambda path: f"read {path}"
    ).sources
    named = InstallationIdentity("builds", "1.2.3", "jobs", "me")
    election = Election("ours", "builds-leader", "somebody", leads=False)
    return about_page(AboutSources(named, settings, lambda: election, lambda: condition), NOW)


def test_replica_and_leader_are_told() -> None:
    page = a_page()
    assert (page.installation, page.version, page.jobs_namespace, page.replica) == ("builds", "1.2.3", "jobs", "me")
    assert (page.own_namespace, page.lease, page.leader, page.leads) == ("ours", "builds-leader", "somebody", False)


def test_settings_are_told_with_their_origin_and_without_secrets() -> None:
    by_name = {one.name: one for one in a_page(DATABASE_URL=f"postgresql://a:{PASSWORD}@db/x", MAX_JOBS="7").settings}
    assert (by_name["DISPATCHER_MAX_JOBS"].value, by_name["DISPATCHER_MAX_JOBS"].origin) == ("7", "environment")
    assert (by_name["DISPATCHER_POLL_SECONDS"].value, by_name["DISPATCHER_POLL_SECONDS"].origin) == ("2", "default")
    assert by_name["DISPATCHER_DATABASE_URL"].value == "(hidden)"
    assert PASSWORD not in str(by_name)
    (url,) = [one for one in a_page(DATABASE_URL_FILE="/run/url").settings if one.name == "DISPATCHER_DATABASE_URL"]
    assert (url.value, url.origin) == ("(hidden)", "file /run/url")


@pytest.mark.parametrize(
    ("one", "age", "most", "is_stale"),
    [
        (StoreAge("jobs", 9.12345, 100), 9.123, 100, False),
        (StoreAge("jobs", 100.5, 100), 100.5, 100, True),
        (StoreAge("jobs", 1, 100, "not listed yet"), 1, 100, True),
        (StoreAge("jobs", NEVER, 100), None, 100, True),
        (StoreAge("counts", NEVER, NEVER), None, None, False),
        (StoreAge("counts", 5000, NEVER), 5000, None, False),
        (StoreAge("jobs", -0.1, 100), 0, 100, False),
    ],
)
def test_store_is_stale_by_its_age_or_its_fault(
    one: StoreAge, age: float | None, most: float | None, is_stale: bool
) -> None:
    page = a_page(ReplicaCondition({}, "", [one]))
    (found,) = page.stores
    assert (found.age_seconds, found.stale_after_seconds, found.is_stale, found.fault) == (
        age,
        most,
        is_stale,
        one.fault,
    )
    assert b"Infinity" not in msgspec.json.encode(page)


def test_replica_is_ready_if_no_check_names_a_fault() -> None:
    assert a_page(ReplicaCondition({"database": "", "leader": ""}, "", ())).is_ready
    page = a_page(ReplicaCondition({"database": "gone", "leader": ""}, "a; b", ()))
    assert (page.is_ready, [one.fault for one in page.checks], page.missing_rights) == (False, ["gone", ""], ["a", "b"])


def test_store_that_is_read_often_is_not_stale_at_once() -> None:
    assert (stale_after(2), stale_after(100)) == (30, 300)


def test_pages_that_are_named_are_in_the_repository() -> None:
    assert [name for name in DOCS if not (ROOT / name).exists()] == []
