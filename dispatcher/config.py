"""Settings: environment in, frozen classes or all faults out. One definition each; the reference page is made from it.

Each class belongs to one component. A field's default is that of INTERFACE 1; its metadata say how it is read.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec import Struct

from dispatcher.errors import SettingsError
from dispatcher.quantity import parse_quantity
from dispatcher.reading import (
    Reader,
    address,
    amount,
    boolean,
    choice,
    dns_label,
    integer,
    label,
    seconds,
    text,
    words,
)  # fmt: skip

PREFIX: Final = "DISPATCHER_"
INJECTED: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT|SERVICE_PORT_.*|PORT|PORT_.*)")
"""What Kubernetes puts into a container for a Service called dispatcher-…"""

C = TypeVar("C")


def setting(name: str, default: Any, read: Reader, meaning: str, *, secret: bool = False) -> Any:
    return dataclasses.field(
        default=default, metadata={"name": name, "read": read, "meaning": meaning, "secret": secret}
    )


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    url: str | None = setting(
        "DATABASE_URL",
        None,
        text,
        "Postgres; default libpq's PG* variables. Several hosts allowed; always the primary",
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class KubeSettings:
    kubeconfig: str | None = setting(
        "KUBECONFIG", None, text, "Path; default in-cluster, then KUBECONFIG, then ~/.kube/config"
    )
    context: str | None = setting("KUBE_CONTEXT", None, text, "Context of the kubeconfig; default its current one")
    namespace: str | None = setting(
        "NAMESPACE", None, dns_label, "Where Jobs are made; default that of the service account, else `default`"
    )
    installation: str = setting(
        "INSTALLATION", "dispatcher", label, "First part of Job names; never changed on a living installation"
    )
    writes_per_second: int = setting(
        "KUBE_WRITES_PER_SECOND", 50, integer(1, 10_000), "Creates and deletes; burst twice that; 16 at a time"
    )
    lease_seconds: int = setting(
        "LEASE_SECONDS", 15, integer(2, 300), "Leader lease: how long a dead leader is waited for"
    )
    check_room: bool = setting("CHECK_ROOM", True, boolean, "Whether nodes are watched; needs nodes cluster-wide")


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    image: str | None = setting(
        "IMAGE", None, text, "Image of the built-in template `default`; without it there is none"
    )
    cpu_request: str = setting("CPU_REQUEST", "2500m", amount, "Of the built-in template")
    memory_request: str = setting("MEMORY_REQUEST", "2048Mi", amount, "Of the built-in template")
    cpu_limit: str = setting("CPU_LIMIT", "3000m", amount, "Of the built-in template")
    memory_limit: str = setting("MEMORY_LIMIT", "2048Mi", amount, "Of the built-in template")
    task_secret: str | None = setting(
        "TASK_SECRET", None, text, "Name of a Secret given to the built-in template's container by envFrom"
    )
    templates_dir: str | None = setting(
        "TEMPLATES_DIR", None, text, "One Job manifest a file, NAME.yaml; re-read when it changes"
    )
    pass_env: tuple[str, ...] = setting("PASS_ENV", (), words, "Globs of own variables handed to every container")
    timeout_seconds: int = setting("TIMEOUT_SECONDS", 3600, integer(1, 604_800), "Run limit where the row has none")
    start_deadline_seconds: int = setting(
        "START_DEADLINE_SECONDS", 1800, integer(10, 604_800), "From create to a running container"
    )
    max_launches: int = setting("MAX_LAUNCHES", 3, integer(1, 100), "Launches of an attempt that never started")
    node_lost_seconds: int = setting(
        "NODE_LOST_SECONDS", 0, integer(0, 604_800), "0: wait for a lost node until it is back or deleted"
    )
    scheduler_name: str = setting("SCHEDULER_NAME", "", text, "Put on every Pod")


@dataclass(frozen=True, kw_only=True)
class AdmissionSettings:
    max_jobs: int = setting(
        "MAX_JOBS", 100, integer(0, 100_000), "Unfinished Jobs in all; per queue and submitter: table queues"
    )
    max_pending: int = setting(
        "MAX_PENDING", 1, integer(0, 100_000), "More unschedulable Pods of a shape than this hold the shape"
    )
    pending_mode: str = setting(
        "PENDING_MODE", "unschedulable", choice("unschedulable", "any"), "any: one pending Pod of ours holds everything"
    )
    pending_grace_seconds: float = setting(
        "PENDING_GRACE_SECONDS", 30, seconds(0, 86_400), "Unschedulable for longer than this counts"
    )
    poll_seconds: float = setting("POLL_SECONDS", 2, seconds(0.05, 3600), "Safety poll beside LISTEN")


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    tombstone_seconds: float = setting(
        "TOMBSTONE_SECONDS",
        300,
        seconds(0, 604_800),
        "How long a finished Job of a terminal row is kept; at most 1,000 are",
    )


@dataclass(frozen=True, kw_only=True)
class JanitorSettings:
    park_seconds: float = setting(
        "PARK_SECONDS", 3600, seconds(1, 31_536_000), "Janitor: parked rows fail after this; a person may act before"
    )
    retention_days: int = setting(
        "RETENTION_DAYS", 0, integer(0, 36_500), "Janitor: terminal rows are deleted after this; 0 = never"
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    listen_address: str = setting("LISTEN_ADDRESS", "0.0.0.0:8080", address, "Health, readiness, metrics")
    log_level: str = setting(
        "LOG_LEVEL", "info", choice("debug", "info", "warning", "error"), "JSON lines; text on a terminal"
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All of them, by component."""

    database: DatabaseSettings
    kube: KubeSettings
    jobs: JobSettings
    admission: AdmissionSettings
    sweep: SweepSettings
    janitor: JanitorSettings
    service: ServiceSettings


COMPONENTS: Final = {field.name: field.type for field in dataclasses.fields(Settings)}
READ_FROM_FILE: Final = "_FILE"


class Source(Struct, frozen=True):
    """Where a value came from; for `dispatcher config` and the reference page."""

    name: str
    value: str
    origin: str
    default: str
    meaning: str


class Loaded(Struct, frozen=True):
    """Settings, their sources, and warnings that stop nobody."""

    settings: Settings
    sources: tuple[Source, ...]
    warnings: tuple[str, ...]


def load(environ: Mapping[str, str], read_file: Callable[[str], str]) -> Loaded:
    """All settings; SettingsError carries every fault at once. `read_file`: content of a path, or OSError."""
    faults: list[str] = []
    sources: list[Source] = []
    parts: dict[str, Any] = {}
    for part, component in COMPONENTS.items():
        values = {}
        for field in dataclasses.fields(component):  # type: ignore[arg-type]  # the classes above, by annotation
            try:
                value, origin = read_field(field, environ, read_file)
            except ValueError as fault:
                faults.append(str(fault))
                continue
            values[field.name] = value
            sources.append(describe(field, value, origin))
        if len(values) == len(dataclasses.fields(component)):  # type: ignore[arg-type]  # as above
            parts[part] = component(**values)  # type: ignore[operator]  # as above
    faults += crossed(parts.get("jobs"))
    if faults:
        raise SettingsError(tuple(faults))
    return Loaded(Settings(**parts), tuple(sources), tuple(unknown_names(environ)))


def crossed(jobs: JobSettings | None) -> Iterable[str]:
    """Values that are fine alone and not together; nothing where one of them was not."""
    for what in ("cpu", "memory") if jobs else ():
        request, limit = getattr(jobs, f"{what}_request"), getattr(jobs, f"{what}_limit")
        if parse_quantity(request) > parse_quantity(limit):
            name = f"{PREFIX}{what.upper()}"
            yield f"{name}_REQUEST is {request!r}: must not be over {name}_LIMIT {limit!r}"


def read_field(field: Any, environ: Mapping[str, str], read_file: Callable[[str], str]) -> tuple[Any, str]:
    """Value and origin; ValueError names variable, value and rule (a secret's value never)."""
    meta = field.metadata
    name = PREFIX + meta["name"]
    written, origin = environ.get(name), "environment"
    if meta["secret"] and name + READ_FROM_FILE in environ:
        if written is not None:
            raise ValueError(f"{name} and {name}{READ_FROM_FILE} are both set: choose one")
        origin = f"file {environ[name + READ_FROM_FILE]}"
        try:
            written = read_file(environ[name + READ_FROM_FILE]).strip()
        except (OSError, UnicodeDecodeError) as fault:
            words = fault if isinstance(fault, OSError) else "not a text file"
            raise ValueError(f"{name}{READ_FROM_FILE}: {words}") from fault
    if written is None or written == "":
        return field.default, "default"
    try:
        return meta["read"](written), origin
    except ValueError as fault:
        shown = "(hidden)" if meta["secret"] else repr(written[:80])
        raise ValueError(f"{name} is {shown}: {fault}") from fault


def reread(name: str, value: str | None, environ: Mapping[str, str], read_file: Callable[[str], str]) -> str | None:
    """A secret as its file holds it now (OSError: it went away); its value where no file was named."""
    path = environ.get(PREFIX + name + READ_FROM_FILE)
    return value if path is None else read_file(path).strip()


def describe(field: Any, value: Any, origin: str) -> Source:
    meta = field.metadata
    hidden = meta["secret"] and value is not None
    return Source(meta["name"], "(hidden)" if hidden else show(value), origin, show(field.default), meta["meaning"])


def show(value: Any) -> str:
    if value in (None, "", ()):
        return "—"
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)


def known_names() -> set[str]:
    fields = [field for component in COMPONENTS.values() for field in dataclasses.fields(component)]  # type: ignore[arg-type]  # as above
    secret = {PREFIX + field.metadata["name"] + READ_FROM_FILE for field in fields if field.metadata["secret"]}
    return {PREFIX + field.metadata["name"] for field in fields} | secret


def unknown_names(environ: Iterable[str]) -> Iterable[str]:
    """A warning for each variable of our prefix that nobody reads."""
    known = known_names()
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known and not INJECTED.fullmatch(name):
            short = {one.removeprefix(PREFIX) for one in known}
            near = difflib.get_close_matches(name.removeprefix(PREFIX), short, 1)
            yield f"{name} is not a setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else "")
