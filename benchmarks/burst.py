"""Promise: a burst becomes Jobs at 0.9 of the rate of a raw client that posts the same bytes over 16 connections.

Raw, ours and the toy take turns. Each has a fresh namespace, a fresh database and a process of its own. The clock of
all is the audit log of the API server: from the first create received to the last one answered. CPU time is printed as
context, because on two cores it sets the rates.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean, stdev

from msgspec import Struct

from benchmarks import raw, toy
from benchmarks.figures import Figure, run, tell
from benchmarks.servers import WITHOUT_LIMITS, Servers, cpu_seconds, launched
from tests.controlplane.audit import AuditEvent
from tests.rig.dispatching import Dispatcher, Place

ROWS = 2000
ROUNDS = 5
SHARE_OF_RAW = 0.9
RAW_AT_LEAST = 300
MANY_ROWS = "INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, $1)"


BACKENDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'reader'"


class Round(Struct, frozen=True):
    """The figures of one turn. Microseconds are CPU time per Job.

    rate: Jobs created a second.
    own_us: of the measured process.
    database_us: of its database sessions.
    server_us: of API server and etcd.
    """

    rate: float
    own_us: float
    database_us: float
    server_us: float

    @property
    def whole_us(self) -> float:
        """The sum, which sets the rate while all cores are busy."""
        return self.own_us + self.database_us + self.server_us


Turn = Callable[[Servers, Place], Awaitable[Round]]


class Stopwatch:
    """Measures the CPU time of groups of processes, from now on."""

    def __init__(self, servers: Servers, own: int, database: Sequence[int] = ()) -> None:
        named = servers.plane.pids()
        self._groups = {"own": [own], "database": database, "server": [named["kube-apiserver"], named["etcd"]]}
        self._before = self._read()

    def stop(self, events: Sequence[AuditEvent]) -> Round:
        used = {what: (now - self._before[what]) / len(events) * 1e6 for what, now in self._read().items()}
        first, last = min(event.received_at for event in events), max(event.stage_at for event in events)
        return Round(len(events) / (last - first).total_seconds(), used["own"], used["database"], used["server"])

    def _read(self) -> dict[str, float]:
        return {what: sum(cpu_seconds(pid) for pid in pids) for what, pids in self._groups.items()}


async def raw_turn(servers: Servers, place: Place, *extra: str) -> Round:
    async with raw.running(place, ROWS, *extra) as poster:
        watch = Stopwatch(servers, poster.pid)
        poster.begin()
        return watch.stop(await servers.made(place, ROWS))


async def watching_turn(servers: Servers, place: Place) -> Round:
    return await raw_turn(servers, place, "watch")


async def our_turn(servers: Servers, place: Place) -> Round:
    async with Dispatcher(place, **WITHOUT_LIMITS) as dispatcher:
        await dispatcher.ready()
        await servers.show_first_pod(place, dispatcher.check)
        return await insert(servers, place, dispatcher.process.pid, dispatcher.check)


async def toy_turn(servers: Servers, place: Place) -> Round:
    async with toy.running(place) as pid:
        return await insert(servers, place, pid)


async def insert(servers: Servers, place: Place, pid: int, check: Callable[[], None] = lambda: None) -> Round:
    submitter, admin = [await place.database.session(login) for login in ("team_a", "admin")]
    watch = Stopwatch(servers, pid, [row["pid"] for row in await admin.fetch(BACKENDS)])
    await submitter.execute(MANY_ROWS, ROWS)
    return watch.stop(await servers.made(place, ROWS, check))


TURNS: Mapping[str, Turn] = {
    "raw": raw_turn,
    "ours": our_turn,
    "toy": toy_turn,
    "raw and a watch": watching_turn,
}


async def measure(servers: Servers) -> dict[str, list[Round]]:
    """The rounds by name. Each round begins with another turn, so no turn is always the first."""
    found: dict[str, list[Round]] = {name: [] for name in TURNS}
    names = list(TURNS)
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            found[name].append(await TURNS[name](servers, await servers.place()))
    return found


async def main() -> int:
    async with launched() as servers:
        servers.stop_controllers()
        found = await measure(servers)
        versions = await servers.versions()
    rates = {name: fmean(one.rate for one in rounds) for name, rounds in found.items()}
    figures = [
        Figure("ours, Jobs a second", rates["ours"], SHARE_OF_RAW * rates["raw"], at_least=True),
        Figure("raw, Jobs a second", rates["raw"], RAW_AT_LEAST, at_least=True),
    ]
    whole = {name: fmean(one.whole_us for one in rounds) for name, rounds in found.items()}
    context = {
        "ours / raw": rates["ours"] / rates["raw"],
        "ours / raw, by CPU time alone": whole["raw"] / whole["ours"],
        "toy / raw": rates["toy"] / rates["raw"],
        "raw and a watch / raw": rates["raw and a watch"] / rates["raw"],
        "ours / raw and a watch": rates["ours"] / rates["raw and a watch"],
    }
    for name, rounds in found.items():
        context[f"{name}, standard deviation of its rounds"] = stdev(one.rate for one in rounds)
        context[f"{name}, own CPU a Job, us"] = fmean(one.own_us for one in rounds)
        context[f"{name}, database CPU a Job, us"] = fmean(one.database_us for one in rounds)
        context[f"{name}, API server and etcd a Job, us"] = fmean(one.server_us for one in rounds)
    return tell("burst", figures, context, versions)


if __name__ == "__main__":
    run(main)
