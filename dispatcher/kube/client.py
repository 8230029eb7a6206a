"""A thin client of the Kubernetes API: it sends bytes and returns a status and bytes.

`ServerClock`: the API server's clock, estimated from its answers. Ages are measured with the clock that set the times
of objects. An answer names the second that has begun, so the estimate lags by up to a second. The estimate stays until
an answer contradicts it. An answer that comes early in its second improves the estimate. Where the clocks of several
API servers differ, the slowest counts: by another one, a grace would be over as soon as it has begun.

`KubeClient`: watches and short requests have separate sessions, so that they never starve each other. Proxy settings of
the environment are ignored: those that kubectl takes are in the login. Every wait has a limit: a silent server is a
fault.

`Access`: checks that our account has the rights that the work needs (SelfSubjectAccessReview), before they are needed.
A verb is asked for where it is used: in the namespace of Jobs, in our own namespace, or cluster-wide.
"""

import asyncio
import itertools
import json
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, TypedDict, TypeVar

import aiohttp
import msgspec
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import Struct

from dispatcher import __version__
from dispatcher.kube.credentials import Login
from dispatcher.kube.objects import read_status
from dispatcher.kube.wire import UNREADABLE, read_json
from dispatcher.model.cluster import LATEST
from dispatcher.model.errors import ClusterAway, ClusterError, ClusterRefused
from dispatcher.model.rights import Verb
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import KUBE_REQUESTS, KUBE_SECONDS

SECOND = timedelta(seconds=1)
NEAR: Final = timedelta(seconds=5)
"""The largest difference between two answers of one server."""
AHEAD_SECONDS: Final = 60
"""Seconds without an answer that agrees with the estimate, after which one that is ahead of it is believed."""


class ServerClock:
    """The estimate. `began`: this machine's time, used until the first answer. `clock`: monotonic seconds."""

    def __init__(self, began: datetime, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = began, clock()
        self._date = ""
        self._agreed_at = float("-inf")

    def now(self) -> datetime:
        told, at = self._told
        return told + timedelta(seconds=self._clock() - at)

    def hear(self, date: str | None) -> None:
        """Takes the Date header of an answer. Text that is no date, or one by which no time can be added, changes
        nothing.
        """
        if date is None or date == self._date:
            return  # of many answers in one second, the first is the most exact
        self._date = date
        try:
            told = parsedate_to_datetime(date).astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            return
        now = self._clock()
        is_same = told <= self.now() < told + SECOND
        if told >= LATEST or (told > self.now() + NEAR and now - self._agreed_at < AHEAD_SECONDS):
            return
        self._agreed_at = now
        if not is_same:
            self._told = told, now


REQUEST_SECONDS: Final = 30
"""Limit of a short request, in seconds."""
OF_A_ROUND_SECONDS: Final = 5
"""Limit of a request of a round, in seconds. A stop of the program waits for the round."""
CONNECT_SECONDS: Final = 5
"""Limit of a TCP connect, in seconds."""
HANDSHAKE_SECONDS: Final = 10
"""Limit of the opening of a web socket, in seconds."""
SILENCE_SECONDS: Final = 90
"""Limit for a watch without a line, in seconds. Bookmarks come about once a minute."""
LINE_BYTES: Final = 8 * 2**20
"""Half of the longest line of a watch (aiohttp). etcd takes 1.5 MiB of an object; JSON has up to six bytes for one."""
PIECE_BYTES: Final = 2**20
"""Half of the bytes of an answer that wait to be read, at most."""
MOST_BYTES: Final = 16 * 2**20
"""Bytes of the body of an answer, at most. A page of large objects has more, and is asked for in smaller parts."""
PAGE: Final = "text/html"
"""The type of a page, such as one to log in. The API server sends none."""
TOO_LARGE: Final = "too large"
"""The code of such an answer in the metric."""
NETWORK_FAULTS: Final = (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError, ValueError)
LEGAL_PATH: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))(?:[\w.:-]|%(?!2[EF])[0-9A-F]{2})+)+", re.ASCII)
"""Paths of objects. A part of another form would lead to another object: no name has a slash or a question mark."""
NOT_A_PATH: Final = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "no object has such a name"}
CONTENT: Final = {"PATCH": "application/merge-patch+json"}
S = TypeVar("S")


ROUTE: Final = re.compile(r" ssl:(?:\w+|<[^>]*>)(?= \[)")
LOGIN: Final = re.compile(r"(?<=://)[^/@\s]*@")


def words_of(fault: BaseException) -> str:
    """The text of a fault of the network, without the TLS context, whose name is another one in each process, and
    without the password of a proxy.
    """
    return LOGIN.sub("", ROUTE.sub("", str(fault)))


class AnswerTooLarge(ClusterAway):
    """The body of an answer has more than MOST_BYTES."""


class WatchSilent(ClusterAway):
    """A watch brought no line for too long. The stream may be dead, or the resource may be quiet."""


class KubeRequest(Struct, frozen=True):
    """One request, kept so that it can be sent again."""

    method: str
    path: str
    body: bytes | None
    params: Mapping[str, str] | None
    seconds: float


class Reply(Struct, frozen=True):
    """An answer whose body was read to its end."""

    status: int
    body: bytes
    retry_after: float = 0

    def expect(self, doing: str) -> bytes:
        """The body of a successful answer. Raises ClusterRefused for any other answer."""
        if self.status < 300:
            return self.body
        status = read_status(self.body)
        raise ClusterRefused(doing, self.status, status.reason, status.message)

    def read(self, doing: str, what: type[S]) -> S:
        """Decodes a successful answer as `what`. Raises ClusterAway if a proxy or a login page answered instead."""
        try:
            return read_json(self.expect(doing), what)
        except UNREADABLE as fault:
            raise ClusterAway(f"{doing}: not an answer of the API server: {fault}") from fault


class RequestRoute(TypedDict):
    """Arguments of aiohttp that say how a request reaches the server."""

    ssl: ssl.SSLContext | bool
    proxy: str | None
    server_hostname: str | None


class KubeClient:
    """Requests to one API server, as one identity.

    silence: seconds without a line after which a watch ends.
    now: the time of this machine, until the API server tells its own.
    """

    def __init__(self, login: Login, silence: float = SILENCE_SECONDS, now: datetime | None = None) -> None:
        self._login = login
        self._silence = silence
        self._requests = open_session(64, PIECE_BYTES)
        self._watches = open_session(0, LINE_BYTES)
        self._clock = ServerClock(now or datetime.now(UTC), elapsed)
        self._tls = login.tls

    async def close(self) -> None:
        await self._requests.close()
        await self._watches.close()

    @property
    def namespace(self) -> str:
        return self._login.namespace

    @property
    def own_namespace(self) -> str | None:
        """Namespace of our ServiceAccount; None outside a cluster."""
        return self._login.own_namespace

    def acting_for(self, user: str) -> "KubeClient":
        """Another client, whose requests are judged as requests of this user. The caller closes it."""
        return KubeClient(msgspec.structs.replace(self._login, acts_for=user), self._silence)

    def now(self) -> datetime:
        """The time by the API server's clock."""
        return self._clock.now()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> Reply:
        """Sends one request. After a 401 the token is read again, once.

        Raises ClusterAway without an answer: the API server may have carried out the request.
        """
        if LEGAL_PATH.fullmatch(path) is None:  # a name that somebody else wrote must lead to no other object
            return Reply(400, msgspec.json.encode(NOT_A_PATH))
        question = KubeRequest(method, path, body, params, seconds)
        reply = await self._once(question, False)
        return await self._once(question, True) if reply.status == 401 else reply

    async def _once(self, question: KubeRequest, again: bool) -> Reply:
        began, code, resource = time.perf_counter(), "none", resource_of(question.path)
        try:
            async with self._requests.request(
                question.method,
                self._login.url + question.path,
                data=question.body,
                params=question.params,
                headers=await self._headers(again, CONTENT.get(question.method, "application/json")),
                timeout=aiohttp.ClientTimeout(total=question.seconds, sock_connect=CONNECT_SECONDS),
                allow_redirects=False,  # a redirect, for example to a login page, is no answer
                **await self._way(),
            ) as answer:
                if answer.status < 300 and answer.content_type != PAGE:  # others may come from a proxy, with its clock
                    self._clock.hear(answer.headers.get("Date"))
                code = TOO_LARGE
                content = await body_of(answer)
                code = str(answer.status)
                return Reply(answer.status, content, seconds_of(answer.headers.get("Retry-After")))
        except NETWORK_FAULTS as fault:
            if not await self._has_other_certificates(fault):
                why = f"{type(fault).__name__}: {words_of(fault)}"
                raise ClusterAway(f"{question.method} {question.path}: {why}") from fault
        finally:
            KUBE_REQUESTS.labels(question.method, resource, code).inc()
            KUBE_SECONDS.labels(question.method, resource).observe(time.perf_counter() - began)
        return await self._once(question, again)  # nothing was sent without a trusted connection

    async def _way(self) -> RequestRoute:
        """The way of each request to the server."""
        login = self._login
        self._tls = await login.renewed(False) if login.renewed else login.tls
        return {"ssl": self._tls or True, "proxy": login.proxy or None, "server_hostname": login.server_name or None}

    async def _has_other_certificates(self, fault: BaseException) -> bool:
        """Whether there are newer certificates than those of a connection that has just failed."""
        if not isinstance(fault, aiohttp.ClientSSLError) or self._login.renewed is None:
            return False
        return await self._login.renewed(True) is not self._tls

    async def watch(self, path: str, params: Mapping[str, str], seconds: float) -> AsyncGenerator[bytes, None]:
        """Yields the lines of a watch until the server ends it, after about `seconds` at most.

        The first yield is empty. It says that the watch was accepted.
        """
        asked = {**params, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(int(seconds))}
        limits = aiohttp.ClientTimeout(total=seconds + 30, sock_connect=CONNECT_SECONDS, sock_read=self._silence)
        async with self._stream("WATCH", path, asked, limits) as answer:
            yield b""
            while line := await answer.content.readline():
                yield line

    async def pieces(self, path: str, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of an answer as they come, however long that takes."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        async with self._stream("GET", path, params, limits) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    @asynccontextmanager
    async def _stream(
        self, verb: str, path: str, params: Mapping[str, str], limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer without an end. `verb`: for the metrics. Raises ClusterRefused, WatchSilent and ClusterAway."""
        doing = f"{verb.lower()} {path}"
        try:
            async with self._watches.get(
                self._login.url + path, params=params, headers=await self._headers(False), timeout=limits,
                **await self._way(),
            ) as answer:  # fmt: skip
                KUBE_REQUESTS.labels(verb, resource_of(path), str(answer.status)).inc()
                if answer.status != 200:
                    if answer.status == 401:
                        await self._login.token(True)
                    Reply(answer.status, (await answer.content.read(65536))).expect(doing)
                yield answer
        except TimeoutError as fault:
            raise WatchSilent(f"{doing}: no word for {limits.sock_read or CONNECT_SECONDS:.0f} s") from fault
        except NETWORK_FAULTS as fault:
            await self._has_other_certificates(fault)  # the next stream uses them
            raise ClusterAway(f"{doing}: {type(fault).__name__}: {words_of(fault)}") from fault

    async def web_socket(self, path: str, params: Mapping[str, str], protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Opens a web socket with this subprotocol. Raises ClusterRefused and ClusterAway."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                return await self._watches.ws_connect(
                    self._login.url + path, params=params, headers=await self._login.authorization(False),
                    protocols=(protocol,), max_msg_size=LINE_BYTES, **await self._way(),
                )  # fmt: skip
        except aiohttp.WSServerHandshakeError as refused:
            if refused.status in {401, 403, 404}:  # its words are in the body, which a web socket does not read
                (await self.request("GET", path, params=params)).expect(f"open {path}")
            raise ClusterRefused(f"open {path}", refused.status, "", refused.message) from refused
        except NETWORK_FAULTS as fault:
            raise ClusterAway(f"open {path}: {type(fault).__name__}: {words_of(fault)}") from fault

    async def _headers(self, refused: bool, content: str = "application/json") -> list[tuple[str, str]]:
        return [("Accept", "application/json"), ("Content-Type", content), *await self._login.authorization(refused)]


async def body_of(answer: aiohttp.ClientResponse) -> bytes:
    pieces, size = list[bytes](), 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise AnswerTooLarge(f"{answer.method} {answer.url.path}: the answer has more than {MOST_BYTES} bytes")
    return b"".join(pieces)


def open_session(limit: int, buffered: int) -> aiohttp.ClientSession:
    """`buffered`: half of the bytes that wait to be read."""
    return aiohttp.ClientSession(
        # Idle connections are kept for reuse, but not until the server's own limit of 90 s.
        connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=60, socket_factory=patient_socket),
        # Otherwise lists above 128 KB come gzipped, which costs the API server CPU time.
        headers={"User-Agent": f"pg-job-dispatcher/{__version__}", "Accept-Encoding": "identity"},
        read_bufsize=buffered,
        trust_env=False,
        json_serialize=json.dumps,
    )


def patient_socket(address: tuple[object, ...]) -> socket.socket:
    """A socket that notices a dead peer. HTTP/1.1 has no ping."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)  # type: ignore[arg-type] # aiohttp's AddrInfo is a loose tuple
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30000)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def seconds_of(header: str | None) -> float:
    return float(header) if header and header.isdigit() else 0.0


def resource_of(path: str) -> str:
    """The resource in a path: `jobs` in `/apis/batch/v1/namespaces/x/jobs/name`. Metrics use it as a bounded label.

    A path of the API has a version behind `api`, or a group and a version behind `apis`. Other paths are `other`.
    """
    kind, *rest = path.strip("/").split("/")
    rest = rest[{"api": 1, "apis": 2}.get(kind, len(rest)) :]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        return rest[2]
    return rest[0] if rest else "other"


REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FOR_PEOPLE: Final = frozenset({
    ("configmaps", "create"), ("configmaps", "get"), ("configmaps", "list"), ("configmaps", "update"),
    ("configmaps", "watch"), ("events", "create"), ("workloads", "list"),
})  # fmt: skip
"""Launches go on without these rights. The log and the status name the missing ones."""


class ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class Review(Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


class Access:
    """The check of our rights. A question without an answer is no refusal: its last answer holds.

    missing: the missing verbs, and what kept the API server from answering; empty: all is allowed.
    fault: the missing verbs without which nothing can be launched.
    """

    def __init__(self, client: KubeClient, verbs: Iterable[Verb]) -> None:
        self._client = client
        self._verbs = tuple(verbs)
        self._refused: set[Verb] = set()
        self.fault = self.missing = "not asked yet"

    async def check(self) -> None:
        """Asks for every verb. If a question itself needs a missing right, the use of the verb is refused, too."""
        unanswered = ""
        for asked in self._verbs:
            try:
                (self._refused.discard if await self._may(asked) else self._refused.add)(asked)
            except ClusterError as fault:
                unanswered = str(fault)
                break
        missing = [asked for asked in self._verbs if asked in self._refused]
        self.missing = "; ".join(filter(None, (*told(missing), unanswered)))
        self.fault = "; ".join(told(one for one in missing if (one.resource, one.verb) not in FOR_PEOPLE))

    async def _may(self, asked: Verb) -> bool:
        attributes = {field: value for field, value in msgspec.structs.asdict(asked).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": attributes}}  # fmt: skip
        reply = await self._client.request("POST", REVIEWS, msgspec.json.encode(review), seconds=10)
        return reply.read(f"ask whether {asked} is allowed", Review).status.allowed


def told(missing: Iterable[Verb]) -> Iterator[str]:
    """The missing verbs as text, one item for each namespace."""
    for namespace, asked in itertools.groupby(missing, lambda one: one.namespace):
        where = f"in namespace {namespace}" if namespace else "cluster-wide"
        yield f"{where} not allowed: {', '.join(map(str, asked))}"
