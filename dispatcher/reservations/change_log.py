"""Changes of reservations and nodes, kept until waiting Pods and statuses are checked."""

from collections.abc import Collection, Iterable


class ChangeLog:
    """Names of what has changed, each once, in the order of the changes.

    `count`: grows whenever some Pod may get a node that it could not get before.
    `nodes`: nodes whose reservations may need a new status.
    `reservations`: reservations that may need a new status.
    """

    def __init__(self) -> None:
        self.count = 0
        self.nodes: dict[str, None] = {}
        self.reservations: dict[str, None] = {}
        self._gained: dict[str, None] = {}

    def note_gain(self, node: str) -> None:
        """Some Pod may get more of this node than before."""
        self.count += 1
        self._gained[node] = self.nodes[node] = None

    def note_reservations(self, names: Iterable[str]) -> None:
        self.reservations |= dict.fromkeys(names)

    def take_gained(self) -> Collection[str]:
        """Nodes where some Pod may get more than at the last call. They have a reservation, or had one."""
        gained, self._gained = self._gained, {}
        return gained
