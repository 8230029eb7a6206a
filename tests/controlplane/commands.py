"""The files and flags of each server.

The flags are the flags of an ordinary cluster, with three exceptions:

* There is no fsync.
* Clients may send more requests a second. With the defaults the Job controller completes about five Jobs a second.
* A token file is the only login.
"""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from tests.controlplane.ports import free_ports

HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Layout:
    """The folder, ports and tokens of one control plane. All its files are in `folder` or `logs`."""

    folder: Path
    logs: Path
    etcd_port: int
    peer_port: int
    api_port: int
    tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fresh(cls, folder: Path, logs: Path, api_port: int | None = None) -> "Layout":
        etcd_port, peer_port, free_port = free_ports(3)
        names = ("admin", "system:kube-controller-manager", "system:kube-scheduler", "kwok")
        tokens = {name: secrets.token_hex(16) for name in names}
        return cls(folder, logs, etcd_port, peer_port, api_port or free_port, tokens)

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.api_port}"

    @property
    def ca_file(self) -> Path:
        """The API server's certificate and its authority's. The API server writes the file at its first start."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def key_file(self) -> Path:
        return self.folder / "certificates" / "apiserver.key"

    @property
    def token_file(self) -> Path:
        return self.folder / "tokens.csv"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / f"{user.removeprefix('system:')}.kubeconfig"

    def token_lines(self) -> str:
        """The token file. Each user has all rights; the names differ so that the audit log tells the users apart."""
        return "".join(f'{token},{user},{user},"system:masters"\n' for user, token in self.tokens.items())


def etcd(layout: Layout) -> list[str]:
    client, peer = f"http://{LOOPBACK}:{layout.etcd_port}", f"http://{LOOPBACK}:{layout.peer_port}"
    return [
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: Layout) -> list[str]:
    return [
        f"--etcd-servers=http://{LOOPBACK}:{layout.etcd_port}",
        f"--secure-port={layout.api_port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--cert-dir={layout.ca_file.parent}",
        f"--token-auth-file={layout.token_file}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={layout.key_file}",
        f"--service-account-signing-key-file={layout.key_file}",
        f"--service-account-issuer={ISSUER}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        f"--audit-policy-file={HERE / 'audit-policy.yaml'}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=100000",  # megabytes: never rotated, `audit()` reads one file
    ]


def controller_manager(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig('system:kube-controller-manager')}",
        f"--service-account-private-key-file={layout.key_file}",
        f"--root-ca-file={layout.ca_file}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
        "--concurrent-job-syncs=20",
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig('system:kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={HERE / 'stages.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        "--node-ip=192.0.2.1",
        "--cidr=10.128.0.0/16",
    ]
