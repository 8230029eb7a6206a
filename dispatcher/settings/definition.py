"""All settings. Each has one definition, by which `loading` reads the environment.

Each class belongs to one component. The metadata of a field say how it is read. docs/settings.md is made from them.

`Reader`: makes a setting's value from its text. It raises ValueError with the rule; callers add name and value.
"""

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dispatcher.model.resources import parse_quantity

Reader = Callable[[str], Any]
NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
HOST = r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?|\[[0-9A-Fa-f:.]+\]"
"""A name or an address. Python looks up no name with an empty label, or with one of more than 63 characters."""
LABEL_KEY = rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{NAME}"


def integer(least: int, most: int) -> Reader:
    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"-?[0-9]{1,12}", text) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return value

    return read


def size(text: str) -> int:
    """Bytes. A lost unit (`20`) and thousandths of a byte (`512m`) are mistakes, and far below what anybody needs."""
    value = parse_quantity(text)
    if value < 2**20:
        raise ValueError("must be an amount of bytes from 1Mi, such as 20Gi")
    return int(value)


def memory(text: str) -> str:
    size(text)
    return text


def job_bytes(text: str) -> str:
    if not 2**10 <= parse_quantity(text) <= 2**18:
        raise ValueError("must be from 1Ki to 256Ki")
    return text


def seconds(least: float, most: float) -> Reader:
    def read(text: str) -> float:
        value = float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) else None
        if value is None or not least <= value <= most:
            raise ValueError(f"must be seconds, a number from {least:g} to {most:g}")
        return value

    return read


def boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def words_matching(pattern: str, rule: str) -> Reader:
    """Reads a list. A fault names the item that is wrong, unless it is the only one."""

    def read(text: str) -> tuple[str, ...]:
        found = words(text)
        for word in found:
            if not re.fullmatch(pattern, word):
                raise ValueError(f"must be {rule}" + (f"; {word[:80]!r} is none" if len(found) > 1 else ""))
        return found

    return read


def choice(*options: str) -> Reader:
    def read(text: str) -> str:
        if text not in options:
            raise ValueError(f"must be one of {', '.join(options)}")
        return text

    return read


def matching(pattern: str, rule: str) -> Reader:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"must be {rule}")
        return text

    return read


def address(text: str) -> str:
    parts = re.fullmatch(rf"(?:{HOST})?:([0-9]{{1,5}})", text)
    if parts is None or int(parts[1]) > 65_535:
        raise ValueError("must be HOST:PORT")
    return text


def amount(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError("must be above 0")
    return text


label = matching(r"[a-z0-9]([-a-z0-9]{0,14}[a-z0-9])?", "a DNS label of at most 16 characters")
dns_label = matching(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "a DNS label of at most 63 characters")
dns_name = matching(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "a DNS name in lower case")
label_key = matching(LABEL_KEY, "a label's key, such as pool or example.org/pool")
folder = matching(r"(?!.*/\.\.?(/|$))(/[A-Za-z0-9._-]+)+", "an absolute path of plain names, without . and ..")
http_url = matching(
    rf"https?://({HOST})(:[0-9]{{1,5}})?(/[A-Za-z0-9._~/-]*)?", "an http or https URL without user or query"
)
label_pair = matching(f"{LABEL_KEY}=({NAME})?", "LABEL=VALUE, or LABEL= for a label without a value")
hosts = words_matching(
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]",
    "host names without scheme, port and *, such as tasks.example",
)
secret_name = matching(
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", "the name of a Secret, in lower-case letters, digits, - and ."
)
variable_globs = words_matching(r"[^\s=]+", "globs of names of variables, such as S3_*")
image_name = matching(r"[!-~]+", "the name of an image, without spaces")
text = str


def setting(name: str, default: Any, read: Reader, meaning: str, **more: Any) -> Any:
    """One setting.

    more: `secret`: its value is never shown. `of_pod`: file of the Pod's ServiceAccount with its value if it is not set.
    """
    metadata = {"name": name, "read": read, "meaning": meaning, "secret": False, "of_pod": None, **more}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class DatabaseSettings:
    url: str | None = setting(
        "DATABASE_URL",
        None,
        text,
        "URL of Postgres; default libpq's PG* variables. It may name several hosts; the primary is used",
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class KubeSettings:
    kubeconfig: str | None = setting(
        "KUBECONFIG",
        None,
        text,
        "Path of a kubeconfig; default the Pod's service account, then KUBECONFIG, then ~/.kube/config",
    )
    context: str | None = setting("KUBE_CONTEXT", None, text, "Context of the kubeconfig; default its current one")
    namespace: str | None = setting(
        "NAMESPACE",
        None,
        dns_label,
        "Namespace of Jobs; default the namespace of the service account or of the kubeconfig's context, else `default`. An installation has one namespace for Jobs. The lease is in the namespace of the service account (outside a cluster: in this one)",
        of_pod="/var/run/secrets/kubernetes.io/serviceaccount/namespace",
    )
    installation: str = setting(
        "INSTALLATION", "dispatcher", label, "First part of Job names; never change it while an installation lives"
    )
    writes_per_second: int = setting(
        "KUBE_WRITES_PER_SECOND",
        50,
        integer(1, 10_000),
        "Creates and deletes per second; the burst is twice that; 16 run at a time",
    )
    lease_seconds: int = setting(
        "LEASE_SECONDS", 15, integer(2, 300), "Length of the leader lease: replicas wait so long for a dead leader"
    )
    check_room: bool = setting(
        "CHECK_ROOM",
        True,
        boolean,
        "Whether rows wait until a node has room; needs list and watch of nodes, Pods and PriorityClasses cluster-wide",
    )


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    image: str | None = setting(
        "IMAGE", None, image_name, "Image of the built-in template `default`; unset: there is no built-in template"
    )
    cpu_request: str = setting("CPU_REQUEST", "2500m", amount, "CPU request of the built-in template")
    memory_request: str = setting("MEMORY_REQUEST", "2048Mi", memory, "Memory request of the built-in template")
    cpu_limit: str = setting("CPU_LIMIT", "3000m", amount, "CPU limit of the built-in template")
    memory_limit: str = setting("MEMORY_LIMIT", "2048Mi", memory, "Memory limit of the built-in template")
    task_secret: str | None = setting(
        "TASK_SECRET", None, secret_name, "Name of a Secret that the built-in template's container gets by envFrom"
    )
    run_as_non_root: bool = setting(
        "RUN_AS_NON_ROOT",
        False,
        boolean,
        "The built-in template says runAsNonRoot: its Pods then pass Pod Security `restricted`, and its image must name a "
        "numeric user other than root",
    )
    templates_dir: str | None = setting(
        "TEMPLATES_DIR", None, text, "Folder of Job manifests, one in each NAME.yaml; a changed file is read again"
    )
    pass_env: tuple[str, ...] = setting(
        "PASS_ENV", (), variable_globs, "Globs of the dispatcher's own variables that every container gets"
    )
    timeout_seconds: int = setting(
        "TIMEOUT_SECONDS",
        3600,
        integer(1, 604_800),
        "Run limit where neither row nor template has one; it counts the pull, too",
    )
    start_deadline_seconds: int = setting(
        "START_DEADLINE_SECONDS",
        1800,
        integer(10, 604_800),
        "Limit from the binding of a Pod to a node to a running container",
    )
    max_job_bytes: str = setting(
        "MAX_JOB_BYTES",
        "16Ki",
        job_bytes,
        "Bytes of env, command and args that a row adds to its Job; a template may raise it (max-bytes). The payload is "
        "there for more",
    )
    max_launches: int = setting(
        "MAX_LAUNCHES", 3, integer(1, 100), "Limit of launches of one attempt that never started"
    )
    node_lost_seconds: int = setting(
        "NODE_LOST_SECONDS",
        0,
        integer(0, 604_800),
        "A Pod on a lost node is force-deleted after this; 0: wait until the node is back or deleted",
    )


@dataclass(frozen=True, kw_only=True)
class PlacementSettings:
    scheduler_name: str = setting(
        "SCHEDULER_NAME",
        "",
        dns_name,
        "schedulerName of every Pod; unset: history is also written as preferred node affinity",
    )
    cache_root: str = setting(
        "CACHE_ROOT",
        "",
        folder,
        "Folder on the nodes for cache directories, mounted as /cache in the container; unset: no cache directories",
    )
    cache_copies: int = setting(
        "CACHE_COPIES",
        3,
        integer(1, 10),
        "Nodes to which a cache key is drawn while its warm nodes have no room; further launches go anywhere",
    )
    private_machine_label: str = setting(
        "PRIVATE_MACHINE_LABEL",
        "dispatcher.internal/private-machine",
        label_key,
        "Key of the label and of the taint of private machines, whose nodes take only rows that name them",
    )
    special_machine_label: str = setting(
        "SPECIAL_MACHINE_LABEL",
        "dispatcher.internal/special-machine",
        label_key,
        "Key of the label of special machines",
    )
    node_selector: str = setting("NODE_SELECTOR", "", label_pair, "LABEL=VALUE of the nodes for all other rows")
    prometheus_url: str = setting(
        "PROMETHEUS_URL", "", http_url, "Prometheus that is asked for the real use of earlier runs; unset: not asked"
    )


@dataclass(frozen=True, kw_only=True)
class KeeperSettings:
    high_percent: int = setting(
        "CACHE_HIGH_PERCENT",
        80,
        integer(1, 99),
        "The cache keeper removes least recently used directories when more of a disk, or of its inodes, is used",
    )
    low_percent: int = setting(
        "CACHE_LOW_PERCENT", 70, integer(1, 98), "It then goes on until no more than this is used"
    )
    max_age_days: int = setting(
        "CACHE_MAX_AGE_DAYS", 30, integer(0, 36_500), "It removes directories that no Pod used for so long; 0: never"
    )
    max_bytes: int | None = setting(
        "CACHE_MAX_BYTES", None, size, "It removes directories that are larger, such as 20Gi; unset: of any size"
    )


@dataclass(frozen=True, kw_only=True)
class ExtenderSettings:
    address: str = setting(
        "EXTENDER_ADDRESS", "127.0.0.1:8888", address, "Address where the extender listens for kube-scheduler"
    )
    tls_dir: str | None = setting(
        "EXTENDER_TLS_DIR",
        None,
        text,
        "Folder with tls.crt, tls.key and ca.crt; required unless the address is on loopback",
    )


@dataclass(frozen=True, kw_only=True)
class AdmissionSettings:
    max_jobs: int = setting(
        "MAX_JOBS",
        100,
        integer(0, 100_000),
        "Cap of unfinished Jobs in all; `dispatch.queues` has the caps per queue and per submitter",
    )
    max_pending: int = setting(
        "MAX_PENDING",
        1000,
        integer(0, 100_000),
        "Pods of one shape that may wait as demand, although no node has room for them; 0: none",
    )
    demand: str = setting(
        "DEMAND",
        "auto",
        choice("auto", "all", "one"),
        "auto: one Pod of a shape waits, and all that are needed once that brought a node; all: at once; one: never more",
    )
    pending_mode: str = setting(
        "PENDING_MODE",
        "unschedulable",
        choice("unschedulable", "any"),
        "unschedulable: MAX_PENDING counts; any: one pending Pod of ours holds all rows, until it gives its place back",
    )
    pending_grace_seconds: float = setting(
        "PENDING_GRACE_SECONDS", 30, seconds(0, 86_400), "A Pod counts as unschedulable after this time"
    )
    poll_seconds: float = setting("POLL_SECONDS", 2, seconds(0.05, 240), "Time between safety polls, besides LISTEN")


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    tombstone_seconds: float = setting(
        "TOMBSTONE_SECONDS",
        300,
        seconds(0, 604_800),
        "How long a finished Job of a terminal row is kept; at most 1,000 of them are kept",
    )


@dataclass(frozen=True, kw_only=True)
class JanitorSettings:
    park_seconds: float = setting(
        "PARK_SECONDS",
        3600,
        seconds(1, 31_536_000),
        "The janitor fails parked rows after this; a person may act before",
    )
    retention_days: int = setting(
        "RETENTION_DAYS", 0, integer(0, 36_500), "The janitor deletes terminal rows after so many days; 0: never"
    )


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    listen_address: str = setting(
        "LISTEN_ADDRESS",
        ":8080",
        address,
        "Address of health, readiness and metrics; without a host every interface, IPv4 and IPv6",
    )
    dashboard_address: str = setting(
        "DASHBOARD_ADDRESS",
        "127.0.0.1:8081",
        address,
        "Address of the dashboard and its JSON API, which only read, and show the rows of all teams",
    )
    dashboard_hosts: tuple[str, ...] = setting(
        "DASHBOARD_HOSTS", (), hosts, "Host names under which a proxy asks it, besides those of the machine itself"
    )
    dashboard_prefix: str = setting(
        "DASHBOARD_PREFIX", "", folder, "Path under which a proxy shows the dashboard, such as /dispatcher"
    )
    api_url: str = setting(
        "API_URL",
        "",
        http_url,
        "Where `dispatcher explain`, `status` and `logs` ask; unset: the dispatcher of their own Pod, with a kubeconfig a port-forward to it, otherwise this machine; each at the port of DASHBOARD_ADDRESS",
    )
    log_level: str = setting(
        "LOG_LEVEL",
        "info",
        choice("debug", "info", "warning", "error"),
        "Lowest level that is logged; logs are JSON lines, or text on a terminal",
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings, by component."""

    database: DatabaseSettings
    kube: KubeSettings
    jobs: JobSettings
    placement: PlacementSettings
    admission: AdmissionSettings
    sweep: SweepSettings
    janitor: JanitorSettings
    keeper: KeeperSettings
    extender: ExtenderSettings
    service: ServiceSettings
