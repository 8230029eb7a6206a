"""Certificates that change while a program runs, and every field of a kubeconfig."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from aiohttp import web
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import HONOURED, from_kubeconfig, in_cluster, log_in, proxy_of
from dispatcher.model.errors import ClusterAway, SettingsError
from dispatcher.runtime.health import Site
from dispatcher.settings.definition import KubeSettings
from tests.scheduling.certificates import OF_CLIENTS, OF_SERVERS, Authority, Pair
from tests.unit.logins import jwt

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Served:
    """An HTTPS server whose certificate can change. It tells the headers of each request.

    trusts: the authority of clients; None: they need no certificate.
    """

    def __init__(self, pair: Pair, trusts: Authority | None = None) -> None:
        self.asked: list[list[tuple[str, str]]] = []
        self._runner: web.AppRunner | None = None
        self.port = 0
        self._pair, self._trusts = pair, trusts

    async def start(self, pair: Pair | None = None, trusts: Authority | None = None) -> None:
        """Starts anew, with other certificates. Open connections break, as when an API server restarts."""
        await self.stop()
        self._pair, self._trusts = pair or self._pair, trusts or self._trusts
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pair.certificate, self._pair.key)
        if self._trusts is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._trusts.certificate)
        app = web.Application()
        app.router.add_get("/version", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = Site(self._runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(list(request.headers.items()))
        return web.json_response({"major": "1"})


@asynccontextmanager
async def served(pair: Pair, trusts: Authority | None = None) -> AsyncIterator[Served]:
    server = Served(pair, trusts)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def client_of(path: Path) -> AsyncIterator[KubeClient]:
    client = KubeClient(await from_kubeconfig(str(path), None))
    try:
        yield client
    finally:
        await client.close()


def kubeconfig(
    folder: Path, server: str, cluster: Mapping[str, Any] = NOTHING, user: Mapping[str, Any] = NOTHING
) -> Path:
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "there", "user": "me", "namespace": "jobs"}}],
        "clusters": [{"name": "there", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": dict(user)}],
    }))  # fmt: skip
    return path


async def works(client: KubeClient) -> bool:
    return (await client.request("GET", "/version", seconds=5)).status == 200


@contextmanager
def a_pod(monkeypatch: pytest.MonkeyPatch, account: Path, port: int) -> Iterator[None]:
    account.mkdir(exist_ok=True)
    (account / "token").write_text("t")
    (account / "namespace").write_text("ours")
    with monkeypatch.context() as patched:
        patched.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        patched.setenv("KUBERNETES_SERVICE_PORT", str(port))
        yield


async def test_authority_rotates_under_a_running_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubelet writes both authorities before the servers change. Nobody restarts us: /healthz stays good."""
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    account = tmp_path / "account"
    async with served(one.pair("server", usage=OF_SERVERS)) as server:
        with a_pod(monkeypatch, account, server.port):
            (account / "ca.crt").write_text(one.certificate.read_text())
            login = in_cluster(account)
        assert login is not None
        client = KubeClient(login)
        assert await works(client)
        await server.start(two.pair("server", usage=OF_SERVERS))
        with pytest.raises(ClusterAway, match="ertificate"):
            await works(client)
        (account / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\nhalf")
        with pytest.raises(ClusterAway, match="ertificate"):
            await works(client)
        (account / "ca.crt").write_text(one.certificate.read_text() + two.certificate.read_text())
        assert await works(client), "it is read at once after a TLS fault"
        await client.close()


async def test_authority_of_an_older_cluster_is_trusted_by_a_newer_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.13 on, Python refuses certificates that do not name their keys. kubectl takes them."""
    usual, old = ssl.create_default_context, Authority(tmp_path, "old", names_keys=False)

    def strict(**asked: Any) -> ssl.SSLContext:
        context = usual(**asked)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    async with served(old.pair("server", usage=OF_SERVERS)) as server:
        named = {"certificate-authority": str(old.certificate)}
        async with client_of(kubeconfig(tmp_path, f"https://127.0.0.1:{server.port}", named)) as client:
            assert await works(client)
        with a_pod(monkeypatch, tmp_path / "account", server.port):
            (tmp_path / "account/ca.crt").write_text(old.certificate.read_text())
            login = in_cluster(tmp_path / "account")
        assert login is not None
        client = KubeClient(login)
        assert await works(client)
        await client.close()


async def test_pod_whose_token_was_taken_away_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of the cluster may do that. A kubeconfig is no next step there."""
    with a_pod(monkeypatch, tmp_path / "account", 443):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        with pytest.raises(SettingsError) as refused:
            await log_in(KubeSettings())
    assert "this Pod has no token of its ServiceAccount" in refused.value.faults[0]
    assert "automountServiceAccountToken" in refused.value.faults[0]


@pytest.mark.parametrize("name", ["ca.crt", "namespace"])
def test_account_without_one_of_its_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with a_pod(monkeypatch, tmp_path, 443):
        (tmp_path / "ca.crt").write_text(Authority(tmp_path, "one").certificate.read_text())
        (tmp_path / name).unlink()
        with pytest.raises(SettingsError) as refused:
            in_cluster(tmp_path)
    assert refused.value.faults[0].startswith(f"{tmp_path} of this Pod needs the files token, namespace and ca.crt")


async def test_authority_and_client_certificate_of_a_kubeconfig_rotate(tmp_path: Path) -> None:
    one, two = Authority(tmp_path, "one"), Authority(tmp_path, "two")
    files = {name: tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key")}

    def write(authority: Authority, pair: Pair) -> None:
        for path, source in zip(files.values(), (authority.certificate, pair.certificate, pair.key), strict=True):
            path.write_text(source.read_text())

    write(one, one.pair("me", usage=OF_CLIENTS))
    async with served(one.pair("server", usage=OF_SERVERS), one) as server:
        user = {"client-certificate": str(files["tls.crt"]), "client-key": str(files["tls.key"])}
        path = kubeconfig(
            tmp_path, f"https://127.0.0.1:{server.port}", {"certificate-authority": str(files["ca.crt"])}, user
        )
        async with client_of(path) as client:
            assert await works(client)
            await server.start(two.pair("server", usage=OF_SERVERS), two)
            with pytest.raises(ClusterAway):
                await works(client)
            write(two, two.pair("me", usage=OF_CLIENTS))
            assert await works(client)


async def test_name_of_the_server_and_who_is_acted_for_are_honoured(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "one")
    async with served(authority.pair("server", usage=OF_SERVERS)) as server:
        trust = {"certificate-authority": str(authority.certificate)}
        user = {
            "token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"],
            "as-user-extra": {"Scopes/x": ["1", "2"]},
        }  # fmt: skip
        wrong = kubeconfig(tmp_path, f"https://127.0.0.1:{server.port}", trust | {"tls-server-name": "elsewhere"}, user)
        async with client_of(wrong) as client:
            for ask in (works(client), client.web_socket("/version", {}, "any")):  # `web_socket`: a port-forward
                with pytest.raises(ClusterAway, match="ertificate"):
                    await ask
        right = kubeconfig(tmp_path, f"https://127.0.0.1:{server.port}", trust | {"tls-server-name": "127.0.0.1"}, user)
        async with client_of(right) as client:
            assert await works(client)
        told = [one for one in server.asked[-1] if one[0].startswith(("Impersonate", "Authorization"))]
        assert sorted(told) == [
            ("Authorization", "Bearer t"), ("Impersonate-Extra-scopes%2Fx", "1"), ("Impersonate-Extra-scopes%2Fx", "2"),
            ("Impersonate-Group", "a"), ("Impersonate-Group", "b"), ("Impersonate-Uid", "7"),
            ("Impersonate-User", "jane"),
        ]  # fmt: skip


@pytest.mark.parametrize("is_of_environment", [False, True])
async def test_proxy_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_of_environment: bool) -> None:
    authority, asked = Authority(tmp_path, "one"), list[bytes]()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
    through = {"proxy-url": f"http://me:hush@127.0.0.1:{listening.sockets[0].getsockname()[1]}"}
    if is_of_environment:
        monkeypatch.setenv("HTTPS_PROXY", through.pop("proxy-url").removeprefix("http://"))
    path = kubeconfig(
        tmp_path, "https://api.example:6443", {"certificate-authority": str(authority.certificate), **through}
    )
    async with client_of(path) as client:
        for ask in (works(client), client.web_socket("/version", {}, "any")):
            with pytest.raises(ClusterAway, match="403") as refused:
                await ask
            assert "hush" not in str(refused.value), "faults stand in the log and at /readyz"
    listening.close()
    await listening.wait_closed()
    assert asked[0].startswith(b"CONNECT api.example:6443 HTTP/1.1")
    assert b"Proxy-Authorization: Basic" in asked[0]


@pytest.mark.parametrize(
    ("url", "left_out", "is_used"),
    [
        ("https://api.example:6443", "", True),
        ("https://api.example:6443", "other.example, ,pi.example", True),
        ("https://api.example:6443", "localhost, .EXAMPLE", False),
        ("https://api.example:6443", "*.example", False),
        ("https://api.example:6443", "api.example:6443", False),
        ("https://api.example:6443", "*", False),
        ("https://10.1.2.3", "10.2.0.0/16,10.1.2", True),
        ("https://10.1.2.3", "10.1.0.0/16", False),
        ("https://10.1.2.3", "10.1.2.3", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "10.0.0.0/8", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example", "", False),
    ],
)
def test_proxy_of_the_environment_is_that_of_kubectl(url: str, left_out: str, is_used: bool) -> None:
    env = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": left_out}
    for one in (env, {name.lower(): value for name, value in env.items()}):
        assert proxy_of(url, one) == ("http://proxy:3128" if is_used else "")
    assert proxy_of(url, {"HTTPS_PROXY": "socks5://proxy:1"}) == "", "it is not supported"


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        (
            {"proxy-url": "socks5://127.0.0.1:1"},
            {},
            "cluster field proxy-url is a socks5 proxy, which is not supported",
        ),
        ({"certificate-authority-url": "x"}, {}, "cluster field certificate-authority-url is not supported"),
        ({}, {"impersonate": "jane"}, "user field impersonate is not supported"),
        ({}, {"auth-provider": {"name": "azure"}}, "user field auth-provider azure is not supported"),
    ],
)
async def test_field_that_is_not_honoured_is_named(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        await from_kubeconfig(str(kubeconfig(tmp_path, "https://127.0.0.1:1", cluster, user)), None)


CONTEXT, CLUSTER = {"cluster": "c", "user": "u"}, {"server": "https://127.0.0.1:1"}
ABSENT = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "absent-plugin"}}
BROKEN = {"certificate-authority-data": "aGFsbG8="}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("", "it is empty, or no kubeconfig: name another one by DISPATCHER_KUBECONFIG"),
        ("nonsense", "it is empty, or no kubeconfig: name another one by DISPATCHER_KUBECONFIG"),
        ({"current-context": ""}, "no context is chosen: name one by DISPATCHER_KUBE_CONTEXT, or by kubectl"),
        ({"current-context": "b"}, "there is no context 'b': it has 'a'"),
        ({"contexts": None}, "there is no context 'a': it has no context"),
        ({"contexts": [{"name": "a", "context": {"cluster": "c"}}]}, "context 'a' names no user: kubectl config set-"),
        ({"clusters": []}, "context 'a' names the cluster 'c', which is not there"),
        ({"users": None}, "context 'a' names the user 'u', which is not there"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://[::1"}}]}, "Invalid IPv6 URL"),
        ({"users": [{"name": "u", "user": {"auth-provider": "x"}}]}, "'str' object has no attribute"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, "the cluster of context 'a' has no server: kubectl config"),
        ({"clusters": [{"name": "c", "cluster": {**CLUSTER, **BROKEN}}]}, "a certificate or key of the cluster or of"),
        ({"users": [{"name": "u", "user": ABSENT}]}, "the credential plugin 'absent-plugin' cannot be run: No such "),
    ],
)
async def test_kubeconfig_says_what_it_lacks(tmp_path: Path, written: dict[str, Any] | str, words: str) -> None:
    whole = {
        "current-context": "a", "contexts": [{"name": "a", "context": CONTEXT}],
        "clusters": [{"name": "c", "cluster": CLUSTER}], "users": [{"name": "u", "user": {}}],
    }  # fmt: skip
    path = tmp_path / "kubeconfig"
    path.write_text(written if isinstance(written, str) else yaml.safe_dump({**whole, **written}))
    with pytest.raises(SettingsError) as refused:
        await from_kubeconfig(str(path), None)
    (fault,) = refused.value.faults
    assert fault.startswith(f"KUBECONFIG: {path}: {words}")


async def test_kubeconfig_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    """As that of k3s, which belongs to root. Here it is a folder, because root may read any file."""
    with pytest.raises(SettingsError) as refused:
        await from_kubeconfig(str(tmp_path), None)
    assert refused.value.faults == (f"KUBECONFIG: {tmp_path}: [Errno 21] Is a directory: '{tmp_path}'",)


def with_plugin(folder: Path, does: str, token: str = "t") -> tuple[Path, Path]:
    """A kubeconfig with a credential plugin, and the plugin. `does`: what it does before it gives its token."""
    plugin, version = folder / "plugin", "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
    plugin.write_text(f"#!/bin/sh\n{does}; echo '{answer}'\n")
    plugin.chmod(0o755)
    named = {"exec": {"apiVersion": version, "command": str(plugin)}}
    return kubeconfig(folder, "http://127.0.0.1:1", user=named), plugin


async def test_plugin_runs_once_for_many_requests_whose_token_was_refused(tmp_path: Path) -> None:
    """Tokens of EKS end after 15 minutes, in the midst of creates, and each run of the plugin takes a second."""
    path, _ = with_plugin(tmp_path, f"echo run >> {tmp_path}/runs")
    login = await from_kubeconfig(str(path), None)
    for _ in range(2):
        assert await asyncio.gather(*(login.token(True) for _ in range(16))) == ["t"] * 16
    assert (tmp_path / "runs").read_text() == "run\n" * 3


async def test_end_is_told_of_a_token_alone_that_stands_in_the_kubeconfig(tmp_path: Path) -> None:
    """A plugin, such as those of AKS and OIDC, brings the next one. The last minutes of each would page somebody."""

    async def told(path: Path) -> float | None:
        await from_kubeconfig(str(path), None)
        return REGISTRY.get_sample_value("dispatcher_credential_end_timestamp_seconds", {"credential": "token"})

    (tmp_path / "token").write_text(jwt({"exp": 1763769602}))
    found = [
        await told(kubeconfig(tmp_path, "https://127.0.0.1:1", user={"token": jwt({"exp": 1763769601})})),
        await told(kubeconfig(tmp_path, "https://127.0.0.1:1", user={"tokenFile": str(tmp_path / "token")})),
        await told(with_plugin(tmp_path, "true", jwt({"exp": 1763769603}))[0]),
    ]
    assert found == [1763769601] * 3


async def test_plugin_that_is_waited_for_is_told(tmp_path: Path) -> None:
    """It may ask for a login on its stderr, which the loader keeps to itself."""
    path, plugin = with_plugin(tmp_path, "echo 'log in at https://login.example' >&2")
    with capture_logs() as told:
        login = await from_kubeconfig(str(path), None, patience=0)
        assert await (await from_kubeconfig(str(path), None)).token(False) == await login.token(False) == "t"
    assert [(line["plugin"], "kubectl" in line["next_step"]) for line in told] == [(str(plugin), True)]


async def test_api_server_without_tls_needs_no_user(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "http://127.0.0.1:1")
    path.write_text(path.read_text().replace("user: me", "user: ''"))
    async with client_of(path) as client:
        with pytest.raises(ClusterAway, match=r"Cannot connect to host 127\.0\.0\.1:1 \["):
            await works(client)


def test_every_field_of_the_format_is_placed() -> None:
    """Those of `clientcmd/api/v1/types.go` of Kubernetes 1.36."""
    assert HONOURED["cluster"] == {
        "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority", "certificate-authority-data",
        "proxy-url", "disable-compression", "extensions",
    }  # fmt: skip
    assert HONOURED["user"] == {
        "client-certificate", "client-certificate-data", "client-key", "client-key-data", "token", "tokenFile", "as",
        "as-uid", "as-groups", "as-user-extra", "username", "password", "auth-provider", "exec", "extensions",
    }  # fmt: skip


@pytest.mark.parametrize("named", ["/nowhere/config", "/nowhere/a:/nowhere/b"])
async def test_kubeconfig_that_does_not_exist_is_named_before_any_library_tells_of_it(
    named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SettingsError) as refused:
        await from_kubeconfig(named, None)
    told = "no such file: name your kubeconfig by KUBECONFIG or DISPATCHER_KUBECONFIG"
    assert refused.value.faults == (f"KUBECONFIG: {named}: {told}",)
    assert caplog.records == []
