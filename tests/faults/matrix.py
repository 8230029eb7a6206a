"""The faults that this project answers for, and the bugs that others had.

`docs/faults.md` is made from this and from the markers of the tests, in which they say what they show:
`@pytest.mark.fault(3, 4)`, `@pytest.mark.museum("unknown count = 0")`. A number never changes its meaning. What
concerns parts that do not exist yet says so in `later`.
"""

from typing import Final, NamedTuple


class Fault(NamedTuple):
    """What goes wrong, what is right then, and which part that does not exist yet it waits for."""

    what: str
    right: str
    later: str = ""


DATABASE: Final = {
    1: Fault("The database is down, or a query takes too long", "nothing is created or removed; Jobs run on"),
    2: Fault("The connection leads to a standby", "refused, and said so; used once it is the primary"),
    3: Fault("A lagging standby still shows a finished task as waiting", "no row is ever judged by it"),
    4: Fault("A fail-over loses the report of a finished run", "its finished Job prevents a second run"),
    5: Fault("A dead connection swallows a statement", "given up in bounded time; the loop lives on"),
    6: Fault("Rows become visible out of the order of their ids", "none is passed over"),
    7: Fault("A restored or reset database gives ids again", "another row has another name; a foreign Job is left"),
    8: Fault("A row is changed or deleted while its Job runs", "the Job runs on; gone is believed on the third look"),
    9: Fault("The schema is not the one this version knows", "named in readiness; an odd row harms itself alone"),
    10: Fault("A million rows wait", "bounded reads by index; memory stays flat"),
}
WRITES: Final = {
    11: Fault("A create is carried out and its answer lost", "the same create again finds its own Job"),
    12: Fault("A create is lost before it is carried out", "the same create again makes the Job"),
    13: Fault("A create lands when its row has long been over", "its container is refused the start"),
    14: Fault("A full quota hides that our Job exists already", "a read of the name tells; no second Job"),
    15: Fault("The quota is full", "a pause, with its reason; goes on when there is room"),
    16: Fault("The namespace is being deleted, or gone", "said so; a few requests, no storm"),
    17: Fault("The API server will never take a row's Job", "the row is parked; the next one goes"),
    18: Fault("An admission webhook is down, slow, or says no", "down: tried again; no: parked with its words"),
    19: Fault("The API server asks for patience", "all creates pause for as long; then one at a time"),
    20: Fault("etcd stalls, or the API server fails half way", "unknown counts as made; the same create again"),
    21: Fault("etcd is full", "writes stop and say so; all goes on when there is room"),
    22: Fault("The token was renewed, the old one is refused", "it is read again at once"),
    23: Fault("Reads work and writes fail, or the other way round", "unread: no write; unwritable: one try at a time"),
}
WATCHES: Final = {
    24: Fault("A watch stays open and silent", "found in bounded time; caps hold until then"),
    25: Fault("The watch is told that its place is too old, again and again", "listed anew, with pauses"),
    26: Fault("A list shows an earlier world", "nothing is made twice by it"),
    27: Fault("A Job is taken and its Pod is never made", "nobody is held up; the deadline ends the launch"),
    28: Fault("Events are lost or come out of order", "a new list puts it right; nothing rests on one event"),
}
PROGRAM: Final = {
    29: Fault("kill -9 at any moment", "the next one ends where the first would have"),
    30: Fault("Two believe they lead", "one is trusted at a time; names and caps hold"),
    31: Fault("The machine sleeps or is moved", "the term is over when it wakes up"),
    32: Fault("Something blocks the loop", "the lease is lost in order, and won again"),
    33: Fault("The clock of a node is an hour off", "due times and ages are taken by the servers' clocks"),
    34: Fault("Two versions run side by side", "the same names, so one Job per launch"),
    35: Fault("The dispatcher is killed again and again, with a long backlog", "progress in every life; flat memory"),
    36: Fault("It is told to stop while it writes", "ends in time; gives the lease up after its last write"),
}
LAUNCHES: Final = {
    37: Fault("A Pod is evicted, preempted or drained", "the next launch; no failure of the task"),
    38: Fault("A node is lost with a running Pod", "no second Pod while it may run; forced only where asked for"),
    39: Fault("An image cannot be pulled", "the launch is ended; its Job stays as memory"),
    40: Fault("A container is killed or exits with a code", "counted as a failed run, up to the bound"),
    41: Fault("A Pod fits on no node", "held back by its shape; others go on; the start deadline ends it"),
    42: Fault("A sidecar never ends", "the Job's own deadline ends it"),
    43: Fault("A container ends with 0 and reports nothing", "parked: never run a second time blindly"),
    44: Fault("A run reports and its Job fails afterwards", "the report counts"),
    45: Fault("A container hangs", "every Pod has a run limit, every Job a deadline"),
    46: Fault("The report of an earlier run comes late", "refused by its token"),
}
REMOVALS: Final = {
    47: Fault("A Job changes between judgement and removal", "the removal misses; it is judged anew"),
    48: Fault("Kubernetes removes finished Jobs by itself", "never asked to: no TTL is set"),
    49: Fault("Somebody deletes a running Job", "believed after a read; the next launch number"),
    50: Fault("The Pods are gone before anybody looked", "the Job's own conditions are enough"),
    51: Fault("A foreign Job carries our labels", "never touched, never counted"),
    52: Fault("Very many finished Jobs at the start", "read by pages, removed slowly; launches first"),
}
ROWS: Final = {
    53: Fault("A value of a megabyte", "refused at INSERT"),
    54: Fault("Variables that steer the loader, the contract or the cluster", "closed names; none twice"),
    55: Fault("A value with `$(SECRET)`", "arrives as it was written"),
    56: Fault("A row wants an image, an account or a host path", "only what its template opens"),
    57: Fault("Control characters, endless names, HTML", "refused, or written harmlessly; one log line each"),
    58: Fault("Ten thousand queues and submitters", "metrics name queues, never submitters or tasks"),
    59: Fault("One submitter floods", "caps of his own; others pass by"),
}
SCHEDULING: Final = {
    60: Fault("The extender is down, slow, or asked by a stranger", "Pods wait, none is lost; strangers hear nothing"),
    61: Fault("A reservation leaks", "worked out anew from the cluster, with an end"),
}
PARTS_TO_COME: Final = {
    62: Fault("The dashboard is scraped, or asked from another site", "read only, bounded, closed", "dashboard"),
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
    "Parts to come": PARTS_TO_COME,
}
MATRIX: Final = {number: fault for chapter in CHAPTERS.values() for number, fault in chapter.items()}

MUSEUM: Final = {
    "new name on retry": "a lost answer is followed by a Job of another name",
    "unknown count = 0": "a list that failed counts as no Jobs at all",
    "list RV 0": "a list from any cache, as old as it likes",
    "no relist on 410": "a watch whose place is too old is given up for ever",
    "in-stream 410 ignored": "the same, said inside the stream",
    "cursor by id": "rows below the last id seen are never looked at",
    "GC without tombstone": "a Job removed as soon as it is over: its name is free for a late create",
    "GC without UID": "a removal by name hits the next Job of that name",
    "GC on replica row": "a Job removed on the word of a standby",
    "default propagation": "a removed Job leaves its Pods behind",
    "trust from the end of a renewal": "a slow renewal stretches the term",
    "lease released before the last write": "the next leader begins while a write is under way",
    "count only running pods": "Jobs that wait for a node are not counted, and more are made",
    "fetch window filled by parked rows": "rows that nobody can launch hide those behind them",
    "422 retried forever": "one bad row costs a request in every cycle",
    "403 quota taken as final": "a full quota ends a row, or hides its Job",
    "env $ unescaped": "a row's value expands to a secret of its template",
    "duplicate env names": "one name twice: the create is refused, or the wrong value wins",
    "label cut without hash": "two long names become one",
    "version-dependent name": "a new release launches every row a second time",
}
