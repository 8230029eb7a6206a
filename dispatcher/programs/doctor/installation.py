"""Reads how the installation was made, and whose account asks."""

from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.installation import Installation, read_installation
from dispatcher.doctor.verbs import ACCOUNTS, RUN, Site, account_of
from dispatcher.programs.doctor.reading import Reading, in_namespace


async def look(reading: Reading, site: Site) -> Installation:
    """An account that may not read the Deployment knows little. Raises ClusterAway."""
    program = await program_of(reading, site)
    found = await reading.get(in_namespace("/apis/apps/v1", site.ours, "deployments", site.installation))
    if isinstance(found, Unread):
        return Installation(site.ours, program, wants_policy=True if found.is_absent else None)
    return read_installation(found, site.ours, program)


async def program_of(reading: Reading, site: Site) -> str | None:
    """The program of the Pod in which the doctor runs; None outside of the cluster."""
    if reading.client.own_namespace is None:
        return None
    user = await reading.own_name()
    owners = {f"system:serviceaccount:{site.ours}:{account_of(program, site)}": program for program in ACCOUNTS}
    return RUN if isinstance(user, Unread) else owners.get(user, RUN)
