"""The folder of a cache on a node's disk: one for each queue's key, below one root, with no way out of it."""

import hashlib

import msgspec


def cache_path(root: str, queue: str, key: str) -> str:
    """A name made of a digest: nothing that a submitter writes is ever a part of the path. Both are in it, so that no
    team reaches another's by naming its key.
    """
    digest = hashlib.sha256(msgspec.json.encode([queue, key])).hexdigest()
    return f"{root}/{digest[:40]}"
