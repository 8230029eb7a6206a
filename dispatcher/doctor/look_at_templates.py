"""Renders a Job of each template, tries it by dry run, and reads what its Pod would meet."""

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from dispatcher.admission.room_view import RoomView
from dispatcher.commands.render import preview_template, room_of
from dispatcher.doctor.cluster import UnreadObject, is_usable, number
from dispatcher.doctor.look_at_cluster import ClusterReader
from dispatcher.doctor.pod_rules import CALLS_SINCE
from dispatcher.doctor.templates import PodRules, TemplateTrial, named_objects
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.env import EVERY_NAME, beside_variables, named_secrets
from dispatcher.jobs.templates import Template
from dispatcher.kube.capacity import read_quota
from dispatcher.kube.job_api import JobApi
from dispatcher.kube.wire import in_namespace
from dispatcher.model.cluster import Quota
from dispatcher.model.errors import ClusterRefused, DispatcherError
from dispatcher.model.jobs import Json, Manifest
from dispatcher.model.rights import RUN, InstallationSite, account_of
from dispatcher.settings.definition import Settings
from dispatcher.startup import catalog_of, site_of

ROOM_SECONDS: Final = 30
"""Limit in seconds for the list of all nodes and Pods of the cluster, which other checks do not need."""


def rendered(settings: Settings, namespace: str) -> dict[str, Manifest | str]:
    """The Job of each template, or the fault of the template."""
    here = dataclasses.replace(settings, kube=dataclasses.replace(settings.kube, namespace=namespace))
    catalog = catalog_of(here, site_of(here, namespace).passed)
    catalog.refresh()
    found: dict[str, Manifest | str] = {"TEMPLATES_DIR": catalog.fault} if catalog.fault else {}
    for name, template in sorted(catalog.templates.items()):
        found[name] = render_one(name, here, catalog) if isinstance(template, Template) else template
    return found


def good_templates(settings: Settings, passed: Iterable[str]) -> dict[str, Template]:
    catalog = catalog_of(settings, passed)
    catalog.refresh()
    return {name: one for name, one in catalog.templates.items() if isinstance(one, Template)}


def render_one(name: str, settings: Settings, catalog: Catalog) -> Manifest | str:
    try:
        return preview_template(name, settings, catalog)
    except DispatcherError as fault:
        return str(fault)


async def look_at_templates(
    reading: ClusterReader, settings: Settings, site: InstallationSite, jobs: Mapping[str, Manifest | str]
) -> tuple[list[TemplateTrial], PodRules | UnreadObject]:
    """The answers to the dry runs, and the limits and objects of the namespace. Raises ClusterAway."""
    namespace = site.jobs
    found = await reading.get(in_namespace("/api/v1", namespace))
    if not is_usable(found):
        return [TemplateTrial(name, job) for name, job in jobs.items()], UnreadObject(
            f"namespace {namespace} takes no Job"
        )
    passed, scheduler = site_of(settings, namespace).passed, settings.placement.scheduler_name
    known = good_templates(settings, passed)
    tried = [
        msgspec.structs.replace(
            one, opens_env=EVERY_NAME in template.opened, doubts=tuple(template.doubts(passed, scheduler))
        )
        if (template := known.get(one.name))
        else one
        for one in await try_jobs(reading, site, jobs)
    ]
    specs = [job["spec"]["template"]["spec"] for job in jobs.values() if not isinstance(job, str)]
    place = PodRules(
        namespace=namespace,
        labels=found if isinstance(found, UnreadObject) else found["metadata"].get("labels") or {},
        quotas=await quotas_of(reading, namespace),
        ranges=await reading.each(in_namespace("/api/v1", namespace, "limitranges")),
        secrets=await secrets_of(reading, namespace, specs),
        room=await room_now(reading, settings, namespace),
        cache_root=settings.placement.cache_root,
        minor=await minor_of(reading),
        objects=await objects_of(reading, namespace, specs),
    )
    return tried, place


async def try_jobs(
    reading: ClusterReader, site: InstallationSite, jobs: Mapping[str, Manifest | str]
) -> list[TemplateTrial]:
    """The answers to the dry runs. They are sent in the name of the account of `run`, if the caller may act for it.

    The admission policy judges only our accounts.
    """
    account = account_of(RUN, site)
    may_act = reading.client.own_namespace is None and await may_act_for(reading, site, account)
    user = f"system:serviceaccount:{site.ours}:{account}"
    client = reading.client.acting_for(user) if may_act else reading.client
    api = JobApi(client, site.jobs, site.installation)
    try:
        return [
            TemplateTrial(name, job, None if isinstance(job, str) else await api.try_create(job))
            for name, job in jobs.items()
        ]
    finally:
        if may_act:
            await client.close()


async def may_act_for(reading: ClusterReader, site: InstallationSite, account: str) -> bool:
    """Whether the ServiceAccount exists, and the caller may act for it."""
    found = await reading.get(in_namespace("/api/v1", site.ours, "serviceaccounts", account))
    asked = {"verb": "impersonate", "resource": "serviceaccounts", "namespace": site.ours, "name": account}
    answer = await reading.review("SelfSubjectAccessReview", {"resourceAttributes": asked})
    return not isinstance(found, UnreadObject) and answer is True


async def minor_of(reading: ClusterReader) -> int:
    """Minor version of the API server; if it is not known, that of the newest rules."""
    found = await reading.get("/version")
    return CALLS_SINCE if isinstance(found, UnreadObject) else number(str(found.get("minor")))


async def quotas_of(reading: ClusterReader, namespace: str) -> list[Quota] | UnreadObject:
    found = await reading.each(in_namespace("/api/v1", namespace, "resourcequotas"))
    return found if isinstance(found, UnreadObject) else [read_quota(msgspec.json.encode(one)) for one in found]


async def secrets_of(
    reading: ClusterReader, namespace: str, specs: Iterable[Json]
) -> dict[str, frozenset[str] | UnreadObject]:
    """The keys of each Secret that a Pod names, optional ones included. Values are not kept."""
    found: dict[str, frozenset[str] | UnreadObject] = {}
    named = {one.secret for spec in specs for one in (*named_secrets(spec), *beside_variables(spec)) if one.secret}
    for name in sorted(named):
        secret = await reading.get(in_namespace("/api/v1", namespace, "secrets", name))
        found[name] = secret if isinstance(secret, UnreadObject) else frozenset(secret.get("data") or ())
    return found


PLACES: Final[Mapping[str, str]] = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps/",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims/",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses/",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates/",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses/",
    "SecretProviderClass": "/apis/secrets-store.csi.x-k8s.io/v1/namespaces/{}/secretproviderclasses/",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/",
}
"""Where the objects of a kind are. `{}`: the namespace. A server that does not have the kind is no fault: 404 without
`NotFound`."""


async def objects_of(
    reading: ClusterReader, namespace: str, specs: Iterable[Json]
) -> dict[tuple[str, str], UnreadObject | None]:
    """Whether each object that a Pod names is there. Nothing of it is kept."""
    found: dict[tuple[str, str], UnreadObject | None] = {}
    for kind, name in sorted({one for spec in specs for one in named_objects(spec)}):
        place = PLACES[kind].format(quote(namespace, safe="")) + quote(name, safe="")
        read = await reading.get(place)
        found[kind, name] = read if isinstance(read, UnreadObject) else None
    return found


async def room_now(reading: ClusterReader, settings: Settings, namespace: str) -> RoomView | UnreadObject:
    if not settings.kube.check_room:
        return UnreadObject("DISPATCHER_CHECK_ROOM is false")
    here = dataclasses.replace(settings, kube=dataclasses.replace(settings.kube, namespace=namespace))
    try:
        async with asyncio.timeout(ROOM_SECONDS):
            return await room_of(reading.client, here)
    except ClusterRefused as refused:
        return UnreadObject(str(refused))
    except TimeoutError:
        return UnreadObject(f"nodes and Pods were not listed within {ROOM_SECONDS} s")
