"""Reaches a running dispatcher for a command: at a given address, in this Pod, or by a port-forward of our own.

`PortForward`: connections to a port of a Pod through the API server, as `kubectl port-forward` makes them. Each
connection is one web socket to `pods/NAME/portforward`. Each message begins with the number of its channel. The first
message of a channel holds the port, in two bytes. Source: `streaming/portforward/websocket.go` of Kubernetes.

`DispatcherApi`: asks the API of a running dispatcher (DISPATCHER_DASHBOARD_ADDRESS) and reads its answers.
"""

import asyncio
import fcntl
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Set
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import click
import msgspec
from msgspec import Struct
from yarl import URL

from dispatcher.kube.client import KubeClient, words_of
from dispatcher.kube.credentials import in_cluster, is_cluster_named, log_in
from dispatcher.kube.job_api import pods_path
from dispatcher.kube.reflector import Resource, list_all
from dispatcher.kube.wire import UNREADABLE, WirePod, in_namespace
from dispatcher.model.errors import ClusterAway, ClusterError, ClusterRefused, DispatcherError, SettingsError
from dispatcher.model.tasks import one_line
from dispatcher.settings.definition import Settings, http_url

PROTOCOL: Final = "v4.channel.k8s.io"
DATA, ERRORS = b"\0", b"\1"
PIECE_BYTES: Final = 1 << 16


class PortForward:
    """Forwards each connection to a Unix socket to one port of one Pod.

    socket: its folder is closed to all other accounts of this machine. A port of the loopback would be open to them.
    fault: why the last connection failed; None: no connection failed.
    """

    def __init__(self, client: KubeClient, namespace: str, pod: str, port: int) -> None:
        self.socket = Path()
        self.fault: ClusterError | None = None
        self._client = client
        self._path = in_namespace("/api/v1", namespace, "pods", pod, "portforward")
        self._port = port
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["PortForward"]:
        """Listens. Raises ClusterAway without a folder for the socket."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dispatcher-"))
                self.socket = Path(folder) / "socket"
                server = await asyncio.start_unix_server(self._accept, self.socket)
            except OSError as fault:
                raise ClusterAway(f"port-forward: no socket below {tempfile.gettempdir()}: {fault}") from fault
            try:
                yield self
            finally:
                server.close()
                for connection in self._connections:
                    connection.cancel()
                await asyncio.gather(*self._connections, return_exceptions=True)  # cancelled; faults are in `fault`

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channels = await self._client.web_socket(self._path, {"ports": str(self._port)}, PROTOCOL)
            sending = asyncio.create_task(send(reader, channels))
            try:
                await receive(channels, writer)
            finally:
                sending.cancel()
                await channels.close()
        except ClusterError as fault:
            self.fault = fault
        except OSError as fault:  # whoever asked has closed the connection
            self.fault = ClusterAway(f"port-forward: {fault}")
        finally:
            writer.close()


async def send(reader: asyncio.StreamReader, channels: aiohttp.ClientWebSocketResponse) -> None:
    with suppress(OSError, aiohttp.ClientError):  # `receive` reads why: a close here would drop the server's last words
        while piece := await reader.read(PIECE_BYTES):
            await channels.send_bytes(DATA + piece)
        await channels.close()


async def receive(channels: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
    """Writes what arrives, until one end closes. Raises ClusterAway if nobody listens at the port in the Pod."""
    begun: set[bytes] = set()
    async for message in channels:
        if message.type is not aiohttp.WSMsgType.BINARY:
            continue
        channel, piece = message.data[:1], message.data[1:]
        if channel not in begun:
            begun.add(channel)  # the port
        elif channel == ERRORS:
            raise ClusterAway(f"port-forward: {piece.decode(errors='replace')[:500].strip()}")
        elif channel == DATA:
            writer.write(piece)
            await writer.drain()


ANSWER_SECONDS: Final = 10
"""Limit of an answer, in seconds."""
MOST_BYTES: Final = 4 << 20
"""Bytes of an answer, at most."""
T = TypeVar("T")


class Unknown(DispatcherError):
    """The dispatcher does not know what was asked for."""


class NoAnswer(DispatcherError):
    """No dispatcher answered."""


class DispatcherApi:
    """The API of one dispatcher. `name`: its name in faults. `is_demo`: it is the one demo of this account."""

    def __init__(self, session: aiohttp.ClientSession, name: str, *, is_demo: bool = False) -> None:
        self._session = session
        self.name = name
        self.is_demo = is_demo

    async def ask(self, path: str, what: type[T]) -> T:
        """The answer of GET /api/v1/`path`. Raises Unknown, NoAnswer, or DispatcherError if another program answers."""
        try:
            async with self._session.get(f"api/v1/{path}") as reply:
                body = await whole(reply)
        except (aiohttp.ClientError, TimeoutError) as fault:
            why = words_of(fault) or type(fault).__name__
            raise NoAnswer(f"no dispatcher answers at {self.name}: {why}") from fault
        if reply.status == 200:
            return self._read(body, what)
        told = error_of(body)
        if reply.status == 404 and told:
            raise Unknown(told)
        raise DispatcherError(f"{self.name} answers {reply.status}: {told or 'it is not the API of a dispatcher'}")

    async def text(self, path: str) -> str:
        """The answer of GET `path`, with or without a slash before it, as text.

        Raises NoAnswer, and DispatcherError for any other status than 200.
        """
        try:
            async with self._session.get(path.lstrip("/")) as reply:
                body = await whole(reply)
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise NoAnswer(f"{self.name} does not answer: {words_of(fault) or type(fault).__name__}") from fault
        if reply.status != 200:
            raise DispatcherError(f"{self.name} answers {reply.status}")
        return body.decode(errors="replace")

    def _read(self, body: bytes, what: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=what)
        except UNREADABLE as fault:
            raise DispatcherError(
                f"the answer of {self.name} is not from a dispatcher of this version: {fault}"
            ) from fault


@asynccontextmanager
async def opened(
    url: str, name: str = "", socket: Path | None = None, *, is_demo: bool = False
) -> AsyncIterator[DispatcherApi]:
    """The API at `url`, which may have a path. `socket`: a Unix socket that leads there."""
    async with aiohttp.ClientSession(
        base_url=url.rstrip("/") + "/",
        connector=aiohttp.UnixConnector(str(socket)) if socket else None,
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        trust_env=False,
    ) as session:
        yield DispatcherApi(session, name or url, is_demo=is_demo)


async def whole(reply: aiohttp.ClientResponse) -> bytes:
    """The body to its end. A single read may return a part of it. Raises DispatcherError for a body without end."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise DispatcherError(
                f"{reply.url} answers more than {MOST_BYTES} bytes: it is not the API of a dispatcher"
            )
    return bytes(body)


def error_of(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE:
        return ""
    return str(found["error"])[:500] if isinstance(found, dict) and "error" in found else ""


OF_RUN: Final = "app.kubernetes.io/name=dispatcher,app.kubernetes.io/component=run"
"""Labels of the Pods of `dispatcher run`, as the chart gives them."""
LISTENS: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""
HOW_TO_REACH: Final = (
    "run the same command in its Pod (`kubectl -n dispatcher exec deploy/dispatcher -- dispatcher …`), name its "
    "namespace (--namespace), or give its address (--url)"
)


class Where(Struct, frozen=True):
    """The caller's words about the place of the dispatcher. `namespace`: of its Deployment. At most one is set."""

    url: str | None = None
    namespace: str | None = None

    @property
    def is_said(self) -> bool:
        return self.url is not None or self.namespace is not None


class Replica(Struct, frozen=True):
    """The part of a status that names the replica. Other versions have it, too."""

    installation: str
    jobs_namespace: str
    leads: bool


class ElectedReplica(Struct, frozen=True):
    """The part of the page About that names the leader. `leader`: Pod and process; None: not known."""

    leads: bool
    leader: str | None


@asynccontextmanager
async def reached(where: Where, settings: Settings) -> AsyncIterator[DispatcherApi]:
    """The API of a running dispatcher. The caller's words come before the settings.

    Raises DispatcherError if none can be reached, and SettingsError for an impossible address.
    """
    url = where.url or ("" if where.is_said else settings.service.api_url)
    check_url(url, "--url" if where.url else "DISPATCHER_API_URL")
    if (demo := demo_of(where, settings)) is not None:
        url = (demo / API_FILE).read_text(encoding="utf-8")
        click.echo(f"This asks the demo in {demo}; --namespace or --url choose another dispatcher", err=True)
    try:
        if url or not is_a_cluster_asked(where, settings):
            async with opened(url or own_address(port_of(settings)), is_demo=demo is not None) as api:
                await tell_leader(api)
                yield api
        else:
            async with forwarded(where, settings) as api:
                yield api
    except NoAnswer as fault:
        raise DispatcherError(f"{fault}; {HOW_TO_REACH}") from fault


async def tell_leader(api: DispatcherApi) -> None:
    """Names the leader to a person who asks another replica. `kubectl exec` on a Deployment takes any of them.

    Only the leader sends creates and deletes. Another replica takes a row whose Job is refused for one in line. Raises
    NoAnswer.
    """
    try:
        found = await api.ask("about", ElectedReplica)
    except NoAnswer:
        raise
    except DispatcherError:  # the question itself tells
        return
    if not found.leads and found.leader:
        leader = one_line(found.leader.rpartition("_")[0])
        click.echo(f"This replica does not lead, and does not know what the API server refuses: ask {leader}", err=True)


def check_url(url: str, named: str) -> None:
    """Raises SettingsError if the URL is no address of an API. `named`: where it was given."""
    try:
        URL(http_url(url) if url else "")
    except ValueError as fault:
        raise SettingsError((f"{named} is {url[:80]!r}: {fault}",)) from fault


def own_address(port: int, trusted: Set[int] = frozenset({os.getuid(), 0})) -> str:
    """The address in this Pod, or on this machine if a program of this account, or of root, listens there.

    Another account of a laptop could listen as well, and answer with commands to paste. Raises NoAnswer.
    """
    url = f"http://127.0.0.1:{port}"
    if in_cluster() is None and not listeners(port) <= trusted:
        raise NoAnswer(
            f"it is not known that your own account listens at {url}: if you trust it, name it (--url {url})"
        )
    return url


def listeners(port: int, folder: Path = Path("/proc/net")) -> set[int]:
    """The accounts that listen on a port of this machine. -1: not known."""
    found, tables = set[int](), [folder / name for name in ("tcp", "tcp6")]
    if not any(table.exists() for table in tables):
        return {-1}
    for table in tables:
        for line in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else ():
            _, local, _, state, _, _, _, account, *_ = line.split()
            if state == LISTENS and int(local.rpartition(":")[2], 16) == port:
                found.add(int(account))
    return found


def is_a_cluster_asked(where: Where, settings: Settings) -> bool:
    """Whether the dispatcher is in a cluster. False: it is in this Pod, or on this machine if no cluster is named."""
    return where.namespace is not None or (in_cluster() is None and is_cluster_named(settings.kube))


def demo_of(where: Where, settings: Settings) -> Path | None:
    """The folder of the demo of this account. None: none runs, or something names another dispatcher.

    Raises DispatcherError if several run.
    """
    kube = settings.kube
    named = (where.is_said, settings.service.api_url, kube.kubeconfig, kube.namespace, os.environ.get("KUBECONFIG"))
    if any(named) or in_cluster() is not None:
        return None
    found = [folder for folder in living_folders() if (folder / API_FILE).exists()]
    if len(found) > 1:
        raise DispatcherError(f"{len(found)} demos run: add --url URL, which each of them prints")
    return found[0] if found else None


def port_of(settings: Settings) -> int:
    return int(settings.service.dashboard_address.rpartition(":")[2])


@asynccontextmanager
async def forwarded(where: Where, settings: Settings) -> AsyncIterator[DispatcherApi]:
    """The API of the leading replica, otherwise of one that answers, with the caller's own rights."""
    client = KubeClient(await log_in(settings.kube))
    try:
        namespace = where.namespace or client.namespace
        pod = await leading(client, namespace, settings)
        async with through(client, namespace, pod, port_of(settings)) as api:
            yield api
    finally:
        await client.close()


async def leading(client: KubeClient, namespace: str, settings: Settings) -> str:
    """Name of the leading Pod of our installation, otherwise of one that answers. Raises DispatcherError.

    A Pod that is not ready tells what is missing. It is asked only if no ready one leads: its node may be lost.
    """
    found, faults, named = dict[str, Replica](), list[DispatcherError](), settings.kube.installation
    for name, may_hang in await running_pods(client, namespace):
        if may_hang and any(one.leads and one.installation == named for one in found.values()):
            break
        try:
            async with through(client, namespace, name, port_of(settings)) as api:
                found[name] = await api.ask("status", Replica)
        except DispatcherError as fault:
            faults.append(fault)
    ours = [name for name, one in found.items() if one.installation == named] or list(found)
    if not ours:  # a refusal says what is missing
        refusals = [fault for fault in faults if not isinstance(fault, NoAnswer)]
        raise [*refusals, *faults, NoAnswer(f"no Pod of a dispatcher runs in namespace {namespace}")][0]
    if len(names := {found[name].installation for name in ours}) > 1:
        raise DispatcherError(f"{', '.join(sorted(names))} answer: set DISPATCHER_INSTALLATION to one of them")
    return max(ours, key=lambda name: found[name].leads)


async def running_pods(client: KubeClient, namespace: str) -> list[tuple[str, bool]]:
    """Names of the running Pods, and whether each is not ready. The ready ones come first. Raises ClusterError."""
    found = await list_all(client, Resource("pods", pods_path(namespace), read_wire_pod, selector=OF_RUN))
    running = [(pod.metadata.name, not is_ready(pod)) for pod in found.items if pod.status.phase == "Running"]
    return sorted(running, key=lambda one: (one[1], one[0]))


def read_wire_pod(raw: msgspec.Raw) -> WirePod:
    return msgspec.json.decode(raw, type=WirePod)


def is_ready(pod: WirePod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


@asynccontextmanager
async def through(client: KubeClient, namespace: str, pod: str, port: int) -> AsyncIterator[DispatcherApi]:
    """The API in this Pod. A failed port-forward is reported in place of a lost connection."""
    async with PortForward(client, namespace, pod, port).opened() as forward:
        try:
            async with opened("http://localhost", f"Pod {pod} in namespace {namespace}", forward.socket) as api:
                yield api
        except NoAnswer as lost:
            if forward.fault is None:
                raise
            raise NoAnswer(f"no dispatcher answers in Pod {pod}: {in_words(forward.fault)}") from lost


def in_words(fault: ClusterError) -> str:
    is_forbidden = isinstance(fault, ClusterRefused) and fault.status == 403
    return (
        f"{fault} (a port-forward needs the rights get and create on pods/portforward)" if is_forbidden else str(fault)
    )


PREFIX: Final = "dispatcher-demo-"
ALIVE: Final = "alive"
"""A file in the run folder that is locked while the process that made the folder lives."""
API_FILE: Final = "api"
"""A file in the run folder with the URL of the dispatcher's API."""
KUBECONFIG_FILE: Final = "kubeconfig"
"""A file in the run folder with the kubeconfig of its cluster."""


def living_folders() -> list[Path]:
    """The run folders of this account whose processes live. Other accounts may make folders with such names, too."""
    return [folder for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")) if is_ours_and_lives(folder)]


def is_ours_and_lives(folder: Path) -> bool:
    try:
        about = folder.lstat()
        if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
            return False
        with (folder / ALIVE).open() as alive:
            fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # it has ended, or its guard removes it just now
    return False
