"""The objects of the cluster: their versions, the meaning of writes, Events, lists and selectors.

Pure, except for random parts of names. Time is an argument of the registry.

`Storage`: objects under one version counter, and a history of their changes. A stored object never changes: a write
stores another one. The history serves a list `Exact` at an old version, the pages of one list, and a watch from an old
version. It holds `REMEMBERED` changes of each kind. A request for an older version gets 410.

`Registry`: metadata of the server, preconditions, finalizers, grace periods. Each call returns the object as it is
stored afterwards. A refusal is an ApiFault with the status that the real server gives.

`EventLog`: Events about objects, as `kubectl describe` shows them. Only the newest `KEPT` are stored.

`read_labels`, `read_fields`: label and field selectors of a query, as tests of objects.

`list_objects`: all pages of one list have the same version. The continue token holds that version and the last key of
the page before.
"""

import base64
import re
import secrets
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.stored_json import Json
from dispatcher_demo.cluster.checking import check_object
from dispatcher_demo.cluster.kinds import (
    ENDED,
    EVENT,
    JOB,
    NAMESPACE,
    POD,
    ApiFault,
    FieldCause,
    ObjectKind,
    Target,
    bad_request,
    conflict,
    expired,
    invalid,
    made,
    missing,
    stamp,
    unprocessable,
    with_condition,
)

Key = tuple[str, str]
"""Namespace and name. Namespace "": the kind has no namespaces."""
REMEMBERED: Final = 20_000


class StoredVersion(Struct, frozen=True):
    """One version of an object. `item`: its JSON inside a list. `whole`: its JSON alone, with kind and apiVersion."""

    version: int
    object: Json
    item: bytes
    whole: bytes


class Change(Struct, frozen=True):
    version: int
    kind: ObjectKind
    key: Key
    before: StoredVersion | None
    after: StoredVersion | None


class Storage:
    """All objects of the cluster. Each write calls the `listeners` with its change before it returns."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.version = 1
        self.listeners: list[Callable[[Change], None]] = []
        self._entries: dict[ObjectKind, dict[Key, StoredVersion]] = defaultdict(dict)
        self._changes: dict[ObjectKind, deque[Change]] = defaultdict(lambda: deque(maxlen=remembered))

    def get(self, kind: ObjectKind, key: Key) -> StoredVersion | None:
        return self._entries[kind].get(key)

    def all(self, kind: ObjectKind) -> dict[Key, StoredVersion]:
        """The present objects of the kind. Callers must not write to the dict."""
        return self._entries[kind]

    def put(self, kind: ObjectKind, key: Key, object: Json) -> StoredVersion:  # noqa: A002  # Kubernetes calls it so
        self.version += 1
        entry = write_entry(kind, object, self.version)
        before, self._entries[kind][key] = self.get(kind, key), entry
        self._publish(Change(self.version, kind, key, before, entry))
        return entry

    def drop(self, kind: ObjectKind, key: Key) -> None:
        self.version += 1
        before = self._entries[kind].pop(key)
        self._publish(Change(self.version, kind, key, before, None))

    def as_of(self, kind: ObjectKind, version: int) -> dict[Key, StoredVersion]:
        """All objects of the kind at that version. ApiFault 410: it is forgotten. ApiFault 504: it is in the future."""
        self._check(kind, version)
        found = dict(self._entries[kind])
        for change in takewhile(lambda change: change.version > version, reversed(self._changes[kind])):
            if change.before is None:
                del found[change.key]
            else:
                found[change.key] = change.before
        return found

    def since(self, kind: ObjectKind, version: int) -> Iterator[Change]:
        """Changes after that version, oldest first. Raises the same as `as_of`."""
        self._check(kind, version)
        newer = list(takewhile(lambda change: change.version > version, reversed(self._changes[kind])))
        return reversed(newer)

    def check_reached(self, version: int) -> None:
        """Raises ApiFault 504 if the version is in the future."""
        if version > self.version:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            words = f"Too large resource version: {version}, current: {self.version}"
            raise ApiFault(504, words, details={"causes": [cause], "retryAfterSeconds": 1})

    def _check(self, kind: ObjectKind, version: int) -> None:
        self.check_reached(version)
        changes = self._changes[kind]
        if changes and len(changes) == changes.maxlen and version < changes[0].version - 1:
            raise expired(f"too old resource version: {version} ({changes[0].version})")

    def _publish(self, change: Change) -> None:
        self._changes[change.kind].append(change)
        for listener in self.listeners:
            listener(change)


def write_entry(kind: ObjectKind, object: Json, version: int = 0) -> StoredVersion:  # noqa: A002  # Kubernetes calls it so
    """The entry for an object. `version` 0: the object is not stored."""
    versioned = {"resourceVersion": str(version)} if version else {}
    stored = {**object, "metadata": {**object["metadata"], **versioned}}
    item = msgspec.json.encode(stored)
    head = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    return StoredVersion(version, stored, item, head + item[1:])


FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
PROPAGATION: Final[Mapping[str, list[str]]] = {
    "Background": [], "Foreground": [FOREGROUND], "Orphan": [ORPHAN], "": [],
}  # fmt: skip
SERVERS_OWN: Final = frozenset(
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
)


class Registry:
    """The objects of the cluster, and the writes to them."""

    def __init__(self, storage: Storage, clock: Callable[[], datetime]) -> None:
        self.storage = storage
        self._clock = clock

    def now(self) -> str:
        return stamp(self._clock())

    def get(self, target: Target) -> StoredVersion:
        entry = self.storage.get(target.kind, (target.namespace, target.name))
        if entry is None:
            raise missing(target)
        return entry

    def create(self, target: Target, given: Json, *, dry_run: bool = False) -> StoredVersion:
        kind = target.kind
        check_place(target, given)
        if kind.namespaced:
            self._check_namespace(target)
        meta = given.get("metadata") or {}
        if not (meta.get("name") or meta.get("generateName")):
            cause = FieldCause("metadata.name", "FieldValueRequired", "name or generateName is required")
            raise invalid(kind, "", [cause])
        whole = made(kind, given, target.namespace, self.now())
        name = whole["metadata"]["name"]
        check_object(kind, whole)
        key = (target.namespace, name)
        if self.storage.get(kind, key) is not None:
            raise conflict(Target(kind, target.namespace, name), "already exists", "AlreadyExists")
        return write_entry(kind, whole) if dry_run else self.storage.put(kind, key, whole)

    def update(self, target: Target, given: Json) -> StoredVersion:
        """Replaces the object (PUT). A write to `status` keeps the spec, and a write to the object keeps the status."""
        check_place(target, given)
        before, said = self.get(target).object, given.get("metadata") or {}
        check_name(target, said)
        check_preconditions(target, before, said, "the object has been modified; apply your changes to the latest one")
        meta, servers = before["metadata"], {*SERVERS_OWN, *(["ownerReferences"] if target.part == "status" else [])}
        kept = {key: value for key, value in said.items() if key not in servers and value not in (None, [])}
        body = {key: value for key, value in given.items() if key not in {"kind", "apiVersion", "metadata"}}
        if target.part == "status":
            body = {**before, "status": body.get("status") or {}}
        elif target.kind.has_status:
            body["status"] = before.get("status") or {}
        own = {key: meta[key] for key in servers if key in meta}
        return self._put_changed(target, before, {**body, "metadata": {**kept, **own}})

    def patch(self, target: Target, patch: Json) -> StoredVersion:
        """Applies a merge patch (RFC 7386)."""
        return self.update(target, merged(self.get(target).object, patch))

    def bind(self, target: Target, node: str) -> None:
        pod = self.get(target).object
        if bound := pod["spec"].get("nodeName"):
            raise conflict(target, f"is already assigned to node {bound!r}")
        if "deletionTimestamp" in pod["metadata"]:
            raise conflict(target, "is being deleted, cannot be assigned to a host")
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.now()}
        status = {**pod["status"], "conditions": with_condition(pod["status"].get("conditions") or [], condition)}
        changed = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        self.storage.put(POD, (target.namespace, target.name), changed)

    def delete(self, target: Target, options: Mapping[str, Any] = {}) -> StoredVersion:
        """Deletes the object. Returns what is left of it, or its last state."""
        entry, kind = self.get(target), target.kind
        check_preconditions(target, entry.object, options.get("preconditions") or {}, "cannot be deleted")
        meta = entry.object["metadata"]
        grace = grace_of(kind, entry.object, options)
        if kind is JOB and not options.get("propagationPolicy"):
            options = {**options, "propagationPolicy": "Orphan"}  # the default of batch/v1 for Jobs
        finalizers = finalizers_after(meta, options)
        at = stamp(self._clock() + timedelta(seconds=grace))
        ends: Json = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
        if "deletionTimestamp" in meta and (
            options.get("gracePeriodSeconds") is None or grace >= meta["deletionGracePeriodSeconds"]
        ):
            ends = {key: meta[key] for key in ends}  # a grace may only get shorter
        kept = {name: value for name, value in meta.items() if name != "finalizers"}
        left = {"finalizers": finalizers} if finalizers else {}
        changed = {**entry.object, "metadata": {**kept, **ends, **left}}
        if kind is NAMESPACE:  # the collector removes it after its last object
            changed["status"] = {"phase": "Terminating"}
        return self._put_changed(target, entry.object, changed)

    def _put_changed(self, target: Target, before: Json, changed: Json) -> StoredVersion:
        """Stores the object, if it changed. A deleted object without finalizers is removed instead."""
        key, meta = (target.namespace, target.name), changed["metadata"]
        version = {"resourceVersion": before["metadata"]["resourceVersion"]}
        if {**changed, "metadata": {**changed["metadata"], **version}} == before:
            return self.get(target)
        is_ending = "deletionTimestamp" in meta and not meta["deletionGracePeriodSeconds"]
        if is_ending and "finalizers" not in meta and target.kind is not NAMESPACE:
            self.storage.drop(target.kind, key)
            return write_entry(target.kind, changed, self.storage.version)
        return self.storage.put(target.kind, key, changed)

    def _check_namespace(self, target: Target) -> None:
        namespace = self.storage.get(NAMESPACE, ("", target.namespace))
        if namespace is None:
            raise missing(Target(NAMESPACE, name=target.namespace))
        if "deletionTimestamp" in namespace.object["metadata"]:
            raise ApiFault(403, f"unable to create new content in namespace {target.namespace}: it is being terminated")


def check_name(target: Target, meta: Json) -> None:
    if meta.get("name") != target.name:
        raise bad_request(f"the name of the object ({meta.get('name')}) does not match the URL ({target.name})")


def check_place(target: Target, given: Json) -> None:
    """Raises ApiFault 400 if the body names another kind or namespace than the path."""
    kind, meta = target.kind, given.get("metadata") or {}
    said = given.get("apiVersion") or kind.api_version, given.get("kind") or kind.kind
    if said != (kind.api_version, kind.kind):
        raise bad_request(f"{said[1]} in version {said[0]!r} cannot be handled as a {kind.kind}")
    if kind.namespaced and meta.get("namespace", target.namespace) not in {target.namespace, ""}:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def check_preconditions(target: Target, whole: Json, wanted: Mapping[str, str], why: str) -> None:
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if (asked := wanted.get(field)) and asked != (held := whole["metadata"][field]):
            told = f"the {words} in the precondition ({asked}) does not match that in record ({held})"
            raise conflict(target, f"{why}: {told}")


def grace_of(kind: ObjectKind, whole: Json, options: Mapping[str, Any]) -> int:
    """The grace period of a delete in seconds: 0, unless the object is a Pod on a node that has not ended."""
    if kind is not POD or not whole["spec"].get("nodeName") or whole["status"].get("phase") in ENDED:
        return 0
    asked = options.get("gracePeriodSeconds")
    return int(whole["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)


def finalizers_after(meta: Json, options: Mapping[str, Any]) -> list[str]:
    """The finalizers of an object that is deleted with these options."""
    kept = [one for one in meta.get("finalizers") or [] if one not in {FOREGROUND, ORPHAN}]
    asked = options.get("propagationPolicy") or ""
    if asked not in PROPAGATION:
        raise unprocessable("propagationPolicy", "FieldValueNotSupported", f"Unsupported value: {asked!r}")
    return kept + PROPAGATION[asked] if asked else list(meta.get("finalizers") or [])


def merged(old: Any, patch: Any) -> Any:  # any JSON
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


KEPT: Final = 1000


class EventLog:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._told: deque[tuple[str, str]] = deque()

    def tell(self, kind: ObjectKind, about: Json, reason: str, message: str, sort: str = "Normal") -> None:
        """Stores one Event. `sort`: Normal or Warning."""
        meta, now = about["metadata"], self._registry.now()
        namespace = meta.get("namespace", "default")
        key = (namespace, f"{meta['name']}.{secrets.token_hex(8)}")
        involved = {"kind": kind.kind, "apiVersion": kind.api_version, "name": meta["name"], "namespace": namespace}
        own = {"name": key[1], "namespace": namespace, "creationTimestamp": now, "uid": str(uuid.uuid4())}
        self._registry.storage.put(EVENT, key, {
            "metadata": own,
            "involvedObject": {**involved, "uid": meta["uid"]}, "reason": reason, "message": message, "type": sort,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        })  # fmt: skip
        self._told.append(key)
        if len(self._told) > KEPT and self._registry.storage.get(EVENT, oldest := self._told.popleft()):
            self._registry.storage.drop(EVENT, oldest)


Test = Callable[[Mapping[str, str]], bool]
KEY: Final = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
EXISTS: Final = re.compile(rf"(!?)\s*({KEY})")
COMPARED: Final = re.compile(rf"({KEY})(?:\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)|\s+(in|notin)\s+\(([^()]*)\))")
REQUIREMENT: Final = re.compile(r"[^,(]*\([^)]*\)[^,]*|[^,]+")


def read_labels(selector: str) -> Test:
    """A test of labels. Raises ApiFault 400 if the text is no selector."""
    tests = [read_requirement(part.strip()) for part in REQUIREMENT.findall(selector)]
    if selector.strip() and (not tests or selector.strip().endswith(",")):
        raise bad_request(f"unable to parse requirement: {selector!r}")
    return lambda labels: all(test(labels) for test in tests)


def read_requirement(text: str) -> Test:
    if found := EXISTS.fullmatch(text):
        no, key = found.groups()
        return lambda labels: (key in labels) is not bool(no)
    if found := COMPARED.fullmatch(text):
        key, sign, value, operator, listed = found.groups()
        values = {value} if sign else {one.strip() for one in listed.split(",")}
        return lambda labels: (labels.get(key) in values) is not ((sign or operator) in {"!=", "notin"})
    raise bad_request(f"unable to parse requirement: {text!r}")


def read_fields(selector: str, kind: ObjectKind) -> Callable[[Json], bool]:
    """A test of objects. Raises ApiFault 400 if the text is no selector, or names a field without support."""
    wanted = [read_field(part, kind) for part in selector.split(",") if part]

    def matches(whole: Json) -> bool:
        return all((field_of(whole, path) == value) is is_equal for path, value, is_equal in wanted)

    return matches


def read_field(part: str, kind: ObjectKind) -> tuple[str, str, bool]:
    path, operator, value = re.split(r"(==|!=|=)", part, maxsplit=1) if "=" in part else ("", "", part)
    if not operator:
        raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
    if path not in kind.fields:
        raise bad_request(f"field label not supported: {path}")
    return path, value, operator != "!="


def field_of(whole: Json, path: str) -> str:
    found: Any = whole
    for word in path.split("."):
        found = found.get(word, "") if isinstance(found, dict) else ""
    return str(found).lower() if isinstance(found, bool) else str(found)


Query = Mapping[str, str]
LARGEST: Final = 2**63 - 1


class ContinueToken(Struct, frozen=True):
    """The continue token: the next page begins after the key `after`."""

    version: int
    after: Key


class Selection(Struct, frozen=True):
    """The objects of one list or watch."""

    matches: Callable[[Json], bool]

    def event(self, change: Change) -> tuple[str, StoredVersion] | None:
        """The change for a client that sees only these objects. None: it sees nothing."""
        was = change.before is not None and self.matches(change.before.object)
        if change.after is not None and self.matches(change.after.object):
            return ("MODIFIED" if was else "ADDED"), change.after
        if was and change.before is not None:
            return "DELETED", write_entry(change.kind, change.before.object, change.version)
        return None


def read_selection(target: Target, query: Query) -> Selection:
    """The selection of a query. Raises ApiFault 400 if a selector cannot be parsed."""
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
    """The version. Raises ApiFault 400 if the text is none."""
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
        meta["continue"] = write_token(ContinueToken(int(meta["resourceVersion"]), page[-1]))
    return write_list(target, meta, [entries[key].item for key in page])


def write_list(target: Target, meta: Json, items: Iterable[bytes]) -> bytes:
    kind, told = target.kind, msgspec.json.encode(meta)
    head = f'{{"kind":"{kind.kind}List","apiVersion":"{kind.api_version}","metadata":'.encode()
    return head + told + b',"items":[' + b",".join(items) + b"]}"


def read_number(query: Query, name: str) -> int:
    """The number, or 0 if it is missing. Raises ApiFault 400 if it is no number."""
    written = query.get(name) or "0"
    if not written.isdecimal():
        raise bad_request(f"{name} {written!r} is no number")
    return int(written)


def exact_version(storage: Storage, query: Query) -> int | None:
    """The version of a list `Exact`. None: the present state, which is new enough for any other list."""
    asked = read_version(query.get("resourceVersion") or "0")
    storage.check_reached(asked)
    return (asked or None) if query.get("resourceVersionMatch") == "Exact" else None


def read_token(query: Query) -> ContinueToken | None:
    written = query.get("continue", "")
    if not written:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(written), type=ContinueToken)
    except (ValueError, msgspec.DecodeError) as fault:
        raise bad_request(f"continue key is not valid: {fault}") from fault


def write_token(token: ContinueToken) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()
