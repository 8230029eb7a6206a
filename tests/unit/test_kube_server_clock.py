"""The API server's time, estimated from answers that name whole seconds."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from dispatcher.kube.client import ServerClock

SERVER = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Answers:
    """Answers of a server with a correct clock, to a machine whose clock may be wrong."""

    def __init__(self, wrong_by: float = 0) -> None:
        self.at = 0.25
        self.clock = ServerClock(self.truth + timedelta(seconds=wrong_by), lambda: self.at)

    @property
    def truth(self) -> datetime:
        return SERVER + timedelta(seconds=self.at)

    def come(self, *, after: float) -> None:
        self.at += after
        self.clock.hear(format_datetime(self.truth, usegmt=True))

    @property
    def lag(self) -> float:
        return (self.truth - self.clock.now()).total_seconds()


@pytest.mark.parametrize("wrong_by", [-300, -1, 0, 1, 300])
def test_the_clock_lags_by_less_than_a_second_after_one_answer(wrong_by: float) -> None:
    answers = Answers(wrong_by)
    answers.come(after=0.5)
    assert 0 <= answers.lag < 1


def test_the_clock_never_gets_worse_with_more_answers() -> None:
    answers, lags = Answers(300), []
    for pause in (0.7, 1.6, 0.55, 3.3, 0.85, 7.77):
        answers.come(after=pause)
        lags.append(answers.lag)
    assert lags == sorted(lags, reverse=True)
    assert 0 <= lags[-1] < 0.1


def test_the_clock_follows_a_server_whose_clock_is_set() -> None:
    answers = Answers()
    answers.come(after=0.1)
    for change in (-60, 60):
        answers.clock.hear(format_datetime(answers.truth + timedelta(seconds=change), usegmt=True))
        assert abs(answers.lag + change) < 1


@pytest.mark.parametrize("date", [None, "", "yesterday", "Fri, 99 May 2026 12:00:00 GMT"])
def test_an_unreadable_date_changes_nothing(date: str | None) -> None:
    answers = Answers()
    before = answers.clock.now()
    answers.clock.hear(date)
    assert answers.clock.now() == before
