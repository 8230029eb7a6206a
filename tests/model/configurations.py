"""The runs of the model, one line each. Together they have more than a million states; each ends within a minute."""

from typing import Final

from tests.model.world import (
    ANY,
    DELETION,
    DISRUPTION,
    FORCED,
    FOREIGN,
    LATE_POST,
    LOST_START,
    NO_FOREIGN,
    PODS,
    POSTS,
    REJECTION,
    SECOND_PROCESS,
    TWIN,
    Configuration,
)

ANY_BUT_LATE: Final = ANY - {LATE_POST}
TWINS: Final = frozenset({TWIN, LOST_START, FOREIGN})
DELETIONS: Final = frozenset({DELETION, LOST_START, DISRUPTION})
REJECTIONS: Final = frozenset({REJECTION, LOST_START, DISRUPTION})
SECONDS: Final = frozenset({SECOND_PROCESS, LOST_START, FORCED})

RUNS: Final = (
    Configuration("no fault", cancels=1, retries=1, janitor="fresh"),
    Configuration("one leader, any fault, cancel, retry, janitor", ANY, 1, cancels=1, retries=1, janitor="fresh"),
    Configuration("one leader, any fault, retry, no janitor", ANY, 1, retries=1),
    Configuration("janitor reads stale, cancel, retry", janitor="stale", cancels=1, retries=1),
    Configuration("janitor reads stale, disruptions", PODS, 1, janitor="stale", retry_reports=False, retries=1),
    Configuration("creates of one attempt are bounded", ANY_BUT_LATE, 1, attempts=1, launches=6, most_creates=6),
    Configuration("two faults, no foreign deletion", NO_FOREIGN - {LATE_POST}, 2, attempts=1, launches=4),
    Configuration("two faults of any kind", ANY_BUT_LATE, 2, attempts=1),
    Configuration("late POSTs, cancel, retry", POSTS | {LATE_POST}, 1, cancels=1, retries=1, janitor="fresh"),
    Configuration("late POSTs, any second fault", ANY, 2, attempts=1, exits=False),
    Configuration("stale second dispatcher, retry", deposed=1, retries=1, janitor="fresh", retry_reports=False),
    Configuration("stale second dispatcher, any fault", ANY_BUT_LATE, 1, deposed=1, attempts=1, exits=False),
    Configuration("restore from a backup", restores=1, retries=1, sweeps=True, retry_reports=False, exits=False),
    Configuration("any fault, outcome by exit code", ANY_BUT_LATE, 1, report="exit-code", attempts=1, janitor="stale"),
    Configuration(
        "late POSTs, outcome by exit code",
        POSTS | {LATE_POST},
        1,
        report="exit-code",
        retries=1,
        janitor="fresh",
        retry_reports=False,
    ),
    Configuration("max_failures 1, two faults", ANY_BUT_LATE, 2, max_failures=1, attempts=1, janitor="fresh"),
    Configuration("max_failures 1, retry, cancel", PODS, 1, max_failures=1, cancels=1, retries=1, janitor="stale"),
    Configuration("outcome by exit code", PODS, 1, report="exit-code", retries=1, janitor="stale", retry_reports=False),
    Configuration(
        "Pods that never start", NO_FOREIGN, 1, cancels=1, retries=1, is_stuck=True, exits=False, janitor="fresh"
    ),
    Configuration(
        "Pods that wait for a node", NO_FOREIGN, 1, cancels=1, retries=1, is_full=True, exits=False, janitor="fresh"
    ),
    Configuration(
        "probes that are taken back",
        NO_FOREIGN,
        1,
        retries=1,
        pauses=2,
        launches=4,
        is_full=True,
        exits=False,
        janitor="fresh",
    ),
    Configuration(
        "probes that are taken back, and forgotten",
        POSTS | {DISRUPTION},
        1,
        attempts=1,
        pauses=2,
        is_full=True,
        exits=False,
        sweeps=True,
        forgets=True,
        janitor="fresh",
    ),
    Configuration("probes that are taken back, stale second dispatcher", pauses=2, deposed=1, attempts=1, is_full=True),
    Configuration("twin Pods", TWINS, 2, attempts=1),
    Configuration("somebody deletes Pods", DELETIONS, 2, retries=1, attempts=1, janitor="fresh"),
    Configuration(
        "somebody deletes Pods, outcome by exit code", DELETIONS, 2, report="exit-code", attempts=1, janitor="stale"
    ),
    Configuration("somebody deletes Pods, stale second dispatcher", DELETIONS, 1, deposed=1, attempts=1, exits=False),
    Configuration("a container that starts again", SECONDS, 2, attempts=1, janitor="fresh"),
    Configuration("a container that starts again, max_failures 1", SECONDS, 2, max_failures=1, janitor="fresh"),
    Configuration("a container without run_id starts again", SECONDS, 2, attempts=1, names_process=False),
    Configuration(
        "a container without run_id starts again, max_failures 1", SECONDS, 2, max_failures=1, names_process=False
    ),
    Configuration("a kubelet rejects Pods", REJECTIONS, 2, retries=1, attempts=1, janitor="fresh"),
    Configuration("a kubelet rejects Pods, stale second dispatcher", REJECTIONS, 1, deposed=1, attempts=1, exits=False),
    Configuration(
        "a kubelet rejects Pods, outcome by exit code", REJECTIONS, 2, report="exit-code", attempts=1, janitor="fresh"
    ),
    Configuration(
        "a kubelet rejects Pods, and they are forgotten",
        REJECTIONS - {LOST_START},
        1,
        attempts=1,
        exits=False,
        sweeps=True,
        forgets=True,
    ),
    Configuration("launches are forgotten", NO_FOREIGN - {LATE_POST}, 1, attempts=1, sweeps=True, forgets=True),
    Configuration("the janitor knows no template", refusal=True, cancels=1, retries=1, janitor="stale"),
    Configuration("the sweep as a step", frozenset({LATE_POST}), 1, sweeps=True, retries=1, exits=False),
    Configuration("fresh views, any two faults", ANY, 2, lags=False, janitor="fresh"),
)
