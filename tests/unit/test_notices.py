"""What is to be told waits for its turn: the newest of each, and not more than can be told."""

from dispatcher.model.notices import MOST, MOST_TRIES, Notice, Notices


def a_notice(number: int = 1, words: str = "x", reason: str = "Refused") -> Notice:
    return Notice("Pod", f"team/p{number}", f"u{number}", reason, words)


def test_they_are_told_in_their_order_and_stay_until_they_were() -> None:
    notices = Notices()
    for number in range(3):
        notices.say(a_notice(number))
    assert notices.due(2) == notices.due(2) == [a_notice(0), a_notice(1)]
    notices.told(notices.due(1)[0])
    assert notices.due(2) == [a_notice(1), a_notice(2)]


def test_the_newest_words_for_an_object_and_a_reason_replace_the_others() -> None:
    notices = Notices()
    for words in ("old", "new"):
        notices.say(a_notice(words=words))
    notices.say(a_notice(reason="Landed"))
    assert [one.words for one in notices.due(10)] == ["new", "x"]


def test_what_comes_while_one_is_told_is_told_too() -> None:
    notices = Notices()
    notices.say(a_notice(words="old"))
    (old,) = notices.due(1)
    notices.say(a_notice(words="new"))
    notices.told(old)
    assert [one.words for one in notices.due(1)] == ["new"]


def test_of_too_many_the_last_are_dropped_and_counted() -> None:
    notices = Notices()
    for number in range(MOST + 2):
        notices.say(a_notice(number))
    notices.say(a_notice(0, "new"))
    assert len(notices.due(2 * MOST)) == MOST
    assert notices.due(1)[0].words == "new"
    assert notices.dropped == {"Refused": 2}


def test_one_that_cannot_be_told_lets_the_others_be_told_and_is_dropped_in_the_end() -> None:
    notices = Notices()
    for number in (1, 2):
        notices.say(a_notice(number))
    notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2), a_notice(1)]
    for _ in range(MOST_TRIES - 1):
        notices.put_off(a_notice(1))
    assert notices.due(2) == [a_notice(2)]
    assert notices.dropped == {"Refused": 1}
