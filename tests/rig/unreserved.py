"""An extender's filter without reservations, for tests of everything else that an extender does."""

from dispatcher.extender.book import ReservationBook
from dispatcher.extender.nodes import ClusterFacts, NodeFilter
from dispatcher.model.cluster import NodeCapacities
from dispatcher.model.jobs import Notices


def unreserved_filter() -> NodeFilter:
    """The filter: every node passes."""
    return NodeFilter(ReservationBook(NodeCapacities()), ClusterFacts(), Notices())
