"""Pods with the strictest Pod Security level that each passes, for the judgement of the doctor and for the server's."""

from typing import Any

from dispatcher.doctor.pod_rules import BASELINE, PRIVILEGED, RESTRICTED

Json = dict[str, Any]
LOCKED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def a_pod(container: Json | None = None, context: Json | None = None, **spec: Any) -> Json:
    """A Pod that passes `restricted`, changed. `context`: changes of the container's security context."""
    merged = {key: value for key, value in (LOCKED | (context or {})).items() if value is not None}
    one = {"name": "task", "image": "registry.example/app:1", "securityContext": merged} | (container or {})
    return {"containers": [one], **spec}


def a_volume(kind: str, **fields: Any) -> list[Json]:
    return [{"name": "v", kind: fields}]


INIT = [{"name": "before", "image": "registry.example/app:1"}]
PROBE = {"readinessProbe": {"httpGet": {"host": "10.1.2.3", "port": 80}}}
HOOK = {"lifecycle": {"preStop": {"tcpSocket": {"host": "10.1.2.3", "port": 80}}}}
SYSCTL = {"name": "kernel.shm_rmid_forced", "value": "1"}
PODS: dict[str, tuple[Json, str]] = {
    "locked": (a_pod(), RESTRICTED),
    "Localhost profile": (
        a_pod(context={"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}),
        RESTRICTED,
    ),
    "context of the Pod": (
        a_pod(
            context={"runAsNonRoot": None, "seccompProfile": None},
            securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        ),
        RESTRICTED,
    ),
    "NET_BIND_SERVICE": (
        a_pod(context={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
        RESTRICTED,
    ),
    "safe sysctl": (a_pod(securityContext={"sysctls": [SYSCTL]}), RESTRICTED),
    "emptyDir": (a_pod(volumes=a_volume("emptyDir")), RESTRICTED),
    "Secret": (a_pod(volumes=a_volume("secret", secretName="x")), RESTRICTED),
    "container_t": (a_pod(context={"seLinuxOptions": {"type": "container_t"}}), RESTRICTED),
    "SELinux level": (a_pod(context={"seLinuxOptions": {"level": "s0:c1"}}), RESTRICTED),
    "no context": (a_pod(container={"securityContext": {}}), BASELINE),
    "init container": (a_pod(initContainers=INIT), BASELINE),
    "escalation": (a_pod(context={"allowPrivilegeEscalation": None}), BASELINE),
    "capabilities kept": (a_pod(context={"capabilities": {}}), BASELINE),
    "CHOWN": (a_pod(context={"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}}), BASELINE),
    "root": (a_pod(context={"runAsUser": 0}), BASELINE),
    "root of the Pod": (a_pod(securityContext={"runAsUser": 0}), BASELINE),
    "maybe root": (a_pod(context={"runAsNonRoot": None}), BASELINE),
    "root in spite of the Pod": (
        a_pod(context={"runAsNonRoot": False}, securityContext={"runAsNonRoot": True}),
        BASELINE,
    ),
    "no profile": (a_pod(context={"seccompProfile": None}), BASELINE),
    "nfs": (a_pod(volumes=a_volume("nfs", server="x", path="/")), BASELINE),
    "hostNetwork": (a_pod(hostNetwork=True), PRIVILEGED),
    "hostPID": (a_pod(hostPID=True), PRIVILEGED),
    "hostPath": (a_pod(volumes=a_volume("hostPath", path="/var/cache")), PRIVILEGED),
    "hostPort": (a_pod(container={"ports": [{"containerPort": 80, "hostPort": 80}]}), PRIVILEGED),
    "privileged": (a_pod(context={"allowPrivilegeEscalation": None, "privileged": True}), PRIVILEGED),
    "SYS_ADMIN": (a_pod(context={"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}), PRIVILEGED),
    "unconfined": (a_pod(context={"seccompProfile": {"type": "Unconfined"}}), PRIVILEGED),
    "unconfined Pod": (a_pod(securityContext={"seccompProfile": {"type": "Unconfined"}}), PRIVILEGED),
    "AppArmor off": (a_pod(context={"appArmorProfile": {"type": "Unconfined"}}), PRIVILEGED),
    "SELinux type": (a_pod(context={"seLinuxOptions": {"type": "spc_t"}}), PRIVILEGED),
    "SELinux user": (a_pod(context={"seLinuxOptions": {"user": "system_u"}}), PRIVILEGED),
    "unsafe sysctl": (a_pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), PRIVILEGED),
    "probe of a host": (a_pod(container=PROBE), PRIVILEGED),
    "hook that calls a host": (a_pod(container=HOOK), PRIVILEGED),
}
"""By name: a Pod's spec, and the strictest level that it passes."""
