"""The directory of a cache on a node's disk: ROOT/INSTALLATION/DIGEST. Each cache key of a queue has one."""

import hashlib

import msgspec


def cache_digest(installation: str, queue: str, key: str) -> str:
    """40 hex digits, so no text of a submitter is part of a path.

    The same key in another queue is another directory, so teams cannot reach each other's caches. Neither can two
    installations with the same root.
    """
    return hashlib.sha256(msgspec.json.encode([installation, queue, key])).hexdigest()[:40]


def cache_folder(root: str, installation: str) -> str:
    """The folder of an installation's caches. Its cache keeper can reach no other."""
    return f"{root}/{installation}"


def cache_path(root: str, installation: str, digest: str) -> str:
    return f"{cache_folder(root, installation)}/{digest}"
