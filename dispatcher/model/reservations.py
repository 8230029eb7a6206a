"""NodeReservations, the keys by which they name a Pod, and forbidden changes of a Job of ours. Pure.

`changes_of`: what others changed in a Job of ours, in fields on which our promises rest. Policies and webhooks of a
cluster change Jobs when they are made. Most changes are welcome: a registry, tolerations, sidecars. These are not: a
Job that removes itself when it has ended is forgotten, and its row runs again; a Job with other labels is not found;
another command is other work.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.model.jobs import Json
from dispatcher.model.launches import DOMAIN, LABEL_TASK_ID, MANAGED_BY
from dispatcher.model.resources import Amounts, parse_quantity

LANDED: Final = "Landed"

JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")


class Reservation(Struct, frozen=True, gc=False):
    """A NodeReservation: an amount of a node that is held for a Pod to come.

    name: `namespace/name`.
    amounts: held amount of each resource.
    target: one of the Pod's keys.
    made_at, ends_at: seconds of the API server's clock.
    phase, message: from its status.
    """

    name: str
    uid: str
    node: str
    amounts: Amounts
    target: str
    ends_at: float
    made_at: float = 0
    phase: str = ""
    message: str = ""

    @property
    def has_landed(self) -> bool:
        """Whether its target has landed. `Landed` is final. Decisions use no other phase."""
        return self.phase == LANDED


def key_of(kind: str, namespace: str, value: object) -> str:
    """A key that a reservation's target and its Pod share, such as `jobName builds/dispatcher-7-…`.

    `kind`: a field of the reservation's target.
    """
    return f"{kind} {namespace}/{value}"


def keys_of(
    namespace: str, name: str, uid: str, labels: Mapping[str, str], owners: Iterable[str]
) -> tuple[str, ...]:  # fmt: skip
    """All keys of a Pod, each once. Keys of kind `uid` have the uid of the Pod or of an owner, such as its Job."""
    jobs = {labels[label] for label in JOB_NAMES if label in labels}
    tasks = [labels[LABEL_TASK_ID]] if LABEL_TASK_ID in labels else []
    return (
        key_of("podName", namespace, name),
        *(key_of("uid", namespace, one) for one in dict.fromkeys((uid, *owners))),
        *(key_of("jobName", namespace, job) for job in sorted(jobs)),
        *(key_of("taskId", namespace, task) for task in tasks),
    )


ABSENT: Final = "absent"
OF_JOBS: Final[Mapping[str, Any]] = {
    "ttlSecondsAfterFinished": None,
    "activeDeadlineSeconds": None,
    "backoffLimit": 6,
    "backoffLimitPerIndex": None,
    "parallelism": 1,
    "completions": 1,
    "completionMode": "NonIndexed",
    "suspend": False,
    "managedBy": None,
    "successPolicy": None,
    "podFailurePolicy": None,
}
"""Fields of a Job's spec, and the API server's default of a field that is not sent; None: the field stays absent."""
OF_PODS: Final[Mapping[str, Any]] = {"restartPolicy": "Always", "activeDeadlineSeconds": None}
OF_CONTAINERS: Final[Mapping[str, Any]] = {
    "command": None, "args": None, "restartPolicy": None, "restartPolicyRules": None,
}  # fmt: skip
OF_INIT_CONTAINERS: Final[Mapping[str, Any]] = {"restartPolicy": None, "restartPolicyRules": None}
QUEUE_OF_KUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Kueue suspends Jobs with this label until it has room for them. A template with this label wants that."""


def changes_of(sent: Json, made: Json) -> tuple[str, ...]:
    """Each forbidden change, such as `spec.suspend is true, not false`."""
    return tuple(changes(sent, made))


def changes(sent: Json, made: Json) -> Iterator[str]:
    yield from of_metadata("metadata", sent["metadata"], made.get("metadata") or {})
    here, there = sent["spec"], made.get("spec") or {}
    is_queued = QUEUE_OF_KUEUE in ((made.get("metadata") or {}).get("labels") or {})
    fields = {name: one for name, one in OF_JOBS.items() if not (is_queued and name == "suspend")}
    yield from of_fields("spec", fields, here, there)
    pod, its = here["template"], there.get("template") or {}
    yield from of_metadata("spec.template.metadata", pod["metadata"], its.get("metadata") or {})
    spec, theirs = pod["spec"], its.get("spec") or {}
    yield from of_fields("spec.template.spec", OF_PODS, spec, theirs)
    yield from of_init_containers(spec, theirs)
    by_name = {one.get("name"): one for one in theirs.get("containers") or ()}
    for container in spec["containers"]:
        where = f"spec.template.spec.containers[{container['name']}]"
        if container["name"] not in by_name:
            yield f"{where} is {ABSENT}"
            continue
        found = by_name[container["name"]]
        yield from of_fields(where, OF_CONTAINERS, container, found)
        yield from of_env(where, container.get("env") or (), found.get("env") or ())


def of_init_containers(spec: Json, theirs: Json) -> Iterator[str]:
    """Checks only init containers of ours that are still there. Others may add more."""
    by_name = {one.get("name"): one for one in theirs.get("initContainers") or ()}
    for container in spec.get("initContainers") or ():
        where = f"spec.template.spec.initContainers[{container['name']}]"
        yield from of_fields(where, OF_INIT_CONTAINERS, container, by_name.get(container["name"], {}))


def of_metadata(where: str, sent: Json, made: Json) -> Iterator[str]:
    """Checks that our labels and annotations are there. Others may add more, and change those of the template."""
    for field in ("labels", "annotations"):
        there = made.get(field) or {}
        for key, value in (sent.get(field) or {}).items():
            if there.get(key) != value and (key == MANAGED_BY or key.startswith(f"{DOMAIN}/")):
                yield f"{where}.{field}[{key}] is {words(there.get(key))}, not {words(value)}"
    if "name" in sent and made.get("name") != sent["name"]:
        yield f"{where}.name is {words(made.get('name'))}, not {words(sent['name'])}"


def of_fields(where: str, fields: Json, sent: Json, made: Json) -> Iterator[str]:
    for name, default in fields.items():
        wanted, found = sent.get(name, default), made.get(name)
        if not holds(wanted, default if found is None else found):
            yield f"{where}.{name} is {words(found)}, not {words(wanted)}"


def of_env(where: str, sent: Sequence[Json], made: Sequence[Json]) -> Iterator[str]:
    """Checks the variables. Values stay out of the message: they may be secrets. Of a repeated name the last counts."""
    there = {one.get("name"): one for one in made}
    for name, one in {one["name"]: one for one in sent}.items():
        if not holds(one, there.get(name)):
            yield f"{where}.env[{name}] is another"


def holds(wanted: Any, found: Any) -> bool:
    """Whether everything that was sent is there. The API server adds defaults, and empty and absent are alike."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            (is_same_amount if key == AMOUNT else holds)(value, found.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        found = found or []
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(holds(one, two) for one, two in zip(wanted, found, strict=True))
        )
    return bool(wanted == found) or (wanted in (None, "") and found in (None, ""))


AMOUNT: Final = "divisor"
"""The field of a variable that is an amount."""


def is_same_amount(wanted: object, found: object) -> bool:
    """The API server writes amounts in its own way: 1000m as 1, and each as a text."""
    try:
        return parse_quantity(str(wanted)) == parse_quantity(str(found))
    except ValueError:
        return False


def words(value: object) -> str:
    text = ABSENT if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
