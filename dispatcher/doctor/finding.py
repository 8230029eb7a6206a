"""A finding: what was checked, where, and what it means. `doctor.checks` lists all checks.

`Installation`: the names in suggested commands, and what the owner of the installation has chosen. Pure.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

from dispatcher.doctor.checks import CHECKS, Part
from dispatcher.model.jobs import Json
from dispatcher.model.tasks import one_line

PLAIN_SIGNATURE: Final = re.compile(r"[a-z_][a-z0-9_]*\([a-z0-9_., \[\]]*\)")
PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
WORDS: Final = frozenset({
    "database", "namespace", "installation", "release", "scheduler", "pod", "quota", "range", "secret", "template",
    "name", "deployment", "node",
})  # fmt: skip
"""Names that are words of their own in a command. All others are inside of quotes."""
ODD_NAME: Final = "psql  # no command is shown: a name has control characters, or is too long"
LONGEST: Final = 1000
"""Characters of a message, at most. Texts of others have any length."""


class FindingState(StrEnum):
    """State of a finding. Only a fault changes the exit status."""

    FAULT = "fault"
    WARNING = "warning"
    NOT_CHECKED = "not checked"
    GOOD = "good"


class Finding(Struct, frozen=True):
    """One finding.

    what: name of the check.
    where: the object and its namespace, the table or the login.
    message: what is found there, or why it was not checked.
    why: why a fault matters.
    mend: the command that mends a fault.
    """

    part: Part
    what: str
    state: FindingState
    where: str
    message: str = ""
    why: str = ""
    mend: str = ""


def fault(what: str, where: str, message: str, **names: str) -> Finding:
    """A fault of this check. `names`: the words that its command needs."""
    return told(FindingState.FAULT, what, where, message, names)


def warning(what: str, where: str, message: str, **names: str) -> Finding:
    return told(FindingState.WARNING, what, where, message, names)


def told(state: FindingState, what: str, where: str, message: str, names: dict[str, str]) -> Finding:
    check = CHECKS[what]
    words = {name: shlex.quote(line(word)) if name in WORDS else line(word) for name, word in names.items()}
    is_odd = any(line(word) != word for word in names.values())  # a cut or changed command could do something else
    command = ODD_NAME if is_odd and "'" in check.mend else check.mend.format(**words)
    return Finding(check.part, what, state, line(where), line(message), check.why, command)


def unchecked(what: str, where: str, why_not: str) -> Finding:
    """The finding of a check that could not be made, which is no fault."""
    return Finding(CHECKS[what].part, what, FindingState.NOT_CHECKED, line(where), line(why_not))


def good(what: str, where: str) -> Finding:
    return Finding(CHECKS[what].part, what, FindingState.GOOD, line(where))


def fault_if(is_wrong: bool, what: str, where: str, message: str, **names: str) -> Finding:
    """The fault, or the finding that all is good."""
    return fault(what, where, message, **names) if is_wrong else good(what, where)


def or_good(found: Iterable[Finding], what: str, where: str) -> Iterator[Finding]:
    """The findings; if there are none, the finding that all is good."""
    every = tuple(found)
    yield from every or (good(what, where),)


def line(text: str) -> str:
    """A text of others on one line, of bounded length."""
    whole = one_line(text)
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]}…"


def ident(name: str) -> str:
    """A name for SQL inside of a single-quoted word of the shell."""
    return shell(name if PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"')


def relation(name: str) -> str:
    """A table or view of ours for SQL, as by `ident`. `name`: with its schema, unquoted."""
    schema, _, own = name.partition(".")
    return f"{schema}.{ident(own)}"


def signature(written: str) -> str:
    """A function of ours for SQL, as by `ident`. A name that could hold more SQL becomes one quoted name.

    written: with its schema, unquoted.
    """
    schema, _, own = written.partition(".")
    return f"{schema}.{own if PLAIN_SIGNATURE.fullmatch(own) else ident(own)}"


def shell(text: str) -> str:
    """Text for the inside of a single-quoted word of the shell."""
    return text.replace("'", "'\\''")


RELEASE: Final = "meta.helm.sh/release-name"
"""Annotation that helm gives each object of a release."""
POLICY: Final = "dispatcher.internal/policy"
JANITOR: Final = "dispatcher.internal/janitor"
DISABLED: Final = "disabled"
"""Value of `POLICY` or `JANITOR` in an installation that chose to have none. The chart writes it."""
VOLUME: Final = "database"
"""Name of the volume with the Secret of the login."""
DEFAULT_SECRET: Final = "dispatcher-database"  # noqa: S105  # the name of a Secret


class Installation(Struct, frozen=True):
    """What is known of the installation.

    namespace: of our programs.
    program: the program of the account that asks; None: the account is none of ours.
    release: name of helm's release; empty: not known.
    secret: name of the Secret with the login of `run`; empty: not known.
    wants_policy: whether it is to have an admission policy; None: not known.
    wants_janitor: whether it is to have a Deployment of the janitor.
    """

    namespace: str = "NAMESPACE"
    program: str | None = None
    release: str = ""
    secret: str = ""
    wants_policy: bool | None = None
    wants_janitor: bool = True

    @property
    def words(self) -> dict[str, str]:
        """Words for commands that name the release or the Secret."""
        release_is = f"a name of `helm list -n {self.namespace}`; without helm, apply the manifests again"
        return {
            "namespace": self.namespace,
            "release": self.release or "RELEASE",
            "release_is": f"{self.release} is the release of the Deployment" if self.release else release_is,
            "secret": self.secret or DEFAULT_SECRET,
            "secret_is": "the Deployment mounts it"
            if self.secret
            else "the default; the value secrets.database has the name",
        }


def read_installation(deployment: Json, namespace: str, program: str | None) -> Installation:
    annotations = deployment["metadata"].get("annotations") or {}
    volumes = deployment["spec"]["template"]["spec"].get("volumes") or ()
    named = [(one.get("secret") or {}).get("secretName", "") for one in volumes if one["name"] == VOLUME]
    return Installation(
        namespace=namespace,
        program=program,
        release=annotations.get(RELEASE, ""),
        secret=next(iter(named), ""),
        wants_policy=annotations.get(POLICY) != DISABLED,
        wants_janitor=annotations.get(JANITOR) != DISABLED,
    )
