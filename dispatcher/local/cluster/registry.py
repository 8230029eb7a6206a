"""The meaning of writes: metadata of the server, preconditions, finalizers, grace periods.

Pure, except for random parts of names. Time is an argument of the registry. Each call returns the object as it is
stored afterwards. A refusal is an ApiFault with the status that the real server gives.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from dispatcher.local.cluster.checking import check_object
from dispatcher.local.cluster.conditions import ENDED, stamp, with_condition
from dispatcher.local.cluster.defaults import made
from dispatcher.local.cluster.faults import ApiFault, Cause, bad_request, conflict, invalid, missing, unprocessable
from dispatcher.local.cluster.kinds import JOB, NAMESPACE, POD, Kind, Target
from dispatcher.local.cluster.storage import Entry, Storage, write_entry

Json = dict[str, Any]
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

    def get(self, target: Target) -> Entry:
        entry = self.storage.get(target.kind, (target.namespace, target.name))
        if entry is None:
            raise missing(target)
        return entry

    def create(self, target: Target, given: Json, *, dry_run: bool = False) -> Entry:
        kind = target.kind
        check_place(target, given)
        if kind.namespaced:
            self._check_namespace(target)
        meta = given.get("metadata") or {}
        if not (meta.get("name") or meta.get("generateName")):
            cause = Cause("metadata.name", "FieldValueRequired", "name or generateName is required")
            raise invalid(kind, "", [cause])
        whole = made(kind, given, target.namespace, self.now())
        name = whole["metadata"]["name"]
        check_object(kind, whole)
        key = (target.namespace, name)
        if self.storage.get(kind, key) is not None:
            raise conflict(Target(kind, target.namespace, name), "already exists", "AlreadyExists")
        return write_entry(kind, whole) if dry_run else self.storage.put(kind, key, whole)

    def update(self, target: Target, given: Json) -> Entry:
        """PUT. A write to `status` leaves the spec as it is. A write to the object leaves the status as it is."""
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

    def patch(self, target: Target, patch: Json) -> Entry:
        """A merge patch (RFC 7386)."""
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

    def delete(self, target: Target, options: Mapping[str, Any] = {}) -> Entry:
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

    def _put_changed(self, target: Target, before: Json, changed: Json) -> Entry:
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
    """ApiFault 400: the body names another kind or namespace than the path."""
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


def grace_of(kind: Kind, whole: Json, options: Mapping[str, Any]) -> int:
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
