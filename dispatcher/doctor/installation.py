"""Facts about the installation: the names in suggested commands, and what its owner has chosen. Judges the settings.

Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.doctor.finding import Finding, fault, good

RELEASE: Final = "meta.helm.sh/release-name"
"""Annotation that helm gives each object of a release."""
POLICY: Final = "dispatcher.internal/policy"
DISABLED: Final = "disabled"
"""Value of `POLICY` in an installation that chose to have no admission policy. The chart writes it."""
VOLUME: Final = "database"
"""Name of the volume with the Secret of the login."""
DEFAULT_SECRET: Final = "dispatcher-database"  # noqa: S105  # the name of a Secret
Json = Mapping[str, Any]


class Installation(Struct, frozen=True):
    """What is known of the installation.

    namespace: of our programs.
    program: the program of the account that asks; None: the account is none of ours.
    release: name of helm's release; empty: not known.
    secret: name of the Secret with the login of `run`; empty: not known.
    wants_policy: whether it is to have an admission policy; None: not known.
    """

    namespace: str = "NAMESPACE"
    program: str | None = None
    release: str = ""
    secret: str = ""
    wants_policy: bool | None = None

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
    )


def judge_settings(unknown: Sequence[str]) -> Iterator[Finding]:
    """Judges the settings. A value that cannot be read ends every program, so only unknown names are left to find.

    unknown: the warnings of `load`, each of which begins with the name of a variable.
    """
    for said in unknown:
        name, _, rest = said.partition(" ")
        yield fault("UnknownSetting", name, rest, name=name)
    if not unknown:
        yield good("UnknownSetting", "environment")
