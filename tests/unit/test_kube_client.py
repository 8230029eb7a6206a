"""The client of the API server: rights, paths, time, ends of certificates; and the store of a reflector."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from dispatcher.kube.client import AHEAD_SECONDS, LEGAL_PATH, REVIEWS, Access, KubeClient, Reply, ServerClock
from dispatcher.kube.credentials import Login, TokenFile
from dispatcher.kube.job_api import jobs_path
from dispatcher.kube.objects import read_status
from dispatcher.kube.reflector import Store
from dispatcher.model.cluster import Node
from dispatcher.model.errors import UTC_TIME, ClusterAway, certificates_end, instant, token_end
from dispatcher.model.rights import RUN, InstallationSite, verbs_of
from tests.rig.builders import a_node
from tests.rig.loopback import on_loopback
from tests.scheduling.certificates import OF_SERVERS, Authority, pem, sequence
from tests.unit.logins import jwt


class Answers(KubeClient):
    """Answers each question. `refused`: verbs that are not allowed. `fault`: what happens in place of an answer."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.fault: Reply | Exception | None = None

    async def request(self, method: str, path: str, body: bytes | None = None, *_: object, **__: object) -> Reply:
        assert (method, path) == ("POST", REVIEWS)
        if isinstance(self.fault, Exception):
            raise self.fault
        if self.fault is not None:
            return self.fault
        verb = msgspec.json.decode(body or b"")["spec"]["resourceAttributes"]["verb"]
        return Reply(201, msgspec.json.encode({"status": {"allowed": verb not in self.refused}}))


def an_access(answers: Answers) -> Access:
    return Access(answers, verbs_of(RUN, InstallationSite("dispatcher", "ours", "jobs")))


FAULTS: list[Reply | Exception] = [
    Reply(429, b"Too many requests, please try again later."),
    Reply(500, b'{"kind": "Status", "reason": "InternalError", "message": "etcdserver: request timed out"}'),
    Reply(403, b'{"kind": "Status", "reason": "Forbidden", "message": "selfsubjectaccessreviews is forbidden"}'),
    ClusterAway("no answer in time"),
]


async def test_question_without_an_answer_is_no_refusal() -> None:
    for fault in FAULTS:
        answers = Answers()
        access = an_access(answers)
        assert access.fault == "not asked yet"
        for known in (False, True):  # before and after the first answers
            answers.fault = fault
            await access.check()
            assert (access.fault, bool(access.missing)) == ("", True), (fault, known)
            answers.fault = None
            await access.check()
            assert (access.fault, access.missing) == ("", "")


async def test_refusal_holds_until_it_is_answered_otherwise() -> None:
    answers = Answers()
    access = an_access(answers)
    answers.refused = {"create"}
    await access.check()
    refused = access.fault
    assert "not allowed: create jobs" in refused
    answers.fault, answers.refused = FAULTS[0], set()
    await access.check()
    assert (access.fault, "Too many requests" in access.missing) == (refused, True)
    answers.fault = None
    await access.check()
    assert access.fault == ""


@pytest.mark.parametrize(
    "name",
    [
        "x/../../configmaps/victim?a=",
        "..",
        ".",
        "",
        "a?b",
        "a#b",
        "a b",
        "a\nb",
        "a%2Fb/..",
        "a%2Fb",
        "x%2F..%2Fy",
        "%2E%2E",
        "%2e",
        "ä",
        "a\\b",
        "a;b",
    ],
)
async def test_path_with_an_impossible_name_is_not_sent(name: str) -> None:
    client = KubeClient(Login("http://127.0.0.1:1", None, TokenFile(Path("/none")).read, "x"))
    try:
        reply = await client.request("PATCH", f"/api/v1/namespaces/x/pods/{name}/status", b"{}")
    finally:
        await client.close()
    assert (reply.status, read_status(reply.body).reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    "path",
    ["/api/v1/nodes", "/apis", "/readyz", "/api/v1/namespaces/a-b.c/pods/x.y-z/status", f"{jobs_path('jobs')}/a-1r2",
     "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node", "/api/v1/namespaces/x/secrets/a%20b"],
)  # fmt: skip
def test_path_of_an_object_is_sent(path: str) -> None:
    assert LEGAL_PATH.fullmatch(path)


SERVER = datetime(2026, 5, 1, 12, tzinfo=UTC)


class TimedAnswers:
    """Answers of a server with a correct clock, to a machine whose clock may be wrong."""

    def __init__(self, wrong_by: float = 0) -> None:
        self.at = 0.25
        self.clock = ServerClock(self.truth + timedelta(seconds=wrong_by), lambda: self.at)

    @property
    def truth(self) -> datetime:
        return SERVER + timedelta(seconds=self.at)

    def come(self, *, after: float, ahead: float = 0) -> None:
        """`ahead`: of the truth, by the clock of the server that answers."""
        self.at += after
        self.clock.hear(format_datetime(self.truth + timedelta(seconds=ahead), usegmt=True))

    @property
    def lag(self) -> float:
        return (self.truth - self.clock.now()).total_seconds()


@pytest.mark.parametrize("wrong_by", [-300, -1, 0, 1, 300])
def test_the_clock_lags_by_less_than_a_second_after_one_answer(wrong_by: float) -> None:
    answers = TimedAnswers(wrong_by)
    answers.come(after=0.5)
    assert 0 <= answers.lag < 1


def test_the_clock_never_gets_worse_with_more_answers() -> None:
    answers, lags = TimedAnswers(300), []
    for pause in (0.7, 1.6, 0.55, 3.3, 0.85, 7.77):
        answers.come(after=pause)
        lags.append(answers.lag)
    assert lags == sorted(lags, reverse=True)
    assert 0 <= lags[-1] < 0.1


def test_the_clock_follows_a_server_whose_clock_is_set() -> None:
    answers = TimedAnswers()
    answers.come(after=0.1)
    for change in (-60, 60):
        for _ in range(AHEAD_SECONDS + 2):
            answers.come(after=1, ahead=change)
        assert abs(answers.lag + change) < 1


def test_the_clock_is_that_of_the_slowest_of_several_servers() -> None:
    """By the other one, a grace that has begun by the first would be over at once."""
    answers = TimedAnswers()
    for _ in range(300):
        answers.come(after=0.7, ahead=120)
        answers.come(after=0.7)
        answers.come(after=0.7, ahead=120)
    assert 0 <= answers.lag < 1


@pytest.mark.parametrize(
    "date",
    [None, "", "yesterday", "Fri, 99 May 2026 12:00:00 GMT", "Fri, 01 May 99999999999 12:00:00 GMT",
     "Fri, 31 Dec 9999 23:59:59 GMT"],
)  # fmt: skip
def test_an_unreadable_date_changes_nothing(date: str | None) -> None:
    answers = TimedAnswers()
    before = answers.clock.now()
    answers.clock.hear(date)
    assert answers.clock.now() == before
    answers.come(after=3600)
    assert 0 <= answers.lag < 1


@pytest.mark.parametrize(
    ("status", "kind", "is_heard"),
    [(200, "application/json", True), (201, "application/json", True), (302, "text/html", False),
     (200, "text/html", False), (502, "application/json", False)],
)  # fmt: skip
async def test_clock_is_that_of_the_api_server_and_not_of_a_proxy(status: int, kind: str, is_heard: bool) -> None:
    """A login page of a proxy is no answer. Its clock may be minutes off, and every age with it."""
    date = {"Date": format_datetime(SERVER, usegmt=True), "Location": "/login"}

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text="{}", content_type=kind, headers=date)

    app = web.Application()
    app.router.add_get("/version", answer)
    async with on_loopback(app) as address:
        client = KubeClient(Login(f"http://{address}", None, no_token, "x"), now=SERVER - timedelta(hours=1))
        try:
            await client.request("GET", "/version")
            assert (client.now() >= SERVER) is is_heard
        finally:
            await client.close()


async def no_token(_: bool) -> str | None:
    return None


GENERALIZED_TIME = 0x18


def test_chain_has_the_ends_of_its_certificates_in_their_order(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    leaf = authority.pair("server", usage=OF_SERVERS)
    ends = certificates_end(leaf.certificate.read_bytes() + b"# T\xdcRKTRUST\n" + authority.certificate.read_bytes())
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).timestamp()
    assert [end == pytest.approx(tomorrow, abs=60) for end in ends] == [True, True]


@pytest.mark.parametrize(
    "text", ["", "no certificate", pem("CERTIFICATE", b"\x30"), pem("CERTIFICATE", sequence()),
             "-----BEGIN CERTIFICATE-----!-----END CERTIFICATE-----", pem("CERTIFICATE", sequence(sequence()))],
)  # fmt: skip
def test_unreadable_certificate_has_no_end(text: str) -> None:
    assert certificates_end(text.encode()) == []


@pytest.mark.parametrize(
    ("kind", "written", "year"),
    [(UTC_TIME, "491231235959Z", 2049), (UTC_TIME, "500101000000Z", 1950), (GENERALIZED_TIME, "20610101000000Z", 2061)],
)
def test_year_of_a_certificate_is_that_of_its_kind_of_time(kind: int, written: str, year: int) -> None:
    assert instant(kind, written).year == year


def test_token_ends_as_it_says() -> None:
    assert token_end(jwt({"exp": 1763769600, "iss": "x"})) == 1763769600


def test_token_without_an_end_never_ends() -> None:
    assert token_end(jwt({"iss": "x"})) == float("inf")


@pytest.mark.parametrize("token", ["", "opaque", "a.b", "a.é.b", "a.!!.b", jwt([1]), jwt({"exp": "soon"})])
def test_token_that_is_no_jwt_has_no_known_end(token: str) -> None:
    assert token_end(token) is None


def a_store(*nodes: Node, version: str = "100", now: float = 50) -> Store[Node]:
    store: Store[Node] = Store()
    store.replace(nodes, version, now)
    return store


def test_a_store_without_a_list_is_empty_and_infinitely_old() -> None:
    store: Store[Node] = Store()
    assert (store.is_synced, store.resource_version, store.view()) == (False, "", {})
    assert store.age(now=1e9) == math.inf


def test_a_list_replaces_all_objects() -> None:
    store = a_store(a_node("a"), a_node("b"))
    assert store.replace([a_node("b"), a_node("c")], "200", now=60)
    assert store.view() == {"b": a_node("b"), "c": a_node("c")}
    assert (store.is_synced, store.resource_version, store.age(now=61)) == (True, "200", 1)


def test_a_first_list_and_an_equal_list_are_no_drift() -> None:
    store: Store[Node] = Store()
    assert not store.replace([a_node("a")], "100", now=0)
    assert not store.replace([a_node("a")], "200", now=10)
    assert store.replace([a_node("a", ready=False)], "300", now=20)
    assert store.replace([], "400", now=30)


def test_only_a_changed_object_counts_as_a_change() -> None:
    store, told = a_store(a_node("a")), list[tuple[Node | None, Node | None]]()
    store.on_each(lambda before, after: told.append((before, after)))
    store.put(a_node("a"))  # a heartbeat
    store.put(a_node("a", ready=False))
    store.put(a_node("b"))
    store.drop("b")
    store.drop("b")
    assert told == [
        (a_node("a"), a_node("a", ready=False)), (None, a_node("b")), (a_node("b"), None)
    ]  # fmt: skip


def test_a_sign_of_life_renews_the_proof_and_may_move_the_version() -> None:
    store = a_store(now=50)
    store.prove(now=70)
    assert (store.age(now=75), store.resource_version) == (5, "100")
    store.prove(now=80, resource_version="170")
    assert (store.age(now=80), store.resource_version) == (0, "170")


@pytest.mark.parametrize(
    ("ours", "theirs", "passed"),
    [("100", "99", True), ("100", "100", False), ("99", "100", False), ("1000", "999", True), ("", "1", False),
     ("1", "", False), ("x", "1", False), ("2", "1a", False)],
)  # fmt: skip
def test_versions_are_compared_only_as_numbers(ours: str, theirs: str, passed: bool) -> None:
    assert a_store(version=ours).has_passed(theirs) is passed


def test_a_store_holds_the_names_of_its_objects() -> None:
    store = a_store(a_node("a"))
    assert "a" in store
    assert "b" not in store
    store.drop("a")
    assert "a" not in store


OLD, NEW = Node(name="a", ready=False, unreachable=False), Node(name="a", ready=True, unreachable=False)
B = Node(name="b", ready=True, unreachable=False)


def test_a_list_tells_only_the_differences() -> None:
    told: list[tuple[Node | None, Node | None]] = []
    store: Store[Node] = Store()
    store.replace([OLD, B], "1", 0)
    store.on_each(lambda before, after: told.append((before, after)))
    store.replace([NEW], "2", 0)
    assert sorted(told, key=str) == sorted([(OLD, NEW), (B, None)], key=str)
    told.clear()
    store.replace([NEW], "3", 0)
    assert told == []


def test_view_is_the_same_object_until_something_changes_and_never_changes_itself() -> None:
    store: Store[Node] = Store()
    store.replace([OLD], "1", 0)
    view = store.view()
    store.put(OLD)
    store.replace([OLD], "2", 0)
    store.drop("unknown")
    changed: list[object] = [store.view()]
    store.put(NEW)
    changed.append(store.view())
    store.drop("a")
    changed.append(store.view())
    assert changed == [{"a": OLD}, {"a": NEW}, {}]
    assert view == {"a": OLD}
    assert store.view() is store.view()
    assert store.values() == []
