"""The Secrets that a Pod names, and the keys that it needs of them. References that are optional are left out."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

Json = Mapping[str, Any]


class Named(Struct, frozen=True, order=True):
    """A Secret that a Pod names. `key`: empty if any keys will do."""

    secret: str
    key: str = ""


def named_secrets(pod: Json) -> list[Named]:
    """Each reference once."""
    found = {*in_env(pod), *in_volumes(pod)}
    found |= {Named(str(one.get("name", ""))) for one in pod.get("imagePullSecrets") or ()}
    return sorted(one for one in found if one.secret)


def in_env(pod: Json) -> Iterator[Named]:
    for one in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        for variable in one.get("env") or ():
            yield from reference((variable.get("valueFrom") or {}).get("secretKeyRef"))
        for source in one.get("envFrom") or ():
            yield from reference(source.get("secretRef"))


def in_volumes(pod: Json) -> Iterator[Named]:
    for volume in pod.get("volumes") or ():
        yield from with_items(volume.get("secret"), "secretName")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from with_items(source.get("secret"), "name")


def reference(named: Json | None) -> Iterator[Named]:
    if named and not named.get("optional"):
        yield Named(str(named.get("name", "")), str(named.get("key", "")))


def with_items(source: Json | None, field: str) -> Iterator[Named]:
    """A volume needs the Secret; if it lists keys, it needs these."""
    if source and not source.get("optional"):
        keys = [str(item.get("key", "")) for item in source.get("items") or ()]
        yield from (Named(str(source.get(field, "")), key) for key in keys or [""])
