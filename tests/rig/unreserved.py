"""What an extender's filter knows, for tests: a cluster that is known for certain, and no reservations."""

from typing import Any

from dispatcher.extender.book import ReservationBook
from dispatcher.extender.nodes import ClusterFacts, NodeFilter
from dispatcher.model.cluster import NodeCapacities
from dispatcher.model.jobs import Notices


def always() -> bool:
    return True


def certain_facts(**others: Any) -> ClusterFacts:
    """All is listed, up to date and at time 0, and no Pod is bound. `others`: fields that answer something else."""
    given: dict[str, Any] = dict.fromkeys(("is_synced", "is_certain", "hears_bindings", "knows_reservations"), always)
    given |= dict.fromkeys(("now", "elapsed"), lambda: 0.0) | {"bound_pods": tuple, "fault": str}
    return ClusterFacts(**given | others)


def unreserved_filter() -> NodeFilter:
    """The filter: every node passes."""
    return NodeFilter(ReservationBook(NodeCapacities()), certain_facts(), Notices())
