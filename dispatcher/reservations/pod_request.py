"""The request of one Pod, and the keys by which reservations may name the Pod."""

from collections.abc import Collection

from msgspec import Struct

from dispatcher.model.amounts import Amounts


class PodRequest(Struct, frozen=True, gc=False):
    """One Pod that kube-scheduler asks about.

    `name`: namespace and name, with a slash between them.
    `keys`: all keys that a reservation may have as its target, each once (`model.reservations.keys_of`).
    `asks`: the requested amounts.
    `is_exempt`: True if no reservation applies: the Pod is critical, of a DaemonSet, or static.
    `uid`: the UID of the Pod.
    """

    name: str
    keys: Collection[str]
    asks: Amounts
    is_exempt: bool = False
    uid: str = ""
