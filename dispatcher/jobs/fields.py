"""The fields of a Job and the values that they may have. Pure.

The API server refuses an unknown field, a value of another type, and a wrong amount. Its message is Go's, and comes
when a row is launched. Here the fault is found when the file is read, with the place in the file. `job_fields.json` is
made from the API server of the tests. Other refusals of the server are not known here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from dispatcher.jobs.template_text import Path
from dispatcher.model.errors import TemplateFault
from dispatcher.model.resources import parse_quantity

POD: Final[Path] = ("spec", "template", "spec")
ROOT: Final = "Job"
LIST, MAP = "[]", "{}"
SECRETIVE: Final = frozenset({"env", "args", "command", "annotations"})
"""Fields whose values appear in no message."""
ALSO_NEEDED: Final = {"Job": "spec", "PodTemplateSpec": "spec"}
"""Fields that the schema does not call required, but without which there is no Pod."""
MAY_BE_MISSING: Final = frozenset({
    ("HTTPHeader", "value"), ("Sysctl", "value"), ("SleepAction", "seconds"), ("PreferredSchedulingTerm", "preference"),
})  # fmt: skip
"""Fields that the schema calls required, but that the API server accepts as blank."""


class ObjectKind(msgspec.Struct, frozen=True):
    """A kind of object: the types of its fields. A kind without fields may have any fields, or is a text."""

    needed: dict[str, str] = {}
    others: dict[str, str] = {}


KINDS: Final = msgspec.json.decode(
    FilePath(__file__).with_name("job_fields.json").read_bytes(), type=dict[str, ObjectKind]
)


def is_whole(bits: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def is_amount(value: object) -> bool:
    try:
        return type(value) in {str, int, float} and parse_quantity(str(value)) is not None
    except ValueError:
        return False


SCALARS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "text": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false, without quotes", lambda value: isinstance(value, bool)),
    "int32": ("a whole number of 32 bits, without quotes", is_whole(32)),
    "int64": ("a whole number, without quotes", is_whole(64)),
    "integer or text": ("a whole number or a text", lambda value: isinstance(value, str) or is_whole(32)(value)),
    "amount": ('a Kubernetes quantity such as "500m" or "2Gi"', is_amount),
}


def field_faults(manifest: object, kind: str = ROOT, path: Path = ()) -> Iterator[TemplateFault]:
    """All fields of the manifest that the API server would refuse."""
    if kind.startswith(LIST):
        yield from list_faults(manifest, kind.removeprefix(LIST), path)
    elif kind in SCALARS:
        words, is_fine = SCALARS[kind]
        if not is_fine(manifest):
            yield fault_at(path, manifest, f"must be {words}{quote_it(kind, manifest)}")
    elif kind.startswith(MAP):
        yield from object_faults(manifest, kind, dict.fromkeys(keys_of(manifest), kind.removeprefix(MAP)), path)
    elif fields := KINDS[kind].needed | KINDS[kind].others:
        yield from object_faults(manifest, kind, fields, path)


def list_faults(value: object, of: str, path: Path) -> Iterator[TemplateFault]:
    if not isinstance(value, list):
        yield fault_at(path, value, "must be a list")
        return
    for index, item in enumerate(value):
        if item is not None:
            yield from field_faults(item, of, (*path, index))
        elif of in KINDS:  # the API server takes some of them, as an object without fields: nobody means that
            yield missing((*path, index), of)


def object_faults(value: object, kind: str, fields: Mapping[str, str], path: Path) -> Iterator[TemplateFault]:
    if not isinstance(value, dict):
        yield fault_at(path, value, "must be an object")
        return
    always = {*KINDS[kind].needed, ALSO_NEEDED.get(kind, "")} if kind in KINDS else set()
    needed = {name for name in always if name in fields and (kind, name) not in MAY_BE_MISSING}
    for name in sorted(needed):
        if value.get(name) in (None, ""):
            yield missing((*path, name), fields[name])
    for name, held in value.items():
        if not isinstance(name, str):
            yield TemplateFault(path, f"{dotted(path)} has a key that is no text: quote it")
        elif name not in fields:
            near = "".join(f": is it {one}?" for one in get_close_matches(name, fields, 1))
            yield TemplateFault((*path, name), f"{dotted((*path, name))} is no field of Kubernetes{near}")
        elif held is not None and not (held == "" and name in needed):
            yield from field_faults(held, fields[name], (*path, name))


def keys_of(value: object) -> list[str]:
    return list(value) if isinstance(value, dict) else []


def fault_at(path: Path, value: object, rule: str) -> TemplateFault:
    """A fault. Faults reach logs and submitters, so they quote no value that may be a secret."""
    if SECRETIVE & set(path):
        return TemplateFault(path, f"{dotted(path)} has another type: {rule}")
    return TemplateFault(path, is_but(dotted(path), value, rule))


def is_but(field: str, value: object, rule: str) -> str:
    """A fault in words, with the beginning of the value as JSON has it: `true`, and not Python's word."""
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{field} is {written[:80]!r}: {rule}"


def missing(path: Path, kind: str) -> TemplateFault:
    words = SCALARS[kind][0] if kind in SCALARS else "a list" if kind.startswith(LIST) else "an object"
    return TemplateFault(path, f"{dotted(path)} is missing: it must be {words}")


def quote_it(kind: str, value: object) -> str:
    return ": quote it" if kind == "text" and isinstance(value, bool | int | float) else ""


def as_read(value: Any, kind: str = ROOT) -> Any:
    """A faultless value as the API server reads it: a blank field is not set, and a blank text of a list or map is "".

    Helm and envsubst leave such blanks where a value is empty.
    """
    of = kind.removeprefix(LIST).removeprefix(MAP)
    if isinstance(value, list):
        return [as_read(one, of) for one in value]
    if isinstance(value, dict):
        types = KINDS[kind].needed | KINDS[kind].others if kind in KINDS else dict.fromkeys(value, of)
        kept = {name: one for name, one in value.items() if one is not None or of == "text"}
        return {name: as_read(one, types.get(name, "")) for name, one in kept.items()}
    return "" if value is None and kind == "text" else value


def at(manifest: object, *path: str | int) -> Any:
    """The part that the path leads to. None: it does not exist, or its parent has another shape."""
    for step in path:
        if isinstance(step, str):
            manifest = manifest.get(step) if isinstance(manifest, dict) else None
        else:
            manifest = manifest[step] if isinstance(manifest, list) and step < len(manifest) else None
    return manifest


def object_at(manifest: object, *path: str | int) -> Mapping[str, Any]:
    found = at(manifest, *path)
    return {key: value for key, value in found.items() if isinstance(key, str)} if isinstance(found, dict) else {}


def list_at(manifest: object, *path: str | int) -> list[Any]:
    found = at(manifest, *path)
    return found if isinstance(found, list) else []


def dotted(path: Path) -> str:
    """The path as text: `spec.template.spec.containers[0].image`. A key that is no plain name stands in
    brackets, too.
    """
    text = ""
    for step in path:
        is_plain = isinstance(step, str) and step.isidentifier()
        text += f".{step}" if is_plain else f"[{step}]"
    return text.removeprefix(".")


OF_ARGO_CD: Final = "app.kubernetes.io/instance"
"""The label by which Argo CD finds what belongs to an application, unless it is told another one."""
OF_RELOADER: Final = re.compile(r"(?:[a-z]+\.)?reloader\.stakater\.com/(?!ignore$).*")
OF_CLEANERS: Final = re.compile(r"cleanup\.kyverno\.io/.*|janitor/(?:ttl|expires)")
"""Labels and annotations by which Reloader, and Kyverno or kube-janitor, delete a Job that runs."""
OF_PRUNERS: Final = re.compile(
    r"applyset\.kubernetes\.io/part-of|kapp\.k14s\.io/(?:app|association)|objectset\.rio\.cattle\.io/.*"
)
"""Labels by which kubectl, kapp and Rancher delete what they did not apply. Exports have them."""


def deleted_by_tools(manifest: object) -> Iterator[str]:
    """Tells what lets other tools delete Jobs of the template. Reloader also reads the annotations of the Pod."""
    labels, own = object_at(manifest, "metadata", "labels"), object_at(manifest, "metadata", "annotations")
    of_pod = object_at(manifest, "spec", "template", "metadata", "annotations")
    found = [key for key in labels if key == OF_ARGO_CD or OF_CLEANERS.fullmatch(key) or OF_PRUNERS.fullmatch(key)]
    found += [key for key in own if OF_CLEANERS.fullmatch(key)]
    found += [key for key in {**own, **of_pod} if OF_RELOADER.fullmatch(key)]
    yield from (f"by {key}, a tool may delete a Job that runs, and its row runs again: leave it out" for key in found)


CAPABILITIES: Final = frozenset({
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
})  # fmt: skip
"""Capabilities that Pod Security `baseline`, and so the policy of the chart, lets every container add."""
SELINUX_TYPES: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
"""Types of SELinux that both allow."""
SYSCTLS: Final = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
})  # fmt: skip
"""Sysctls that both allow."""
