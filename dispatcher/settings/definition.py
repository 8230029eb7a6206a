"""Settings: one definition each; the reference page is made from it, and `loading` reads the environment by it.

Each class belongs to one component. The metadata of a field say how it is read; docs/settings.md lists all fields.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from dispatcher.settings.reading import (
    Reader,
    address,
    amount,
    boolean,
    choice,
    dns_label,
    dns_name,
    folder,
    http_url,
    integer,
    label,
    label_key,
    label_pair,
    seconds,
    text,
    words,
)


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
        "NAMESPACE",
        None,
        dns_label,
        "Where Jobs are made; default that of the service account, else `default`. One installation, one namespace for Jobs. The lease stands in the namespace of the service account (outside a cluster: in this one)",
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


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    scheduler_name: str = setting(
        "SCHEDULER_NAME", "", dns_name, "Put on every Pod; unset: history is also written as preferred node affinity"
    )
    cache_root: str = setting(
        "CACHE_ROOT", "", folder, "Folder of the nodes for cache directories, /cache in the container; unset: none"
    )
    private_machine_label: str = setting(
        "PRIVATE_MACHINE_LABEL",
        "dispatcher.internal/private-machine",
        label_key,
        "Label and taint of nodes that one private machine name has for itself",
    )
    special_machine_label: str = setting(
        "SPECIAL_MACHINE_LABEL", "dispatcher.internal/special-machine", label_key, "Label of special machines"
    )
    node_selector: str = setting("NODE_SELECTOR", "", label_pair, "LABEL=VALUE of the nodes for all other rows")
    prometheus_url: str = setting(
        "PROMETHEUS_URL", "", http_url, "Asked for the real use of a cache key's earlier runs; unset: nobody is"
    )


@dataclass(frozen=True, kw_only=True)
class ExtenderSettings:
    address: str = setting("EXTENDER_ADDRESS", "127.0.0.1:8888", address, "Where kube-scheduler asks")
    tls_dir: str | None = setting(
        "EXTENDER_TLS_DIR", None, text, "Holds tls.crt, tls.key, ca.crt; required off loopback"
    )


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
    placement: PlacementSettings
    admission: AdmissionSettings
    sweep: SweepSettings
    janitor: JanitorSettings
    extender: ExtenderSettings
    service: ServiceSettings
