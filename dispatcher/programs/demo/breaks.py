"""Breaks the parts of a demo, as asked by its story or by a key, and tells what became of it."""

from collections.abc import Awaitable, Callable
from typing import Final

from dispatcher.programs.demo.database import POSTGRES
from dispatcher.programs.demo.environment import NODES, DemoEnvironment
from dispatcher.programs.demo.observe import AWAY
from dispatcher.programs.demo.observe import POSTGRES as POSTGRES_AWAY
from dispatcher.programs.demo.story import Kill, Recovery, kill_of, killed_in_words, recovery_in_words, recovery_of
from dispatcher.programs.demo.team import Team
from dispatcher.programs.demo.view import DemoView

PAUSED: Final = "default"
"""The queue that the key pauses."""
NOT_NOW: Final = "{} does not run at the moment"


class Breaks:
    """`say` tells a line. `is_plain`: the user has a template, so rows of the samples would not fit.

    recoveries: what was there after each `kill -9` of Postgres.
    is_paused: the queue PAUSED is paused by a key.
    """

    def __init__(self, environment: DemoEnvironment, team: Team, say: Callable[[str], None], *, is_plain: bool) -> None:
        self._environment = environment
        self._team = team
        self._say = say
        self._is_plain = is_plain
        self._kill: Kill | None = None
        self._starts = self._nodes_killed = 0
        self.recoveries: list[Recovery] = []
        self.is_paused = False

    @property
    def is_waiting(self) -> bool:
        """Whether Postgres was killed, and nobody has seen yet what is left."""
        return self._kill is not None

    @property
    def has_killed(self) -> bool:
        """Whether Postgres was killed at all."""
        return self.is_waiting or bool(self.recoveries)

    @property
    def has_restarted(self) -> bool:
        """Whether Postgres runs again after the kill."""
        return self.is_waiting and self._environment.keeper.starts(POSTGRES) > self._starts

    async def press(self, key: str, view: DemoView, seconds: float) -> None:
        """Does what a key of `keys` asks for."""
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "n": self._kill_node, "d": self._kill_dispatcher, "p": self._pause, "i": self._insert
        }  # fmt: skip
        if key == "k":
            self.kill_postgres(view, seconds)
        else:
            try:
                await acts[key]()
            except AWAY:
                self._say("Postgres is away: press the key again when it is back")

    def kill_postgres(self, view: DemoView, seconds: float) -> None:
        starts = self._environment.keeper.starts(POSTGRES)
        if self.is_waiting or not self._environment.keeper.kill(POSTGRES):
            self._say(NOT_NOW.format("Postgres"))
            return
        self._kill, self._starts = kill_of(view, seconds), starts
        self._say(killed_in_words(self._kill))

    def look(self, view: DemoView, seconds: float) -> None:
        """Compares the rows, if `view` was read from a Postgres that was started after the kill."""
        if self._kill is not None and POSTGRES_AWAY not in view.away:
            self.recoveries.append(recovery_of(self._kill, view, seconds))
            self._kill = None
            self._say(recovery_in_words(self.recoveries[-1]))

    async def _kill_node(self) -> None:
        if not self._environment.has_nodes:
            self._say("the nodes of your own cluster are not killed")
            return
        name = NODES[self._nodes_killed % len(NODES)]
        containers = self._environment.kill_node(name)
        if containers is None:
            self._say(NOT_NOW.format(f"node {name}"))
            return
        self._nodes_killed += 1
        gone = "1 container" if containers == 1 else f"{containers} containers"
        self._say(f"node {name} is killed (kill -9), with {gone}; it comes back, and their rows run again")

    async def _kill_dispatcher(self) -> None:
        killed = self._environment.keeper.kill("dispatcher")
        words = "the dispatcher is killed (kill -9), and starts again; what runs goes on"
        self._say(words if killed else NOT_NOW.format("the dispatcher"))

    async def _pause(self) -> None:
        self.is_paused = await self._team.pause(PAUSED)
        rest = "is paused: what runs goes on, nothing new starts" if self.is_paused else "goes on"
        self._say(f"queue {PAUSED} {rest}")

    async def _insert(self) -> None:
        await self._team.insert_ten(is_plain=self._is_plain)
