"""The queue of notices: the newest one for each object and reason, and at most a fixed number."""

from dispatcher.model.notices import MOST, MOST_TRIES, Notice, Notices


def a_notice(number: int = 1, words: str = "x", reason: str = "Refused") -> Notice:
    return Notice("Pod", f"team/p{number}", f"u{number}", reason, words)


def test_notices_come_in_order_and_stay_until_they_are_told() -> None:
    notices = Notices()
    for number in range(3):
        notices.say(a_notice(number))
    assert notices.due(2) == notices.due(2) == [a_notice(0), a_notice(1)]
    notices.told(notices.due(1)[0])
    assert notices.due(2) == [a_notice(1), a_notice(2)]


def test_a_newer_notice_for_an_object_and_a_reason_replaces_the_older() -> None:
    notices = Notices()
    for words in ("old", "new"):
        notices.say(a_notice(words=words))
    notices.say(a_notice(reason="Landed"))
    assert [one.words for one in notices.due(10)] == ["new", "x"]


def test_a_notice_that_comes_during_a_write_is_kept() -> None:
    notices = Notices()
    notices.say(a_notice(words="old"))
    (old,) = notices.due(1)
    notices.say(a_notice(words="new"))
    notices.told(old)
    assert [one.words for one in notices.due(1)] == ["new"]


def test_notices_beyond_the_limit_are_dropped_and_counted() -> None:
    notices = Notices()
    for number in range(MOST + 2):
        notices.say(a_notice(number))
    notices.say(a_notice(0, "new"))
    assert len(notices.due(2 * MOST)) == MOST
    assert notices.due(1)[0].words == "new"
    assert notices.dropped == {"Refused": 2}


def test_a_failing_notice_goes_behind_the_others_and_is_dropped_at_last() -> None:
    notices = Notices()
    for number in (1, 2):
        notices.say(a_notice(number))
    notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2), a_notice(1)]
    for _ in range(MOST_TRIES - 1):
        notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2)]
    assert notices.dropped == {"Refused": 1}
