"""Promise: a burst becomes Jobs at 0.9 of the rate of a raw client that posts the same bytes over 16 connections.

Raw, ours and the toy take turns, each in a fresh namespace and with a fresh database, and each in a process of its own.
The clock is the API server's audit log for all: from the first create received to the last one answered. CPU time is
told beside it, because on two cores it is what the rates are made of.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean, stdev

from msgspec import Struct

from benchmarks import raw, toy
from benchmarks.field import WITHOUT_LIMITS, Field, cpu_seconds, field
from benchmarks.figures import Figure, run, tell
from tests.controlplane.audit import AuditEvent
from tests.dispatching import Dispatcher, Place

ROWS = 2000
ROUNDS = 5
SHARE_OF_RAW = 0.9
RAW_AT_LEAST = 300
MANY_ROWS = "INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, $1)"


BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'reader'"


class Round(Struct, frozen=True):
    """Jobs made a second; microseconds of CPU for each: the contender's, its database sessions', the API server's."""

    rate: float
    own_us: float
    database_us: float
    server_us: float

    @property
    def whole_us(self) -> float:
        """On cores that are all busy, this is what sets the rate."""
        return self.own_us + self.database_us + self.server_us


Turn = Callable[[Field, Place], Awaitable[Round]]


class Stopwatch:
    """CPU time that is used from now on, by processes in groups."""

    def __init__(self, ground: Field, own: int, database: Sequence[int] = ()) -> None:
        named = ground.plane.pids()
        self._groups = {"own": [own], "database": database, "server": [named["kube-apiserver"], named["etcd"]]}
        self._before = self._read()

    def stop(self, events: Sequence[AuditEvent]) -> Round:
        used = {what: (now - self._before[what]) / len(events) * 1e6 for what, now in self._read().items()}
        first, last = min(event.received_at for event in events), max(event.stage_at for event in events)
        return Round(len(events) / (last - first).total_seconds(), used["own"], used["database"], used["server"])

    def _read(self) -> dict[str, float]:
        return {what: sum(cpu_seconds(pid) for pid in pids) for what, pids in self._groups.items()}


async def raw_turn(ground: Field, place: Place, *extra: str) -> Round:
    async with raw.running(place, ROWS, *extra) as poster:
        watch = Stopwatch(ground, poster.pid)
        poster.begin()
        return watch.stop(await ground.made(place, ROWS))


async def watching_turn(ground: Field, place: Place) -> Round:
    return await raw_turn(ground, place, "watch")


async def our_turn(ground: Field, place: Place) -> Round:
    async with Dispatcher(place, **WITHOUT_LIMITS) as dispatcher:
        await dispatcher.ready()
        return await insert(ground, place, dispatcher.process.pid, dispatcher.check)


async def toy_turn(ground: Field, place: Place) -> Round:
    async with toy.running(place) as pid:
        return await insert(ground, place, pid)


async def insert(ground: Field, place: Place, pid: int, check: Callable[[], None] = lambda: None) -> Round:
    submitter, admin = [await place.database.session(login) for login in ("team_a", "admin")]
    watch = Stopwatch(ground, pid, [row["pid"] for row in await admin.fetch(BACKENDS)])
    await submitter.execute(MANY_ROWS, ROWS)
    return watch.stop(await ground.made(place, ROWS, check))


TURNS: Mapping[str, Turn] = {
    "raw": raw_turn,
    "ours": our_turn,
    "toy": toy_turn,
    "raw and a watch": watching_turn,
}


async def measure(ground: Field) -> dict[str, list[Round]]:
    """Another one begins in each round: nobody always comes after the same neighbour."""
    found: dict[str, list[Round]] = {name: [] for name in TURNS}
    names = list(TURNS)
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(await TURNS[name](ground, await ground.place()))
    return found


async def main() -> int:
    async with field() as ground:
        ground.stop_controllers()
        found = await measure(ground)
        versions = await ground.versions()
    rates = {name: fmean(one.rate for one in rounds) for name, rounds in found.items()}
    figures = [
        Figure("ours, Jobs a second", rates["ours"], SHARE_OF_RAW * rates["raw"], at_least=True),
        Figure("raw, Jobs a second", rates["raw"], RAW_AT_LEAST, at_least=True),
    ]
    whole = {name: fmean(one.whole_us for one in rounds) for name, rounds in found.items()}
    beside = {
        "ours / raw": rates["ours"] / rates["raw"],
        "ours / raw, by CPU time alone": whole["raw"] / whole["ours"],
        "toy / raw": rates["toy"] / rates["raw"],
        "raw and a watch / raw": rates["raw and a watch"] / rates["raw"],
        "ours / raw and a watch": rates["ours"] / rates["raw and a watch"],
    }
    for name, rounds in found.items():
        beside[f"{name}, standard deviation of its rounds"] = stdev(one.rate for one in rounds)
        beside[f"{name}, own CPU a Job, us"] = fmean(one.own_us for one in rounds)
        beside[f"{name}, database CPU a Job, us"] = fmean(one.database_us for one in rounds)
        beside[f"{name}, API server and etcd a Job, us"] = fmean(one.server_us for one in rounds)
    return tell("burst", figures, beside, versions)


if __name__ == "__main__":
    run(main)
