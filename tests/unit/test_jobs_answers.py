"""The meaning of the API server's answer to a create: the table of docs/protocol.md, section 4."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.refusals import Meaning, read_create
from dispatcher.model.jobs import ApiAnswer

QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: team, requested: count/jobs.batch=1, used: 5, limited: 5'
NO_LIMITS = 'jobs.batch "x" is forbidden: failed quota: team: must specify limits.cpu'
RBAC = 'jobs.batch is forbidden: User "system:serviceaccount:a:b" cannot create resource "jobs" in API group "batch" in the namespace "a"'  # noqa: E501  # text of the API server
ENDING = 'jobs.batch "x" is forbidden: unable to create new content in namespace a because it is being terminated'
WEBHOOK = 'admission webhook "policy.example" denied the request: image is not signed'
POD_SECURITY = 'jobs.batch "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
BY_POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not on Fridays"

TABLE = [
    (ApiAnswer(201), Meaning.CREATED),
    (ApiAnswer(200), Meaning.CREATED),
    (ApiAnswer(202), Meaning.CREATED),
    (ApiAnswer(409, "AlreadyExists", 'jobs.batch "x" already exists'), Meaning.EXISTS),
    (ApiAnswer(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "team"'), Meaning.UNKNOWN),
    (ApiAnswer(409), Meaning.UNKNOWN),
    (ApiAnswer(403, "Forbidden", QUOTA), Meaning.QUOTA),
    (ApiAnswer(403, "Forbidden", ENDING, ("NamespaceTerminating",)), Meaning.TERMINATING),
    (ApiAnswer(403, "Forbidden", RBAC), Meaning.FORBIDDEN),
    (ApiAnswer(403, "Forbidden", WEBHOOK), Meaning.DENIED),
    (ApiAnswer(403, "Forbidden", 'jobs.batch "x" is forbidden: User quotas are checked elsewhere'), Meaning.DENIED),
    (ApiAnswer(403, "Forbidden", "a policy says: team a cannot create resource jobs at night"), Meaning.DENIED),
    (ApiAnswer(403, "Forbidden", POD_SECURITY), Meaning.DENIED),
    (ApiAnswer(403, "Forbidden", NO_LIMITS), Meaning.DENIED),
    (ApiAnswer(403), Meaning.DENIED),
    (ApiAnswer(404, "NotFound", 'namespaces "a" not found'), Meaning.NO_NAMESPACE),
    (ApiAnswer(401, "Unauthorized", "Unauthorized"), Meaning.UNAUTHORIZED),
    (ApiAnswer(400, "BadRequest", "json: cannot unmarshal"), Meaning.POISON),
    (ApiAnswer(413, "RequestEntityTooLarge"), Meaning.POISON),
    (ApiAnswer(422, "Invalid", 'Job.batch "x" is invalid'), Meaning.POISON),
    (ApiAnswer(422, "Invalid", f'jobs.batch "x" is forbidden: {BY_POLICY}'), Meaning.DENIED),
    (ApiAnswer(422, "Invalid", f"pods is forbidden: {BY_POLICY}"), Meaning.POISON),
    (ApiAnswer(422, "Invalid", f'Job.batch "x" is invalid: command: Invalid value: "{BY_POLICY}"'), Meaning.POISON),
    (ApiAnswer(400, "BadRequest", 'admission webhook "a.b.c" denied the request: no'), Meaning.DENIED),
    *((ApiAnswer(status, "Whatever", WEBHOOK), Meaning.DENIED) for status in (401, 404, 409, 410, 429, 500, 503, 599)),
    (ApiAnswer(409, "AlreadyExists", WEBHOOK), Meaning.DENIED),
    (ApiAnswer(422, "Invalid", "policy 'm' with binding 'm' denied request: no such key: nodes"), Meaning.DENIED),
    (ApiAnswer(500, "InternalError", 'failed calling webhook "w": admission webhook "w" denied the request'),
     Meaning.UNKNOWN),
    (ApiAnswer(429, "TooManyRequests", retry_after=3), Meaning.UNKNOWN),
    (ApiAnswer(500, "InternalError", "failed calling webhook"), Meaning.UNKNOWN),
    (ApiAnswer(502, "", "Bad Gateway"), Meaning.UNKNOWN),
    (ApiAnswer(503, "ServiceUnavailable"), Meaning.UNKNOWN),
    (ApiAnswer(504, "Timeout"), Meaning.UNKNOWN),
    (ApiAnswer(0, message="connection reset"), Meaning.UNKNOWN),
    (ApiAnswer(302), Meaning.UNKNOWN),
    (ApiAnswer(405), Meaning.UNKNOWN),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "meaning"), TABLE)
def test_every_answer_has_its_meaning(answer: ApiAnswer, meaning: Meaning) -> None:
    assert read_create(answer) is meaning


def test_cause_of_a_terminating_namespace_wins_over_the_message() -> None:
    assert read_create(ApiAnswer(403, "Forbidden", QUOTA, ("Other", "NamespaceTerminating"))) is Meaning.TERMINATING


@pytest.mark.fault(20)
@given(
    st.builds(
        ApiAnswer,
        st.integers(0, 599),
        st.sampled_from(["", "AlreadyExists", "x"]),
        st.sampled_from(["", QUOTA, RBAC, WEBHOOK]),
    )
)
def test_create_may_have_been_made_unless_its_answer_excludes_it(answer: ApiAnswer) -> None:
    """docs/protocol.md, section 4: only these statuses say that nothing was made, or that the name is taken."""
    certain = {400, 401, 403, 404, 413, 422}
    meaning = read_create(answer)
    if 200 <= answer.status < 300:
        assert meaning is Meaning.CREATED
    elif answer.message == WEBHOOK:  # it was asked, so nothing was made
        assert meaning is Meaning.DENIED
    elif answer.status == 409 and answer.reason == "AlreadyExists":
        assert meaning is Meaning.EXISTS
    else:
        assert (meaning is Meaning.UNKNOWN) == (answer.status not in certain)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422])
def test_answer_of_a_proxy_is_unknown(status: int) -> None:
    assert read_create(ApiAnswer(status, message="<html>", is_told=False)) is Meaning.UNKNOWN


@given(st.builds(ApiAnswer, st.integers(0, 599), is_sent=st.just(False), is_told=st.booleans()))
def test_unsent_create_is_only_not_sent(answer: ApiAnswer) -> None:
    assert read_create(answer) is Meaning.NOT_SENT
