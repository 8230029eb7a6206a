"""The comparison of the dispatcher's templates with the janitor's: a difference is told when it lasts."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from dispatcher.jobs.offered import offered_templates
from dispatcher.model.errors import DatabaseAway
from dispatcher.model.tasks import OfferedTemplate
from dispatcher.views.surfaces import EVERY_SECONDS, Comparing
from tests.rig.builders import a_template


class Compared:
    """A comparison with its surroundings."""

    def __init__(self, every_seconds: float = EVERY_SECONDS) -> None:
        self.ours = self.table = offered_templates({"default": a_template()}, ())
        self.told: list[Sequence[str]] = []
        self.is_away = False
        self.every_seconds = every_seconds
        self.comparing = Comparing(self.opened, lambda: self.ours, self.told.append, every_seconds)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Compared"]:
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
