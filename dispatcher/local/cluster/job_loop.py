"""The loop of the Job controller: finds the Jobs to look at, and carries out what `jobs` decides about each."""

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from dispatcher.local.cluster.defaults import TRACKING
from dispatcher.local.cluster.events import Events
from dispatcher.local.cluster.jobs import build_pod, plan_step
from dispatcher.local.cluster.kinds import JOB, POD, Target
from dispatcher.local.cluster.registry import Registry
from dispatcher.local.cluster.storage import Change, Key

Json = dict[str, Any]
log = structlog.get_logger(component="local.jobs")
FAULT: Final = timedelta(seconds=1)
"""Pause before a Job that raised a fault is looked at again. Its namespace may be terminating, for example."""


class JobLoop:
    """Looks at a Job when the Job or one of its Pods has changed, and when its deadline is over."""

    def __init__(self, registry: Registry, events: Events, clock: Callable[[], datetime]) -> None:
        self._registry = registry
        self._events = events
        self._clock = clock
        self._dirty: dict[Key, None] = {}
        self._due: dict[Key, datetime] = {}
        self._lost: list[str] = []
        self._pods: dict[str, set[Key]] = defaultdict(set)
        """Keys of Pods, by the uid of their Job."""

    def hear(self, change: Change) -> None:
        entry = change.after or change.before
        if change.kind is JOB:
            self._dirty[change.key] = None
            if change.after is None and change.before is not None:
                self._lost.append(change.before.object["metadata"]["uid"])
        elif change.kind is POD and entry is not None:
            for owner in entry.object["metadata"].get("ownerReferences") or ():
                if owner.get("controller") and owner["kind"] == "Job":
                    (self._pods[owner["uid"]].add if change.after else self._pods[owner["uid"]].discard)(change.key)
                    self._dirty[change.key[0], owner["name"]] = None

    def _release_lost(self) -> None:
        """Releases Pods whose Job is gone: nothing counts them any more."""
        while self._lost:
            for namespace, name in sorted(self._pods.pop(self._lost.pop(), ())):
                self._release(Target(POD, namespace, name))

    def pause(self) -> float:
        """Seconds until the next deadline."""
        now = self._clock()
        return max(0.01, min(((at - now).total_seconds() for at in self._due.values()), default=math.inf))

    def run_once(self) -> None:
        now = self._clock()
        for key in [key for key, at in self._due.items() if at <= now]:
            self._dirty[key] = None
            del self._due[key]
        while self._dirty or self._lost:
            self._release_lost()
            for key in list(self._dirty):
                del self._dirty[key]
                try:
                    self._sync(key)
                except Exception:  # one Job's fault must not stop the others
                    log.exception("a Job cannot be looked after", job=key[1])
                    self._due[key] = now + FAULT

    def _sync(self, key: Key) -> None:
        entry = self._registry.storage.get(JOB, key)
        if entry is None:
            self._due.pop(key, None)
            return
        job, namespace = entry.object, key[0]
        found = [self._registry.storage.get(POD, pod) for pod in sorted(self._pods[job["metadata"]["uid"]])]
        step = plan_step(job, [pod.object for pod in found if pod is not None], self._clock())
        self._due.pop(key, None)
        if step.again_at:
            self._due[key] = step.again_at
        if step.status is not None:
            self._registry.update(Target(JOB, *key, "status"), {**job, "status": step.status})
            self._tell_end(job, step.status)
        if step.is_short:
            made = self._registry.create(Target(POD, namespace), build_pod(job))
            self._events.tell(JOB, job, "SuccessfulCreate", f"Created pod: {made.object['metadata']['name']}")
        for name in step.delete:
            self._registry.delete(Target(POD, namespace, name))
            self._events.tell(JOB, job, "SuccessfulDelete", f"Deleted pod: {name}")
        for name in step.release:
            self._release(Target(POD, namespace, name))

    def _tell_end(self, job: Json, status: Json) -> None:
        last = (status.get("conditions") or [{"type": ""}])[-1]
        if last["type"] == "Complete":
            self._events.tell(JOB, job, "Completed", "Job completed")
        elif last["type"] == "Failed":
            self._events.tell(JOB, job, last["reason"], last["message"], "Warning")

    def _release(self, target: Target) -> None:
        held = self._registry.get(target).object["metadata"].get("finalizers") or []
        self._registry.patch(target, {"metadata": {"finalizers": [one for one in held if one != TRACKING]}})
