"""An end that the API server refuses is told for a minute, because the object keeps its place."""

import pytest

from dispatcher.model.jobs import ApiAnswer, ObjectWrite
from dispatcher.sweep.sweep import REFUSED_SECONDS, Remover


class Answering:
    """A cluster that gives one answer to each end."""

    def __init__(self, answer: ApiAnswer) -> None:
        self.answer = answer

    async def end(self, _: ObjectWrite) -> ApiAnswer:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        (ApiAnswer(403, "Forbidden", "nobody deletes Jobs"), True),
        (ApiAnswer(422, "Invalid", "nobody deletes Jobs"), True),
        (ApiAnswer(500, "InternalError", "nobody deletes Jobs"), True),
        (ApiAnswer(200), False),
        (ApiAnswer(404, "NotFound"), False),
        (ApiAnswer(409, "Conflict"), False),
        (ApiAnswer(0, message="no answer"), False),
    ],
    ids=lambda value: str(value.status) if isinstance(value, ApiAnswer) else "",
)
async def test_refused_end_is_told_for_a_minute(answer: ApiAnswer, is_told: bool) -> None:
    now = 100.0
    remover = Remover(Answering(answer), lambda: None, lambda: now)
    await remover.remove([ObjectWrite("jobs", "dispatcher-42-acb5fbef-1", "uid", "its row is over")])
    words = f"jobs dispatcher-42-acb5fbef-1 (its row is over): {answer.status} nobody deletes Jobs"
    assert remover.fault == (words if is_told else "")
    now += REFUSED_SECONDS
    assert remover.fault == ""
