"""Advice for each reason of a hold: its meaning, whose turn it is, and the next step. Pure."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from dispatcher.model.verdicts import (
    BY_POLICY,
    LATE_START,
    MUCH_TEXT,
    NO_CALL,
    NO_START,
    OVER_LIMIT,
    UNREAD_FILE,
    UNREADABLE,
    Hold,
    HoldReason,
    NotReady,
    Stage,
)


class Turn(StrEnum):
    """Who can end a wait.

    SUBMITTER: who inserted the row.
    AUTHOR: who writes the template and the image.
    OPERATOR: who sets caps, pauses, rights and quotas.
    CLUSTER: whoever gives the cluster room.
    NOBODY: nobody: the row must only wait.
    """

    SUBMITTER = "submitter"
    AUTHOR = "author"
    OPERATOR = "operator"
    CLUSTER = "cluster"
    NOBODY = "nobody"


class ReasonInWords(Struct, frozen=True):
    """A reason, and the same in words."""

    reason: HoldReason
    message: str


class Advice(Struct, frozen=True):
    """What a reason means, who can end the wait, and how."""

    meaning: str
    whose_turn: Turn
    next_step: str


ADVICE: Final[Mapping[HoldReason, Advice]] = MappingProxyType(
    {
        HoldReason.UNKNOWN_TEMPLATE: Advice(
            "there is no such template",
            Turn.SUBMITTER,
            "cancel the row and insert one with a template that exists, or ask the operator for this one",
        ),
        HoldReason.INVALID_TEMPLATE: Advice(
            "the file of its template is faulty",
            Turn.AUTHOR,
            "correct the file of the template; its rows go on by themselves",
        ),
        HoldReason.POLICY_DENIED: Advice(
            "its template does not allow what it asks for",
            Turn.SUBMITTER,
            "cancel the row and insert one within the bounds of its template, or ask the author for others",
        ),
        HoldReason.NOT_DUE: Advice(
            "it is not due yet",
            Turn.NOBODY,
            "nothing: the row starts at its run_at",
        ),
        HoldReason.PAUSED: Advice(
            "its queue is paused",
            Turn.OPERATOR,
            "clear queues.paused_until of the queue, or of queue *",
        ),
        HoldReason.NAME_COLLISION: Advice(
            "a Job of its name belongs to somebody else",
            Turn.OPERATOR,
            "find out who made the Job of this name, and remove the Job or use another namespace",
        ),
        HoldReason.POISON: Advice(
            "the API server refuses its Job",
            Turn.AUTHOR,
            "correct the template, or cancel the row and insert one whose Job the API server accepts",
        ),
        HoldReason.EXITED_WITHOUT_REPORT: Advice(
            "its container ended, and did not say what became of the row",
            Turn.AUTHOR,
            "let the container call task_finish or run its command by `dispatcher exec`, or annotate the template with "
            "dispatcher.internal/report: exit-code; then task_retry",
        ),
        HoldReason.LAUNCHES_EXHAUSTED: Advice(
            "no launch of it has called task_start",
            Turn.AUTHOR,
            "correct the image, the template or its Secret; then task_retry",
        ),
        HoldReason.DISRUPTED_TOO_OFTEN: Advice(
            "its Pods were evicted, preempted or deleted again and again, or reached no database",
            Turn.OPERATOR,
            "find out what ends Pods there, or give the template other nodes; then task_retry",
        ),
        HoldReason.FAILURES_EXHAUSTED: Advice(
            "it failed as often as it may",
            Turn.SUBMITTER,
            "look at the errors of its runs in task_history; then task_retry",
        ),
        HoldReason.FINISHING: Advice(
            "its container is ending",
            Turn.NOBODY,
            "nothing: the row goes on when the Job of that container has ended",
        ),
        HoldReason.BACKOFF: Advice(
            "it pauses after a launch that failed",
            Turn.NOBODY,
            "nothing: the row is tried again after a pause",
        ),
        HoldReason.JOB_CHANGED: Advice(
            "somebody changes the Jobs of its template and submitter when they are made",
            Turn.OPERATOR,
            "exempt the namespace from the policy or webhook that changes this field; a dry run every 30 s tells when",
        ),
        HoldReason.TEMPLATE_FAILING: Advice(
            "launches of this image do not start",
            Turn.AUTHOR,
            "correct the image or the template; until a launch starts, they are tried one at a time",
        ),
        HoldReason.LAUNCHED: Advice(
            "its Job exists, and its container has not reported its start",
            Turn.CLUSTER,
            "nothing, or look at its Pod: kubectl describe tells what it waits for",
        ),
        HoldReason.NODE_LOST: Advice(
            "the node of its Pod does not answer, or is not ready",
            Turn.OPERATOR,
            "bring the node back, or delete it from the cluster",
        ),
        HoldReason.DISPATCHER_NOT_READY: Advice(
            "the dispatcher launches nothing now",
            Turn.OPERATOR,
            "mend what the message names; /readyz of the dispatcher tells whether that was all",
        ),
        HoldReason.NEVER_FITS: Advice(
            "no node is large enough",
            Turn.CLUSTER,
            "add a node that is large enough, or insert a row that asks for less",
        ),
        HoldReason.SUBMITTER_CAP: Advice(
            "its submitter has as many Jobs in this queue as it may",
            Turn.OPERATOR,
            "nothing until one of the submitter's Jobs ends, or raise queues.max_jobs_per_submitter",
        ),
        HoldReason.QUEUE_CAP: Advice(
            "its queue has as many Jobs as it may",
            Turn.OPERATOR,
            "nothing until a Job of the queue ends, or raise queues.max_jobs",
        ),
        HoldReason.JOB_CAP: Advice(
            "there are as many Jobs as there may be",
            Turn.OPERATOR,
            "nothing until a Job ends, or raise DISPATCHER_MAX_JOBS",
        ),
        HoldReason.QUOTA_EXCEEDED: Advice(
            "a ResourceQuota is used up",
            Turn.OPERATOR,
            "nothing until a Pod ends, or raise the ResourceQuota",
        ),
        HoldReason.PENDING_PODS: Advice(
            "others like it wait already",
            Turn.CLUSTER,
            "look at the Events of the Jobs and Pods of its queue that wait",
        ),
        HoldReason.NO_ROOM_NOW: Advice(
            "the nodes are full",
            Turn.CLUSTER,
            "nothing until a Pod ends, or add or uncordon a node",
        ),
        HoldReason.RATE_LIMITED: Advice(
            "writes to the API server are limited",
            Turn.NOBODY,
            "nothing: launches go on within a second",
        ),
        HoldReason.NEXT_CYCLE: Advice(
            "the dispatcher has not come to it yet",
            Turn.NOBODY,
            "nothing: the dispatcher looks at it within a second",
        ),
        HoldReason.IN_LINE: Advice(
            "other rows come first",
            Turn.NOBODY,
            "nothing, or give the row a lower number by task_set_priority",
        ),
        HoldReason.UNJUDGED: Advice(
            "the dispatcher has not looked at it yet",
            Turn.NOBODY,
            "nothing: it looks within seconds; if you have just inserted the row, commit",
        ),
    }
)
"""The advice for each `HoldReason`."""


class Detail(Struct, frozen=True):
    """What the beginning of a detail means, what to do, and who can do it."""

    meaning: str
    next_step: str
    whose_turn: Turn = Turn.OPERATOR


NOT_YET: Final = ("nothing: it takes seconds", Turn.NOBODY)
"""Next step and turn of a stage that ends by itself within seconds."""
STAGES: Final[Mapping[Stage, Detail]] = MappingProxyType(
    {
        Stage.ORDERED: Detail("the dispatcher makes its Job now", *NOT_YET),
        Stage.ASKED: Detail("the API server has not answered yet", *NOT_YET),
        Stage.CREATED: Detail("the API server has made its Job; the watch does not show it yet", *NOT_YET),
        Stage.UNSEEN: Detail("the API server knows the Job, and the watch does not", *NOT_YET),
        Stage.STARTING: Detail(
            "its Pod or its container is being made",
            "nothing; if it lasts, kubectl describe of its Job and its Pod tells why",
            Turn.CLUSTER,
        ),
        Stage.SUSPENDED: Detail(
            "somebody holds its Job, so it has no Pod; who, and why, follows if it is known",
            "ask who holds it: a Job that Kueue holds goes on by its Workload, not by spec.suspend; docs/kueue.md",
            Turn.OPERATOR,
        ),
        Stage.POD_REFUSED: Detail(
            "the API server refuses its Pod; its words follow",
            "correct the template, or what refuses the Pod; the launch ends after 60 s",
            Turn.AUTHOR,
        ),
        Stage.POD_OUTAGE: Detail(
            "no Pod of the namespace can be made; the words of the API server follow",
            "mend what does not answer, such as a webhook; the launch goes on, and costs the row nothing",
            Turn.OPERATOR,
        ),
        Stage.QUOTA_EXCEEDED: Detail(
            "a ResourceQuota refuses its Pod", "nothing until a Pod ends, or raise the ResourceQuota", Turn.OPERATOR
        ),
        Stage.UNSCHEDULABLE: Detail(
            "kube-scheduler finds no node for its Pod; its words follow",
            "nothing until there is room, or add a node; the wait costs the row no launch",
            Turn.CLUSTER,
        ),
        Stage.IMAGE_PULL: Detail(
            "the kubelet cannot get its image or make its container; its reason follows",
            "correct the image, or the Secret or ConfigMap that the template names; the launch ends after 60 s",
            Turn.AUTHOR,
        ),
        Stage.SIDECAR_CRASHES: Detail(
            "a sidecar of its Pod ends again and again, and its container waits for it; kubelet's words follow",
            "look at the log of that container (kubectl logs POD -c NAME), and correct the template",
            Turn.AUTHOR,
        ),
        Stage.SIDECAR_STAYS: Detail(
            "its container has ended without a report, and another one keeps its Pod; the launch ends after a minute",
            "look at its log, which goes with the Pod; make the other container a native sidecar (docs/sidecars.md)",
            Turn.AUTHOR,
        ),
        Stage.RUNNING: Detail(
            "its container runs, and has not called task_start",
            "nothing, as it never calls it with report: exit-code; otherwise look at its log",
            Turn.NOBODY,
        ),
        Stage.EXITED: Detail("its container has ended well", *NOT_YET),
        Stage.EXIT_CODE: Detail(
            "with report: exit-code: the janitor makes it the outcome of the row",
            "nothing: it takes seconds; if it lasts, see whether a janitor runs",
            Turn.NOBODY,
        ),
        Stage.ENDING: Detail(
            "its container has ended, and its Job ends",
            "nothing: it takes seconds; if it lasts, the Job controller is away, or a policy refuses its Pod updates",
            Turn.NOBODY,
        ),
    }
)
"""The advice for each stage of `Launched`."""
NOT_READY: Final[Mapping[NotReady, Detail]] = MappingProxyType(
    {
        NotReady.STALE_CACHE: Detail(
            "what the dispatcher knows of the cluster is too old to decide by",
            "see whether the API server answers; launches go on by themselves",
            Turn.OPERATOR,
        ),
        NotReady.NO_LEADER: Detail(
            "no replica holds the lease",
            "see whether a dispatcher runs, and whether it may update the lease",
            Turn.OPERATOR,
        ),
        NotReady.TASKS_REFUSED: Detail(
            "the database would refuse what containers report",
            "let the login of the tasks log in and write, as the message says; launches go on by themselves",
            Turn.OPERATOR,
        ),
        NotReady.API_THROTTLED: Detail(
            "the API server gave no answer to a create, or asks for a pause",
            "nothing: one create at a time is tried; if it lasts, look at the API server and its webhooks",
            Turn.OPERATOR,
        ),
        NotReady.FORBIDDEN: Detail(
            "the dispatcher's account lacks a right",
            "install the chart again, so that the account has its rights",
            Turn.OPERATOR,
        ),
        NotReady.UNAUTHORIZED: Detail(
            "the API server does not accept the dispatcher's token",
            "see whether its ServiceAccount exists",
            Turn.OPERATOR,
        ),
        NotReady.OWN_FAULT: Detail(
            "the dispatcher itself fails on this row, and on no other",
            "report the type and the place in the message; a row without what is special about this one may pass",
            Turn.OPERATOR,
        ),
        NotReady.NAMESPACE_MISSING: Detail("the namespace of Jobs does not exist", "create the namespace"),
        NotReady.NAMESPACE_TERMINATING: Detail(
            "the namespace of Jobs is being deleted", "wait until it is gone, then create it again"
        ),
    }
)
"""The advice for each detail of `DispatcherNotReady`."""
UNREACHED: Final = Detail(
    "its container asked for the row for five minutes and ended with 75; dispatcher logs shows what it was told",
    "let Pods of the namespace of Jobs reach the host of TASK_DATABASE_URL (NetworkPolicy, name, TLS), and log in; "
    "after DisruptedTooOften, task_retry",
)
"""The advice for a launch whose start the database did not take."""
DETAILS: Final[Mapping[HoldReason, Mapping[str, Detail]]] = MappingProxyType(
    {
        HoldReason.LAUNCHED: {stage.value: detail for stage, detail in STAGES.items()},
        HoldReason.DISPATCHER_NOT_READY: {why.value: detail for why, detail in NOT_READY.items()},
        HoldReason.POISON: {
            BY_POLICY: Detail(
                "an admission policy or a webhook refuses the Job; each row is tried again every five minutes",
                "change the policy, or what the template sets; of ours, open a list of the chart's value policy",
                Turn.OPERATOR,
            )
        },
        HoldReason.SUBMITTER_CAP: {
            MUCH_TEXT: Detail(
                "env, command and args of such Jobs fill etcd, so they go out in turns, a share for each submitter",
                "nothing: it goes in its turn; put large input into payload",
                Turn.SUBMITTER,
            )
        },
        HoldReason.LAUNCHES_EXHAUSTED: {
            LATE_START: Detail(
                "its image came slowly, a volume could not be mounted, or something else kept its container away",
                "look at the Events of its Pods; raise START_DEADLINE_SECONDS if the image is large; then task_retry",
                Turn.OPERATOR,
            ),
            NO_CALL: Detail(
                "its program failed before it called task_start, or never calls it",
                "see what it wrote (dispatcher logs); let it call task_start, or run it by `dispatcher exec`; "
                "or annotate the template with dispatcher.internal/report: exit-code; then task_retry",
                Turn.AUTHOR,
            ),
            OVER_LIMIT: Detail(
                "its image was pulled, its init containers ran, or its program did not call task_start so long",
                "cancel the row and insert one with a longer timeout_seconds; task_history tells what took so long",
                Turn.SUBMITTER,
            ),
        },
        HoldReason.BACKOFF: {NO_START: UNREACHED},
        HoldReason.DISRUPTED_TOO_OFTEN: {NO_START: UNREACHED},
        HoldReason.INVALID_TEMPLATE: {
            UNREAD_FILE: Detail(
                "the file is there, and the program may not read it",
                "let the program read the file; its rows go on by themselves",
            )
        },
        HoldReason.UNKNOWN_TEMPLATE: {
            UNREADABLE: Detail(
                "the folder of templates cannot be read; the templates of before stay",
                "let the program read the folder",
            )
        },
    }
)
"""By reason: the advice for the beginnings of its details."""


def reason_rows() -> list[dict[str, str]]:
    """The rows of `dispatch.reasons`: one for each reason, and one for each detail, as REASON: BEGINNING."""
    told: dict[str, Advice | Detail] = {reason.value: advice for reason, advice in ADVICE.items()}
    told |= {f"{reason}: {words}": one for reason, details in DETAILS.items() for words, one in details.items()}
    return [
        {"reason": words, "whose_turn": one.whose_turn, "meaning": one.meaning, "next_step": one.next_step}
        for words, one in told.items()
    ]


def advice_of(hold: Hold) -> Advice:
    """Advice for a hold. The longest known beginning of its detail gives turn and next step, else its reason does."""
    advice = ADVICE[hold.reason]
    found = [words for words in DETAILS.get(hold.reason, ()) if hold.detail.startswith(words)]
    if not found:
        return advice
    detail = DETAILS[hold.reason][max(found, key=len)]
    return Advice(advice.meaning, detail.whose_turn, detail.next_step)


def cause_of(hold: Hold) -> ReasonInWords:
    meaning = ADVICE[hold.reason].meaning
    return ReasonInWords(hold.reason, f"{meaning}: {hold.detail}" if hold.detail else meaning)


def advice_by_message(reason: HoldReason, message: str) -> Advice:
    """Advice for a cause, as `cause_of` wrote it."""
    return advice_of(Hold(reason, message.removeprefix(f"{ADVICE[reason].meaning}: ")))
