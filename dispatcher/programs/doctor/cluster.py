"""Reads the cluster and judges it."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from dispatcher.doctor.cluster import Allowed, Facts, Policies, Unread
from dispatcher.doctor.installation import Installation
from dispatcher.doctor.verbs import CACHE_KEEPER, EXTENDER, JANITOR, RUN, Site, Verb, account_of, verbs_of
from dispatcher.kube.job_api import jobs_path, pods_path
from dispatcher.model.identity import job_selector
from dispatcher.programs.doctor.reading import Json, Reading, in_namespace

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
RECENT_SECONDS: Final = 3600


async def look(reading: Reading, site: Site, installation: Installation, *, has_extender: bool) -> Facts:
    """The facts. Raises ClusterAway."""
    names = dict.fromkeys((site.ours, site.jobs))
    return Facts(
        site=site,
        version=await version_of(reading),
        namespaces={name: await reading.get(in_namespace("/api/v1", name)) for name in names},
        allowed=await rights_of(reading, site, installation.program, has_extender=has_extender),
        policies=await policies_of(reading),
        delays=await delays_of(reading, site),
        installation=installation,
    )


async def version_of(reading: Reading) -> tuple[str, str] | Unread:
    found = await reading.get("/version")
    return found if isinstance(found, Unread) else (str(found.get("major")), str(found.get("minor")))


async def policies_of(reading: Reading) -> Policies | Unread:
    policies = await reading.each(f"{ADMISSION}/validatingadmissionpolicies")
    bindings = await reading.each(f"{ADMISSION}/validatingadmissionpolicybindings")
    for one in (policies, bindings):
        if isinstance(one, Unread):
            return one
    assert not isinstance(policies, Unread)
    assert not isinstance(bindings, Unread)
    return Policies(policies, bindings)


async def rights_of(reading: Reading, site: Site, own: str | None, *, has_extender: bool) -> Sequence[Allowed]:
    """The answer for each verb of each program. `own`: the program whose account asks; it asks about itself alone."""
    if own is not None:
        return await asked(reading, site, own, None)
    programs = (RUN, JANITOR, *[EXTENDER] * has_extender, *[CACHE_KEEPER] * site.has_caches)
    found: list[Allowed] = []
    for program in programs:
        name = account_of(program, site)
        account = await reading.get(in_namespace("/api/v1", site.ours, "serviceaccounts", name))
        if isinstance(account, Unread) and account.is_absent:
            why = f"namespace {site.ours} has no ServiceAccount {name}; --namespace names that of the programs"
            found.append(Allowed(program, next(verbs_of(program, site)), None, why))
        else:
            found += await asked(reading, site, program, name)
    return found


async def asked(reading: Reading, site: Site, program: str, account: str | None) -> list[Allowed]:
    """Asks for every verb of a program at once. `account`: None asks about ourselves."""
    who = {} if account is None else subject(site.ours, account)
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"

    async def ask(verb: Verb) -> Allowed:
        answer = await reading.review(kind, {"resourceAttributes": attributes(verb), **who})
        if isinstance(answer, Unread):
            return Allowed(program, verb, None, answer.why)
        return Allowed(program, verb, answer)

    return list(await asyncio.gather(*map(ask, verbs_of(program, site))))


def subject(namespace: str, account: str) -> Json:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}


def attributes(verb: Verb) -> dict[str, str]:
    resource, _, part = verb.resource.partition("/")
    named = {"namespace": verb.namespace, "group": verb.group, "resource": resource, "subresource": part}
    return {field: value for field, value in {**named, "verb": verb.verb, "name": verb.name}.items() if value}


async def delays_of(reading: Reading, site: Site) -> Sequence[float] | Unread:
    """Seconds from each recent Job to its Pod; so far, if the Job goes on and has none."""
    ours = {"labelSelector": job_selector(site.installation)}
    pods = await reading.each(pods_path(site.jobs), **ours)
    jobs = await reading.each(jobs_path(site.jobs), **ours)
    if isinstance(jobs, Unread) or isinstance(pods, Unread):
        return jobs if isinstance(jobs, Unread) else pods if isinstance(pods, Unread) else ()
    firsts = {owner["uid"]: made(pod) for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()}
    now, found = reading.client.now(), []
    for job in jobs:
        end = firsts.get(job["metadata"]["uid"], now if goes_on(job) else None)
        if end is not None and (now - made(job)).total_seconds() < RECENT_SECONDS:
            found.append(max(0.0, (end - made(job)).total_seconds()))
    return found


def goes_on(job: Json) -> bool:
    """Whether the Job controller should make a Pod of it."""
    is_over = any(one.get("status") == "True" for one in job.get("status", {}).get("conditions") or ())
    return not is_over and not job["spec"].get("suspend") and "deletionTimestamp" not in job["metadata"]


def made(found: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(found["metadata"]["creationTimestamp"])
