"""One cycle's decision: contenders in their order, each judged against the picture that those before it left."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dispatcher.admission.gates import Contender, judge
from dispatcher.admission.order import plan_order
from dispatcher.model.jobs import End
from dispatcher.model.snapshot import ClusterSnapshot
from dispatcher.model.verdicts import Admit, Hold


class Plan(Struct, frozen=True):
    """What to launch, in order; why the other rows are held; what to remove."""

    launches: tuple[Contender, ...]
    holds: Mapping[int, Hold]
    ends: tuple[End, ...]


def plan_cycle(snapshot: ClusterSnapshot, contenders: Iterable[Contender]) -> Plan:
    """Judges every contender once; each admitted one is folded into the snapshot."""
    launches: list[Contender] = []
    holds: dict[int, Hold] = {}
    ends: list[End] = []
    for contender in plan_order(contenders, is_probing=snapshot.is_probing):
        ends.extend(contender.standing.ends)
        if contender.standing.verdict is None:
            continue
        verdict = judge(contender, snapshot)
        if isinstance(verdict, Admit):
            launches.append(contender)
            snapshot = snapshot.with_launch(contender.lane, contender.task.submitted_by, is_new=not contender.is_repeat)
        else:
            holds[contender.task.id] = verdict
    return Plan(tuple(launches), holds, tuple(ends))
