"""The table of templates follows the files: at once if one changes, and deletes only what has been gone for a while."""

from pathlib import Path

import pytest

from dispatcher.janitor.tables import LOOK_SECONDS, WRITE_SECONDS, KeepingTemplates, Offered
from dispatcher.jobs.catalog import Catalog
from dispatcher.model.errors import DatabaseAway
from dispatcher.settings.definition import JobSettings

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
        catalog = Catalog(JobSettings(templates_dir=str(folder)), frozenset())
        self.keeping = KeepingTemplates(catalog, 600, self, lambda: self.time)

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


async def test_table_is_compared_after_a_while_and_others_are_deleted_when_the_files_are_steady(kept: Kept) -> None:
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
