"""Lists: the objects that a list or a watch selects, and their version.

All pages of one list have the same version. The continue token holds that version and the last key of the page before.
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
    """The continue token: the next page begins after the key `after`."""

    version: int
    after: Key


class Selection(Struct, frozen=True):
    """The objects of one list or watch."""

    matches: Callable[[Json], bool]

    def event(self, change: Change) -> tuple[str, Entry] | None:
        """The change as a client sees it that sees only these objects. None: it sees nothing."""
        was = change.before is not None and self.matches(change.before.object)
        if change.after is not None and self.matches(change.after.object):
            return ("MODIFIED" if was else "ADDED"), change.after
        if was and change.before is not None:
            return "DELETED", write_entry(change.kind, change.before.object, change.version)
        return None


def read_selection(target: Target, query: Query) -> Selection:
    """ApiFault 400: a selector cannot be parsed."""
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

    return Selection(matches)


def read_version(written: str) -> int:
    """ApiFault 400: the text is not a version."""
    if not written.isascii() or not written.isdecimal() or int(written) > LARGEST:
        raise bad_request(f"invalid resource version {written!r}")
    return int(written)


def list_objects(storage: Storage, target: Target, query: Query) -> bytes:
    """A list, or one page of it, as JSON."""
    selection, limit = read_selection(target, query), read_number(query, "limit")
    token = read_token(query)
    version = token.version if token else exact_version(storage, query)
    entries = storage.all(target.kind) if version is None else storage.as_of(target.kind, version)
    chosen = sorted(key for key, entry in entries.items() if selection.matches(entry.object))
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
    """The number, or 0 if it is absent. ApiFault 400: it is not a number."""
    written = query.get(name) or "0"
    if not written.isdecimal():
        raise bad_request(f"{name} {written!r} is no number")
    return int(written)


def exact_version(storage: Storage, query: Query) -> int | None:
    """The version of a list `Exact`. None: the present state, which is new enough for any other list."""
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
