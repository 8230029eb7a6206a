"""The audit log of the API server: user, verb, object and answer of every request.

The server writes a line after it has sent the answer, so a test that has just seen the answer waits for the line.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import msgspec

from tests.controlplane.api import Json


class _User(msgspec.Struct):
    username: str = ""


class ObjectRef(msgspec.Struct, rename="camel"):
    """The object of a request. A create with `generateName` has no name."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    api_group: str = ""


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""


class _Line(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = msgspec.field(default_factory=_User)
    object_ref: ObjectRef = msgspec.field(default_factory=ObjectRef)
    response_status: _Status = msgspec.field(default_factory=_Status)
    user_agent: str = ""
    request_object: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    request_uri: str = msgspec.field(name="requestURI", default="")


class AuditEvent(msgspec.Struct, frozen=True):
    """One request. Only creates of Jobs have a `request_object`."""

    stage: str
    received_at: datetime
    stage_at: datetime
    user: str
    user_agent: str
    verb: str
    uri: str
    object_ref: ObjectRef
    code: int
    reason: str
    request_object: Json | None


class AuditLog:
    """Reads the file from where the last read stopped. An incomplete line is read the next time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._events: list[AuditEvent] = []
        self._in_namespace: dict[str, list[AuditEvent]] = defaultdict(list)

    def events(
        self,
        *,
        user_prefix: str | None = None,
        verb: str | None = None,
        resource: str | None = None,
        namespace: str | None = None,
        stage: str = "ResponseComplete",
    ) -> list[AuditEvent]:
        """The requests that match, oldest answer first. `resource`: `jobs`, or `pods/status` for a subresource.

        A watch that goes on has the stage `ResponseStarted`. It is complete when it ends.
        """
        self._read()
        named, _, sub = (resource or "").partition("/")
        return [
            event
            for event in (self._events if namespace is None else self._in_namespace[namespace])
            if event.stage == stage
            and (user_prefix is None or event.user.startswith(user_prefix))
            and verb in (None, event.verb)
            and (resource is None or (named, sub) == (event.object_ref.resource, event.object_ref.subresource))
        ]

    def _read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for event in parse(whole.splitlines()):
            self._events.append(event)
            self._in_namespace[event.object_ref.namespace].append(event)


def parse(lines: Iterable[bytes]) -> Iterable[AuditEvent]:
    """Events of an audit log's lines."""
    decoder = msgspec.json.Decoder(_Line)
    for line in map(decoder.decode, lines):
        ref = line.object_ref
        job_create = line.verb == "create" and (ref.resource, ref.subresource) == ("jobs", "")
        kept = job_create and bytes(line.request_object)
        yield AuditEvent(
            stage=line.stage,
            received_at=line.request_received_timestamp,
            stage_at=line.stage_timestamp,
            user=line.user.username,
            user_agent=line.user_agent,
            verb=line.verb,
            uri=line.request_uri,
            object_ref=ref,
            code=line.response_status.code,
            reason=line.response_status.reason,
            request_object=msgspec.json.decode(line.request_object, type=Json) if kept else None,
        )
