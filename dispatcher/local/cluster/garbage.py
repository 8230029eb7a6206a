"""Garbage collection: dependents of deleted objects, the content of namespaces, Pods that no kubelet will end.

A controller: it notes the changes that concern it, and acts until none is left.
"""

from collections import defaultdict
from typing import Any

from dispatcher.local.cluster.faults import ApiFault
from dispatcher.local.cluster.jobs import is_ended
from dispatcher.local.cluster.kinds import KINDS, NAMESPACE, POD, Kind, Target
from dispatcher.local.cluster.registry import FOREGROUND, ORPHAN, Registry
from dispatcher.local.cluster.storage import Change, Entry, Key

Json = dict[str, Any]
Place = tuple[Kind, Key]


class Garbage:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        self._owners: dict[str, Place] = {}
        self._dirty: dict[Place, None] = {}
        self._orphaned: dict[str, None] = {}

    def hear(self, change: Change) -> None:
        place = (change.kind, change.key)
        if entry := change.after or change.before:
            meta = entry.object["metadata"]
            for owner in meta.get("ownerReferences") or ():
                self._note(owner["uid"], place, is_there=change.after is not None)
            if change.after is None:
                self._orphaned[meta["uid"]] = None
                self._look_at_namespace(change.key[0])
            elif "deletionTimestamp" in meta:
                self._owners[meta["uid"]] = place
                self._dirty[place] = None

    def run_once(self) -> None:
        while self._dirty or self._orphaned:
            orphaned, self._orphaned = self._orphaned, {}
            for uid in orphaned:
                self._owners.pop(uid, None)
                for kind, key in sorted(self._dependents.pop(uid, ()), key=lambda place: place[1]):
                    self._delete(kind, key)
            dirty, self._dirty = self._dirty, {}
            for kind, key in dirty:
                if (entry := self._registry.storage.get(kind, key)) is not None:
                    self._end(kind, key, entry)

    def _look_at_namespace(self, name: str) -> None:
        """Notes a namespace that is being deleted: its last object may be gone."""
        found = self._registry.storage.get(NAMESPACE, ("", name))
        if found is not None and "deletionTimestamp" in found.object["metadata"]:
            self._dirty[NAMESPACE, ("", name)] = None

    def collect_unplaced(self) -> None:
        """Fails Pods that were deleted before they had a node: no kubelet reports their end."""
        for key, entry in list(self._registry.storage.all(POD).items()):
            pod = entry.object
            if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName") and not is_ended(pod):
                self._write(POD, key, {"status": {"phase": "Failed"}}, "status")

    def _note(self, uid: str, place: Place, *, is_there: bool) -> None:
        if is_there:
            self._dependents[uid].add(place)
            return
        self._dependents[uid].discard(place)
        if uid in self._owners:
            self._dirty[self._owners[uid]] = None

    def _end(self, kind: Kind, key: Key, entry: Entry) -> None:
        """Takes one object that is being deleted a step further."""
        meta = entry.object["metadata"]
        if kind is NAMESPACE:
            self._empty(key)
        if FOREGROUND in (finalizers := meta.get("finalizers") or []):
            left = self._dependents[meta["uid"]]
            for place in sorted(left, key=lambda one: one[1]):
                self._delete(*place)
            if not self._dependents[meta["uid"]]:
                self._write(kind, key, {"metadata": {"finalizers": [one for one in finalizers if one != FOREGROUND]}})
        elif ORPHAN in finalizers:
            for place in self._dependents.pop(meta["uid"], set()):
                self._write(*place, {"metadata": {"ownerReferences": None}})
            self._write(kind, key, {"metadata": {"finalizers": [one for one in finalizers if one != ORPHAN]}})

    def _empty(self, key: Key) -> None:
        storage, is_empty = self._registry.storage, True
        for kind in KINDS:
            for place in [one for one in storage.all(kind) if kind.namespaced and one[0] == key[1]]:
                is_empty = False
                self._delete(kind, place)
        if is_empty:
            storage.drop(NAMESPACE, key)

    def _delete(self, kind: Kind, key: Key) -> None:
        entry = self._registry.storage.get(kind, key)
        if entry is not None and "deletionTimestamp" not in entry.object["metadata"]:
            self._registry.delete(Target(kind, *key), {"propagationPolicy": "Background"})

    def _write(self, kind: Kind, key: Key, patch: Json, part: str = "") -> None:
        try:
            self._registry.patch(Target(kind, *key, part), patch)
        except ApiFault as fault:
            if fault.code != 404:
                raise
