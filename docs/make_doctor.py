"""Writes `docs/doctor.md` from the table of checks. See `make docs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dispatcher.doctor.checks import CHECKS, Part
from dispatcher.doctor.finding import FindingState

PAGE: Final = Path(__file__).with_name("doctor.md")
HEAD: Final = """\
<!-- Made from dispatcher/doctor/checks.py by `make docs`. Change it there. -->
# dispatcher doctor

`dispatcher doctor` asks whether an installation is right, and changes nothing. Each finding has a name of this page, a
place, a reason, and the command that mends it. The exit status is 1 if there is a fault, otherwise 0; 2 for wrong usage
or settings. `--json` prints all findings as one object.

In a Pod of `run` or of the janitor it asks with the account of the Pod, which may not read Secrets, namespaces and
policies. It judges account and login by what the program of the Pod needs.
With a kubeconfig it asks with the rights of its owner. `--namespace` then names the namespace of our programs. An owner
who may impersonate the account of `run` has the dry runs judged as requests of that account, also by the admission
policy. The command reads the settings and the templates of its environment.

The tables have the question of each finding: the finding is good if the answer is yes. Words in braces in a command are
filled in.

| state | meaning |
|---|---|
"""
STATES: Final = {
    FindingState.FAULT: "it is wrong, and the exit status is 1",
    FindingState.WARNING: "it is slower or less guarded than it could be; the exit status is 0",
    FindingState.NOT_CHECKED: "the account may not read it, or there is nothing to judge; the message says which",
    FindingState.GOOD: "the answer is yes",
}


def doctor_page() -> str:
    states = "".join(f"| {state} | {meaning} |\n" for state, meaning in STATES.items())
    return "\n".join([HEAD + states, *(section(part) for part in Part)])


def section(part: Part) -> str:
    rows = "".join(rows_of(part))
    title = part[0].upper() + part[1:]
    return f"## {title}\n\n| finding | question | why it matters | command |\n|---|---|---|---|\n{rows}"


def rows_of(part: Part) -> Iterator[str]:
    """A word in braces stands for a name that the finding fills in. A bar would end the cell of the table."""
    for name, check in CHECKS.items():
        if check.part is part:
            command = check.mend.replace("{{", "{").replace("}}", "}").replace("|", "\\|")
            yield f"| {name} | {check.asks} | {check.why} | `{command}` |\n"


if __name__ == "__main__":
    PAGE.write_text(doctor_page(), encoding="utf-8")
