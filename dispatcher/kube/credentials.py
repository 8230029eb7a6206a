"""Address and credentials of the API server: the Pod's service account in a cluster, a kubeconfig outside."""

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from dispatcher.model.credential_ends import certificates_end, token_end
from dispatcher.model.errors import ClusterAway, SettingsError
from dispatcher.runtime.metrics import CREDENTIAL_END
from dispatcher.settings.definition import KubeSettings

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS: Final = 60


class Login(Struct, frozen=True):
    """Address of the API server, and our credentials there."""

    url: str
    tls: ssl.SSLContext | None
    token: Callable[[bool], Awaitable[str | None]]
    """Returns a bearer token. True asks for a fresh one, because the old one was refused."""
    namespace: str
    """Namespace for Jobs if DISPATCHER_NAMESPACE is not set."""
    own_namespace: str | None = None
    """Namespace of our ServiceAccount; None outside a cluster."""
    acts_for: str = ""
    """Name of a user whom the API server judges in our place (impersonation); empty: nobody."""


async def log_in(kube: KubeSettings) -> Login:
    """Uses the Pod's service account, or a kubeconfig. A kubeconfig that a setting names comes first."""
    if kube.kubeconfig is None and (login := in_cluster()) is not None:
        return login
    return await from_kubeconfig(kube.kubeconfig or os.environ.get("KUBECONFIG"), kube.context)


def is_cluster_named(kube: KubeSettings) -> bool:
    """Whether there is anything to log in with: a service account, or a kubeconfig in one of the usual places."""
    named = kube.kubeconfig or os.environ.get("KUBECONFIG")
    return bool(named) or in_cluster() is not None or (Path.home() / ".kube" / "config").exists()


def in_cluster(account: Path = ACCOUNT) -> Login | None:
    """Login with the Pod's service account. Returns None outside a Pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        return None
    address = f"[{host}]" if ":" in host else host
    own = (account / "namespace").read_text(encoding="utf-8").strip()
    tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    return Login(f"https://{address}:{port}", tls, TokenFile(account / "token").read, own, own)


class TokenFile:
    """A projected token. kubelet rotates it, so it is read again each minute, and when it was refused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = float("-inf")
        self._token = ""

    async def read(self, refused: bool) -> str | None:
        if refused or time.monotonic() - self._read_at > REREAD_SECONDS:
            self._token = self._path.read_text(encoding="utf-8").strip()
            report_token(self._token)
            self._read_at = time.monotonic()
        return self._token


async def from_kubeconfig(path: str | None, context: str | None) -> Login:
    """Login with a kubeconfig, by certificates, exec plugins or OIDC."""
    # Imported here, because the import costs 0.3 s and 40 MiB, and a Pod in the cluster never needs it.
    from kubernetes_asyncio import client, config

    target, named = client.Configuration(), f"KUBECONFIG: {path or '~/.kube/config'}"

    async def load() -> None:
        await config.load_kube_config(config_file=path, context=context, client_configuration=target)
        report_token(target.api_key.get("BearerToken", "").removeprefix("Bearer "))

    try:
        await load()
        contexts, current = config.list_kube_config_contexts(config_file=path)
    except Exception as fault:  # exec plugins and half-written files raise any exception
        raise SettingsError((f"{named}: {fault}",)) from fault

    active = next((known for known in contexts or () if known["name"] == context), current) or {"context": {}}

    async def token(refused: bool) -> str | None:
        if refused:
            try:
                await load()
            except Exception as fault:  # as above; the next refused token leads to another try
                raise ClusterAway(f"{named}: {fault}") from fault
        bearer = target.api_key.get("BearerToken")
        return bearer.removeprefix("Bearer ") if bearer else None

    return Login(str(target.host), tls_of(target), token, str(active["context"].get("namespace") or "default"))


def report_token(token: str) -> None:
    """Sets the metric of the token's end. A token that tells no end has no sample."""
    if (end := token_end(token)) is not None:
        CREDENTIAL_END.labels("token").set(end)


def tls_of(target: object) -> ssl.SSLContext | None:
    """TLS context of a loaded kubeconfig; None without https."""
    if not str(getattr(target, "host", "")).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=getattr(target, "ssl_ca_cert", None))
    if cert := getattr(target, "cert_file", None):
        context.load_cert_chain(cert, getattr(target, "key_file", None))
        if ends := certificates_end(Path(cert).read_text(encoding="utf-8")):
            CREDENTIAL_END.labels("client-certificate").set(min(ends))
    if not getattr(target, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
