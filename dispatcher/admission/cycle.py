"""One cycle's decision: contenders in their order, each judged against the picture that those before it left."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dispatcher.admission.gates import Candidate, judge
from dispatcher.admission.order import plan_order
from dispatcher.model.jobs import End
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.verdicts import Admit, Hold


class Plan(Struct, frozen=True):
    """What to launch, in order; why the other rows are held; what to remove."""

    launches: tuple[Candidate, ...]
    holds: Mapping[int, Hold]
    ends: tuple[End, ...]


def plan_cycle(snapshot: ClusterSnapshot, candidates: Iterable[Candidate]) -> Plan:
    """Judges every contender once; each admitted one is folded into the snapshot."""
    launches: list[Candidate] = []
    holds: dict[int, Hold] = {}
    ends: list[End] = []
    for candidate in plan_order(candidates, is_probing=snapshot.is_probing):
        ends.extend(candidate.standing.ends)
        if candidate.standing.verdict is None:
            continue
        verdict = judge(candidate, snapshot)
        if isinstance(verdict, Admit):
            launches.append(candidate)
            snapshot = snapshot.with_launch(
                candidate.group, candidate.task.submitted_by, is_new=not candidate.is_repeat
            )
        else:
            holds[candidate.task.id] = verdict
    return Plan(tuple(launches), holds, tuple(ends))
