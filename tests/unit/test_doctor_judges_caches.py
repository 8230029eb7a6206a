"""The judgement of cache keepers and of the disks that they keep."""

import pytest

from dispatcher.doctor.cluster import CacheFacts, Keepers, Unread, judge_caches
from dispatcher.doctor.finding import FindingState
from dispatcher.model.rights import CACHE_KEEPER, RUN, InstallationSite, verbs_of

NAMES = {"namespace": "ours", "installation": "live"}
FORBIDDEN, ABSENT = Unread("403 Forbidden"), Unread("404 NotFound", is_absent=True)


@pytest.mark.parametrize(
    ("keepers", "state", "message"),
    [
        (Keepers(3, 3), FindingState.GOOD, ""),
        (Keepers(0, 0), FindingState.GOOD, ""),
        (Keepers(3, 2), FindingState.FAULT, "2 of 3 Pods are ready"),
        (ABSENT, FindingState.WARNING, "there is none: nobody removes cache directories"),
        (FORBIDDEN, FindingState.NOT_CHECKED, "403 Forbidden"),
    ],
)
def test_keepers_are_judged_by_their_ready_pods(keepers: Keepers | Unread, state: FindingState, message: str) -> None:
    (found, disks) = judge_caches(CacheFacts(keepers, {}), NAMES)
    assert (found.what, found.state, found.message) == ("CacheKeeperAbsent", state, message)
    assert found.where == "DaemonSet live-cache-keeper in namespace ours"
    assert (disks.what, disks.state) == ("CacheDiskFull", FindingState.GOOD)


def test_each_full_disk_is_a_fault_with_the_words_of_its_event() -> None:
    _, *found = judge_caches(CacheFacts(Keepers(1, 1), {"b": "full of logs", "a": "full"}), NAMES)
    assert [(one.where, one.state, one.message) for one in found] == [
        ("node a", FindingState.FAULT, "full"), ("node b", FindingState.FAULT, "full of logs"),
    ]  # fmt: skip
    _, unread = judge_caches(CacheFacts(Keepers(1, 1), FORBIDDEN), NAMES)
    assert (unread.what, unread.state) == ("CacheDiskFull", FindingState.NOT_CHECKED)


def test_caches_need_more_verbs() -> None:
    without, with_caches = (
        InstallationSite("live", "ours", "jobs"),
        InstallationSite("live", "ours", "jobs", has_caches=True),
    )
    more = {*verbs_of(RUN, with_caches)} - {*verbs_of(RUN, without)}
    assert {(one.namespace, str(one)) for one in more} == {("ours", "list configmaps"), ("ours", "watch configmaps")}
    asked = {(one.namespace, str(one)) for one in verbs_of(CACHE_KEEPER, with_caches)}
    assert ("default", "create events") in asked
    assert ("ours", "get configmaps live-cache-orders") in asked
