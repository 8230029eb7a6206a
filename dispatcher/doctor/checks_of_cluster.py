"""The checks of cluster, templates, scheduler and Prometheus. Findings fill in the words in braces."""

from collections.abc import Mapping
from typing import Final

from dispatcher.doctor.check import Check, Part

CLUSTER: Final[Mapping[str, Check]] = {
    "ApiServerAway": Check(
        Part.CLUSTER,
        "Does the API server answer?",
        "Without the API server nothing is launched and nothing is deleted.",
        "kubectl get --raw /readyz?verbose  # as the same account; then check address, account and network",
    ),
    "ApiServerTooOld": Check(
        Part.CLUSTER,
        "Is the API server Kubernetes 1.31 or later?",
        "Older servers lack fields of Jobs that the rules of launches depend on.",
        "kubectl version  # upgrade the control plane to 1.31 or later",
    ),
    "MissingVerb": Check(
        Part.CLUSTER,
        "May each program do what it needs?",
        "The program stops, or does a part of its work, where it is refused.",
        "helm upgrade {release} deploy/chart -n {namespace} --reuse-values  # {release_is}",
    ),
    "NamespaceMissing": Check(
        Part.CLUSTER,
        "Do the namespaces of the programs and of the Jobs exist?",
        "No Job can be made.",
        "kubectl create namespace {namespace}",
    ),
    "NamespaceTerminating": Check(
        Part.CLUSTER,
        "Are the namespaces not being deleted?",
        "No Job can be made, and everything in the namespace goes.",
        "kubectl get namespace {namespace} -o jsonpath='{{.status.conditions}}'  # when it is gone, create it again",
    ),
    "PolicyMissing": Check(
        Part.CLUSTER,
        "Is the admission policy for the Jobs there?",
        "A Job can use every Secret and ServiceAccount of its namespace. Only the policy limits what ours name. "
        "Where the value policy.enabled is false, it is a warning.",
        "helm upgrade {release} deploy/chart -n {namespace} --reuse-values --set policy.enabled=true  # {release_is}",
    ),
    "PolicyUnbound": Check(
        Part.CLUSTER,
        "Is the admission policy bound, with the action Deny?",
        "Without a binding that denies, the API server does not enforce the policy.",
        "helm upgrade {release} deploy/chart -n {namespace} --reuse-values --set policy.enabled=true  # {release_is}",
    ),
    "JobControllerSlow": Check(
        Part.CLUSTER,
        "Do Jobs get their Pods within seconds?",
        "The Job controller sends 20 requests a second by default: about five Jobs a second, whatever is launched.",
        "kube-controller-manager --kube-api-qps=300 --kube-api-burst=600 --concurrent-job-syncs=20  # its flags",
    ),
}
TEMPLATES: Final[Mapping[str, Check]] = {
    "NoTemplate": Check(
        Part.TEMPLATES,
        "Is there a template?",
        "Without a template no row can be launched.",
        "kubectl -n {namespace} set env deployment/{installation} DISPATCHER_IMAGE=registry.example/team/app:1",
    ),
    "InvalidTemplate": Check(
        Part.TEMPLATES,
        "Can each template be used?",
        "Rows of the template are parked as InvalidTemplate.",
        "dispatcher render --template {template}  # after a change of its file",
    ),
    "JobRefused": Check(
        Part.TEMPLATES,
        "Does the API server accept a Job of each template (dry run)?",
        "Rows of the template do not become Jobs.",
        "dispatcher render --template {template} | kubectl create --dry-run=server -f -",
    ),
    "PodSecurity": Check(
        Part.TEMPLATES,
        "Does the Pod of each template pass the Pod Security level of the namespace?",
        "The Job is made, but its Pod is refused: each launch counts as one that never started.",
        "kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce={level}"
        "  # or change the template",
    ),
    "QuotaFitsNoJob": Check(
        Part.TEMPLATES,
        "Would each ResourceQuota, when empty, admit a Job of each template?",
        "Rows of the template wait as QuotaExceeded for ever.",
        "kubectl -n {namespace} edit resourcequota {quota}",
    ),
    "LimitRangeRefuses": Check(
        Part.TEMPLATES,
        "Does each LimitRange admit the Pod of each template?",
        "The Job is made, but its Pod is refused: each launch counts as one that never started.",
        "kubectl -n {namespace} edit limitrange {range}",
    ),
    "SecretMissing": Check(
        Part.TEMPLATES,
        "Does each Secret that a template names exist?",
        "The container never starts: kubelet waits for the Secret until the start deadline.",
        "kubectl -n {namespace} create secret generic {secret} --from-literal=KEY=VALUE",
    ),
    "SecretKeyMissing": Check(
        Part.TEMPLATES,
        "Has each Secret the keys that a template names?",
        "The container never starts: kubelet waits for the key until the start deadline.",
        'kubectl -n {namespace} patch secret {secret} -p \'{{"stringData": {{"{key}": "VALUE"}}}}\'',
    ),
    "NoNodeFits": Check(
        Part.TEMPLATES,
        "Is there a node that is large enough for the Pod of each template, and takes it?",
        "Rows of the template wait as NeverFits until there is such a node.",
        "kubectl describe nodes | grep -E -A7 'Name:|Taints:|Allocatable:'  # add a node, or change the template",
    ),
}
SCHEDULING: Final[Mapping[str, Check]] = {
    "SchedulerAbsent": Check(
        Part.SCHEDULING,
        "Is a kube-scheduler at work under DISPATCHER_SCHEDULER_NAME?",
        "Pods that name an absent scheduler stay Pending for ever.",
        "kubectl -n {namespace} rollout restart deployment/{scheduler}"
        "  # if there is none: --set scheduler.enabled=true, or unset DISPATCHER_SCHEDULER_NAME",
    ),
    "ExtenderNotConfigured": Check(
        Part.SCHEDULING,
        "Does the configuration of that kube-scheduler name the extender?",
        "Without the extender no cache is warm, and reservations do not hold.",
        "dispatcher extender --print-scheduler-config  # the configuration that it needs",
    ),
    "ExtenderNotAnswering": Check(
        Part.SCHEDULING,
        "Is the extender ready?",
        "Pods of ours wait with SchedulerError until the extender answers.",
        "kubectl -n {namespace} logs {pod} -c extender --tail=50",
    ),
    "ExtenderMisused": Check(
        Part.SCHEDULING,
        "Does one kube-scheduler alone call the extender, and as it should?",
        "Answers are dropped, or two schedulers choose the same room.",
        "dispatcher extender --print-scheduler-config  # one extender for each scheduler, configured like this",
    ),
}
CACHES: Final[Mapping[str, Check]] = {
    "CacheKeeperAbsent": Check(
        Part.CACHES,
        "Is a cache keeper ready on each node?",
        "Nobody removes cache directories of the node, until kubelet evicts Pods from its full disk. Without a "
        "DaemonSet it is a warning.",
        "kubectl -n {namespace} describe daemonset {installation}-cache-keeper"
        "  # if there is none: helm upgrade with cacheKeeper.enabled=true",
    ),
    "CacheDiskFull": Check(
        Part.CACHES,
        "Did each cache keeper find directories that may go, in the last hour?",
        "The disk stays above CACHE_HIGH_PERCENT. kubelet evicts Pods from a full disk.",
        "kubectl -n {namespace} exec daemonset/{installation}-cache-keeper -- dispatcher cache-keeper --dry-run"
        "  # docs/runbooks/DispatcherCacheDiskFull.md",
    ),
}
OF_PROMETHEUS: Final[Mapping[str, Check]] = {
    "PrometheusAway": Check(
        Part.PROMETHEUS,
        "Does Prometheus answer at DISPATCHER_PROMETHEUS_URL?",
        "Pods carry no real use of earlier runs, so the extender places them by their requests alone.",
        "curl -sS {url}/-/ready",
    ),
    "MetricUnknown": Check(
        Part.PROMETHEUS,
        "Does Prometheus know the container metrics of kubelets?",
        "Pods carry no real use of earlier runs, so the extender places them by their requests alone.",
        "curl -sS '{url}/api/v1/targets?state=active' | grep -c cadvisor  # scrape /metrics/cadvisor of each kubelet",
    ),
}
