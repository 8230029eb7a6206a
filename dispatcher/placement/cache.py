"""The directory of a cache on a node's disk. Each cache key of a queue has one, and all are below one root."""

import hashlib

import msgspec


def cache_path(root: str, queue: str, key: str) -> str:
    """The path is made of a digest, so no text of a submitter is part of it.

    The digest covers queue and key: the same key in another queue is another directory, so teams cannot reach each
    other's caches.
    """
    digest = hashlib.sha256(msgspec.json.encode([queue, key])).hexdigest()
    return f"{root}/{digest[:40]}"
