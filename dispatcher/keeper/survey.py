"""What is in the folder of caches: how large each directory is, and who uses it."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import structlog

from dispatcher.keeper.folder import Root
from dispatcher.keeper.pace import Pace, in_thread
from dispatcher.keeper.record import Entry, Users, noted, read_record
from dispatcher.keeper.removal import Measured, Refused
from dispatcher.keeper.users import MountingPod, users_of

log = structlog.get_logger(component="keeper")


@dataclass(frozen=True)
class Survey:
    """Looks at the folder. `path`: its path on the node, as Pods mount it."""

    folder: Root
    path: str
    pace: Pace

    def read_record(self) -> dict[str, Entry]:
        return read_record(self.folder.read_record())

    async def look(self, pods: Iterable[MountingPod], known: dict[str, Entry], before: Users, now: float) -> "Seen":
        """Measures what may have changed since the last look. `known`, `before`: the entries and users of that look."""
        present = await in_thread(self.folder.names)
        users = users_of(pods, self.path, present.keys())
        entries = noted(known, present, users, before, now)
        for name, entry in entries.items():
            if entry.needs_measurement(present[name], now, is_in_use=name in users.names):
                entries[name] = await self._measured(name, entry, present[name], now)
        return Seen(entries, users)

    async def _measured(self, name: str, entry: Entry, changed_at: float, now: float) -> Entry:
        """The entry with its size. One that cannot be measured stays without, so its directory is never removed."""
        try:
            found = await self.pace.last_of(self.folder.measuring(name), Measured())
        except (OSError, Refused) as fault:
            log.warning("a cache directory cannot be measured", directory=name, fault=str(fault))
            return entry
        return msgspec.structs.replace(
            entry, size=found.size, files=found.files, measured_at=now, changed_at=changed_at
        )  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One look at the folder."""

    entries: dict[str, Entry]
    users: Users
