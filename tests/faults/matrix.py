"""The faults that this project must handle, and bugs of other projects.

`docs/faults.md` is made from this file and from the markers of the tests: `@pytest.mark.fault(3, 4)`,
`@pytest.mark.museum("unknown count = 0")`. A number never changes its meaning. `later` names a part that does not
exist yet.
"""

from typing import Final, NamedTuple


class Fault(NamedTuple):
    """A fault.

    what: what goes wrong.
    right: the correct behaviour.
    later: the part that must exist before a test can show it; empty if the part exists.
    """

    what: str
    right: str
    later: str = ""


DATABASE: Final = {
    1: Fault("The database is down, or a query takes too long", "nothing is created or deleted; Jobs run on"),
    2: Fault("The connection leads to a standby", "refused and named in readiness; used once it is the primary"),
    3: Fault("A lagging standby still shows a finished task as waiting", "no row is judged by a standby"),
    4: Fault("A failover loses the report of a finished run", "its finished Job prevents a second run"),
    5: Fault("A dead connection never answers a statement", "it times out in bounded time; the loop goes on"),
    6: Fault("Rows become visible out of the order of their ids", "no row is skipped"),
    7: Fault(
        "A restored or reset database gives ids again", "the new row has another Job name; foreign Jobs are left alone"
    ),
    8: Fault(
        "A row is changed or deleted while its Job runs", "the Job runs on; the row counts as gone after three looks"
    ),
    9: Fault("The schema is not the one that this version knows", "named in readiness; an odd row affects only itself"),
    10: Fault("A million rows wait", "reads are bounded and use an index; memory stays flat"),
}
WRITES: Final = {
    11: Fault("A create is carried out, and its answer is lost", "the same create again finds its own Job"),
    12: Fault("A create is lost before it is carried out", "the same create again makes the Job"),
    13: Fault("A create lands long after its row has ended", "its container is refused the start"),
    14: Fault("A full quota hides that our Job exists already", "a GET of the name finds it; no second Job"),
    15: Fault("The quota is full", "creates pause with that reason; they resume once there is room"),
    16: Fault("The namespace is being deleted, or is gone", "named in readiness; only a few requests"),
    17: Fault("The API server always refuses a row's Job", "the row is parked; the next row is launched"),
    18: Fault("An admission webhook is down, slow, or denies", "down: tried again; denied: parked with its message"),
    19: Fault(
        "The API server asks for a pause (Retry-After)",
        "each create waits for as long, and fewer go out; after a long one all pause",
    ),
    20: Fault(
        "etcd stalls, or the API server fails during a write",
        "an unknown outcome counts as made; the same create again",
    ),
    21: Fault("etcd is full", "writes stop, readiness names it; work resumes once there is room"),
    22: Fault("The token was renewed, and the old one is refused", "the token is read again at once"),
    23: Fault(
        "Reads work and writes fail, or writes work and reads fail", "no read: no writes; no write: one try at a time"
    ),
}
WATCHES: Final = {
    24: Fault("A watch stays open and silent", "detected in bounded time; caps hold until then"),
    25: Fault("The watch's resourceVersion is too old, again and again", "a new list each time, with growing pauses"),
    26: Fault("A list shows an earlier state", "nothing is made twice by it"),
    27: Fault(
        "A Job is accepted, and its Pod is never created",
        "no other row is delayed; a refused launch ends after 60 s",
    ),
    28: Fault("Events are lost or come out of order", "the next list corrects it; no decision rests on one event"),
}
PROGRAM: Final = {
    29: Fault("kill -9 at any moment", "the next process reaches the same result"),
    30: Fault("Two replicas believe that they lead", "one is trusted at a time; names and caps hold"),
    31: Fault("The machine sleeps or is moved", "the lease has expired when it wakes up"),
    32: Fault("Something blocks the event loop", "the replica stops writing, loses the lease, and wins it again"),
    33: Fault("The clock of a node is an hour off", "due times and ages use the clocks of the servers"),
    34: Fault("Two versions run side by side", "both use the same names, so one Job per launch"),
    35: Fault(
        "The dispatcher is killed again and again, with a long backlog", "progress in every process; flat memory"
    ),
    36: Fault(
        "The program gets SIGTERM while it writes", "it ends in time, and releases the lease after its last write"
    ),
}
LAUNCHES: Final = {
    37: Fault("A Pod is evicted, preempted or drained", "the next launch; no failure of the task"),
    38: Fault("A node is lost with a running Pod", "no second Pod while the first may run; forced only if configured"),
    39: Fault("An image cannot be pulled", "the launch is ended; its Job stays as memory"),
    40: Fault("A container is killed or exits with a code", "counted as a failed run, up to the bound"),
    41: Fault("A Pod fits on no node", "rows of its shape are held; others go on; its wait costs the row nothing"),
    42: Fault("A sidecar never ends", "its launch ends a minute after the task's container, or at the run limit"),
    43: Fault("A container ends with 0 and reports nothing", "parked: the task is not run a second time"),
    44: Fault("A run reports, and its Job fails afterwards", "the report counts"),
    45: Fault("A container hangs", "every Pod has a run limit"),
    46: Fault("The report of an earlier run comes late", "refused by its token"),
}
REMOVALS: Final = {
    47: Fault(
        "A Job changes between the decision to delete it and the delete",
        "the delete fails (409); the Job is judged again",
    ),
    48: Fault("Kubernetes removes finished Jobs by itself", "no TTL is set"),
    49: Fault("Somebody deletes a running Job", "confirmed by a GET; the next launch number"),
    50: Fault("The Pods are gone before the dispatcher reads them", "the Job's own conditions are enough"),
    51: Fault("A foreign Job has our labels", "never changed, never counted"),
    52: Fault("Very many finished Jobs exist at the start", "read in pages, deleted at a bounded rate; launches first"),
}
ROWS: Final = {
    53: Fault("A value of a megabyte", "refused at INSERT"),
    54: Fault(
        "Variables that change the loader, the contract or the cluster", "their names are closed; no name occurs twice"
    ),
    55: Fault("A value with `$(SECRET)`", "arrives unchanged"),
    56: Fault("A row asks for an image, an account or a host path", "only what its template opens"),
    57: Fault("Control characters, very long names, HTML", "refused or escaped; one log line each"),
    58: Fault("Ten thousand queues and submitters", "metrics name queues, never submitters or tasks"),
    59: Fault("One submitter inserts very many rows", "its own caps hold it; rows of others pass"),
}
SCHEDULING: Final = {
    60: Fault(
        "The extender is down, slow, or called by a stranger", "Pods wait and none is lost; strangers get no answer"
    ),
    61: Fault("A reservation is never released", "computed anew from the cluster, and has an end"),
}
SURFACES: Final = {
    62: Fault("The dashboard is scraped, or called from another site", "read only, bounded, closed"),
}
CHAPTERS: Final = {
    "Database": DATABASE,
    "Writes to Kubernetes": WRITES,
    "Watches": WATCHES,
    "The program": PROGRAM,
    "Jobs and Pods": LAUNCHES,
    "Removals": REMOVALS,
    "Rows that mean harm": ROWS,
    "Scheduling": SCHEDULING,
    "Dashboard": SURFACES,
}
MATRIX: Final = {number: fault for chapter in CHAPTERS.values() for number, fault in chapter.items()}

MUSEUM: Final = {
    "new name on retry": "after a lost answer the create is repeated under another Job name",
    "unknown count = 0": "a failed list counts as no Jobs at all",
    "list RV 0": "a list comes from a cache of unknown age",
    "no relist on 410": "a watch whose resourceVersion is too old is given up for ever",
    "in-stream 410 ignored": "the same, when 410 comes as an event of the watch",
    "cursor by id": "rows below the last seen id are never read",
    "GC without tombstone": "a Job is deleted as soon as it ends: its name is free for a late create",
    "GC without UID": "a delete by name hits the next Job of that name",
    "GC on replica row": "a Job is deleted because of a row of a standby",
    "default propagation": "a deleted Job leaves its Pods behind",
    "trust from the end of a renewal": "a slow renewal makes the term too long",
    "lease released before the last write": "the next leader begins while a write is under way",
    "count only running pods": "Jobs whose Pods wait for a node do not count, and more are created",
    "fetch window filled by parked rows": "rows that cannot be launched hide the rows behind them",
    "422 retried forever": "one bad row costs a request in every cycle",
    "403 quota taken as final": "a full quota ends a row, or hides its Job",
    "env $ unescaped": "a row's value expands to a secret of its template",
    "duplicate env names": "one name occurs twice: the create is refused, or the wrong value wins",
    "label cut without hash": "two long names become one",
    "version-dependent name": "a new release launches every row a second time",
}
