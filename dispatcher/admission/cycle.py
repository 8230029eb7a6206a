"""One cycle's decision: candidates in their order, each judged by the picture that the admitted ones before it left."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dispatcher.admission.gates import Candidate, judge
from dispatcher.admission.order import LaunchOrder
from dispatcher.model.jobs import End
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.verdicts import Admit, Hold


class Plan(Struct, frozen=True):
    """What to launch, in order; why the other rows are held; what to remove."""

    launches: tuple[Candidate, ...]
    holds: Mapping[int, Hold]
    ends: tuple[End, ...]


def plan_cycle(snapshot: ClusterSnapshot, candidates: Iterable[Candidate]) -> Plan:
    """Judges every candidate once. Each admitted one changes the snapshot for those after it."""
    launches: list[Candidate] = []
    holds: dict[int, Hold] = {}
    ends: list[End] = []
    order = LaunchOrder(candidates, is_probing=snapshot.is_probing)
    while (candidate := order.pop(snapshot)) is not None:
        ends.extend(candidate.jobs.ends)
        if candidate.jobs.verdict is None:
            continue
        verdict = judge(candidate, snapshot)
        if isinstance(verdict, Admit):
            launches.append(candidate)
            submitter, is_new = candidate.task.submitted_by, not candidate.is_repeat
            snapshot = snapshot.with_launch(candidate.group, submitter, is_new=is_new)
        else:
            holds[candidate.task.id] = verdict
    return Plan(tuple(launches), holds, tuple(ends))
