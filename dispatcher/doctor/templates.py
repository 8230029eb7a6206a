"""Judges each template: its Job by dry run, its Pod by namespace and nodes, and the Secrets that it names. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.admission.room import Room
from dispatcher.admission.room_view import RoomView
from dispatcher.doctor.cluster import UnreadObject
from dispatcher.doctor.finding import Finding, fault, good, or_good, shell, unchecked, warning
from dispatcher.doctor.pod_rules import (
    CALLS_SINCE,
    PRIVILEGED,
    containers,
    defaults_of,
    level_of,
    quota_refusal,
    range_refusals,
    violations,
)
from dispatcher.jobs.env import (
    LOGIN,
    SecretReference,
    beside_variables,
    named_secrets,
    other_secrets,
    provider_classes,
)
from dispatcher.jobs.fields import object_at
from dispatcher.jobs.refusals import OF_THE_ROW, CreateOutcome, read_create
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.cluster import Quota
from dispatcher.model.jobs import ApiAnswer, Json
from dispatcher.model.launches import CONTAINER, REPORT
from dispatcher.model.needs import PodNeeds

ENFORCED: Final = "pod-security.kubernetes.io/enforce"
ENFORCED_VERSION: Final = "pod-security.kubernetes.io/enforce-version"
LATEST: Final = "latest"
VERSION: Final = re.compile(r"v1\.(\d{1,3})")
MADE: Final = frozenset({CreateOutcome.CREATED, CreateOutcome.EXISTS})
GONE: Final = {CreateOutcome.NO_NAMESPACE: "NamespaceMissing", CreateOutcome.TERMINATING: "NamespaceTerminating"}


class TemplateTrial(Struct, frozen=True):
    """One template and its dry run.

    job: the Job of a row that sets nothing, or the fault of the template.
    answer: the answer to the dry run; None without a Job.
    opens_env: whether rows may set every variable that is not closed.
    doubts: what its author may not have intended.
    """

    name: str
    job: Json | str
    answer: ApiAnswer | None = None
    opens_env: bool = False
    doubts: tuple[str, ...] = ()


class PodRules(Struct, frozen=True):
    """Limits and objects that the Pods of all templates meet.

    namespace: namespace of the Jobs.
    labels: labels of the namespace.
    secrets: the keys of each Secret that a template names.
    objects: the other objects that templates name; None: it is there.
    cache_root: the folder of nodes that rows with a cache key mount; empty: none.
    minor: version of the API server.
    """

    namespace: str
    labels: Mapping[str, str] | UnreadObject
    quotas: Sequence[Quota] | UnreadObject
    ranges: Sequence[Json] | UnreadObject
    secrets: Mapping[str, frozenset[str] | UnreadObject]
    room: RoomView | UnreadObject
    cache_root: str = ""
    minor: int = CALLS_SINCE
    objects: Mapping[tuple[str, str], UnreadObject | None] = {}


class TemplatePod(Struct, frozen=True):
    template: str
    spec: Json
    needs: PodNeeds | None

    @property
    def where(self) -> str:
        return f"template {self.template}"


def judge_templates(
    tried: Sequence[TemplateTrial], place: PodRules | UnreadObject, names: Mapping[str, str]
) -> Iterator[Finding]:
    """Judges all templates. `place`: UnreadObject if no Job can be made there at all. `names`: words for commands."""
    if not tried:
        yield fault("NoTemplate", "DISPATCHER_IMAGE, DISPATCHER_TEMPLATES_DIR", "neither gives a template", **names)
        return
    yield good("NoTemplate", "DISPATCHER_IMAGE, DISPATCHER_TEMPLATES_DIR")
    for one in tried:
        where = f"template {one.name}"
        if isinstance(one.job, str):
            yield fault("InvalidTemplate", where, one.job, template=one.name)
            continue
        yield good("InvalidTemplate", where)
        told = [*one.doubts, *(() if isinstance(place, UnreadObject) else without_login(one.job, place))]
        doubts = [warning("TemplateDoubtful", where, words, template=one.name) for words in told]
        yield from or_good(doubts, "TemplateDoubtful", where)
        if isinstance(place, UnreadObject):
            yield unchecked("JobRefused", where, place.why)
            continue
        yield from judge_answer(one, place.namespace)
        template = one.job["spec"]["template"]
        yield judge_openness(one, template, place)
        spec = template["spec"]
        yield from judge_pod(TemplatePod(one.name, spec, needs_of_manifest(spec)), place)


def without_login(job: Json, place: PodRules) -> Iterator[str]:
    """Tells that no Secret gives the task's container its login. A ConfigMap seldom has it, and is not read here."""
    pod, name = job["spec"]["template"], object_at(job, "spec", "template", "metadata", "annotations").get(CONTAINER)
    own = next((one for one in containers(pod["spec"]) if one.get("name") == name), {})
    sources = own.get("envFrom") or ()
    named = [(one.get("prefix") or "", one["secretRef"]["name"]) for one in sources if one.get("secretRef")]
    known = [(prefix, keys) for prefix, secret in named if isinstance(keys := place.secrets.get(secret), frozenset)]
    given = {one.get("name") for one in own.get("env") or ()} | {prefix + key for prefix, keys in known for key in keys}
    reports = object_at(job, "metadata", "annotations").get(REPORT) != "sql" or LOGIN in given
    if known and len(known) == len(named) and not reports:
        secrets = ", ".join(sorted({secret for _, secret in named}))
        unless = ", unless its ConfigMap has the login" if len(named) < len(sources) else ""
        words = f"nothing reports{unless}: Secret {secrets} has no key {LOGIN}"
        yield f"{words}. Add it, and a report, or {REPORT}: exit-code"


def judge_openness(one: TemplateTrial, template: Json, place: PodRules) -> Finding:
    """A variable can make a library read, send or run something. The login of tasks is no secret to them.

    Another check reports a Secret that cannot be read. `template`: metadata and spec of the Pod.
    """
    given = {*beside_variables(template["spec"])} if one.opens_env else set()
    more = {name for name, keys in place.secrets.items() if not isinstance(keys, UnreadObject) and keys - {LOGIN}}
    secrets = sorted({named.secret for named in given if named.key != LOGIN} & more)
    secrets += sorted({*other_secrets(template)}) if one.opens_env else []
    if not secrets:
        return good("EnvOpen", f"template {one.name}")
    said = f"rows may set every variable that is not closed, next to Secret {', '.join(secrets)}"
    return warning("EnvOpen", f"template {one.name}", said, template=one.name)


def judge_answer(one: TemplateTrial, namespace: str) -> Iterator[Finding]:
    where, answer = f"template {one.name}", one.answer
    if answer is None:
        yield unchecked("JobRefused", where, "it was not tried")
        return
    meaning, said = read_create(answer), f"{answer.status} {answer.message}"
    if meaning in MADE:
        yield good("JobRefused", where)
        yield (
            fault("JobChanged", where, "; ".join(answer.changes), namespace=namespace)
            if answer.changes
            else good("JobChanged", where)
        )
    elif meaning in GONE:
        yield fault(GONE[meaning], f"namespace {namespace}", said, namespace=namespace)
    elif meaning in OF_THE_ROW:
        yield fault("JobRefused", where, said, template=one.name)
    else:
        yield unchecked("JobRefused", where, said)


def judge_pod(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    yield from judge_security(pod, place)
    yield from judge_quotas(pod, place)
    yield from judge_ranges(pod, place)
    yield from judge_secrets(pod, place)
    yield from judge_objects(pod, place)
    yield from judge_room(pod, place.room)


def judge_security(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    if isinstance(place.labels, UnreadObject):
        yield unchecked("PodSecurity", pod.where, place.labels.why)
        return
    enforced = place.labels.get(ENFORCED, PRIVILEGED)
    version = place.labels.get(ENFORCED_VERSION, LATEST)
    if enforced != PRIVILEGED and not is_newest(version, place.minor):
        said = f"namespace {place.namespace} enforces {enforced} of {version}, and only the newest rules are known here"
        yield unchecked("PodSecurity", pod.where, said)
        return
    found = violations(pod.spec, enforced, place.minor)
    needed = level_of(pod.spec, place.minor)
    if place.cache_root and enforced != PRIVILEGED:
        found.append("the volume of a cache key is a hostPath (DISPATCHER_CACHE_ROOT)")
        needed = PRIVILEGED
    if found:
        said = f"namespace {place.namespace} enforces {enforced}: {'; '.join(found)}"
        yield fault("PodSecurity", pod.where, said, namespace=place.namespace, level=needed)
    else:
        yield good("PodSecurity", f"{pod.where}: passes {needed}, the namespace enforces {enforced}")


def is_newest(version: str, minor: int) -> bool:
    """Whether a version of Pod Security has the rules of an API server of this minor version."""
    return version == LATEST or ((found := VERSION.fullmatch(version)) is not None and int(found[1]) >= minor)


def judge_quotas(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    if isinstance(place.quotas, UnreadObject):
        yield unchecked("QuotaFitsNoJob", pod.where, place.quotas.why)
        return
    given = frozenset[str]() if isinstance(place.ranges, UnreadObject) else defaults_of(place.ranges).names
    refused = {quota.name: quota_refusal(quota, pod.spec, pod.needs, given) for quota in place.quotas}
    found = [
        fault("QuotaFitsNoJob", pod.where, why, namespace=place.namespace, quota=name)
        for name, why in refused.items()
        if why
    ]
    yield from or_good(found, "QuotaFitsNoJob", pod.where)


def judge_ranges(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    if isinstance(place.ranges, UnreadObject):
        yield unchecked("LimitRangeRefuses", pod.where, place.ranges.why)
        return
    found = []
    for one in place.ranges:
        name = one["metadata"]["name"]
        if broken := list(range_refusals(one, pod.spec, defaults_of(place.ranges))):
            said = f"LimitRange {name}: {'; '.join(broken)}"
            found.append(fault("LimitRangeRefuses", pod.where, said, namespace=place.namespace, range=name))
    yield from or_good(found, "LimitRangeRefuses", pod.where)


def judge_secrets(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    missing = set[str]()
    for one in named_secrets(pod.spec):
        found = judge_secret(pod.where, one, place)
        if found.what != "SecretMissing" or one.secret not in missing:  # a Secret that is missing lacks all keys, too
            yield found
        missing |= {one.secret} if found.what == "SecretMissing" else set()


def judge_secret(where: str, named: SecretReference, place: PodRules) -> Finding:
    keys, secret = place.secrets[named.secret], f"Secret {named.secret} in namespace {place.namespace}"
    names = {"namespace": place.namespace, "secret": named.secret}
    if isinstance(keys, UnreadObject):
        if keys.is_absent:
            return fault("SecretMissing", where, f"{secret} does not exist", **names)
        return unchecked("SecretMissing", f"{where}, {secret}", keys.why)
    if named.key and named.key not in keys:
        return fault("SecretKeyMissing", where, f"{secret} has no key {named.key}", **names, key=shell(named.key))
    return good("SecretKeyMissing" if named.key else "SecretMissing", f"{where}, {secret}")


BY_FIELD: Final[Mapping[str, str]] = {
    "serviceAccountName": "ServiceAccount", "serviceAccount": "ServiceAccount", "priorityClassName": "PriorityClass",
    "runtimeClassName": "RuntimeClass",
}  # fmt: skip
"""Fields of a Pod that name an object, and its kind."""
BY_CLAIM: Final[Mapping[str, str]] = {
    "resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"
}  # fmt: skip
"""The same of an entry of resourceClaims."""
OF_THE_CLUSTER: Final = frozenset({"PriorityClass", "RuntimeClass"})


def named_objects(pod: Json) -> list[tuple[str, str]]:
    """Kind and name of each object but Secrets without which the Pod does not run."""
    found = {(kind, str(pod[field])) for field, kind in BY_FIELD.items() if pod.get(field)}
    for claim in pod.get("resourceClaims") or ():
        found |= {(kind, str(claim[field])) for field, kind in BY_CLAIM.items() if claim.get(field)}
    found |= {("SecretProviderClass", name) for name in provider_classes(pod)}
    maps = [one.get("configMapRef") for each in containers(pod) for one in each.get("envFrom") or ()]
    variables = [one for each in containers(pod) for one in each.get("env") or ()]
    maps += [(one.get("valueFrom") or {}).get("configMapKeyRef") for one in variables]
    for volume in pod.get("volumes") or ():
        maps.append(volume.get("configMap"))
        maps += [one.get("configMap") for one in (volume.get("projected") or {}).get("sources") or ()]
        if claim := (volume.get("persistentVolumeClaim") or {}).get("claimName"):
            found.add(("PersistentVolumeClaim", str(claim)))
    needed = (one for one in maps if one and one.get("name") and not one.get("optional"))
    return sorted(found | {("ConfigMap", str(one["name"])) for one in needed})


def judge_objects(pod: TemplatePod, place: PodRules) -> Iterator[Finding]:
    for kind, name in named_objects(pod.spec):
        state = place.objects[kind, name]
        where = "" if kind in OF_THE_CLUSTER else f" in namespace {place.namespace}"
        if state is None:
            yield good("ObjectMissing", f"{pod.where}, {kind} {name}")
        elif state.is_absent:
            names = {"namespace": place.namespace, "name": f"{kind.lower()}/{name}"}
            yield fault("ObjectMissing", pod.where, f"{kind} {name}{where} does not exist", **names)
        else:
            yield unchecked("ObjectMissing", f"{pod.where}, {kind} {name}", state.why)


def judge_room(pod: TemplatePod, view: RoomView | UnreadObject) -> Iterator[Finding]:
    """Judges the nodes. A node that is full now is large enough, so that is no fault."""
    if isinstance(view, UnreadObject):
        yield unchecked("NoNodeFits", pod.where, view.why)
    elif pod.needs is None or view.threshold(pod.needs) is None:
        yield unchecked("NoNodeFits", pod.where, "only the Pod's scheduler can tell")
    elif Room(view).has_room(pod.needs) or (told := view.why_not(pod.needs))[0]:
        yield good("NoNodeFits", pod.where)
    else:
        yield fault("NoNodeFits", pod.where, told[1])
