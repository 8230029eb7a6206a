"""A Pod that asks for a node: by what it may be reserved for, and what it asks for."""

from collections.abc import Collection

from msgspec import Struct

from dispatcher.model.amounts import Amounts


class PodRequest(Struct, frozen=True, gc=False):
    """`name` with its namespace; `keys`: what a reservation may call it, each once; `is_exempt`: what a node cannot do
    without.
    """

    name: str
    keys: Collection[str]
    asks: Amounts
    is_exempt: bool = False
    uid: str = ""
