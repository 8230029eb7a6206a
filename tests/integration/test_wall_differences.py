"""Another team's rows change nothing of what a login sees: no answer, error, message, plan, counter or lock.

Each test makes the same statements in two databases that differ in the rows of team A alone, and compares everything
that reaches the client. `wall_allowed.ALLOWED` lists what may differ. HYPOTHESIS_PROFILE=nightly tries all shapes with
all columns, and every setting of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio

from tests.integration.wall_allowed import ALLOWED
from tests.integration.wall_calls import calls, guesses, inserts, reading
from tests.integration.wall_catalog import CATALOG, TOTALS
from tests.integration.wall_pairs import faults, seated, told
from tests.integration.wall_seats import Parts, Statement
from tests.integration.wall_settings import LOUD, alternatives, chosen, is_slow, needed
from tests.integration.wall_shapes import columns, constants, over_views
from tests.integration.wall_worlds import ONE, OTHER_SIZE, PLAIN, SAME_SIZE, copies
from tests.property.profiles import IS_NIGHTLY
from tests.rig.postgres import Database, PostgresServer

LOGINS = ("team_b", "task", PLAIN)


@dataclass(frozen=True)
class Two:
    """Two databases. is_sized: their tables and indexes have the same pages."""

    left: Database
    right: Database
    is_sized: bool

    @property
    def both(self) -> tuple[Database, Database]:
        return self.left, self.right


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def worlds(postgres: PostgresServer) -> AsyncIterator[dict[str, Two]]:
    """`read` is never written to: what is written splits pages of indexes at odd moments."""
    async with copies(postgres, ONE, SAME_SIZE, ONE, SAME_SIZE, ONE, OTHER_SIZE) as made:
        yield {
            "read": Two(made[0], made[1], True),
            "written": Two(made[2], made[3], False),
            "other sizes": Two(made[4], made[5], False),
        }


@pytest.fixture(params=["written", "other sizes"])
def two(request: pytest.FixtureRequest, worlds: dict[str, Two]) -> Two:
    found: Two = worlds[request.param]
    return found


@pytest.fixture(params=["read", "other sizes"])
def seen(request: pytest.FixtureRequest, worlds: dict[str, Two]) -> Two:
    found: Two = worlds[request.param]
    return found


async def views(two: Two, login: str = "team_b") -> list[Statement]:
    return list(over_views(await columns(two.left, login), await constants(*two.both), every=IS_NIGHTLY))


@pytest.mark.slow
@pytest.mark.parametrize("login", LOGINS)
async def test_views_tell_nothing_of_foreign_rows(seen: Two, login: str) -> None:
    statements = await views(seen, login) or (await views(seen))[::20]  # a login without a right asks, too
    with seated(seen.both, login, is_sized=seen.is_sized) as pair:
        assert faults(pair.differences(statements)) == []


async def test_catalog_tells_nothing_of_foreign_rows(seen: Two) -> None:
    with seated(seen.both, "team_b", is_sized=seen.is_sized) as pair:
        assert faults(pair.differences(CATALOG)) == []


@pytest.mark.slow
@pytest.mark.parametrize("login", LOGINS)
async def test_calls_tell_nothing_of_foreign_rows(two: Two, login: str) -> None:
    statements = await calls(two.left, login, await guesses(*two.both))
    with seated(two.both, login, is_sized=two.is_sized) as pair:
        assert faults(pair.differences(statements)) == []


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("login", ["team_b", "task"])
async def test_calls_that_read_touch_the_same_pages(worlds: dict[str, Two], login: str, isolation: str) -> None:
    two = worlds["read"]
    statements = reading(await calls(two.left, login, await guesses(*two.both)))
    with seated(two.both, login) as pair, pair.in_transaction(f"BEGIN ISOLATION LEVEL {isolation}"):
        assert faults(pair.differences(statements[:: 1 if IS_NIGHTLY else 3])) == []


@pytest.mark.slow
async def test_looks_read_no_pages_of_foreign_entries(worlds: dict[str, Two]) -> None:
    """A page of an index has a hundred entries or more, so few pages are read for few rows."""
    two, found = worlds["read"], []
    statements = [*await views(two), *reading(await calls(two.left, "team_b", await guesses(*two.both)))]
    with seated(two.both, "team_b") as pair:
        for one in statements[:: 1 if IS_NIGHTLY else 3]:
            if not one.tells:
                found += [f"{one.sql}: {index}" for index in crowded(pair.left.look(one), pair.left.counters)]
    assert found == []


def crowded(parts: Parts, counters: Sequence[str]) -> list[str]:
    """Indexes of `tasks` of which more pages were read than the entries that were found can take."""
    touched, found = parts["touched"], []
    assert isinstance(touched, dict)
    for name, numbers in touched.items():
        seen = {counter.rpartition("xact_")[2]: number for counter, number in zip(counters, numbers, strict=True)}
        if name.startswith("dispatch_private.tasks_") and seen["numscans"]:
            most = 4 * seen["numscans"] + seen["tuples_returned"] // 10
            found += [f"{name} {seen['blocks_fetched']} > {most}"] if seen["blocks_fetched"] > most else []
    return found


@pytest.mark.parametrize("login", LOGINS)
async def test_inserts_tell_nothing_of_foreign_rows(two: Two, login: str) -> None:
    statements = list(inserts(await guesses(*two.both)))
    with seated(two.both, login, is_sized=two.is_sized) as pair:
        assert faults(pair.differences(statements)) == []


@pytest.mark.slow
async def test_every_allowed_difference_is_there(worlds: dict[str, Two]) -> None:
    two = worlds["other sizes"]
    statements = [*await views(two), *inserts(await guesses(*two.both)), *TOTALS]
    with seated(two.both, "team_b", is_sized=False) as pair:
        found = pair.differences([one for one in statements if one.tells])
    assert faults(found) == []
    assert told(found) == set(ALLOWED)


@pytest.mark.slow
async def test_payload_tells_an_observer_nothing(postgres: PostgresServer) -> None:
    kinds = [replace(ONE, count=30, payload=word) for word in ("payload of one", "payload of two")]
    async with copies(postgres, *kinds) as made:
        statements = [
            *over_views(await columns(made[0], "observer"), await constants(*made), every=IS_NIGHTLY),
            *await calls(made[0], "observer", await guesses(*made)),
        ]
        with seated(made, "observer") as pair:
            assert faults(pair.differences(statements[:: 1 if IS_NIGHTLY else 3])) == []


async def few(two: Two, login: str) -> list[Statement]:
    given = await guesses(*two.both)
    looks = [*await views(two), *inserts(given)] if login == "team_b" else []
    return chosen([*looks, *await calls(two.left, login, given)])


@pytest.mark.slow
@pytest.mark.parametrize("login", ["team_b", "task"])
@pytest.mark.parametrize("which", ["other sizes", *(["written"] if IS_NIGHTLY else [])])
async def test_no_setting_makes_the_server_tell_of_foreign_rows(worlds: dict[str, Two], which: str, login: str) -> None:
    two = worlds[which]
    statements, found = await few(two, login), []
    with seated(two.both, login, is_sized=two.is_sized) as pair:
        settings = alternatives(pair.left, every=IS_NIGHTLY)
        for number, setting in enumerate(settings):
            name = setting.split(" = ")[0]
            for other, value in needed(setting).items():
                assert pair.set(f"SET {other} = {value}")
            if not pair.set(f"SET {setting}"):
                continue  # not in this combination, or not this value
            # Of one setting every second statement, of the next one the others: they are the same walls.
            its = statements if IS_NIGHTLY else statements[number % 2 :: 10 if is_slow(setting) else 2]
            found += [f"{setting}: {one}" for one in faults(pair.differences(its))]
            assert pair.set(f"RESET {name}")
    assert len(settings) > 40
    assert found == []


@pytest.mark.parametrize("login", ["team_b", "task"])
@pytest.mark.parametrize("which", ["other sizes", *(["written"] if IS_NIGHTLY else [])])
async def test_no_debug_message_tells_of_foreign_rows(worlds: dict[str, Two], which: str, login: str) -> None:
    two = worlds[which]
    with seated(two.both, login, is_sized=two.is_sized) as pair:
        assert all(pair.set(f"SET {setting}") for setting in LOUD)
        found = pair.differences(await few(two, login))
    assert faults(found) == []
