"""Judges the Pod of a template by ResourceQuotas, LimitRanges and the Pod Security levels. Pure.

`quota_refusal`, `range_refusals`: the rules of the API server's admission plugins ResourceQuota and LimitRanger.
Amounts that cannot be read are left out: the dry run of the Job finds them.

`violations`: the fields that the levels `baseline` and `restricted` forbid, for Linux. The rules are those of
k8s.io/pod-security-admission. A contract test compares them with a real API server.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.jobs.fields import CAPABILITIES, SELINUX_TYPES, SYSCTLS
from dispatcher.model.cluster import Quota, Quotas, meets
from dispatcher.model.jobs import Json
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import Written, asked_by, parse_quantity

TOLD: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""If a quota limits one of these amounts, each container has to name it."""


def quota_refusal(quota: Quota, pod: Json, needs: PodNeeds | None, given: frozenset[str]) -> str:
    """Why the quota would refuse the Pod, however empty the quota is. `given`: amounts that a LimitRange fills in."""
    if needs is None or not all(meets(needs, scope) for scope in quota.scopes):
        return ""
    empty = msgspec.structs.replace(quota, used=dict.fromkeys(quota.hard, 0))
    return Quotas((empty,)).why_not(needs) or next(unnamed(quota, pod, given), "")


def unnamed(quota: Quota, pod: Json, given: frozenset[str]) -> Iterator[str]:
    """The amounts that containers do not name. Where the Pod has amounts as a whole, none need name them."""
    for limited in () if any((pod.get("resources") or {}).values()) else TOLD:
        side, _, resource = limited.rpartition(".")
        if limited in quota.hard and f"{side or 'requests'}.{resource}" not in given:
            for one in containers(pod):
                if resource not in amounts_of(one, side or "requests"):
                    yield f"ResourceQuota {quota.name} limits {limited}, and container {one.get('name', '')} names none"


class Defaults(Struct, frozen=True):
    """The amounts that LimitRanges give to containers without amounts."""

    requests: Json = {}
    limits: Json = {}

    @property
    def names(self) -> frozenset[str]:
        """The defaults by the names that quotas give them."""
        sides = {"requests": {**self.limits, **self.requests}, "limits": self.limits}
        return frozenset(f"{side}.{resource}" for side, amounts in sides.items() for resource in amounts)


def defaults_of(ranges: Iterable[Json]) -> Defaults:
    """The defaults of all ranges together. They are filled in before any bound is checked."""
    requests, limits = dict[str, Any](), dict[str, Any]()
    for item in (item for one in ranges for item in items_of(one) if item.get("type") == "Container"):
        requests |= item.get("defaultRequest") or {}
        limits |= item.get("default") or {}
    return Defaults(requests, limits)


def range_refusals(limit_range: Json, pod: Json, given: Defaults) -> Iterator[str]:
    """Why the LimitRange would refuse the Pod: each bound that it breaks."""
    for item in items_of(limit_range):
        if item.get("type") == "Container":
            for one in containers(pod):
                yield from refusals(item, f"container {one.get('name', '')}", *filled_in(one, given))
        if item.get("type") == "Pod":
            yield from refusals(item, "the Pod", *(of_pod(pod, given, side) for side in SIDES))


def items_of(limit_range: Json) -> list[Json]:
    found: list[Json] = (limit_range.get("spec") or {}).get("limits") or []
    return found


def containers(pod: Json) -> list[Json]:
    return [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]


def amounts_of(container: Json, side: str) -> dict[str, str]:
    """The amounts that a container names. A limit without a request is the request, too."""
    resources = container.get("resources") or {}
    found = {**(resources.get("limits") or {}), **((resources.get(side) or {}) if side == "requests" else {})}
    return {name: str(amount) for name, amount in found.items()}


def filled_in(container: Json, given: Defaults) -> list[dict[str, Fraction]]:
    """Requests and limits of a container after the defaults."""
    return [read(dict(written_in(container, given, side))) for side in SIDES]


SIDES: Final = ("requests", "limits")


def written_in(container: Json, given: Defaults, side: str) -> Written:
    defaults = {**given.limits, **(given.requests if side == "requests" else {})}
    return tuple((name, str(amount)) for name, amount in {**defaults, **amounts_of(container, side)}.items())


def of_pod(pod: Json, given: Defaults, side: str) -> dict[str, Fraction]:
    """Requests or limits of the Pod after the defaults, by the rule of `asked_by`."""
    own = (pod.get("resources") or {}).get(side) or {}
    named = {name for one in containers(pod) for name in amounts_of(one, side)} - own.keys()
    whole = tuple((name, amount) for name, amount in amounts_of(pod, side).items() if name not in named)
    each = tuple(written_in(one, given, side) for one in pod.get("containers") or ())
    first = tuple((written_in(one, given, side), is_sidecar(one)) for one in pod.get("initContainers") or ())
    return {name: Fraction(milli, 1000) for name, milli in asked_by((each, first, (), whole)).items()}


def is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def read(amounts: Json) -> dict[str, Fraction]:
    found = {}
    for name, amount in amounts.items():
        try:
            found[name] = parse_quantity(str(amount))
        except ValueError:
            continue
    return found


def refusals(item: Json, who: str, requests: Mapping[str, Fraction], limits: Mapping[str, Fraction]) -> Iterator[str]:
    for name, least in read(item.get("min") or {}).items():
        if name not in requests or requests[name] < least:
            yield f"{who} requests less {name} than the minimum {item['min'][name]}"
    for name, most in read(item.get("max") or {}).items():
        if name not in limits or max(limits[name], requests.get(name, limits[name])) > most:
            yield f"{who} has a limit of {name} above the maximum {item['max'][name]}, or none"
    for name, ratio in read(item.get("maxLimitRequestRatio") or {}).items():
        if not requests.get(name) or name not in limits or limits[name] / requests[name] > ratio:
            yield f"{who} has a limit of {name} above {item['maxLimitRequestRatio'][name]} times its request"


PRIVILEGED: Final = "privileged"
BASELINE: Final = "baseline"
RESTRICTED: Final = "restricted"
VOLUMES: Final = frozenset({
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
})  # fmt: skip
PROFILES: Final = frozenset({"RuntimeDefault", "Localhost"})
CALLS_SINCE: Final = 34
"""The first minor version of Kubernetes in which `baseline` forbids probes and hooks to name a host."""
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
    """Probes and hooks that name a host."""
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
        if name not in CAPABILITIES:
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
    """Fields that `restricted` misses in a container's context. `whole`: the context of the Pod."""
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
    return (f"capabilities.add: {name}" for name in names if name in CAPABILITIES - {"NET_BIND_SERVICE"})


def first(own: Any, whole: Any) -> Any:
    return whole if own is None else own
