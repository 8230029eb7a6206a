"""History: the nodes where a queue's cache key succeeded last. The extender reads it in an annotation of the Pod."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dispatcher.model.identity import HISTORY_NODES

MOST_NODES: Final = 3
POINTS: Final = (3, 2, 1)
"""Points of the newest node, and of the two before. At weight 1 kube-scheduler makes 30, 20 and 10 of them."""


def write_history(nodes: Sequence[str]) -> str:
    return msgspec.json.encode(nodes[:MOST_NODES]).decode()


def read_history(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes, the newest first. ValueError: the annotation is not an array of names."""
    written = annotations.get(HISTORY_NODES)
    if written is None:
        return ()
    return tuple(dict.fromkeys(msgspec.json.decode(written, type=list[str])))[:MOST_NODES]


def history_points(nodes: Sequence[str]) -> dict[str, int]:
    """Points by node, for nodes of the history only."""
    return dict(zip(nodes, POINTS, strict=False))
