"""Judges a Pod by the Pod Security levels `baseline` and `restricted`: the fields that fail, for Linux.

The rules are those of k8s.io/pod-security-admission. A contract test compares them with a real API server.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
Json = Mapping[str, Any]
ADDABLE: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
SELINUX_TYPES: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
SYSCTLS: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
})  # fmt: skip
VOLUMES: Final = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})
CALLS_SINCE: Final = 34
"""Minor version of Kubernetes since which `baseline` forbids probes and hooks to name a host."""
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def level_of(pod: Json, minor: int = CALLS_SINCE) -> str:
    """The strictest level that the Pod passes. `minor`: version of the API server."""
    if any(True for _ in below_baseline(pod, minor)):
        return PRIVILEGED
    return BASELINE if any(True for _ in below_restricted(pod)) else RESTRICTED


def violations(pod: Json, level: str, minor: int = CALLS_SINCE) -> list[str]:
    """The fields of a Pod's spec that this level forbids. Unknown levels forbid nothing."""
    found = list(below_baseline(pod, minor)) if level in {BASELINE, RESTRICTED} else []
    return found + (list(below_restricted(pod)) if level == RESTRICTED else [])


def containers_of(pod: Json) -> Iterator[tuple[str, Json]]:
    for field in ("initContainers", "containers"):
        for one in pod.get(field) or ():
            yield f"{field}[{one.get('name', '')}]", one


def contexts(pod: Json) -> Iterator[tuple[str, Json]]:
    """The security contexts of the Pod and of each container."""
    yield "securityContext", pod.get("securityContext") or {}
    for name, one in containers_of(pod):
        yield f"{name}.securityContext", one.get("securityContext") or {}


def below_baseline(pod: Json, minor: int) -> Iterator[str]:
    yield from (f"{field}: true" for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    for volume in pod.get("volumes") or ():
        if "hostPath" in volume:
            yield f"volumes[{volume.get('name', '')}].hostPath"
    for name, one in containers_of(pod):
        yield from (
            f"{name}.ports.hostPort: {port['hostPort']}" for port in one.get("ports") or () if port.get("hostPort")
        )
        yield from (f"{name}.{call}.host" for call in calls_of(one) if minor >= CALLS_SINCE)
    for sysctl in (pod.get("securityContext") or {}).get("sysctls") or ():
        if sysctl.get("name") not in SYSCTLS:
            yield f"securityContext.sysctls: {sysctl.get('name')}"
    for where, context in contexts(pod):
        yield from (f"{where}.{field}" for field in privileges(context))


def calls_of(container: Json) -> Iterator[str]:
    """Probes and hooks that name a host of their own."""
    hooks = container.get("lifecycle") or {}
    named = [(probe, container.get(probe)) for probe in PROBES]
    named += [(f"lifecycle.{hook}", hooks.get(hook)) for hook in ("postStart", "preStop")]
    for name, call in named:
        for kind in ("httpGet", "tcpSocket"):
            if ((call or {}).get(kind) or {}).get("host"):
                yield f"{name}.{kind}"


def privileges(context: Json) -> Iterator[str]:
    """Fields of one security context that `baseline` forbids."""
    if context.get("privileged"):
        yield "privileged: true"
    for name in (context.get("capabilities") or {}).get("add") or ():
        if name not in ADDABLE:
            yield f"capabilities.add: {name}"
    if (context.get("procMount") or "Default") != "Default":
        yield f"procMount: {context['procMount']}"
    yield from profiles(context)
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield "windowsOptions.hostProcess: true"


def profiles(context: Json) -> Iterator[str]:
    for field in ("seccompProfile", "appArmorProfile"):
        if (context.get(field) or {}).get("type") == "Unconfined":
            yield f"{field}.type: Unconfined"
    options = context.get("seLinuxOptions") or {}
    if options.get("type", "") not in SELINUX_TYPES or options.get("user") or options.get("role"):
        yield "seLinuxOptions"


def below_restricted(pod: Json) -> Iterator[str]:
    """Fields that `restricted` forbids or demands, beyond `baseline`."""
    for volume in pod.get("volumes") or ():
        for kind in sorted(set(volume) - {"name", "hostPath"} - VOLUMES):
            yield f"volumes[{volume.get('name', '')}].{kind}"
    whole = pod.get("securityContext") or {}
    each = [(name, one.get("securityContext") or {}) for name, one in containers_of(pod)]
    for name, context in each:
        yield from (f"{name}.securityContext.{field}" for field in of_container(context, whole))
    yield from (f"{where}.runAsUser: 0" for where, context in contexts(pod) if context.get("runAsUser") == 0)


def of_container(context: Json, whole: Json) -> Iterator[str]:
    """Fields of a container's context that `restricted` misses. `whole`: the context of the Pod."""
    capabilities = context.get("capabilities") or {}
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if "ALL" not in (capabilities.get("drop") or ()):
        yield "capabilities.drop has not ALL"
    yield from added(capabilities.get("add") or ())
    if not first(context.get("runAsNonRoot"), whole.get("runAsNonRoot")):
        yield "runAsNonRoot is not true"
    profile = context.get("seccompProfile") or whole.get("seccompProfile") or {}
    if profile.get("type") not in PROFILES and profile.get("type") != "Unconfined":
        yield "seccompProfile is missing"


def added(names: Iterable[str]) -> Iterator[str]:
    """Capabilities that `baseline` allows and `restricted` does not."""
    return (f"capabilities.add: {name}" for name in names if name in ADDABLE - {"NET_BIND_SERVICE"})


def first(own: Any, whole: Any) -> Any:
    return whole if own is None else own
