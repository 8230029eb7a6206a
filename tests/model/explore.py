"""Breadth-first search through all states of a run. So the first trace to a broken law is a shortest one.

For each state the search keeps the state and the number of its parent. It finds the texts of a trace again by repeating
the steps. Fair steps are kept as numbers: at the end they must form no cycle.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.model.cluster import backup_steps, cluster_steps, person_steps
from tests.model.containers import container_steps
from tests.model.dispatching import deposed_steps, leader_steps
from tests.model.janitor import janitor_steps
from tests.model.properties import check_end, check_state
from tests.model.state import Create, Detached, Job, Seen, State
from tests.model.world import WHOLE, Broken, Configuration, Rules, World

FAMILIES: tuple[Callable[[World, State], None], ...] = (
    leader_steps,
    container_steps,
    cluster_steps,
    person_steps,
    janitor_steps,
    deposed_steps,
    backup_steps,
)


@dataclass(frozen=True)
class Found:
    """The result of a run.

    broken: the law that does not hold; empty if all hold.
    trace: the steps to it.
    """

    states: int
    edges: int
    broken: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = "\n".join(f"{number:3} {step}" for number, step in enumerate(self.trace, 1))
        return f"{self.broken or 'held'} ({self.states:,} states, {self.edges:,} edges)\n{steps}"


class Exploration:
    def __init__(self, config: Configuration, rules: Rules = WHOLE) -> None:
        self.world = World(config, rules)
        first = self.world.first()
        self.states = [first]
        self.number = {first: 0}
        self.parent = array("i", [-1])
        self.fair_to = array("i")
        self.fair_end = array("i")
        self.edges = 0

    def run(self, most: int = 5_000_000) -> Found:
        index = 0
        try:
            while index < len(self.states) < most:
                self._visit(index)
                index += 1
        except Broken as broken:
            return self._found(index, broken)
        if len(self.states) >= most:
            return Found(len(self.states), self.edges, f"unfinished: {most} states")
        if (loop := self._loop()) is not None:
            return self._found(loop[0], Broken("S5: fair steps form a cycle"), loop[1:])
        return Found(len(self.states), self.edges)

    def steps(self, state: State) -> list[tuple[str, object, bool, State]]:
        world = self.world
        world.steps, world.is_cut, world.at = [], False, state
        for family in FAMILIES:
            family(world, state)
        return world.steps

    def _visit(self, index: int) -> None:
        state = self.states[index]
        steps = self.steps(state)
        self.edges += len(steps)
        number, is_settled = self.number, not self.world.is_cut
        for _, _, fair, after in steps:
            known = number.get(after)
            if known is None:
                known = self._add(after, index)
            if fair and known != index:
                self.fair_to.append(known)
                is_settled = False
        self.fair_end.append(len(self.fair_to))
        if is_settled:
            check_end(self.world, state)

    def _add(self, state: State, parent: int) -> int:
        known = self.number[state] = len(self.states)
        self.states.append(state)
        self.parent.append(parent)
        try:
            check_state(self.world, state)
        except Broken as broken:
            broken.by, broken.subject = self._words(parent, known)
            raise
        return known

    def _found(self, index: int, broken: Broken, more: list[int] | None = None) -> Found:
        path = [index]
        while self.parent[path[0]] >= 0:
            path.insert(0, self.parent[path[0]])
        path += more or []
        trace = [step_text(*self._words(one, two)) for one, two in pairwise(path)]
        if broken.by:
            trace.append(step_text(broken.by, broken.subject))
        trace.append(f"= {describe(self.states[path[-1]])}")
        return Found(len(self.states), self.edges, broken.message, tuple(trace))

    def _words(self, one: int, two: int) -> tuple[str, object]:
        after = self.states[two]
        with contextlib.suppress(Broken):  # the steps before the broken one are in world.steps
            self.steps(self.states[one])
        return next((words, subject) for words, subject, _, state in self.world.steps if state == after)

    def _loop(self) -> list[int] | None:
        """A cycle of fair steps, or None. States that no fair step leads to are removed until none is left."""
        incoming = array("i", bytes(4 * len(self.states)))
        for known in self.fair_to:
            incoming[known] += 1
        free = [index for index, count in enumerate(incoming) if not count]
        while free:
            for known in self._fair_steps(free.pop()):
                incoming[known] -= 1
                if not incoming[known]:
                    free.append(known)
        at = next((index for index, count in enumerate(incoming) if count), None)
        return None if at is None else self._walk(at, incoming)

    def _walk(self, at: int, incoming: array[int]) -> list[int]:
        """The cycle, found by going backwards through the states that are left until one repeats."""
        came: dict[int, int] = {}
        for index, count in enumerate(incoming):
            for known in self._fair_steps(index) if count else ():
                if incoming[known]:
                    came[known] = index
        path = [at]
        while came[path[-1]] not in path:
            path.append(came[path[-1]])
        path = path[path.index(came[path[-1]]) :]
        return [path[0], *reversed(path)]

    def _fair_steps(self, index: int) -> array[int]:
        begin = self.fair_end[index - 1] if index else 0
        return self.fair_to[begin : self.fair_end[index]]


def explore(config: Configuration, rules: Rules = WHOLE, most: int = 5_000_000) -> Found:
    return Exploration(config, rules).run(most)


def step_text(words: str, subject: object) -> str:
    if isinstance(subject, Job | Seen | Detached | Create):
        kind = "the detached container of " if isinstance(subject, Detached) else "Job "
        subject = f"{kind}{subject.attempt}/{subject.launch}"
    return words.format(subject)


def describe(state: State) -> str:
    jobs = " ".join(str(tuple(job)) for job in state.jobs)
    return f"row {tuple(state.row)} jobs {jobs or 'none'} detached {len(state.detached)} create {state.create}"
