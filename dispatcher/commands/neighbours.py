"""Objects that are no work, and objects that others make: what becomes of them. Pure.

A Pod of the dispatcher may run in another namespace than the old one. What it names must be there, and what selects it
or gives its ServiceAccount a right must know it. All else stays as it is.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from dispatcher.commands.adoption import Adoption, Did, objects
from dispatcher.commands.manifests import name_of
from dispatcher.commands.placeholders import texts_at
from dispatcher.commands.pod_adoption import named_in
from dispatcher.jobs.fields import at, dotted, object_at
from dispatcher.jobs.template_text import Path
from dispatcher.model.jobs import Json

WORK: Final = (
    "Job",
    "CronJob",
    "ScaledJob",
    "Pod",
    "Workflow",
    "WorkflowTemplate",
    "ClusterWorkflowTemplate",
    "CronWorkflow",
)
"""Kinds that become templates."""
BESIDE: Final = "is no work, and no Pod that is adopted with it names it: leave it as it is"
OF_TRIGGERS: Final = (
    "is no work: an insert of a row is the trigger. Leave it out if only adopted work uses it, and give its login to"
    " whoever inserts"
)
WITHOUT_END: Final = "is work without an end, or scales it: leave it as it is"
IN_A_CLUSTER: Final = "makes others: adopt these by `kubectl get jobs,cronjobs,scaledjobs -o yaml | dispatcher adopt -`"
NO_WORK: Final[Mapping[str, str]] = {
    **dict.fromkeys(("TriggerAuthentication", "ClusterTriggerAuthentication"), OF_TRIGGERS),
    **dict.fromkeys(("Sensor", "EventSource", "EventBus", "WorkflowEventBinding"), OF_TRIGGERS),
    **dict.fromkeys((
        "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "ScaledObject",
        "HorizontalPodAutoscaler", "VerticalPodAutoscaler",
    ), WITHOUT_END),
    **dict.fromkeys((
        "ConfigMap", "Secret", "Service", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
        "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "Namespace", "NetworkPolicy", "Ingress",
        "LimitRange", "ResourceQuota", "PriorityClass", "PodDisruptionBudget",
        "CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule",
        "ExternalSecret", "SecretStore", "ClusterSecretStore", "SealedSecret", "Certificate", "Issuer",
        "ClusterIssuer", "Event", "Endpoints", "EndpointSlice", "IngressClass", "RuntimeClass", "Lease", "APIService",
        "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "CSIDriver", "CSINode", "VolumeAttachment",
        "PodSecurityPolicy", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CertificateSigningRequest",
        "SecretProviderClass", "OnePasswordItem", "VaultStaticSecret", "VaultDynamicSecret", "VaultPKISecret",
        "ObjectBucketClaim",
    ), BESIDE),
}  # fmt: skip
"""Kinds that are no work, and what to do with them."""
MADE: Final[Mapping[str, tuple[str, Path]]] = {
    "ExternalSecret": ("Secret", ("target", "name")), "SealedSecret": ("Secret", ("template", "metadata", "name")),
    "Certificate": ("Secret", ("secretName",)), "OnePasswordItem": ("Secret", ()), "ObjectBucketClaim": ("Secret", ()),
    **dict.fromkeys(("VaultStaticSecret", "VaultDynamicSecret", "VaultPKISecret"), ("Secret", ("destination", "name"))),
}  # fmt: skip
"""Kinds of which a controller makes an object: its kind, and where the spec has its name, if it has another one."""
SOURCES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("Kustomization", "Component"), "names other files: `kubectl kustomize DIR | dispatcher adopt -` adopts them"
    ),
    "Template": "is to be filled in: `oc process -f FILE -o yaml | dispatcher adopt -`",
    **dict.fromkeys(("HelmRelease", "HelmChart", "Application", "ApplicationSet"), IN_A_CLUSTER),
}
"""Kinds of which a tool makes manifests."""
OF_SOURCES: Final = frozenset({
    "", "template.openshift.io", "kustomize.config.k8s.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io",
    "helm.cattle.io", "argoproj.io",
})  # fmt: skip
"""Groups of those kinds. Other groups have a Template and a Component, too, such as Backstage."""
UNKNOWN_KIND: Final = "is a kind that is not known here: if it is work, write its Pod as a Job, and adopt that"


class PodNames(Struct, frozen=True):
    """What the adopted Pods name.

    objects: kind, namespace and name; the namespace is empty where the manifest has none.
    labels: namespace and labels of each Pod.
    """

    objects: frozenset[tuple[str, str, str]] = frozenset()
    labels: Sequence[tuple[str, Json]] = ()

    def has(self, kind: str, space: object, name: object) -> bool:
        return any((one, called) == (kind, name) and is_near(there, space) for one, there, called in self.objects)

    def selected(self, space: object, wanted: Json) -> bool:
        return any(is_near(there, space) and wanted.items() <= labels.items() for there, labels in self.labels)


def is_near(space: str, other: object) -> bool:
    """Whether two manifests may be of one namespace. One that names none may be of any."""
    return not space or not other or space == other


NO_PODS: Final = PodNames()


def group_of(document: Json) -> str:
    return str(document.get("apiVersion") or "").rpartition("/")[0]


def is_source(document: Json) -> bool:
    return str(document.get("kind")) in SOURCES and group_of(document) in OF_SOURCES


def word_of_kind(document: Json, pods: PodNames) -> tuple[Did, str]:
    """What becomes of a document that is no work. `pods`: what the adopted Pods name."""
    kind, group = str(document.get("kind") or ""), group_of(document)
    if not kind:
        return (Did.OPEN, "it names no kind: is it a Job or a Pod?") if "spec" in document else (
            Did.LEFT_OUT, "no manifest: it names no kind"
        )  # fmt: skip
    if kind.endswith("List") and "items" in document:
        return Did.LEFT_OUT, f"the {kind} has no items"
    known = NO_WORK.get(kind) if kind not in WORK else None
    of_others = f" of {group or document.get('apiVersion')}" if kind in WORK else ""
    what = f"{kind}{of_others} {name_of(document)}"
    if is_source(document):
        return Did.OPEN, f"{what} {SOURCES[kind]}"
    parts = {field: part for field, part in document.items() if field != "metadata"}
    if held := next(texts_at(parts, (), HELD_WORK), None):
        return Did.OPEN, f"{what} holds work in {dotted(held[0])}: write it into a file, and adopt that"
    if known == BESIDE:
        return word_of_neighbour(document, what, pods)
    return (Did.LEFT_OUT, f"{what} {known}") if known else (Did.OPEN, f"{what} {UNKNOWN_KIND}")


def names_of_pods(adopted: Iterable[tuple[Json, Sequence[Adoption]]]) -> PodNames:
    """`adopted`: documents, with the templates that they became."""
    names, labels = set[tuple[str, str, str]](), list[tuple[str, Json]]()
    for document, made in adopted:
        space = str(object_at(document, "metadata").get("namespace") or "")
        for one in made:
            names |= {
                (kind, space, name) for kind, name in named_in(object_at(one.manifest, "spec", "template", "spec"))
            }
            labels.append((space, object_at(one.manifest, "spec", "template", "metadata", "labels")))
    return PodNames(frozenset(names), labels)


SELECTORS: Final[Mapping[str, str]] = {
    "Service": "selector", "NetworkPolicy": "podSelector", "PodDisruptionBudget": "selector", "PodMonitor": "selector",
}  # fmt: skip
"""Where a kind says which Pods it means."""
OF_CLUSTER: Final = frozenset({"PriorityClass", "RuntimeClass"})
"""Kinds of objects that Pods name, and that are in no namespace."""
OF_JOBS: Final = re.compile(r"(batch\.kubernetes\.io/)?(controller-uid|job-name)")
IN_OUR_NAMESPACE: Final = "kubectl apply it, in the namespace of the dispatcher's Jobs"
LEFT_BEHIND: Final = {
    "PersistentVolumeClaim": ". The new one is empty: copy its data",
    "SealedSecret": ". Seal it for that namespace first",
}
"""What an apply in another namespace does not bring."""
OF_CLOUDS: Final = re.compile(
    r"eks\.amazonaws\.com/role-arn|iam\.gke\.io/gcp-service-account|azure\.workload\.identity/client-id"
)
"""Annotations by which a ServiceAccount has rights in a cloud, which trusts its name and namespace."""


def left_behind(document: Json) -> str:
    if any(OF_CLOUDS.fullmatch(key) for key in object_at(document, "metadata", "annotations")):
        return ". Its cloud trusts the old namespace: let it trust that one, too"
    return LEFT_BEHIND.get(str(document.get("kind")), "")


def word_of_neighbour(document: Json, what: str, pods: PodNames) -> tuple[Did, str]:
    """What becomes of an object that runs nothing itself, such as a Service."""
    kind, space = str(document.get("kind")), object_at(document, "metadata").get("namespace")
    given = object_at(document, "spec", SELECTORS[kind]) if kind in SELECTORS else {}
    wanted = given if kind == "Service" else object_at(given, "matchLabels")
    names = [*wanted, *(str(one.get("key")) for one in objects(given.get("matchExpressions")))]
    if of_jobs := next((name for name in names if OF_JOBS.fullmatch(name)), ""):
        return Did.OPEN, f"{what} selects no Pod of ours by {of_jobs}: give the template a label, and select that"
    if (names or kind == "NetworkPolicy") and pods.selected(space, wanted):
        return Did.OPEN, f"{what} selects an adopted Pod: {IN_OUR_NAMESPACE}, too"
    if kind == "Service" and pods.has(kind, space, name_of(document)):
        host = f"{name_of(document)}.{space or 'NAMESPACE'}"
        return Did.OPEN if space else Did.LEFT_OUT, f"{what} is called by an adopted Pod: elsewhere it is {host}"
    made, place = MADE.get(kind, (kind, ()))
    name = (at(document, "spec", *place) if place else None) or name_of(document)
    if pods.has(made, space, name):
        there = IN_OUR_NAMESPACE + (f", and not in {space}" if space else "")
        there = "kubectl apply it, for the whole cluster" if kind in OF_CLUSTER else there
        named = "is named by an adopted Pod" if made == kind else f"makes {made} {name}, which an adopted Pod names"
        return Did.OPEN if space else Did.LEFT_OUT, f"{what} {named}: {there}{left_behind(document)}"
    for number, one in enumerate(objects(document.get("subjects"))):
        is_account = one.get("kind") == "ServiceAccount"
        if is_account and pods.has("ServiceAccount", one.get("namespace") or space, one.get("name")):
            account = f"add {one.get('name')} of the namespace of the dispatcher's Jobs to subjects"
            return Did.OPEN, f"{what} stays where it is: {account}, or change subjects[{number}].namespace"
    return Did.LEFT_OUT, f"{what} {BESIDE}"


def word_of_owner(document: Json) -> tuple[Did, str] | None:
    """What becomes of an object that a controller made. None: nobody did."""
    owners = objects(object_at(document, "metadata").get("ownerReferences"))
    owner = next((one for one in owners if one.get("controller") is True), None)
    if owner is None:
        return None
    kind = str(owner.get("kind"))
    made = f"{document.get('kind')} {name_of(document)}: {kind} {owner.get('name')} makes it"
    if kind in WORK:
        return Did.LEFT_OUT, f"{made}: adopt that one"
    if NO_WORK.get(kind) == WITHOUT_END or kind == "Node":
        return Did.LEFT_OUT, f"{made}, and it has no end: leave it as it is"
    return Did.OPEN, f"{made}, which is not known here: remove its ownerReferences, adopt it, and stop its owner"


HELD_WORK: Final = re.compile(
    rf"""(?:^|[{{,])[ \t-]*["']?kind["']?[ ]*:[ ]*["']?(?:{"|".join(WORK)})["']?[ ]*(?:$|[,}}#\r])""", re.MULTILINE
)
"""The kind of a manifest inside a text, in YAML or JSON."""
