"""Which directories Pods use, or are about to use. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol

from dispatcher.keeper.record import Users


class MountingPod(Protocol):
    """A Pod and the folders of its node that it mounts."""

    @property
    def uid(self) -> str: ...
    @property
    def paths(self) -> Sequence[str]: ...


def users_of(pods: Iterable[MountingPod], root: str, names: Set[str] = frozenset()) -> Users:
    """The Pods by directory. A Pod that mounts the root, or a folder above it, uses all `names`."""
    found: Mapping[str, set[str]] = defaultdict(set)
    for pod in pods:
        for path in pod.paths:
            for name in names_of(clean(path), clean(root), names):
                found[name].add(pod.uid)
    return Users(dict(found))


def names_of(path: str, root: str, names: Set[str]) -> Iterable[str]:
    if path.startswith(f"{root}/"):
        return [path.removeprefix(f"{root}/").partition("/")[0]]
    return names if f"{root}/".startswith(f"{path}/") else ()


def clean(path: str) -> str:
    """The path without what means nothing in it, as kubelet mounts it. `/` is empty."""
    return "".join(f"/{part}" for part in path.split("/") if part not in {"", "."})
