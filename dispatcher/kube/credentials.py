"""How to reach and convince the API server: inside a cluster by the Pod's service account, outside by a kubeconfig."""

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from dispatcher.model.errors import ClusterAway, SettingsError
from dispatcher.settings.definition import KubeSettings

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS: Final = 60


class Login(Struct, frozen=True):
    """Where the server is, and who we are there."""

    url: str
    tls: ssl.SSLContext | None
    token: Callable[[bool], Awaitable[str | None]]
    """Gives a bearer token; with True a fresh one, because the old one was refused."""
    namespace: str
    """Where Jobs are made if no setting says so."""
    own_namespace: str | None = None
    """Of our own ServiceAccount; None outside a cluster."""


async def log_in(kube: KubeSettings) -> Login:
    """The Pod's service account, or a kubeconfig. A kubeconfig that a setting names wins."""
    if kube.kubeconfig is None and (login := in_cluster()) is not None:
        return login
    return await from_kubeconfig(kube.kubeconfig or os.environ.get("KUBECONFIG"), kube.context)


def in_cluster(account: Path = ACCOUNT) -> Login | None:
    """None: this is not a Pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        return None
    address = f"[{host}]" if ":" in host else host
    own = (account / "namespace").read_text(encoding="utf-8").strip()
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return Login(f"https://{address}:{port}", tls, TokenFile(account / "token").read, own, own)


class TokenFile:
    """A projected token: rotated by kubelet, so it is read again each minute, and when it was refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = float("-inf")
        self._token = ""

    async def read(self, refused: bool) -> str | None:
        if refused or time.monotonic() - self._read_at > REREAD_SECONDS:
            self._token = self._path.read_text(encoding="utf-8").strip()
            self._read_at = time.monotonic()
        return self._token


async def from_kubeconfig(path: str | None, context: str | None) -> Login:
    """A kubeconfig with whatever it uses to log in (certificates, exec plugins, OIDC)."""
    # Imported here: it costs 0.3 s and 40 MiB that a Pod in the cluster never needs.
    from kubernetes_asyncio import client, config

    target, named = client.Configuration(), f"KUBECONFIG: {path or '~/.kube/config'}"

    async def load() -> None:
        await config.load_kube_config(config_file=path, context=context, client_configuration=target)

    try:
        await load()
        contexts, current = config.list_kube_config_contexts(config_file=path)
    except Exception as fault:  # an exec plugin or a half-written file fails in any way
        raise SettingsError((f"{named}: {fault}",)) from fault

    active = next((known for known in contexts or () if known["name"] == context), current) or {"context": {}}

    async def token(refused: bool) -> str | None:
        if refused:
            try:
                await load()
            except Exception as fault:  # as above; the next refusal tries again
                raise ClusterAway(f"{named}: {fault}") from fault
        bearer = target.api_key.get("BearerToken")
        return bearer.removeprefix("Bearer ") if bearer else None

    return Login(str(target.host), tls_of(target), token, str(active["context"].get("namespace") or "default"))


def tls_of(target: object) -> ssl.SSLContext | None:
    """The TLS side of a loaded kubeconfig."""
    if not str(getattr(target, "host", "")).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=getattr(target, "ssl_ca_cert", None))
    if cert := getattr(target, "cert_file", None):
        context.load_cert_chain(cert, getattr(target, "key_file", None))
    if not getattr(target, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
