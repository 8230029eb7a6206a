"""How a program logs in at the API server: address, token, certificates. All of them change while it runs.

In a cluster they come from the Pod's service account, outside from a kubeconfig. Only this file imports
kubernetes_asyncio, and only for its kubeconfig loader.
"""

import asyncio
import base64
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import structlog
from msgspec import Struct

from dispatcher.model.errors import ClusterAway, SettingsError, certificates_end, token_end
from dispatcher.runtime.metrics import CREDENTIAL_END
from dispatcher.settings.definition import KubeSettings

REREAD_SECONDS: Final = 60
"""Seconds between two looks at files of credentials."""
log = structlog.get_logger(component="kube.credentials")


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
    renewed: Callable[[bool], Awaitable[ssl.SSLContext | None]] | None = None
    """Returns the TLS context of the newest certificates. True: the old ones have failed. None: `tls` never changes."""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers of each request."""
    proxy: str = ""
    """URL of an HTTP proxy; empty: none."""
    server_name: str = ""
    """The name that the server's certificate must have; empty: the host of the URL."""

    async def authorization(self, refused: bool) -> list[tuple[str, str]]:
        """The headers that identify us. `refused`: whether the token of the last request was refused."""
        token = await self.token(refused)
        acting = [("Impersonate-User", self.acts_for)] if self.acts_for else list(self.headers)
        return [*acting, *([("Authorization", f"Bearer {token}")] if token else ())]


class FreshTls:
    """A TLS context that is made again when its files have changed: certificates rotate while programs run.

    The files are looked at each minute, and at once after a TLS fault. Files that cannot be used, such as half-written
    ones, change nothing.
    """

    def __init__(
        self, context: ssl.SSLContext | None, files: Callable[[], Sequence[Path]],
        make: Callable[[], Awaitable[ssl.SSLContext | None]],
    ) -> None:  # fmt: skip
        self._context = context
        self._files = files
        self._make = make
        self._known = self._contents()
        self._looked_at = time.monotonic()

    async def context(self, failed: bool) -> ssl.SSLContext | None:
        if failed or time.monotonic() - self._looked_at > REREAD_SECONDS:
            self._looked_at = time.monotonic()
            if (contents := self._contents()) != self._known:
                try:
                    self._context, self._known = await self._make(), contents
                    log.info("certificates read again")
                except Exception as fault:  # noqa: BLE001  # exec plugins and half-written files raise any exception
                    log.warning("certificates cannot be read", fault=str(fault))
        return self._context

    def _contents(self) -> list[bytes | None]:
        return [path.read_bytes() if path.is_file() else None for path in self._files()]


class TokenFile:
    """A projected token. kubelet rotates it, so it is read again each minute, and after a refusal."""

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


def report_token(token: str) -> None:
    """Sets the metric of the token's end. A token without an end has no sample."""
    if (end := token_end(token)) is not None:
        CREDENTIAL_END.labels("token").set(end)


HONOURED: Final = {
    "cluster": {
        "server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name",
        "proxy-url", "disable-compression", "extensions",
    },
    "user": {
        "client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile", "exec",
        "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra", "extensions",
    },
}  # fmt: skip
"""The fields of a kubeconfig that are supported, or ask for nothing."""
RENEWED: Final = frozenset({"exec", "auth-provider", "tokenFile"})
"""Fields of a user that bring the next token when one was refused. The end of such a token calls nobody."""
PLUGIN_SECONDS: Final = 5
"""Seconds after which somebody is told that a credential plugin is waited for. It may ask for a login, unheard."""


class Kubeconfig:
    """A loaded kubeconfig. It is loaded again when a token was refused, or when one of its files has changed."""

    def __init__(self, path: str | None, context: str | None, patience: float = PLUGIN_SECONDS) -> None:
        # Imported here, because the import costs 0.3 s and 40 MiB, and a Pod in the cluster never needs it.
        from kubernetes_asyncio import client

        self.named = f"KUBECONFIG: {path or '~/.kube/config'}"
        self.target = client.Configuration()
        self._path, self._context, self._patience = path, context, patience
        self._loading: asyncio.Task[None] | None = None
        self._paths = path or str(Path.home() / ".kube" / "config")

    def exists(self) -> bool:
        """Whether there is a file. Of several paths one is enough, as for kubectl."""
        return any(Path(one).expanduser().exists() for one in self._paths.split(os.pathsep) if one)

    async def load(self) -> None:
        """Raises ValueError without a file, or if a part of it is missing, and any exception for other faults."""
        from kubernetes_asyncio import config

        if not self.exists():
            raise ValueError("no such file: name your kubeconfig by KUBECONFIG or DISPATCHER_KUBECONFIG")
        if fault := missing_from(self._merged(), self._context):
            raise ValueError(fault)
        waiting = asyncio.get_running_loop().call_later(self._patience, tell_of_plugin, self.plugin())
        try:
            await config.load_kube_config(
                config_file=self._path, context=self._context, client_configuration=self.target
            )
        finally:
            waiting.cancel()
        if RENEWED.isdisjoint(self.active()[1]):
            report_token(self.target.api_key.get("BearerToken", "").removeprefix("Bearer "))

    def active(self) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
        """The context in use, its user and its cluster, as they are written."""
        from kubernetes_asyncio import config

        contexts, current = config.list_kube_config_contexts(config_file=self._path)
        found = next((known for known in contexts or () if known["name"] == self._context), current) or {"context": {}}
        context, written = found["context"], self._merged()
        user, cluster = (part_of(written, kind, context.get(kind)) for kind in ("user", "cluster"))
        return context, user, cluster

    def _merged(self) -> Any:
        """All files as one. Raises ValueError if one of them is no kubeconfig."""
        from kubernetes_asyncio.config.kube_config import KubeConfigMerger

        try:
            return KubeConfigMerger(self._paths).config
        except (TypeError, AttributeError, KeyError) as fault:
            raise ValueError("it is empty, or no kubeconfig: name another one by DISPATCHER_KUBECONFIG") from fault

    def plugin(self) -> str:
        """The command of the credential plugin in use; empty: there is none, or the file cannot be read."""
        try:
            return str((self.active()[1].get("exec") or {}).get("command") or "")
        except OSError:
            return ""

    async def token(self, refused: bool) -> str | None:
        """Of many requests whose token was refused, the first one loads for all: each run of a plugin is a process."""
        if refused:
            if self._loading is None or self._loading.done():
                self._loading = asyncio.create_task(self.load())
            try:
                await asyncio.shield(self._loading)
            except Exception as fault:  # exec plugins raise any exception; the next refused token leads to another try
                raise ClusterAway(f"{self.named}: {fault}") from fault
        bearer = self.target.api_key.get("BearerToken")
        return bearer.removeprefix("Bearer ") if bearer else None

    async def make_tls(self) -> ssl.SSLContext | None:
        await self.load()
        return tls_of(self.target)

    def files(self) -> list[Path]:
        others = (getattr(self.target, name, None) for name in ("ssl_ca_cert", "cert_file", "key_file"))
        return [Path(one).expanduser() for one in (*self._paths.split(os.pathsep), *others) if one]


def tell_of_plugin(plugin: str) -> None:
    """Tells that the plugin is waited for. The loader keeps its words, such as an address to log in at, to itself."""
    next_step = "if it asks for a login, do it by kubectl first: kubectl get --raw /version"
    if plugin:  # a refresh by OIDC may be slow, too
        log.warning("waits for the credential plugin of the kubeconfig", plugin=plugin, next_step=next_step)


async def from_kubeconfig(path: str | None, context: str | None, patience: float = PLUGIN_SECONDS) -> Login:
    """Login by certificates, exec plugins or OIDC. A field that is not supported is refused by its name.

    patience: seconds after which somebody is told that a plugin is waited for.
    """
    loaded = Kubeconfig(path, context, patience)
    try:
        await loaded.load()
        active, user, cluster = loaded.active()
        tls = tls_of(loaded.target)
        faults = [*unsupported("user", user), *unsupported("cluster", cluster)]
        proxy = str(cluster.get("proxy-url") or proxy_of(str(loaded.target.host), os.environ))
    except Exception as fault:  # exec plugins and half-written files raise any exception
        raise SettingsError((f"{loaded.named}: {in_words(fault, loaded)}",)) from fault
    if faults:
        raise SettingsError(tuple(f"{loaded.named}: {fault}" for fault in faults))
    return Login(
        str(loaded.target.host), tls, loaded.token, str(active.get("namespace") or "default"),
        renewed=FreshTls(tls, loaded.files, loaded.make_tls).context, headers=headers_of(user),
        proxy=proxy, server_name=str(cluster.get("tls-server-name") or ""),
    )  # fmt: skip


def proxy_of(url: str, env: Mapping[str, str]) -> str:
    """The HTTP proxy that kubectl finds in its environment for this server; empty: none."""
    server = urlsplit(url)
    kind, left_out = f"{server.scheme}_proxy", env.get("NO_PROXY") or env.get("no_proxy") or ""
    named = env.get(kind.upper()) or env.get(kind) or ""
    if not named or reaches_directly(server.hostname or "", left_out.lower().split(",")):
        return ""
    proxy = named if "://" in named else f"http://{named}"
    return proxy if proxy.startswith(("http://", "https://")) else ""


def reaches_directly(host: str, left_out: Sequence[str]) -> bool:
    """Whether the host is this machine, or NO_PROXY names it: by its name or domain, its address, or a network."""
    without_port = [one.partition(":")[0] if one.count(":") == 1 else one for one in map(str.strip, left_out)]
    names = [one.removeprefix("*.").removeprefix(".") for one in without_port]
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or any(one and f".{host}".endswith(f".{one}") for one in names) or "*" in names
    networks = [network for one in names if (network := network_of(one)) is not None]
    return address.is_loopback or "*" in names or any(address in network for network in networks)


def network_of(written: str) -> IPv4Network | IPv6Network | None:
    """The network, or the one of a single address. None: it is a name."""
    try:
        return ip_network(written, strict=False)
    except ValueError:
        return None


def missing_from(written: Any, chosen: str | None) -> str:
    """Why a merged kubeconfig gives no login, with the next step. Empty: it gives one."""
    named = {kind: [one.value for one in written.value[f"{kind}s"]] for kind in ("context", "cluster", "user")}
    parts = {kind: {one["name"]: one.get(kind) or {} for one in ones} for kind, ones in named.items()}
    known = f"it has {', '.join(map(repr, parts['context'])) or 'no context'}"
    name = chosen or written.value.get("current-context")
    if not name:
        return f"no context is chosen: name one by DISPATCHER_KUBE_CONTEXT, or by kubectl config use-context; {known}"
    if name not in parts["context"]:
        return f"there is no context {name!r}: {known}"
    cluster = parts["cluster"].get(parts["context"][name].get("cluster"), {})
    is_open = str(cluster.get("server")).startswith("http:")  # its users are ignored
    for kind in ("cluster", *(() if is_open else ("user",))):
        if not (part := parts["context"][name].get(kind)):
            return f"context {name!r} names no {kind}: kubectl config set-context {name} --{kind}=NAME"
        if part not in parts[kind]:
            return f"context {name!r} names the {kind} {part!r}, which is not there"
    if not cluster.get("server"):
        return f"the cluster of context {name!r} has no server: kubectl config set-cluster NAME --server=URL"
    return ""


def in_words(fault: Exception, loaded: Kubeconfig) -> str:
    """A fault of a kubeconfig: neither a missing program nor OpenSSL says what was asked for."""
    if isinstance(fault, ssl.SSLError):
        return f"a certificate or key of the cluster or of the user cannot be used: {fault}"
    if isinstance(fault, OSError) and (plugin := loaded.plugin()) and fault.filename in {None, plugin}:
        return f"the credential plugin {plugin!r} cannot be run: {fault.strerror}. Install it, or use another context"
    return str(fault) or type(fault).__name__


def part_of(written: Any, kind: str, name: object) -> Mapping[str, Any]:
    """One user or cluster of a merged kubeconfig, as it is written."""
    node = written[f"{kind}s"].get_with_name(name, safe=True) if written is not None else None
    part = (node.value if node is not None else {}).get(kind)
    return dict(part or {})


def unsupported(kind: str, part: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a user or cluster that are not supported. Ignoring them could change the identity or the trusted CA."""
    for field, value in part.items():
        if field not in HONOURED[kind] and value not in (None, "", False, [], {}):
            yield f"{kind} field {field} is not supported. Take it out, or use another context"
    scheme = str(part.get("proxy-url") or "http:").partition(":")[0]
    if scheme not in {"http", "https"}:
        yield f"{kind} field proxy-url is a {scheme} proxy, which is not supported: name an http proxy"
    provider = (part.get("auth-provider") or {}).get("name", "oidc")
    if provider not in {"oidc", "gcp"}:
        yield f"{kind} field auth-provider {provider} is not supported: use its exec plugin"


def headers_of(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headers of a user with impersonation or a password. Names of extras are percent-encoded."""
    found: list[tuple[str, str]] = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    found += [("Impersonate-Uid", str(user["as-uid"]))] if user.get("as-uid") else []
    found += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        found += [(f"Impersonate-Extra-{quote(str(key).lower(), safe='')}", str(value)) for value in values]
    if user.get("username") and not user.get("token"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        found.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
    return tuple(found)


def trusting(authority: str | None) -> ssl.SSLContext:
    """A TLS context that trusts this file of authorities; None: those of this machine.

    From 3.13 on, Python refuses certificates without fields that older clusters leave out. kubectl takes them.
    """
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def tls_of(target: object) -> ssl.SSLContext | None:
    """TLS context of a loaded kubeconfig; None without https."""
    if not str(getattr(target, "host", "")).startswith("https"):
        return None
    context = trusting(getattr(target, "ssl_ca_cert", None))
    if cert := getattr(target, "cert_file", None):
        context.load_cert_chain(cert, getattr(target, "key_file", None))
        if ends := certificates_end(Path(cert).read_bytes()):
            CREDENTIAL_END.labels("client-certificate").set(min(ends))
    if not getattr(target, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def log_in(kube: KubeSettings) -> Login:
    """Uses the Pod's service account, or a kubeconfig. A kubeconfig that a setting names comes first."""
    if kube.kubeconfig is None and (login := in_cluster()) is not None:
        return login
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not is_cluster_named(kube):
        lacks = f"this Pod has no token of its ServiceAccount ({ACCOUNT}/token), and no kubeconfig is named"
        mend = "set automountServiceAccountToken to true in the Pod; if it is, a policy of the cluster takes it away"
        raise SettingsError((f"{lacks}: {mend}",))
    return await from_kubeconfig(kube.kubeconfig or os.environ.get("KUBECONFIG"), kube.context)


def is_cluster_named(kube: KubeSettings) -> bool:
    """Whether there is a service account, or a kubeconfig in one of the usual places."""
    named = kube.kubeconfig or os.environ.get("KUBECONFIG")
    return bool(named) or in_cluster() is not None or (Path.home() / ".kube" / "config").exists()


def in_cluster(account: Path = ACCOUNT) -> Login | None:
    """Login with the Pod's service account. Returns None outside a Pod. Raises SettingsError for incomplete files."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (account / "token").is_file():
        return None
    address = f"[{host}]" if ":" in host else host
    authority = account / "ca.crt"

    async def make() -> ssl.SSLContext:
        return trusting(str(authority))

    try:
        own = (account / "namespace").read_text(encoding="utf-8").strip()
        tls = trusting(str(authority))
    except OSError as fault:
        needs = f"{account} of this Pod needs the files token, namespace and ca.crt"
        raise SettingsError((f"{needs}, as automountServiceAccountToken mounts them: {fault}",)) from fault
    renewed = FreshTls(tls, lambda: [authority], make).context
    return Login(f"https://{address}:{port}", tls, TokenFile(account / "token").read, own, own, renewed=renewed)
