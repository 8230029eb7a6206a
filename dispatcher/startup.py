"""Derives the database and the site of Jobs from the settings of a program."""

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from dispatcher.admission.launch_inputs import Key, NodeRing, PlacementPlanner
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.env import pass_env
from dispatcher.jobs.manifest import JobSite, PlacedBy
from dispatcher.jobs.observed import OWN_RULES, Rules
from dispatcher.kube.pods import needs_of_manifest
from dispatcher.model.caches import Use
from dispatcher.model.errors import DatabaseAway
from dispatcher.model.rights import InstallationSite
from dispatcher.pg.connect import Url
from dispatcher.placement.placing import PlacementPolicy, choose_pool
from dispatcher.settings.definition import DatabaseSettings, JobSettings, Settings
from dispatcher.settings.loading import reread


def database_of(database: DatabaseSettings) -> Url:
    """Returns a function that gives the URL of the database. The function reads the file of the URL at each connect."""

    def url() -> str | None:
        try:
            return reread("DATABASE_URL", database.url, os.environ, read_text)
        except OSError as fault:
            raise DatabaseAway(f"DISPATCHER_DATABASE_URL_FILE: {fault}") from fault

    return url


def site_of(settings: Settings, namespace: str) -> JobSite:
    """The settings that all Jobs of this installation share."""
    kube, jobs = settings.kube, settings.jobs
    passed = pass_env(os.environ, jobs.pass_env)
    return JobSite(kube.installation, namespace, jobs.timeout_seconds, settings.placement, passed)


def installation_of(settings: Settings, ours: str, jobs: str) -> InstallationSite:
    """Where the installation is. `ours`: the namespace of our programs; `jobs`: that of Jobs."""
    kube = settings.kube
    return InstallationSite(kube.installation, ours, jobs, kube.check_room, bool(settings.placement.cache_root))


def catalog_of(settings: Settings, passed: Iterable[str]) -> Catalog:
    """The templates, and the offers that they make. `passed`: names of the variables that every container gets."""
    return Catalog(settings.jobs, frozenset(passed), placed_by_of(settings))


def placing_of(settings: Settings) -> PlacementPolicy:
    """How Pods of this installation are placed."""
    return PlacementPolicy(settings.kube.installation, settings.placement)


def planner_of(
    settings: Settings,
    uses: Callable[[Key], tuple[Use, ...]],
    warm: Callable[[Key, Mapping[str, float]], tuple[str, ...]],
) -> PlacementPlanner:
    """How launches are placed. `uses`: real use of a cache key's runs. `warm`: its warm nodes."""
    return PlacementPlanner(placing_of(settings).plan, uses, warm, NodeRing().order, settings.placement.cache_copies)


def placed_by_of(settings: Settings) -> PlacedBy:
    """How Pods are placed. What they need is read as a Pod of the API server is read."""
    placement = settings.placement
    return PlacedBy(needs_of_manifest, partial(choose_pool, settings=placement), placement.scheduler_name or "")


def rules_of(jobs: JobSettings, pauses: Rules = OWN_RULES) -> Rules:
    """The settings that the table of outcomes needs, with these pauses."""
    return replace(
        pauses, max_launches=jobs.max_launches, start_deadline_seconds=jobs.start_deadline_seconds,
        node_lost_seconds=jobs.node_lost_seconds,
    )  # fmt: skip


def read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
