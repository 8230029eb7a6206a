"""The history checker: a real run passes, and each forbidden change of its records is found."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypeVar

import msgspec
import pytest
import pytest_asyncio

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults.history import creates_fall, made_twice, most_at_once, violations
from tests.faults.history_reading import read_history, watched
from tests.faults.history_records import Bounds, History, Life, Row, Start, Window, Write
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import PostgresServer

T = TypeVar("T", History, Write, Life, Start, Row)
Tamper: TypeAlias = Callable[[History], History]
CAP = 3
ROWS = 8
NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)
LATER = timedelta(hours=1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def recorded(
    control_plane: ControlPlane, nodes: list[str], postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[History]:
    """A run of eight rows. Row 1 was retried by its submitter, row 8 is due next year, odd rows have max_failures 1."""
    namespace, database = await control_plane.create_namespace(), await postgres.create_database()
    place = Place(control_plane, namespace, database, tmp_path_factory.mktemp("recorded"))
    await place.prepare()
    for number in range(1, ROWS + 1):
        due = datetime.now(UTC) + timedelta(days=365) if number == ROWS else None
        await database.insert_task(max_failures=2 - number % 2, run_at=due)
    dispatcher = Dispatcher(place, MAX_JOBS=CAP, TOMBSTONE_SECONDS=0)
    async with watched(control_plane, namespace) as sights, place.playing() as player, dispatcher:

        async def are_over() -> bool:
            return len(await place.rows("status = 'succeeded'")) == ROWS - 1 and not await place.jobs()

        await wait_for(are_over, "the rows that are due are over", 40, check=dispatcher.check)
        await (await database.session("team_a")).execute("SELECT dispatch.task_retry(1)")
        await wait_for(are_over, "and so is the retried one", 40, check=dispatcher.check)
    history = await read_history(control_plane, namespace, database, player, sights)
    assert all(life.ended for life in history.lives)
    assert 0 < most_at_once(history.lives) <= CAP
    yield history
    await database.drop()
    await control_plane.delete_namespace(namespace)


def bounds(**changes: Any) -> Bounds:
    least = {"rows": ROWS, "starts": ROWS, "creates": ROWS, "deletes": ROWS}
    known = Bounds(least, {"a fault": 1}, cap=CAP, reasons={ROWS: "due next year"}, retried={1})
    return msgspec.structs.replace(known, **changes)


def altered(one: T, **changes: Any) -> T:
    return msgspec.structs.replace(one, **changes)


@pytest.mark.slow
def test_a_real_run_passes(recorded: History) -> None:
    assert recorded.traffic() == {"rows": ROWS, "starts": ROWS, "creates": ROWS, "deletes": ROWS}
    assert len(recorded.accepted) == ROWS
    assert violations(recorded, bounds()) == []


def create_of(history: History, task: int, attempt: int = 1) -> Write:
    return next(write for write in history.writes if write.verb == "create" and write.key == (task, attempt, 1))


def start_of(history: History, task: int, attempt: int = 1) -> Start:
    return next(start for start in history.starts if start.key == (task, attempt, 1))


def with_write(history: History, write: Write) -> History:
    return altered(history, writes=[*history.writes, write])


def with_start(history: History, start: Start) -> History:
    return altered(history, starts=[*history.starts, start])


def instead(history: History, start: Start, **changes: Any) -> History:
    others = [other for other in history.starts if other != start]
    return altered(history, starts=[*others, altered(start, **changes)])


def with_row(history: History, task: int, **changes: Any) -> History:
    return altered(history, rows=[altered(row, **changes) if row.id == task else row for row in history.rows])


def deletes_without(history: History, what: str) -> History:
    """The history, with `what` removed from the options of our deletes of Jobs."""

    def careless(write: Write) -> Write:
        if write.verb != "delete" or not write.is_ours:
            return write
        only_if = {name: value for name, value in write.options["preconditions"].items() if name != what}  # type: ignore[attr-defined]  # JSON
        options = {**write.options, "preconditions": only_if}
        options.pop(what, None)
        return altered(write, options=options)

    return altered(history, writes=[careless(write) for write in history.writes])


def made_again_at_once(history: History) -> History:
    first = create_of(history, 2)
    return with_write(history, altered(first, answered_at=first.answered_at + timedelta(microseconds=1)))


def made_again_after_the_sweep(history: History) -> History:
    first = create_of(history, 2)
    return with_write(history, altered(first, answered_at=first.answered_at + LATER))


def another_name(history: History) -> History:
    return with_write(history, altered(create_of(history, 2), name="another"))


def another_launch(history: History) -> History:
    return with_write(history, altered(create_of(history, 2), key=(3, 1, 7)))


def an_older_number(history: History) -> History:
    newest = create_of(history, 1, attempt=2)
    return with_write(history, altered(newest, name="older", key=(1, 1, 2), answered_at=newest.answered_at + LATER))


def a_second_job(history: History) -> History:
    life = history.lives[0]
    assert life.ended is not None
    second = Life((life.key[0], 1, 2), "second", (life.began + life.ended) / 2, life.ended + 1)
    return altered(history, lives=[*history.lives, second])


def all_at_once(history: History) -> History:
    return altered(history, lives=[altered(life, began=0.0) for life in history.lives])


def a_second_pod(history: History) -> History:
    return altered(history, accepted=[*history.accepted, altered(history.accepted[0], pod="second", token="t")])


def one_token_for_two(history: History) -> History:
    return instead(history, start_of(history, 2), token=start_of(history, 4).token)


def a_token_that_lives_on(history: History) -> History:
    return instead(history, start_of(history, 1), ended_at=None)


def a_row_with_another_token(history: History) -> History:
    return with_row(history, 2, token="unknown")


def an_old_launch_that_starts_late(history: History) -> History:
    newest = start_of(history, 1, attempt=2)
    return instead(history, start_of(history, 1), started_at=newest.started_at + LATER)


def a_row_that_fell_back(history: History) -> History:
    return with_row(history, 1, attempt=1)


def a_second_run_of_what_runs_once(history: History) -> History:
    start = start_of(history, 3)
    again = {"started_at": start.started_at + LATER, "ended_at": start.started_at + LATER}
    return with_row(with_start(history, altered(start, key=(3, 1, 2), token="t", **again)), 3, launch=2)


def a_second_run_of_an_attempt(history: History) -> History:
    """A retried row may start again, but only once per attempt."""
    start = start_of(history, 1, attempt=2)
    again = {"started_at": start.started_at + LATER, "ended_at": start.started_at + LATER}
    return with_row(with_start(history, altered(start, key=(1, 2, 2), token="t", **again)), 1, launch=2)


def a_forgotten_row(history: History) -> History:
    return with_row(history, 5, status="waiting")


def deleted_by_selector(history: History) -> History:
    sweep = next(write for write in history.writes if write.verb == "delete" and write.is_ours)
    return with_write(history, altered(sweep, verb="deletecollection", options={"propagationPolicy": "Foreground"}))


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (made_again_at_once, "I2: dispatcher-2-"),
        (made_again_after_the_sweep, "again after our own delete"),
        (another_name, "I2: launch (2, 1, 1) has several names"),
        (another_launch, "names several launches"),
        (an_older_number, "numbers fall: create jobs older"),
        (a_second_job, "I1: second made while"),
        (all_at_once, "I5: 8 unfinished Jobs at once; the cap is 3"),
        (a_second_pod, "S4: launch"),
        (one_token_for_two, "S4: a token of several launches: [(2, 1, 1), (4, 1, 1)]"),
        (a_token_that_lives_on, "S1: (1, 1, 1) still held its token when (1, 2, 1) started"),
        (a_row_with_another_token, "S1: row 2 (succeeded) holds unknown"),
        (an_old_launch_that_starts_late, "numbers fall: (1, 1, 1) started after (1, 2, 1)"),
        (a_row_that_fell_back, "numbers fall: row 1 stands at (1, 1)"),
        (a_second_run_of_what_runs_once, "S11: started twice: [(3, 1, 1), (3, 1, 2)]"),
        (a_second_run_of_an_attempt, "S11: started twice: [(1, 2, 1), (1, 2, 2)]"),
        (lambda history: deletes_without(history, "uid"), "without uid"),
        (lambda history: deletes_without(history, "resourceVersion"), "without resourceVersion"),
        (lambda history: deletes_without(history, "propagationPolicy"), "without propagationPolicy"),
        (deleted_by_selector, "careless: deletecollection"),
        (a_forgotten_row, "forgotten: row 5 is waiting at (1, 1)"),
        (lambda history: altered(history, rows=history.rows[:-1]), "vacuous: 7 rows, at least 8"),
        (lambda history: altered(history, starts=history.starts[:-1]), "vacuous: 7 starts, at least 8"),
        (lambda history: altered(history, writes=[]), "vacuous: 0 creates, at least 8"),
    ],
)
def test_each_forbidden_change_of_a_history_is_found(recorded: History, tamper: Tamper, words: str) -> None:
    found = violations(tamper(recorded), bounds())
    assert any(words in one for one in found), found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"faults": {"a fault": 0}}, "vacuous: the fault 'a fault' never happened"),
        ({"least": {}}, "vacuous: no least traffic is asked for"),
        ({"cap": 0}, "I5: "),
        ({"reasons": {}}, "forgotten: row 8 is waiting"),
        ({"retried": ()}, "S11: started twice: [(1, 1, 1), (1, 2, 1)]"),
        ({"quiet": [Window("the database is away", datetime.min.replace(tzinfo=UTC), NOW + 999 * LATER * 24)]}, "I6: "),
    ],
)
def test_each_bound_of_a_test_is_enforced(recorded: History, changes: dict[str, Any], words: str) -> None:
    assert any(one.startswith(words) for one in violations(recorded, bounds(**changes)))


def test_allowed_number_of_late_posts_is_no_violation(recorded: History) -> None:
    for tamper in (made_again_after_the_sweep, a_second_job):
        assert violations(tamper(recorded), bounds()) != []
        assert violations(tamper(recorded), bounds(late_posts=1, over_cap=1)) == []
    twice = made_again_at_once(recorded)
    assert violations(twice, bounds(late_posts=9, over_cap=9)) != [], (
        "no late POST makes two objects of one name at once"
    )
    assert creates_fall(an_older_number(recorded).writes, late_posts=1) == []


def test_job_deleted_by_somebody_else_may_be_created_again(recorded: History) -> None:
    foreign = [altered(write, is_ours=False) for write in recorded.writes if write.verb == "delete"]
    again = made_again_after_the_sweep(recorded).writes
    assert made_twice([write for write in again if write.verb == "create"] + foreign) == []


def test_quiet_window_covers_only_our_writes_within_it(recorded: History) -> None:
    first = min(write.received_at for write in recorded.writes)
    last = max(write.received_at for write in recorded.writes)
    before = Window("before", first - LATER, first - timedelta(microseconds=1))
    after = Window("after", last + timedelta(microseconds=1), last + LATER)
    assert violations(recorded, bounds(quiet=[before, after])) == []
    assert {write.is_ours for write in recorded.writes} == {True, False}
