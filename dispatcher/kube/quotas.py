"""Follows the ResourceQuotas of the namespace of Jobs.

While they are not known for certain, they hold no row: the API server's own refusal tells of them.
"""

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from dispatcher.kube.listing import Resource
from dispatcher.kube.quantities import amounts_of
from dispatcher.kube.reflectors import Reflectors, fault_of
from dispatcher.kube.wire import Meta, Wire
from dispatcher.model.quotas import Quota, Scope

NONE: Final[tuple[Quota, ...]] = ()


class WireScope(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class WireSelector(Wire, frozen=True):
    match_expressions: list[WireScope] | None = None


class QuotaSpec(Wire, frozen=True):
    scopes: list[str] | None = None
    scope_selector: WireSelector | None = None


class QuotaStatus(Wire, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class WireQuota(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def read_quota(raw: bytes | msgspec.Raw) -> Quota:
    """Reads a ResourceQuota by its status, because quota admission enforces the status, not the spec."""
    wire = msgspec.json.decode(raw, type=WireQuota)
    return Quota(
        wire.metadata.name,
        amounts_of("resourcequotas", wire.status.hard),
        amounts_of("resourcequotas", wire.status.used),
        tuple(scopes_of(wire.spec)),
    )


def scopes_of(spec: QuotaSpec) -> Iterator[Scope]:
    for name in spec.scopes or ():
        yield Scope(name)
    for one in (spec.scope_selector.match_expressions if spec.scope_selector else None) or ():
        yield Scope(one.scope_name, one.operator, tuple(one.values or ()))


class QuotaMirror:
    """The ResourceQuotas of one namespace, as last seen."""

    def __init__(self, reflectors: Reflectors, namespace: str) -> None:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"
        self._reflector = reflectors.of(Resource[Quota]("resourcequotas", path, read_quota))

    def quotas(self) -> tuple[Quota, ...]:
        """The quotas by name; none if they are not known, or no longer for certain."""
        if fault_of(self._reflector):
            return NONE
        return tuple(sorted(self._reflector.store.view().values(), key=lambda quota: quota.name))

    def on_change(self, listener: Callable[[], None]) -> None:
        self._reflector.store.on_each(lambda _before, _after: listener())
