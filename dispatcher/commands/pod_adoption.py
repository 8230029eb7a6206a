"""Reads a Pod's spec of another system: its containers, their variables, what it selects, and what it names. Pure."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from dispatcher.commands.adoption import (
    OF_CONTROLLERS,
    STARTED_TOGETHER,
    AdoptionReport,
    Did,
    entries,
    objects,
    texts,
    with_objects,
)
from dispatcher.jobs.env import CONTRACT, LOGIN, PROVIDER_CLASS, TOKENS, is_dispatchers
from dispatcher.jobs.fields import CAPABILITIES, SELINUX_TYPES, SYSCTLS, list_at, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.jobs.templates import RESTARTS, TASK
from dispatcher.model import launches as ids
from dispatcher.model.jobs import Json

EXIT_CODE: Final = "exit-code"
USUAL_NAMES: Final = ("base", "main")
"""How Airflow and Argo call the container that works."""
INDEX: Final = "JOB_COMPLETION_INDEX"
INDEX_NOTE: Final = "job-completion-index"
"""The annotation and the label of a Pod that have the same number."""
INDEX_OF_ROW: Final = f"$({INDEX})"
ONLY_INDEX: Final = "0"


class PodReader:
    """Reads one Pod.

    report: takes the words.
    path: place of the Pod's spec.
    index: value of the index of an Indexed Job; empty: it is none.
    task: name of the task's container; empty: the Pod has no containers.
    """

    def __init__(self, report: AdoptionReport, path: Path, index: str) -> None:
        self.report = report
        self.path = path
        self.index = index
        self.task = ""
        self._pod: dict[str, Any] = {}

    def read(self, pod: Json, default: object) -> dict[str, Any]:
        """The Pod's spec in the template. `default`: name of the container that kubectl takes; None: it is not said."""
        self._pod = dict(self._kept(pod))
        self._read_containers(default)
        if self.index:
            self._read_index(pod)
        return self._pod

    def _read_index(self, pod: Json) -> None:
        """Gives an index that is always the same to each container, and tells where the Pod reads it otherwise."""
        for kind in sorted(RESTARTS.keys() & self._pod.keys()) if self.index == ONLY_INDEX else ():
            listed = enumerate(objects(self._pod[kind]))
            filled = [self._with_only_index(one, (*self.path, kind, number)) for number, one in listed]
            self._pod[kind] = with_objects(self._pod[kind], filled)
        for kind, number in without_index(self._pod, self.task):
            if kind == "volumes":
                words = f"no Pod of ours has an annotation {INDEX_NOTE}: let the program read {INDEX}"
                self.report.tell(Did.OPEN, (*self.path, kind, number), words)
            elif self.index == INDEX_OF_ROW:
                words = f"env.{INDEX} is in the container of the task alone"
                self.report.tell(Did.OPEN, (*self.path, kind, number), words)
        if pod.get("subdomain"):
            words = "no Pod is called NAME-INDEX, and rows start one by one: they cannot find each other by name"
            self.report.tell(Did.OPEN, (*self.path, "subdomain"), words)

    def _kept(self, pod: Json) -> Iterator[tuple[str, Any]]:
        for field, value in self._without_token(self._without_gates(pod)).items():
            if value is None or field in {"restartPolicy", "activeDeadlineSeconds"}:
                continue
            if field in NOT_KEPT:
                did, words = NOT_KEPT[field]
                self.report.tell(did, (*self.path, field), words.format(value))
                continue
            words = "DISPATCHER_SCHEDULER_NAME, where it is set, wins" if field == "schedulerName" else ""
            self.report.tell(Did.KEPT, (*self.path, field), words)
            yield field, value

    def _without_gates(self, pod: Json) -> Json:
        """The Pod without gates of Kueue, which nobody would remove."""
        gates = list_at(pod, GATES)
        others = [one for one in gates if not is_of_kueue(one)]
        if len(others) == len(gates):
            return pod
        self.report.tell(Did.LEFT_OUT, (*self.path, GATES), "Kueue gates Pods alone: it suspends a Job, docs/kueue.md")
        return {**pod, GATES: others or None}

    def _without_token(self, pod: Json) -> Json:
        """The Pod without the volume by which the API server gives it its token. It gives each Pod one."""
        volumes = list_at(pod, "volumes")
        names = {str(one["name"]) for one in objects(volumes) if ADDED.fullmatch(str(one.get("name")))}
        mounts = [mount for kind in RESTARTS for one in objects(pod.get(kind)) for mount in objects(one.get(MOUNTS))]
        names &= {str(one.get("name")) for one in mounts if one.get("mountPath") == ADDED_AT}
        if not names:
            return pod
        for number, one in enumerate(volumes):
            if str(object_at(one).get("name")) in names:
                self.report.tell(Did.LEFT_OUT, (*self.path, "volumes", number), "the API server mounts it in each Pod")
        containers = {kind: without_mounts(pod[kind], names) for kind in RESTARTS if pod.get(kind)}
        return {**pod, **containers, "volumes": without_named(volumes, names) or None}

    def _read_containers(self, default: object) -> None:
        """Chooses the task's container, cleans its variables, and finds out whether it can report."""
        path, containers = self.path, objects(self._pod.get("containers"))
        if not containers:
            words = "there are none: of a patch, `kubectl kustomize DIR | dispatcher adopt -` makes the whole"
            self.report.tell(Did.OPEN, (*path, "containers"), words)
            return
        names = [str(one.get("name")) for one in containers]
        self.task = self._choose(names, default)
        index = names.index(self.task)
        containers[index] = self._with_clean_env(containers[index], (*path, "containers", index))
        self._pod["containers"] = with_objects(self._pod["containers"], containers)
        for kind in sorted(RESTARTS.keys() & self._pod.keys()):
            found = [self._without_restarts(one, (*path, kind, n)) for n, one in enumerate(objects(self._pod[kind]))]
            self._pod[kind] = with_objects(self._pod[kind], found)
        if ids.REPORT not in self.report.own and not can_report(containers[index]):
            self.report.annotate(
                (*path, "containers", index), ids.REPORT, EXIT_CODE, "the image calls no function of ours"
            )

    def _choose(self, names: Sequence[str], default: object) -> str:
        """The task's container: what the manifest says, or a usual name, or the first one."""
        own = self.report.own.get(ids.CONTAINER)
        chosen = next((one for one in (own, default, TASK, *USUAL_NAMES) if one in names), None)
        name = str(chosen or names[0])
        if len(names) > 1 and name != TASK and own is None:
            self.report.annotate((*self.path, "containers"), ids.CONTAINER, name, f"of {', '.join(names)}")
        if len(names) > 1 and chosen is None:
            self.report.tell(Did.OPEN, (*self.path, "containers"), f"is {name} the one that works?")
        return name

    def _without_restarts(self, container: dict[str, Any], path: Path) -> dict[str, Any]:
        """Each try is a Pod of its own. An init container that restarts always is a sidecar, and stays one."""
        left = {key: value for key, value in container.items() if key != "restartPolicyRules"}
        if left.get("restartPolicy") not in RESTARTS[str(path[-2])]:
            self.report.tell(
                Did.TRANSLATED, (*path, "restartPolicy"), f"a new Pod each time: {left.pop('restartPolicy')}"
            )
        if container.get("restartPolicyRules"):
            self.report.tell(Did.OPEN, (*path, "restartPolicyRules"), f"which exit codes are final? {ids.FINAL_CODES}")
        return left

    def _with_clean_env(self, container: dict[str, Any], path: Path) -> dict[str, Any]:
        """Without variables that are the dispatcher's. Of a name that stands twice the last counts, as for kubelet."""
        env = objects(container.get("env"))
        kept = list[Json]()
        for number, one in enumerate(env):
            where = (*path, "env", number)
            if is_dispatchers(one):
                self.report.tell(Did.OPEN, where, f"{one.get('name')} is the dispatcher's name: give it another one")
            elif word := word_of_repeated(env, number):
                self.report.tell(word[0], where, word[1])
            elif self.index and is_index(one):
                kept += self._given_index(one, where)
            else:
                kept.append(one)
        others = [one for one in list_at(container, "env") if not isinstance(one, dict)]
        return {**container, "env": [*kept, *others]} if env else container

    def _given_index(self, variable: Json, path: Path) -> list[Json]:
        """The variable that had the index. Empty: the row gives it by its name."""
        if (self.index, variable.get("name")) == (INDEX_OF_ROW, INDEX):
            self.report.tell(Did.TRANSLATED, path, f"env.{INDEX} of the row has it")
            return []
        self.report.tell(Did.TRANSLATED, path, f"its value is {self.index}")
        return [{"name": variable.get("name"), "value": self.index}]

    def _with_only_index(self, container: dict[str, Any], path: Path) -> dict[str, Any]:
        """The container with the index in front of its variables, so that they may read it."""
        env = container.get("env")
        if not isinstance(env, list | None):
            return container
        found = list[object]()
        for number, one in enumerate(env or ()):
            is_read = isinstance(one, dict) and is_index(one)
            found += self._given_index(one, (*path, "env", number)) if is_read else [one]
        is_there = any(one.get("name") == INDEX for one in objects(found))
        return {**container, "env": [*([] if is_there else [{"name": INDEX, "value": self.index}]), *found]}


NOT_KEPT: Final = {
    "nodeName": (Did.OPEN, "each row would be bound to {}: give a nodeSelector"),
    "ephemeralContainers": (Did.LEFT_OUT, "somebody added them to a Pod that ran: no Job may have any"),
    "schedulingGroup": (Did.OPEN, STARTED_TOGETHER),
    **dict.fromkeys(("priority", "preemptionPolicy"), (Did.LEFT_OUT, "the cluster has it from priorityClassName")),
}
"""Fields that no template gets. `{}`: the value."""


GATES: Final = "schedulingGates"
MOUNTS: Final = "volumeMounts"
ADDED: Final = re.compile(r"kube-api-access-[a-z0-9]{5}|.+-token-[a-z0-9]{5}")
"""How the API server calls the volume of a Pod's token. Until Kubernetes 1.23 it was a Secret."""
ADDED_AT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


def without_named(parts: Sequence[object], names: Collection[str]) -> list[object]:
    return [one for one in parts if str(object_at(one).get("name")) not in names]


def without_mounts(containers: object, names: Collection[str]) -> object:
    """The containers without mounts of these volumes."""
    found = list[dict[str, Any]]()
    for one in objects(containers):
        left = without_named(list_at(one, MOUNTS), names)
        rest = {key: value for key, value in one.items() if key != MOUNTS}
        found.append({**rest, MOUNTS: left} if left else rest)
    return with_objects(containers, found)


def is_of_kueue(gate: object) -> bool:
    return str(object_at(gate).get("name")).startswith("kueue.x-k8s.io/")


def is_index(variable: Json) -> bool:
    """Whether the cluster fills in the index."""
    return INDEX_NOTE in str(object_at(variable, "valueFrom", "fieldRef").get("fieldPath"))


def word_of_repeated(env: Sequence[Json], number: int) -> tuple[Did, str] | None:
    """What becomes of a variable whose name stands again below. None: it does not."""
    name = env[number].get("name")
    again = [at for at in range(number + 1, len(env)) if env[at].get("name") == name]
    if not again:
        return None
    readers = [at for at in range(number + 1, again[-1] + 1) if f"$({name})" in str(env[at].get("value"))]
    if readers:
        return Did.OPEN, f"{name} stands again below, and env[{readers[0]}] reads this one: give this one another name"
    return Did.LEFT_OUT, f"{name} stands again below"


def without_index(pod: Json, task_container: str) -> Iterator[tuple[str, int]]:
    """The parts of a Pod that read the index of an Indexed Job, where no variable of the row comes."""
    for field, part in pod.items():
        for number, one in enumerate(part if isinstance(part, list) else ()):
            is_task = field == "containers" and isinstance(one, dict) and one.get("name") == task_container
            if not is_task and any(INDEX in text or INDEX_NOTE in text for text in texts(one)):
                yield field, number


def unlike_ours(part: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Where the Pod selects Pods by a label of the Job controller. Those of our Jobs have another value of it."""
    for key, value in entries(part):
        at = (*path, key)
        if key == "labelSelector" and isinstance(value, dict):
            terms = (one.get("key") for one in objects(value.get("matchExpressions")))
            names = [*object_at(value, "matchLabels"), *terms]
        else:
            names = list(value) if key in {"matchLabelKeys", "mismatchLabelKeys"} and isinstance(value, list) else []
        for name in names:
            if OF_CONTROLLERS.fullmatch(str(name)):
                yield at, f"no Pod of ours has this {name}: give the Pods a label of your own, and select that"
        yield from unlike_ours(value, at)


MARK: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
"""How a Pod reads one label or annotation of its own."""


def lost_marks(part: object, meta: Json, kept: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """Where the Pod reads a label or an annotation of its own metadata that the template does not have."""
    for key, value in entries(part):
        match = MARK.fullmatch(value) if key == "fieldPath" and isinstance(value, str) else None
        if match and match[2] in object_at(meta, match[1]) and match[2] not in object_at(kept, match[1]):
            yield (*path, key), f"its value would be blank, because the Pod gets no {match[2]}: write the value"
        yield from lost_marks(value, meta, kept, (*path, key))


def of_its_namespace(pod: Json, labels: Json, path: Path, space: object) -> Iterator[tuple[Path, str]]:
    """Where the Pod means its own namespace. `space`: the one that it had."""
    for place, term in terms_of(pod):
        if looks_at_others(term, labels):
            words = f"it looks at Pods of its own namespace: in another one, give it namespaces: [{space}]"
            yield (*path, *place), words
    yield from claims_left(pod, path, space)
    for kind in sorted(RESTARTS):
        for number, container in enumerate(objects(pod.get(kind))):
            for at_env, one in enumerate(objects(container.get("env"))):
                if object_at(one, "valueFrom", "fieldRef").get("fieldPath") == "metadata.namespace":
                    is_ours = kind == "containers" and str(one.get("name")) in CONTRACT
                    way = f"let it read {space} from a variable of another name" if is_ours else f"write {space}"
                    words = f"it is the namespace of the dispatcher's Jobs: {way}, if the program works on that"
                    yield (*path, kind, number, "env", at_env), words
            for place, host in called_by(container):
                words = f"{host} looks like a Service of its own namespace: in another one, call {host}.{space}"
                yield (*path, kind, number, *place), words


def claims_left(pod: Json, path: Path, space: object) -> Iterator[tuple[Path, str]]:
    for number, one in enumerate(objects(pod.get("volumes"))):
        if claim := object_at(one, "persistentVolumeClaim").get("claimName"):
            words = f"claim {claim} and its data stay in {space}: in another namespace, a new claim is empty"
            yield (*path, "volumes", number), words


CALLED: Final = re.compile(
    r"(?:https?|wss?|postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|kafka|nats|ldaps?|tcp|grpc)://"
    r"(?:[^\s/@\"']{0,200}@)?(?!localhost\b)([a-z][a-z0-9-]{0,62})(?=[:/?\s\"']|$)"
    r"|(?:^|=)(?!localhost\b)([a-z][a-z0-9-]{0,62}):(?!(?:19|20)\d\d\b)[0-9]{4,5}$"
    r"|\$[({]?(?!KUBERNETES_)([A-Z][A-Z0-9_]{0,62})_SERVICE_(?:HOST|PORT)\b"
)
"""A host without dots, in a URL or in front of a port, and a variable that kubelet makes of each Service of the
namespace. A year is no port.
"""
SERVICE: Final = re.compile(r"(?!localhost$)[a-z][a-z0-9-]{0,62}")


def called_by(container: Json) -> Iterator[tuple[Path, str]]:
    """The hosts without a namespace that a container calls for sure, with their places."""
    read = [(field, n, one) for field in ("command", "args") for n, one in enumerate(list_at(container, field))]
    texts: list[tuple[Path, str]] = [((field, n), str(one)) for field, n, one in read]
    for number, one in enumerate(objects(container.get("env"))):
        name, value = str(one.get("name")), str(one.get("value"))
        if name.endswith("HOST") and one.get("value") is not None and SERVICE.fullmatch(value):
            yield ("env", number, "value"), value
        else:
            texts.append((("env", number, "value"), value))
    for place, text in texts:
        if match := CALLED.search(text):
            yield place, match[1] or match[2] or match[3].lower().replace("_", "-")


def terms_of(pod: Json) -> Iterator[tuple[Path, Json]]:
    """The terms by which a Pod is placed beside others or apart from them, with their places."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for rule, terms in object_at(pod, "affinity", kind).items():
            for number, one in enumerate(objects(terms)):
                inner: Path = ("podAffinityTerm",) if "podAffinityTerm" in one else ()
                yield ("affinity", kind, rule, number, *inner), object_at(one, *inner)


def looks_at_others(term: Json, labels: Json) -> bool:
    """Whether a term of an affinity means Pods of the own namespace that have other labels."""
    wanted = object_at(term, "labelSelector", "matchLabels")
    is_own = bool(wanted) and wanted.items() <= labels.items()
    return bool(term) and not (is_own or term.get("namespaces") or term.get("namespaceSelector") is not None)


def secrets_of(pod: Json) -> Iterator[tuple[Path, str]]:
    """The Secrets that containers have, with their places. The login of the task itself is none of them."""
    for field, each in (("initContainers", secrets_in_env), ("containers", secrets_in_env), ("volumes", secrets_in)):
        for number, one in enumerate(objects(pod.get(field))):
            for place, named in each(one):
                if named and named.get("key") != LOGIN:
                    yield (field, number, *place), str(named.get("secretName") or named.get("name"))


def secrets_in_env(container: Json) -> Iterator[tuple[Path, Json]]:
    for number, one in enumerate(objects(container.get("env"))):
        yield ("env", number), object_at(one, "valueFrom", "secretKeyRef")
    for number, one in enumerate(objects(container.get("envFrom"))):
        yield ("envFrom", number), object_at(one, "secretRef")


def secrets_in(volume: Json) -> Iterator[tuple[Path, Json]]:
    if provided := object_at(volume, "csi", "volumeAttributes").get(PROVIDER_CLASS):
        yield (), {"name": f"{provided} (SecretProviderClass)"}
    for one in (volume, *objects(object_at(volume, "projected").get("sources"))):
        yield (), object_at(one, "secret")
        yield from (((), {"name": f"{volume.get('name')} ({kind})"}) for kind in TOKENS if object_at(one, kind))


OBJECTS_BY_FIELD: Final[Mapping[str, tuple[str, str]]] = {
    "serviceAccountName": ("ServiceAccount", ""), "serviceAccount": ("ServiceAccount", ""),
    "claimName": ("PersistentVolumeClaim", ""), "secretName": ("Secret", ""), "secretKeyRef": ("Secret", "name"),
    "secretRef": ("Secret", "name"), "secret": ("Secret", "name"), "imagePullSecrets": ("Secret", "name"),
    "configMapKeyRef": ("ConfigMap", "name"), "configMapRef": ("ConfigMap", "name"), "configMap": ("ConfigMap", "name"),
    "nodePublishSecretRef": ("Secret", "name"), "secretProviderClass": ("SecretProviderClass", ""),
    "resourceClaimName": ("ResourceClaim", ""), "resourceClaimTemplateName": ("ResourceClaimTemplate", ""),
    "priorityClassName": ("PriorityClass", ""), "runtimeClassName": ("RuntimeClass", ""),
}  # fmt: skip
"""Fields of a Pod by which it names an object: its kind, and where its name stands in the value."""


HOST: Final = re.compile(r"""(?:^|//|[@=,\s"'])([a-z][a-z0-9-]{0,62})(?=:[0-9]|/|[,\s"']|$)""")
"""A name of a host without dots, with what may stand around it. Much else looks so: only names of Services count."""


def named_in(part: object) -> Iterator[tuple[str, str]]:
    """The objects that a part of a Pod names: kind and name. What programs read may have a Service as a host."""
    for key, value in entries(part):
        for text in texts(value) if key in {"command", "args", "value"} else ():
            yield from (("Service", name) for name in HOST.findall(text))
        kind, inner = OBJECTS_BY_FIELD.get(str(key), ("", ""))
        for one in (value if isinstance(value, list) else [value]) if kind else ():
            name = object_at(one).get(inner) if inner else one
            if isinstance(name, str):
                yield kind, name
        yield from named_in(value)


OF_KUSTOMIZE: Final = re.compile(r".+-[2456789bcdfghkmt]{10}")
"""A name with a digest of the content, which kustomize gives what it generates."""


def named_by_content(pod: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """The objects whose next change has another name: the template would go on with the old one."""
    for kind, name in sorted({one for one in named_in(pod) if one[0] in {"ConfigMap", "Secret"}}):
        if OF_KUSTOMIZE.fullmatch(name):
            words = f"kustomize gives {kind} {name} another name at each change, and the template keeps this one"
            yield path, f"{words}: generate it with disableNameSuffixHash: true, and adopt it again"


CLOSED: Final = {
    "ServiceAccount": "serviceAccounts", "Secret": "secrets", "ConfigMap": "configMaps",
    "PriorityClass": "priorityClasses", "RuntimeClass": "runtimeClasses",
}  # fmt: skip
"""Kinds of which a Pod may name only what a list in the value `policy` of the chart has."""
USUAL: Final = frozenset({("serviceAccounts", "default"), ("schedulers", "default-scheduler")})
"""What these lists have anyway."""
OPEN_VOLUMES: Final = frozenset({
    "name", "configMap", "downwardAPI", "emptyDir", "hostPath", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
"""Kinds of volumes that the list of the chart has at first."""
NEVER_OPEN: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("hostNetwork", "hostPID", "hostIPC", "hostProcess"), bool),
    "procMount": lambda value: value not in (None, "Default"),
    **dict.fromkeys(("seccompProfile", "appArmorProfile"), lambda value: object_at(value).get("type") == "Unconfined"),
    **dict.fromkeys(("httpGet", "tcpSocket"), lambda value: bool(object_at(value).get("host"))),
    "seLinuxOptions": lambda value: is_own_label(object_at(value)),
    "sysctls": lambda value: any(str(one.get("name")) not in SYSCTLS for one in objects(value)),
    "hostPath": lambda value: is_root(object_at(value).get("path")),
}
"""Fields, and when the chart opens them for no template."""


def is_own_label(options: Json) -> bool:
    return bool(options.get("user") or options.get("role") or str(options.get("type") or "") not in SELINUX_TYPES)


def is_root(folder: object) -> bool:
    return isinstance(folder, str) and folder != "" and not folder.strip("/")


def closed_parts(pod: Json, path: Path) -> Iterator[tuple[Path, str]]:
    """What an operator opens before the rows of the template can run, and what no value of the chart opens."""
    found: dict[str, set[str]] = {}
    for which, name in {*listed(pod)} - USUAL:
        found.setdefault(which, set()).add(name)
    lists = [f"{which}: [{', '.join(sorted(names))}]" for which, names in sorted(found.items())]
    if words := ", ".join(lists).replace("[true]", "true"):
        yield path, f"an operator opens for this template, in the value policy.templates of the chart: {words}"
    yield from never_open(pod, path)
    is_default = pod.get("serviceAccountName") in (None, "", "default") and not pod.get("serviceAccount")
    for number, one in enumerate(objects(pod.get("volumes"))) if is_default else ():
        for source in objects(object_at(one, "projected").get("sources")):
            if source.get("serviceAccountToken") or source.get("podCertificate"):
                yield (*path, "volumes", number), "the policy of the chart wants a ServiceAccount for it: name one"


def listed(pod: Json) -> Iterator[tuple[str, str]]:
    """What the policy of the chart closes: the list that opens it, and what is to be in that."""
    yield from ((CLOSED[kind], name) for kind, name in named_in(pod) if kind in CLOSED)
    if scheduler := pod.get("schedulerName"):
        yield "schedulers", str(scheduler)
    for one in objects(pod.get("volumes")):
        yield from (("volumeKinds", kind) for kind in object_at(one).keys() - OPEN_VOLUMES if one[kind] is not None)
        if (folder := object_at(one, "hostPath").get("path")) and not is_root(folder):
            yield "hostPathPrefixes", str(folder)
    for one in (one for kind in sorted(RESTARTS) for one in objects(pod.get(kind))):
        added = list_at(one, "securityContext", "capabilities", "add")
        yield from (("capabilities", name) for name in map(str, added) if name not in CAPABILITIES)
        yield from (("hostPorts", str(port["hostPort"])) for port in objects(one.get("ports")) if port.get("hostPort"))
        if object_at(one, "securityContext").get("privileged"):
            yield "privileged", "true"


def never_open(part: object, path: Path) -> Iterator[tuple[Path, str]]:
    for key, value in entries(part):
        if isinstance(key, str) and key in NEVER_OPEN and NEVER_OPEN[key](value):
            yield (*path, key), "the policy of the chart lets no Job have it"
        yield from never_open(value, (*path, key))


def can_report(container: Json) -> bool:
    """Whether the container has a login, or begins with `exec`."""
    words = " ".join(map(str, [*list_at(container, "command"), *list_at(container, "args")]))
    names = [one.get("name") for one in objects(container.get("env"))]
    return LOGIN in names or OF_EXEC.search(words) is not None


OF_EXEC: Final = re.compile(r"(?:^|[\s/])dispatcher exec\b")
"""How a command calls `exec`: by its name, with its folder, as a module of Python, or in a shell."""
