"""Which objects a list or a watch is about, and as of which version.

Pages of one list are of one version: the token of the next page names it, and how far the list has come.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.local.cluster.faults import bad_request
from dispatcher.local.cluster.kinds import Target
from dispatcher.local.cluster.selectors import read_fields, read_labels
from dispatcher.local.cluster.storage import Change, Entry, Key, Storage, write_entry

Json = dict[str, Any]
Query = Mapping[str, str]
LARGEST: Final = 2**63 - 1


class Token(Struct, frozen=True):
    """Where the next page begins: after that key."""

    version: int
    after: Key


class Which(Struct, frozen=True):
    """The objects that are meant."""

    matches: Callable[[Json], bool]

    def event(self, change: Change) -> tuple[str, Entry] | None:
        """The change as it looks to somebody who sees only these."""
        was = change.before is not None and self.matches(change.before.object)
        if change.after is not None and self.matches(change.after.object):
            return ("MODIFIED" if was else "ADDED"), change.after
        if was and change.before is not None:
            return "DELETED", write_entry(change.kind, change.before.object, change.version)
        return None


def read_which(target: Target, query: Query) -> Which:
    """ApiFault 400: no selector."""
    labels = read_labels(query.get("labelSelector", ""))
    fields = read_fields(query.get("fieldSelector", ""), target.kind)
    namespace = target.namespace

    def matches(whole: Json) -> bool:
        meta = whole["metadata"]
        return (
            (not namespace or meta.get("namespace") == namespace)
            and labels(meta.get("labels") or {})
            and fields(whole)
        )  # fmt: skip

    return Which(matches)


def read_version(written: str) -> int:
    """ApiFault 400: no version."""
    if not written.isascii() or not written.isdecimal() or int(written) > LARGEST:
        raise bad_request(f"invalid resource version {written!r}")
    return int(written)


def list_objects(storage: Storage, target: Target, query: Query) -> bytes:
    """A list, or a page of one, as JSON."""
    which, limit = read_which(target, query), read_number(query, "limit")
    token = read_token(query)
    version = token.version if token else exact_version(storage, query)
    entries = storage.all(target.kind) if version is None else storage.as_of(target.kind, version)
    chosen = sorted(key for key, entry in entries.items() if which.matches(entry.object))
    if token:
        chosen = [key for key in chosen if key > token.after]
    page = chosen[:limit] if limit else chosen
    meta: Json = {"resourceVersion": str(storage.version if version is None else version)}
    if len(chosen) > len(page):
        meta["continue"] = write_token(Token(int(meta["resourceVersion"]), page[-1]))
    return write_list(target, meta, [entries[key].item for key in page])


def write_list(target: Target, meta: Json, items: Iterable[bytes]) -> bytes:
    kind, told = target.kind, msgspec.json.encode(meta)
    head = f'{{"kind":"{kind.kind}List","apiVersion":"{kind.api_version}","metadata":'.encode()
    return head + told + b',"items":[' + b",".join(items) + b"]}"


def read_number(query: Query, name: str) -> int:
    """0 without; ApiFault 400: not one."""
    written = query.get(name) or "0"
    if not written.isdecimal():
        raise bad_request(f"{name} {written!r} is no number")
    return int(written)


def exact_version(storage: Storage, query: Query) -> int | None:
    """The old version that is asked for; None: as it is now, which is not older than anything."""
    asked = read_version(query.get("resourceVersion") or "0")
    storage.check_reached(asked)
    return (asked or None) if query.get("resourceVersionMatch") == "Exact" else None


def read_token(query: Query) -> Token | None:
    written = query.get("continue", "")
    if not written:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(written), type=Token)
    except (ValueError, msgspec.DecodeError) as fault:
        raise bad_request(f"continue key is not valid: {fault}") from fault


def write_token(token: Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()
