"""The judgement of cache keepers and of the disks that they keep."""

import pytest

from dispatcher.doctor.caches import Facts, Keepers, judge_caches
from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.finding import State
from dispatcher.doctor.verbs import CACHE_KEEPER, RUN, Site, verbs_of

NAMES = {"namespace": "ours", "installation": "live"}
FORBIDDEN, ABSENT = Unread("403 Forbidden"), Unread("404 NotFound", is_absent=True)


@pytest.mark.parametrize(
    ("keepers", "state", "message"),
    [
        (Keepers(3, 3), State.GOOD, ""),
        (Keepers(0, 0), State.GOOD, ""),
        (Keepers(3, 2), State.FAULT, "2 of 3 Pods are ready"),
        (ABSENT, State.WARNING, "there is none: nobody removes cache directories"),
        (FORBIDDEN, State.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_keepers_are_judged_by_their_ready_pods(keepers: Keepers | Unread, state: State, message: str) -> None:
    (found, disks) = judge_caches(Facts(keepers, {}), NAMES)
    assert (found.what, found.state, found.message) == ("CacheKeeperAbsent", state, message)
    assert found.where == "DaemonSet live-cache-keeper in namespace ours"
    assert (disks.what, disks.state) == ("CacheDiskFull", State.GOOD)


def test_each_full_disk_is_a_fault_with_the_words_of_its_event() -> None:
    _, *found = judge_caches(Facts(Keepers(1, 1), {"b": "full of logs", "a": "full"}), NAMES)
    assert [(one.where, one.state, one.message) for one in found] == [
        ("node a", State.FAULT, "full"), ("node b", State.FAULT, "full of logs"),
    ]  # fmt: skip
    _, unread = judge_caches(Facts(Keepers(1, 1), FORBIDDEN), NAMES)
    assert (unread.what, unread.state) == ("CacheDiskFull", State.NOT_CHECKED)


def test_caches_need_more_verbs() -> None:
    without, with_caches = Site("live", "ours", "jobs"), Site("live", "ours", "jobs", has_caches=True)
    more = {*verbs_of(RUN, with_caches)} - {*verbs_of(RUN, without)}
    assert {(one.namespace, str(one)) for one in more} == {("ours", "list configmaps"), ("ours", "watch configmaps")}
    asked = {(one.namespace, str(one)) for one in verbs_of(CACHE_KEEPER, with_caches)}
    assert ("default", "create events") in asked
    assert ("ours", "get configmaps live-cache-orders") in asked
