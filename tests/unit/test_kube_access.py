"""The check of our rights when the API server does not answer it."""

import msgspec

from dispatcher.kube.access import REVIEWS, Access
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.model.errors import ClusterAway
from dispatcher.model.rights import RUN, InstallationSite, verbs_of


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
