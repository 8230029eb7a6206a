"""The janitor: pauses, rows that the database refuses, ages of snapshots, and the table of templates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dispatcher.janitor.janitor import (
    AGAIN_SECONDS,
    SNAPSHOT_SECONDS,
    TOLD_AFTER_SECONDS,
    JanitorPace,
    Retention,
    Snapshots,
    most_held,
)
from dispatcher.janitor.rows import TRIED_AT_ONCE, RowReader, Trial, Trials
from dispatcher.janitor.tables import LOOK_SECONDS, WRITE_SECONDS, Offered, TemplateTableSync
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.offered import MOST_TOLD, differences, offered_templates, without_brackets
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.model.cluster import ClusterView
from dispatcher.model.errors import DatabaseAway, DatabaseUnfit
from dispatcher.model.jobs import ApiAnswer, Manifest
from dispatcher.model.tasks import Frame, Kind, OfferedTemplate, Request, Task
from dispatcher.pg.tasks import MOST_REFUSED, DeletionResult, pass_over
from dispatcher.placement.placing import PlacementPolicy
from dispatcher.runtime.metrics import OLDEST_SNAPSHOT
from dispatcher.settings.definition import JobSettings, PlacementSettings
from dispatcher.views.counting import COMPARE_SECONDS
from dispatcher.views.surfaces import TemplateComparison
from tests.rig.builders import (
    NOT_PLACED,
    NOW,
    SITE,
    a_job,
    a_kind,
    a_manifest,
    a_picture,
    a_queue,
    a_task,
    a_template,
    an_indexed_row,
    an_order,
)
from tests.rig.indexing import RowIndex


@pytest.mark.parametrize(("listing", "pause"), [(0.0, 10), (0.5, 10), (1.0, 20), (15.0, 300), (60.0, 300)])
def test_pause_grows_with_the_time_of_a_list_up_to_300_seconds(listing: float, pause: float) -> None:
    assert JanitorPace().pause_after(listing, 300) == pause


def test_one_slow_list_at_most_doubles_the_pause() -> None:
    pauses = [0.0]
    for listing in (0.1, 60, 60, 60, 0.1, 60):
        pauses.append(JanitorPace().pause_after(listing, pauses[-1]))
    assert pauses[1:] == [10, 20, 40, 80, 10, 20]


def test_rows_with_a_job_hide_no_row_whose_job_is_gone() -> None:
    """A large installation has more rows with Jobs than a round would read otherwise. They come in no order."""
    jobs = {f"job-{number}": a_job() for number in range(20_000)}
    assert most_held(ClusterView(NOW, jobs, {}, {})) > len(jobs)


class SilentApi:
    """Has no Job, and answers dry runs when a number of them has come."""

    def __init__(self, number: int) -> None:
        self._all_came = asyncio.Barrier(number)

    async def get(self, name: str) -> ApiAnswer:
        return ApiAnswer(404, "NotFound")

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        await self._all_came.wait()
        return ApiAnswer(504)


async def test_webhook_that_is_silent_for_one_team_makes_a_round_as_long_as_one_dry_run() -> None:
    """Ten of them, one after the other, held the ends of all rows for a hundred seconds in each round."""
    orders = [an_order(task=a_task(id=number)) for number in range(1, TRIED_AT_ONCE + 1)]
    trials = Trials(Trial(SilentApi(len(orders)), SITE), 600)
    await asyncio.wait_for(trials.ask(orders, {"default": a_template()}), 5)
    assert trials.confirmed(orders, 0) == {}


class WaitingRows(RowIndex):
    """A snapshot of waiting rows, whose template is gone."""

    frame = Frame([a_queue()], [], None)
    database_id = ""

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        return {row.id: a_task(id=row.id, attempt=row.attempt) for row in self.rows if row.id in ids}

    async def requests(self, ids: Sequence[int]) -> dict[int, Request]:
        return {}

    async def run_digests(self, ids: Sequence[int]) -> dict[int, bytes]:
        return {}

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return [a_kind(template="gone")] if ids else []


@pytest.mark.parametrize(("patience", "refused"), [(3600, {1}), (0, {1, 2})])
async def test_row_that_somebody_may_have_retried_is_refused_after_the_patience(
    patience: float, refused: set[int]
) -> None:
    """The row is old, and tells nothing of the retry: it failed in the next round."""
    rows: Any = WaitingRows([an_indexed_row(1), an_indexed_row(2, attempt=2)])
    catalog, placing = (
        Catalog(JobSettings(), frozenset(), NOT_PLACED),
        PlacementPolicy("dispatcher", PlacementSettings()),
    )
    reader = RowReader(catalog, Trials(Trial(SilentApi(1), SITE), 0), placing, timedelta(seconds=patience))
    assert (await reader.read(rows, a_picture(), are_steady=True)).refusals.keys() == refused


class Table:
    """Refuses each call with a bad entry, as a statement over a set does."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls, self.written = set(bad), 0, list[int]()

    async def write(self, some: Sequence[int]) -> int:
        self.calls += 1
        if self.bad & set(some):
            raise DatabaseUnfit("a trigger says no")
        self.written += some
        return len(some)


@pytest.mark.parametrize("bad", [(), (0,), (99,), (3, 4, 50)])
async def test_all_entries_but_the_bad_ones_are_written_once_and_in_order(bad: tuple[int, ...]) -> None:
    table = Table(*bad)
    changed, refused = await pass_over(table.write, range(100))
    assert table.written == [one for one in range(100) if one not in bad]
    assert (changed, tuple(refused)) == (100 - len(bad), bad)
    assert table.calls <= 1 + 14 * len(bad)


async def test_fault_of_all_entries_is_raised_after_few_calls() -> None:
    table = Table(*range(200))
    with pytest.raises(DatabaseUnfit):
        await pass_over(table.write, range(200))
    assert table.calls < 4 * MOST_REFUSED + 8


async def test_fault_of_the_only_entry_is_raised() -> None:
    """It may be about every entry: a right that is missing."""
    with pytest.raises(DatabaseUnfit):
        await pass_over(Table(1).write, [1])


async def test_round_without_a_write_is_one_call_and_its_fault_is_raised() -> None:
    assert await pass_over(Table().write, []) == (0, [])

    async def fails(_: Sequence[int]) -> int:
        raise DatabaseUnfit("no right")

    with pytest.raises(DatabaseUnfit):
        await pass_over(fails, [])


async def test_absent_database_is_no_refusal() -> None:
    async def away(_: Sequence[int]) -> int:
        raise DatabaseAway("no answer")

    with pytest.raises(DatabaseAway):
        await pass_over(away, [1, 2])


class Rows:
    """Rows of which some cannot be deleted, 3 in a batch."""

    def __init__(self, *held: int) -> None:
        self.rows, self.held, self.time = list(range(9)), set(held), 0.0
        self.retention = Retention(self, lambda: self.time)

    async def delete_old(self, days: int, kept: Sequence[int]) -> DeletionResult:
        batch = [row for row in self.rows if row not in kept][:3]
        held = [row for row in batch if row in self.held]
        self.rows = [row for row in self.rows if row in held or row not in batch]
        return DeletionResult(len(batch) - len(held), held, "orders_task_id_fkey" if held else None)

    async def round(self, time: float = 0) -> list[int]:
        self.time = time
        await self.retention.delete(30)
        return self.rows


async def test_rows_that_cannot_be_deleted_are_passed_over_and_tried_again_each_hour() -> None:
    rows = Rows(0, 1, 2, 7)
    assert len(await rows.round()) == 9
    assert len(await rows.round()) == 6
    assert await rows.round() == [0, 1, 2, 7]
    rows.held.clear()
    assert await rows.round(AGAIN_SECONDS - 1) == [0, 1, 2, 7]
    assert await rows.round(AGAIN_SECONDS) == [7]


class Server:
    """The sessions with a snapshot, and the time."""

    def __init__(self) -> None:
        self.found: tuple[int, str, str, str] | None = None
        self.time = 1000.0

    async def oldest_snapshot(self) -> tuple[int, str, str, str] | None:
        return self.found


def seconds() -> float:
    return next(iter(OLDEST_SNAPSHOT.collect())).samples[0].value


@pytest.mark.parametrize("pid", [1, 2], ids=["the same session", "handed on"])
@pytest.mark.parametrize("next_xmin", ["700", "701"])
async def test_time_counts_while_the_oldest_snapshot_is_the_same(next_xmin: str, pid: int) -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = (1, "team_a", "700", "")
    assert await watched.run_once() == SNAPSHOT_SECONDS
    assert seconds() == 0
    server.time, server.found = 1090, (pid, "team_a", next_xmin, "")
    await watched.run_once()
    assert seconds() == (90 if next_xmin == "700" else 0)
    server.found = None
    await watched.run_once()
    assert seconds() == 0


async def test_session_is_named_once_after_ten_minutes() -> None:
    server = Server()
    watched = Snapshots(server, lambda: server.time)
    server.found = (4711, "team_a", "700", "pg_terminate_backend(4711)")
    with capture_logs() as logs:
        for late in (0, TOLD_AFTER_SECONDS - 1, TOLD_AFTER_SECONDS, TOLD_AFTER_SECONDS + 30):
            server.time = 1000 + late
            await watched.run_once()
    (told,) = logs
    assert (told["login"], told["pid"], told["next_step"]) == ("team_a", 4711, "pg_terminate_backend(4711)")


MANIFEST = """
apiVersion: batch/v1
kind: Job
spec: {template: {spec: {containers: [{name: task, image: app}]}}}
"""


class Kept:
    """The table, the files, and the time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.time, self.is_away = folder, 0.0, False
        self.writes: list[tuple[list[str], bool]] = []
        catalog = Catalog(JobSettings(templates_dir=str(folder)), frozenset(), NOT_PLACED)
        self.keeping = TemplateTableSync(catalog, 600, self, lambda: self.time)

    async def templates(self, offered: Offered, *, are_all: bool) -> tuple[int, Offered]:
        if self.is_away:
            raise DatabaseAway("no answer")
        self.writes.append(([one.name for one in offered], are_all))
        return 1, []

    async def round(self, time: float) -> list[tuple[list[str], bool]]:
        """The writes of a round at this time."""
        self.time, before = time, len(self.writes)
        assert await self.keeping.run_once() == LOOK_SECONDS
        return self.writes[before:]


@pytest.fixture(name="kept")
def make_kept(tmp_path: Path) -> Kept:
    (tmp_path / "a.yaml").write_text(MANIFEST)
    return Kept(tmp_path)


async def test_new_template_is_written_in_the_next_round(kept: Kept) -> None:
    assert await kept.round(0) == [(["a"], False)]
    assert await kept.round(1) == []
    (kept.folder / "b.yaml").write_text(MANIFEST)
    assert await kept.round(2) == [(["a", "b"], False)]


async def test_table_is_compared_after_a_while_and_cut_when_the_files_are_steady(kept: Kept) -> None:
    await kept.round(0)
    assert await kept.round(WRITE_SECONDS - 1) == []
    assert await kept.round(WRITE_SECONDS) == [(["a"], False)]
    assert await kept.round(600) == [(["a"], True)]
    (kept.folder / "a.yaml").unlink()
    assert await kept.round(601) == [([], False)]
    assert await kept.round(1201) == [([], True)]


async def test_unreadable_folder_changes_nothing(kept: Kept) -> None:
    await kept.round(0)
    kept.folder.rename(kept.folder.with_name("gone"))
    assert await kept.round(700) == []


async def test_write_that_failed_is_repeated_in_the_next_round(kept: Kept) -> None:
    kept.is_away = True
    with pytest.raises(DatabaseAway):
        await kept.round(0)
    kept.is_away = False
    assert await kept.round(1) == [(["a"], False)]


TRAIN = a_template(
    "train",
    opens="image,cpu,memory,env.MODE",
    bounds={"images": "a/*, b/*", "max-cpu": "2500m", "max-memory": "4Gi", "max-seconds": "600", "machines": "m-*"},
    container={"env": [{"name": "OWN", "value": "x"}]},
)


def offered(template: Template | str, *passed: str) -> OfferedTemplate:
    return offered_templates({"train": template}, passed)[0]


def test_row_has_what_rows_may_set_and_the_bounds_as_people_write_them() -> None:
    assert offered(TRAIN, "S3_HOST") == OfferedTemplate(
        "train", ("cpu", "env.MODE", "image", "memory"), {"seconds": 600, "cpu": "2500m", "memory": "4Gi"},
        ("a/*", "b/*"), ("m-*",), ("OWN", "S3_HOST"), "",
    )  # fmt: skip


def test_bound_finer_than_a_thousandth_is_left_out() -> None:
    fine = msgspec.structs.replace(TRAIN, max_cpu=Fraction(1, 3), max_memory=None)
    assert offered(fine).bounds == {"seconds": 600}


def test_template_without_an_image_needs_one_of_its_rows() -> None:
    bare = a_template("train", opens="image", bounds={"images": "a/*"}, container={"image": ""})
    assert offered(bare).bounds["image"] == "needed"


def test_template_with_a_fault_tells_it_and_opens_nothing() -> None:
    assert offered("template train: kind is\n'Pod'") == OfferedTemplate(
        "train", None, {}, (), (), (), "template train: kind is 'Pod'"
    )


def test_note_is_the_description_of_the_manifest_on_one_line() -> None:
    manifest = a_manifest()
    manifest["metadata"]["annotations"]["kubernetes.io/description"] = "Trains\n a model.\0" + "x" * 2000
    note = offered(judge_template("train", manifest)).note
    assert note.startswith("Trains a model. xxx")
    assert len(note) == 1000


def test_rows_stand_in_the_order_of_their_names() -> None:
    assert [one.name for one in offered_templates({"b": "x", "a": "y"}, ())] == ["a", "b"]


def test_equal_templates_have_no_difference() -> None:
    ours = offered_templates({"train": TRAIN, "b": "fault"}, ())
    assert differences(ours, list(ours)) == []


def test_empty_table_is_no_difference() -> None:
    """No janitor has written it yet, and INSERT refuses nothing by it."""
    assert differences(offered_templates({"train": TRAIN}, ()), []) == []


def test_difference_names_the_template_and_who_has_it() -> None:
    ours = offered_templates({"train": TRAIN, "ours": "x"}, ())
    theirs = offered_templates({"train": TRAIN, "theirs": "x"}, ["S3_HOST"])
    assert differences(ours, theirs) == [
        'template "ours": the dispatcher has it, the janitor has not: INSERT refuses its rows',
        'template "theirs": the janitor has it, the dispatcher has not: its rows wait',
        'template "train": the dispatcher and the janitor differ in sets',
    ]


def test_many_differences_are_counted() -> None:
    told = differences(offered_templates({f"t{n}": "x" for n in range(MOST_TOLD + 3)}, ()), [offered(TRAIN)])
    assert len(told) == MOST_TOLD + 1
    assert told[-1] == "and 4 more"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("a/*", ["a/*"]),
        ("a/[bc]/*:[12]", ["a/b/*:1", "a/b/*:2", "a/c/*:1", "a/c/*:2"]),
        ("a/[c-e0]", ["a/c", "a/d", "a/e", "a/0"]),
        ("a/[-x]", ["a/-", "a/x"]),
        ("a/[!b]", ["a/[!b]"]),
        ("a/[*]", ["a/[*]"]),
        ("a/[b", ["a/[b"]),
        ("[a-z][a-z]", ["[a-z][a-z]"]),
    ],
)
def test_brackets_of_globs_are_written_out(glob: str, found: list[str]) -> None:
    assert list(without_brackets([glob])) == found


@given(st.lists(st.text("a[]c-e!b*?.", max_size=8), max_size=2), st.text("abcde-.![]", max_size=5))
@example(["[c-e]"], "d")
@example(["[c-a]"], "b")
@example(["[a-c-e]"], "d")
@example(["[a-c-e]"], "-")
def test_globs_without_brackets_match_the_same(globs: list[str], name: str) -> None:
    written = without_brackets(globs)
    assert any(fnmatchcase(name, glob) for glob in written) == any(fnmatchcase(name, glob) for glob in globs)


class Compared:
    """A comparison with its surroundings."""

    def __init__(self, every_seconds: float = COMPARE_SECONDS) -> None:
        self.ours = self.table = offered_templates({"default": a_template()}, ())
        self.told: list[Sequence[str]] = []
        self.is_away = False
        self.every_seconds = every_seconds
        self.comparing = TemplateComparison(self.opened, lambda: self.ours, self.told.append, every_seconds)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Compared]:
        if self.is_away:
            raise DatabaseAway("no answer")
        yield self

    async def templates(self) -> list[OfferedTemplate]:
        return self.table

    async def round(self) -> Sequence[str]:
        assert await self.comparing.run_once() == self.every_seconds
        return self.told[-1]


async def test_difference_is_told_in_the_second_round_and_ends_at_once() -> None:
    compared = Compared()
    assert await compared.round() == []
    compared.ours = [*compared.ours, *offered_templates({"new": a_template("new")}, ())]
    assert await compared.round() == []
    told = await compared.round()
    assert told == ['template "new": the dispatcher has it, the janitor has not: INSERT refuses its rows']
    compared.table = compared.ours
    assert await compared.round() == []


async def test_log_tells_a_difference_and_its_end_and_nothing_while_there_is_none() -> None:
    compared = Compared()
    with capture_logs() as lines:
        await compared.round()
        await compared.round()
        assert lines == []
        compared.ours = []
        for _ in range(3):
            await compared.round()
        compared.ours = compared.table
        await compared.round()
        await compared.round()
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "the janitor has other templates"), ("info", "the templates agree again"),
    ]  # fmt: skip


async def test_comparison_is_repeated_after_its_pause() -> None:
    assert await Compared(every_seconds=0.5).round() == []


async def test_file_that_reaches_the_janitor_later_is_no_difference() -> None:
    compared = Compared()
    for name in ("a", "b", "c"):
        compared.ours = [*compared.ours, *offered_templates({name: a_template(name)}, ())]
        assert await compared.round() == []
        compared.table = compared.ours


async def test_last_difference_stays_while_the_database_is_away() -> None:
    compared = Compared()
    compared.ours = []
    await compared.round()
    told = await compared.round()
    compared.is_away = True
    with pytest.raises(DatabaseAway):
        await compared.round()
    assert compared.told[-1] == told != []
