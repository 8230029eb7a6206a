"""Writes `docs/reasons.md` from `dispatcher/model/reasons.py`. See `make docs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dispatcher.model.reasons import ADVICE, DETAILS
from dispatcher.model.verdicts import PARKED, HoldReason

PAGE: Final = Path(__file__).with_name("reasons.md")
HEAD: Final = """\
<!-- Made from dispatcher/model/reasons.py by `make docs`. Change it there. -->
# Why a row waits: all reasons

`SELECT reason, whose_turn, message FROM dispatch.task_explain WHERE id = …` tells the reason of a row, and in `message`
its details. `dispatcher explain ID` also tells what each node lacks, and when the row may start. A row has one reason
at a time. The view `dispatch.reasons` has the texts of the reasons, without their details. Pod, Job and node are those
of Kubernetes. A launch is one Job of the row, with one Pod.

| whose turn | who this is |
|---|---|
| submitter | you, who inserted the row |
| author | who writes the template and the image |
| operator | who sets the limits on Jobs, pauses, rights and quotas |
| cluster | whoever gives the cluster room |
| nobody | nothing is to be done: time passes, or other rows come first |
"""
PARKED_HEAD: Final = """\
## A person is needed

These rows are parked: they wait for a person. Without a change they become `failed` after an hour, or the time that
the operator has chosen. Then `error` begins with the reason. `SELECT dispatch.task_retry(ID)` lets a row try again,
`task_cancel` ends it.
"""
WAITING_HEAD: Final = """\
## The row goes on by itself

It goes on when the cause is gone, without a change of the row. The cause may need a person: see whose turn it is.
"""
TABLE: Final = "\n| reason | what it means | whose turn | what to do |\n|---|---|---|---|\n"

DETAILS_HEAD: Final = """\
## Details of `{}`

Its detail begins with one of these, and often goes on with the words of Kubernetes.

| detail | what it means | whose turn | what to do |
|---|---|---|---|
"""


def reasons_page() -> str:
    parked = [reason for reason in HoldReason if reason in PARKED]
    waiting = [reason for reason in HoldReason if reason not in PARKED]
    parts = ((PARKED_HEAD, parked), (WAITING_HEAD, waiting))
    tables = [f"{head}{TABLE}{''.join(rows(reasons))}" for head, reasons in parts]
    return "\n".join([HEAD, *tables, *(details(reason) for reason in DETAILS)])


def rows(reasons: list[HoldReason]) -> Iterator[str]:
    for reason in reasons:
        advice = ADVICE[reason]
        yield f"| `{reason}` | {advice.meaning} | {advice.whose_turn} | {advice.next_step} |\n"


def details(reason: HoldReason) -> str:
    """The table of what a reason may say in its detail."""
    told = DETAILS[reason].items()
    lines = (f"| `{words}` | {one.meaning} | {one.whose_turn} | {one.next_step} |\n" for words, one in told)
    return DETAILS_HEAD.format(reason) + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(reasons_page(), encoding="utf-8")
