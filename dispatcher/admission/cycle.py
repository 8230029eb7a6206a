"""The decision of one cycle: judges the candidates in their order, each after the admissions before it."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from dispatcher.admission.gates import Candidate, judge
from dispatcher.admission.order import LaunchOrder
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.jobs import End
from dispatcher.model.verdicts import Admit, Hold


class Plan(Struct, frozen=True):
    """The decision of one cycle.

    launches: candidates to launch, in their order.
    holds: the holds of the other rows, by task.
    ends: objects to delete.
    after: the snapshot after all admissions.
    """

    launches: tuple[Candidate, ...]
    holds: Mapping[int, Hold]
    ends: tuple[End, ...]
    after: ClusterSnapshot

    def with_ends(self, more: Iterable[End]) -> "Plan":
        return msgspec.structs.replace(self, ends=(*self.ends, *more))


def plan_cycle(snapshot: ClusterSnapshot, candidates: Iterable[Candidate]) -> Plan:
    """Judges every candidate once. Each admission changes the snapshot for the candidates after it."""
    launches: list[Candidate] = []
    holds: dict[int, Hold] = {}
    ends: list[End] = []
    order = LaunchOrder(candidates, snapshot)
    while (candidate := order.pop(snapshot)) is not None:
        ends.extend(candidate.jobs.ends)
        if candidate.jobs.verdict is None:
            continue
        verdict = judge(candidate, snapshot)
        if isinstance(verdict, Admit):
            launches.append(candidate)
            snapshot = snapshot.with_launch(candidate.group, candidate.pod, is_new=not candidate.is_repeat)
        else:
            holds[candidate.task.id] = verdict
    return Plan(tuple(launches), holds, tuple(ends), snapshot)
