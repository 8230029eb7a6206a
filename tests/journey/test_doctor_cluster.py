"""`dispatcher doctor` on a real control plane: no false alarm in health, each planted fault named alone.

One installation serves all tests of this file. Each test removes the fault that it planted.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from dispatcher.doctor.checks import CHECKS, Part
from dispatcher.doctor.finding import RELEASE, FindingState
from dispatcher.doctor.program import DoctorEnvironment
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.player import STEER
from tests.rig.doctoring import Site, an_installation, now
from tests.rig.planting import changed, without
from tests.rig.postgres import Database

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
Settings = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    control_plane: ControlPlane, nodes: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with an_installation(control_plane, tmp_path_factory.mktemp("doctor")) as made:
        yield made


@pytest.fixture
def settings(site: Site, one_database: Database) -> Settings:
    return site.environment(one_database.url("reader"))


async def test_healthy_installation_has_no_fault_for_an_operator(site: Site, settings: Settings) -> None:
    found = await site.findings(settings)
    told = [(one.what, one.message) for one in found if one.state in {FindingState.FAULT, FindingState.WARNING}]
    assert told == [("ProgramNotReady", "it is scaled to 0")], "no node of these tests has our image"
    assert {one.what for one in found if one.state is FindingState.NOT_CHECKED} == {"JobControllerSlow"}


async def test_healthy_installation_has_no_fault_in_its_own_pod(site: Site, settings: Settings) -> None:
    """The account of `run` may not read Secrets, LimitRanges, namespaces and policies. That is no fault."""
    found = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
    assert [one for one in found if one.state in {FindingState.FAULT, FindingState.WARNING}] == []
    unread = {one.what: one.message for one in found if one.state is FindingState.NOT_CHECKED}
    assert set(unread) == {
        "NamespaceMissing", "PolicyMissing", "PodSecurity", "LimitRangeRefuses", "SecretMissing", "JobControllerSlow",
        "ProgramNotReady", "NoLeader",
    }  # fmt: skip
    assert "this account may not GET" in unread["SecretMissing"]


async def test_healthy_installation_has_no_fault_in_the_pod_of_the_janitor(
    site: Site, settings: Settings, one_database: Database
) -> None:
    """Its account and its login are judged by what the janitor needs."""
    own = settings | {"DISPATCHER_DATABASE_URL": one_database.url("janitor")}
    found = await site.findings(own, DoctorEnvironment(log_in=lambda: site.own_login("dispatcher-janitor")))
    assert [one for one in found if one.state in {FindingState.FAULT, FindingState.WARNING}] == []
    good = {(one.what, one.where) for one in found if one.state is FindingState.GOOD}
    assert good >= {
        ("MissingVerb", "account dispatcher-janitor"),
        ("LoginGroups", "login janitor, of dispatch_janitor"),
        ("JobRefused", "template default"),
    }


async def test_person_without_rights_hears_what_was_not_checked(site: Site, settings: Settings) -> None:
    token = await site.plane.service_account_token(site.ours, "default")
    nobody = site.plane.kubeconfig(site.folder / "nobody", token=token, namespace=site.ours)
    found = await site.findings(settings | {"DISPATCHER_KUBECONFIG": str(nobody)})
    assert [one for one in found if one.state in {FindingState.FAULT, FindingState.WARNING}] == []
    unread = {one.what for one in found if one.state is FindingState.NOT_CHECKED}
    assert unread >= {"MissingVerb", "NamespaceMissing", "JobRefused", "NoNodeFits", "QuotaFitsNoJob", "SecretMissing"}


async def test_verb_that_an_account_lacks_is_named(site: Site, settings: Settings) -> None:
    role = f"{ROLES}/{site.jobs}/roles/dispatcher-jobs"

    def lacking(found: Json) -> Json:
        return found | {"rules": [one | {"verbs": [v for v in one["verbs"] if v != "patch"]} for one in found["rules"]]}

    async with changed(site, role, lacking):
        found = await site.names(settings, "MissingVerb")
        assert (found.where, found.message) == (
            f"account dispatcher in namespace {site.jobs}",
            "not allowed: patch jobs",
        )
        own = await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
        assert [(one.what, one.message) for one in own if one.state is FindingState.FAULT] == [
            ("MissingVerb", found.message)
        ]


async def test_missing_namespace_is_the_only_finding_about_it(
    site: Site, settings: Settings, control_plane: ControlPlane
) -> None:
    """The policy of this installation names the namespace, so a second namespace would be a second fault."""
    found = await site.findings(settings, DoctorEnvironment(namespace="no-such-namespace"))
    assert [(one.what, one.where) for one in found if one.state is FindingState.FAULT] == [
        ("NamespaceMissing", "namespace no-such-namespace")
    ]


async def test_namespace_that_goes_is_named(site: Site, settings: Settings) -> None:
    other = await site.plane.create_namespace()
    kept = f"/api/v1/namespaces/{other}/configmaps"
    await site.plane.admin("POST", kept, {"metadata": {"name": "stays", "finalizers": ["test.example/stays"]}})
    try:
        await site.plane.delete_namespace(other)
        found = await site.findings(settings, DoctorEnvironment(namespace=other))
        faults = {one.what: one.where for one in found if one.state is FindingState.FAULT}
        assert faults == {"NamespaceTerminating": f"namespace {other}"}
    finally:
        await site.plane.admin("PATCH", f"{kept}/stays", {"metadata": {"finalizers": None}})


async def test_policy_that_is_gone_is_named(site: Site, settings: Settings) -> None:
    async with without(site, f"{POLICIES}/dispatcher.{site.ours}"):
        await site.names(settings, "PolicyMissing")


async def test_command_names_the_release_that_helm_made(site: Site, settings: Settings) -> None:
    path = f"/apis/apps/v1/namespaces/{site.ours}/deployments/dispatcher"
    await site.plane.admin("PATCH", path, {"metadata": {"annotations": {RELEASE: "night-shift"}}})
    try:
        async with without(site, f"{BINDINGS}/dispatcher.{site.ours}"):
            found = await site.names(settings, "PolicyUnbound")
            assert found.mend.startswith(f"helm upgrade night-shift deploy/chart -n {site.ours} ")
    finally:
        await site.plane.admin("PATCH", path, {"metadata": {"annotations": {RELEASE: None}}})


async def test_programs_that_do_not_run_and_a_missing_leader_are_named(site: Site, settings: Settings) -> None:
    path = f"/apis/apps/v1/namespaces/{site.ours}/deployments/dispatcher"
    held = {"metadata": {"annotations": {f"{STEER}/never-starts": "true"}}}
    await site.plane.admin("PATCH", path, {"spec": {"replicas": 1, "template": held}})
    try:
        found = [one for one in await site.findings(settings) if one.state is FindingState.FAULT]
        assert [(one.what, one.where.split(" in ")[0], one.message) for one in found] == [
            ("ProgramNotReady", "Deployment dispatcher", "0 of 1 Pods are ready"),
            ("ProgramNotReady", "Deployment dispatcher-janitor", "there is none"),
            ("NoLeader", "Lease dispatcher-leader", "there is none: no replica has led yet"),
        ]
        assert found[0].mend.endswith(" or describe deployment dispatcher")
    finally:
        again = {"metadata": {"annotations": {f"{STEER}/never-starts": None}}}
        await site.plane.admin("PATCH", path, {"spec": {"replicas": 0, "template": again}})


async def test_command_names_the_secret_that_the_deployment_mounts(site: Site, settings: Settings) -> None:
    refused = settings | {"DISPATCHER_DATABASE_URL": settings["DISPATCHER_DATABASE_URL"].replace("reader:", "nobody:")}
    path = f"/apis/apps/v1/namespaces/{site.ours}/deployments/dispatcher"
    before = (await site.plane.admin("GET", path))["spec"]
    pod = before["template"]["spec"]
    other = [one | {"secret": {"secretName": "login-of-run"}} if "secret" in one else one for one in pod["volumes"]]
    await site.plane.admin("PATCH", path, {"spec": {"template": {"spec": pod | {"volumes": other}}}})
    try:
        found = await site.names(refused, "LoginRefused")
    finally:
        await site.plane.admin("PATCH", path, {"spec": before})
    assert found.mend.startswith(f"kubectl -n {site.ours} create secret generic login-of-run --dry-run=client")


async def test_policy_without_a_binding_is_named(site: Site, settings: Settings) -> None:
    async with without(site, f"{BINDINGS}/dispatcher.{site.ours}"):
        found = await site.names(settings, "PolicyUnbound")
        assert "ValidatingAdmissionPolicy dispatcher" in found.message


async def test_policy_that_only_warns_is_named(site: Site, settings: Settings) -> None:
    async with changed(
        site,
        f"{BINDINGS}/dispatcher.{site.ours}",
        lambda one: one | {"spec": one["spec"] | {"validationActions": ["Warn"]}},
    ):
        await site.names(settings, "PolicyUnbound")


async def test_api_server_that_is_away_hides_no_other_part(site: Site, settings: Settings) -> None:
    away = site.folder / "away"
    away.write_text((site.folder / "kubeconfig").read_text().replace(site.plane.url, "https://127.0.0.1:1"))
    found = await site.findings(settings | {"DISPATCHER_KUBECONFIG": str(away)})
    assert [one.what for one in found if one.state is FindingState.FAULT] == ["ApiServerAway"]
    assert any(one.part is Part.DATABASE and one.state is FindingState.GOOD for one in found)


@pytest.mark.slow
async def test_frozen_api_server_hides_no_other_part(site: Site, settings: Settings) -> None:
    site.plane.pause()
    try:
        found = await site.findings(settings)
    finally:
        site.plane.resume()
    assert [one.what for one in found if one.state is FindingState.FAULT] == ["ApiServerAway"]
    unread = {one.what for one in found if one.state is FindingState.NOT_CHECKED}
    assert {name for name, check in CHECKS.items() if check.part is Part.TEMPLATES} <= unread
    assert any(one.part is Part.DATABASE and one.state is FindingState.GOOD for one in found)


async def test_doctor_writes_nothing_in_the_cluster(site: Site, settings: Settings) -> None:
    """Each request of the account reads, asks for a review, or is a dry run."""
    await site.findings(settings, DoctorEnvironment(log_in=site.own_login))
    user = f"system:serviceaccount:{site.ours}:dispatcher"
    events = [event for event in site.plane.audit(user_prefix=user) if event.verb not in {"get", "list"}]
    assert events
    assert {
        event.object_ref.resource for event in events if "dryRun=All" not in event.uri and event.verb == "create"
    } == {"selfsubjectaccessreviews", "selfsubjectreviews"}
    assert {event.verb for event in events} == {"create"}


async def test_unknown_setting_is_named(site: Site, settings: Settings) -> None:
    found = await site.names(settings | {"DISPATCHER_MAX_JOSB": "5"}, "UnknownSetting")
    assert (found.where, found.mend.split("  #")[0]) == ("DISPATCHER_MAX_JOSB", "unset DISPATCHER_MAX_JOSB")
    assert "did you mean DISPATCHER_MAX_JOBS?" in found.message


async def test_wrong_clock_of_this_machine_is_named_once(site: Site, settings: Settings) -> None:
    found = await site.faults(settings, lambda: now() + timedelta(minutes=5))
    ((one,),) = found.values()
    assert (one.what, one.where) == ("ClockOff", "clock of this machine")
    assert 295 <= int(one.message.removesuffix(" s ahead")) <= 305


async def test_prometheus_that_is_away_is_named(site: Site, settings: Settings) -> None:
    await site.names(settings | {"DISPATCHER_PROMETHEUS_URL": "http://127.0.0.1:1"}, "PrometheusAway")
