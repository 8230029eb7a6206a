"""The leader writes the ConfigMaps seldom, and takes over the times of the leader before it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import pytest

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.model.errors import ClusterAway
from dispatcher.model.tasks import EndCount, QueueCount
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.counting import Overview
from dispatcher.views.published import reasons_json
from dispatcher.views.status import InstallationIdentity
from dispatcher.views.surfaces import Publishing
from tests.rig.builders import NOW, a_picture, a_queue, a_snapshot, ago


class Maps:
    """The ConfigMaps, and the names of all writes."""

    def __init__(self, **texts: str) -> None:
        self.texts, self.writes, self.is_away = texts, list[str](), False

    async def read(self, name: str, key: str) -> str | None:
        if self.is_away:
            raise ClusterAway("no answer")
        assert key == f"{name}.json"
        return self.texts.get(name)

    async def write(self, name: str, key: str, text: str) -> bool:
        if self.is_away:
            raise ClusterAway("no answer")
        self.texts[name] = text
        self.writes.append(name)
        return True


class Rows:
    now = NOW

    async def counts(self) -> list[QueueCount]:
        return [QueueCount("default", 3)]

    async def ends(self, since: datetime, until: datetime) -> list[EndCount]:
        return []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rows"]:
        yield self


def a_cycle(reason: str = "Poison", jobs: int = 0) -> LastCycle:
    rows = {7: RowReason("default", 1, Hold(HoldReason(reason)), NOW)}
    snapshot = a_snapshot(a_queue(), max_jobs=jobs)
    return LastCycle(snapshot, a_picture(), rows, frozenset(), {}, {}, leads=True)


class Replica:
    """One replica whose time is an argument."""

    def __init__(self, maps: Maps) -> None:
        self.time, self.leads, self.last = 0.0, True, a_cycle()
        self.maps = maps
        installation = InstallationIdentity("dispatcher", "1", "jobs", "me")
        overview = Overview(installation, Rows().opened, dict, lambda: self.leads, lambda: self.time)
        self.publishing = Publishing(maps, overview, self, lambda: self.leads, lambda: self.time)  # type: ignore[arg-type] # its cycle is never None
        self._overview = overview

    async def round(self, time: float, cycle: LastCycle | None = None) -> list[str]:
        """The names of the ConfigMaps that a round at this time writes, after this cycle."""
        self.time, self.last = time, cycle or self.last
        self.maps.writes.clear()
        self._overview.tell(self.last)
        await self.publishing.run_once()
        return list(self.maps.writes)


async def test_status_is_written_on_change_after_ten_seconds_and_unchanged_after_thirty() -> None:
    replica = Replica(Maps())
    assert await replica.round(0) == ["reasons", "status"]
    assert await replica.round(9, a_cycle(jobs=1)) == [], "changed, but too soon"
    assert await replica.round(10) == ["status"]
    assert await replica.round(39) == []
    assert await replica.round(40) == ["status"], "it shows that the dispatcher lives"


async def test_reasons_are_written_on_change_after_thirty_seconds() -> None:
    replica = Replica(Maps())
    await replica.round(0)
    assert "reasons" not in await replica.round(29, a_cycle("Backoff"))
    assert "reasons" in await replica.round(30)
    assert "reasons" not in await replica.round(90), "nothing has changed"
    assert "reasons" not in await replica.round(329)
    assert "reasons" in await replica.round(330), "somebody may have overwritten them"


async def test_replica_that_does_not_lead_writes_nothing_and_a_new_leader_writes_at_once() -> None:
    replica = Replica(Maps())
    await replica.round(0)
    replica.leads = False
    assert await replica.round(60) == []
    replica.leads = True
    assert await replica.round(62) == ["reasons", "status"]


async def test_times_of_the_leader_before_are_taken_over_once() -> None:
    earlier = msgspec.structs.replace(a_cycle(), told={7: RowReason("default", 1, Hold(HoldReason.POISON), ago(600))})
    replica = Replica(Maps(reasons=reasons_json(earlier).decode()))
    replica.leads = False
    await replica.round(0)
    assert replica.last.told[7].since == ago(600)
    await replica.round(2, a_cycle())
    assert replica.last.told[7].since == NOW, "from now on the cycles hand the times on"


@pytest.mark.parametrize("text", ["nonsense", "{}"])
async def test_nonsense_of_somebody_else_is_replaced(text: str) -> None:
    maps = Maps(reasons=text, status=text)
    assert await Replica(maps).round(0) == ["reasons", "status"]
    found: Any = msgspec.json.decode(maps.texts["reasons"])
    assert found["rows"][0][:3] == [7, 1, "Poison"]


async def test_fault_of_the_api_server_is_raised_and_the_next_round_writes() -> None:
    maps = Maps()
    replica, maps.is_away = Replica(maps), True
    with pytest.raises(ClusterAway):
        await replica.round(0)
    maps.is_away = False
    assert await replica.round(2) == ["reasons", "status"]
