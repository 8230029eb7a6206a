"""What refuses a kind of row before it is launched: the bounds of its template, and what a trial finds."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dispatcher.janitor.rows import Trial
from dispatcher.jobs.manifest import build_job, plan_needs
from dispatcher.jobs.offered import why_unusable
from dispatcher.jobs.row_check import check_amount, check_image, judge_kind, plan_shape
from dispatcher.jobs.templates import Template, judge_template
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import Launch, LaunchSpec, Offer, identity_of, name_of
from dispatcher.model.verdicts import BY_POLICY, Hold, HoldReason
from tests.rig.builders import IMAGE, NOT_PLACED, SITE, a_job, a_kind, a_manifest, a_task, a_template, an_order

SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

OPEN = a_template(
    opens="env,image,command,args,cpu,memory,env.MODE",
    bounds={"images": "registry/team-a/*,exact:1", "max-cpu": "2", "max-memory": "4Gi", "max-seconds": "600"},
    container={"env": [{"name": "MODE", "value": "fast"}, {"name": "OWN", "value": "x"}]},
)


def judge(template: Template | str | None = OPEN, *, passed: frozenset[str] = frozenset(), **kind: Any) -> Offer | Hold:
    templates = {} if template is None else {"default": template}
    return judge_kind(a_kind(**kind), templates, passed, NOT_PLACED)


def denied(**asked: Any) -> str:
    held = judge(**asked)
    assert isinstance(held, Hold)
    assert held.reason is HoldReason.POLICY_DENIED
    return held.detail


# The template


def test_unknown_template_is_held_with_the_known_names() -> None:
    held = judge_kind(a_kind(template="gone"), {"b": OPEN, "a": "broken"}, frozenset(), NOT_PLACED)
    assert held == Hold(HoldReason.UNKNOWN_TEMPLATE, 'template "gone" is not known; known: a, b')
    thousand = {f"template-{number}": OPEN for number in range(1000)}
    many = judge_kind(a_kind(template="gone"), thousand, frozenset(), NOT_PLACED)
    assert isinstance(many, Hold)
    assert len(many.detail) < 400, "each kind of row keeps it"
    assert judge(None) == Hold(
        HoldReason.UNKNOWN_TEMPLATE,
        'template "default" is not known; known: none: set DISPATCHER_IMAGE, or put default.yaml into '
        "DISPATCHER_TEMPLATES_DIR",
    )


def test_broken_template_holds_its_rows_with_its_fault() -> None:
    assert judge("template default: kind is 'Pod'") == Hold(
        HoldReason.INVALID_TEMPLATE, "template default: kind is 'Pod'"
    )


# Offers


def test_a_row_that_asks_for_nothing_gets_the_template() -> None:
    offer = judge()
    assert offer == Offer(IMAGE, plan_shape(OPEN, {}), OPEN.name, plan_needs(OPEN, {}, NOT_PLACED))


def test_row_of_a_template_without_an_image_names_one() -> None:
    bare = a_template(opens="image", bounds={"images": "a/*,b:1"}, container={"image": None})
    assert denied(template=bare) == 'template "default" has no image, so spec.image is needed: one of a/*, b:1'
    offer = judge(bare, spec={"image": "b:1"}, spec_names=frozenset({"image"}))
    assert isinstance(offer, Offer)
    assert (offer.image, why_unusable(bare)) == ("b:1", "")


def test_a_row_gets_what_is_opened_inside_the_bounds() -> None:
    spec = {"image": "registry/team-a/app:2", "cpu": "2", "memory": "4096Mi"}
    names = frozenset({*spec, "command", "args"})
    offer = judge(spec=spec, spec_names=names, env_names=frozenset({"MODE", "NEW"}), timeout_seconds=600)
    needs = plan_needs(OPEN, spec, NOT_PLACED)
    assert needs is not None
    assert dict(needs.asks) == {"cpu": 2000, "memory": 4096 * 2**20 * 1000, "pods": 1000}
    assert offer == Offer("registry/team-a/app:2", plan_shape(OPEN, spec), OPEN.name, needs)


# Denials


@pytest.mark.fault(56)
@pytest.mark.parametrize("name", ["image", "command", "args", "cpu", "memory", "private_machine", "special_machine"])
def test_spec_field_is_closed_unless_the_template_opens_it(name: str) -> None:
    held = judge(a_template(opens="env"), spec_names=frozenset({name}))
    assert held == Hold(
        HoldReason.POLICY_DENIED, f'template "default" does not open spec.{name}; rows of it may set: env'
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"timeout_seconds": 601}, 'timeout_seconds 601 is over the 600 of template "default"'),
        ({"spec": {"image": "registry/team-b/app"}}, "spec.image is none of the template's registry/team-a/*, exact:1"),
        ({"spec": {"cpu": "2001m"}}, 'spec.cpu 2001m is over the 2 of template "default"'),
        ({"spec": {"memory": "4.1Gi"}}, 'spec.memory 4.1Gi is over the 4Gi of template "default"'),
        ({"env_names": frozenset({"OWN"})}, "env.OWN is set by the template or PASS_ENV, and not opened"),
        ({"env_names": frozenset({"S3"}), "passed": frozenset({"S3"})}, "env.S3 is set by the template or PASS_ENV"),
        ({"env_names": frozenset({"LD_PRELOAD"})}, "env.LD_PRELOAD is closed to rows"),
    ],
)
def test_the_first_bound_that_a_row_breaks_is_its_reason(asked: dict[str, Any], said: str) -> None:
    assert denied(**asked).startswith(said)


@pytest.mark.parametrize("image", ["registry/team-a/x", "registry/team-a/deep/x:1@sha256:00", "exact:1"])
def test_image_that_a_glob_matches_is_allowed(image: str) -> None:
    assert check_image(image, OPEN) == ""


@pytest.mark.fault(56)
@pytest.mark.parametrize(
    "image",
    ["", "registry/team-a", "registry/team-ab/x", "REGISTRY/team-a/x", "evil/registry/team-a/x", "exact:12",
     "registry/team-a/../team-b/x", "registry/team-a//x", "registry/team-a/..", " registry/team-a/x"],
)  # fmt: skip
def test_image_that_no_glob_matches_or_that_climbs_is_denied(image: str) -> None:
    assert check_image(image, OPEN).startswith("spec.image is none of")


@pytest.mark.parametrize(("resource", "written"), [("cpu", "2"), ("cpu", "1m"), ("memory", "4Gi"), ("memory", "1Mi")])
def test_amount_up_to_the_bound_is_allowed(resource: str, written: str) -> None:
    assert check_amount(resource, written, OPEN) == ""


@pytest.mark.parametrize(
    ("resource", "written", "said"),
    [
        ("cpu", "0", "spec.cpu must be above 0"),
        ("cpu", "-1", "spec.cpu must be above 0"),
        ("memory", "512", "spec.memory 512 is less than 1Mi: it lacks its unit"),
        ("memory", "lots", 'spec.memory: "lots" is not a Kubernetes quantity'),
        ("cpu", "2.0000000001", 'over the 2 of template "default"'),
        ("memory", "4Gi1", "is not a Kubernetes quantity"),
    ],
)
def test_invalid_or_too_large_amount_is_denied(resource: str, written: str, said: str) -> None:
    assert said in check_amount(resource, written, OPEN)


def test_amount_without_a_bound_is_denied() -> None:
    assert check_amount("cpu", "1m", a_template()) == 'template "default" has no bound of cpu, so rows may not set it'


def test_absent_image_and_amount_are_allowed() -> None:
    assert check_image(None, OPEN) == check_amount("cpu", None, OPEN) == ""


# Shapes


def test_pods_that_need_the_same_have_one_shape() -> None:
    assert plan_shape(OPEN, {"cpu": "1"}) == plan_shape(OPEN, {"cpu": "1", "image": "exact:1"})
    assert plan_shape(a_template(container={"image": "one"}), {}) == plan_shape(a_template("b"), {})


@pytest.mark.parametrize(
    "parts",
    [
        {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
        {"pod": {"hostNetwork": True}},
        {"pod": {"schedulingGates": [{"name": "quota.example/wait"}]}},
        {"pod": {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": "device"}]}},
        {"container": {"resources": {"requests": {"cpu": "3"}}}},
        {"pod": {"nodeSelector": {"disk": "ssd"}}},
        {"pod": {"tolerations": [{"key": "gpu"}]}},
        {"pod": {"affinity": {"podAntiAffinity": {}}}},
        {"pod": {"schedulerName": "mine"}},
        {"pod": {"topologySpreadConstraints": [SPREAD]}},
        {"pod": {"priorityClassName": "high"}},
        {"pod": {"initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"memory": "64Gi"}}}]}},
        {"pod": {"resources": {"requests": {"cpu": "8"}}}},
        {"pod": {"runtimeClassName": "kata"}},
        {"pod": {"nodeName": "node-7"}},
        {"pod": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "zonal"}}]}},
    ],
)
def test_shape_depends_on_the_placement_fields_of_the_pod(parts: dict[str, Any]) -> None:
    assert plan_shape(a_template(**parts), {}) != plan_shape(a_template(), {})


def test_shape_tells_a_container_an_init_container_and_a_sidecar_apart() -> None:
    """Their requests are added, or the highest counts."""
    task, other = a_template().task_container, {"name": "i", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    pods: list[dict[str, Any]] = [
        {"containers": [task, other]},
        {"containers": [task], "initContainers": [other]},
        {"containers": [task], "initContainers": [other | {"restartPolicy": "Always"}]},
    ]
    assert len({plan_shape(a_template(pod=one), {}) for one in pods}) == len(pods)


@pytest.mark.parametrize("said", [{"labels": {"app": "db"}}, {"annotations": {"sidecar.istio.io/inject": "true"}}])
def test_shape_depends_on_what_others_may_go_by(said: dict[str, Any]) -> None:
    manifest = a_manifest()
    manifest["spec"]["template"]["metadata"] = said
    assert plan_shape(judge_template("default", manifest), {}) != plan_shape(a_template(), {})


@pytest.mark.parametrize("spec", [{"cpu": "1"}, {"memory": "1Gi"}, {"private_machine": "a"}, {"special_machine": "a"}])
def test_shape_depends_on_resources_and_machines_of_the_row(spec: dict[str, str]) -> None:
    assert plan_shape(OPEN, spec) != plan_shape(OPEN, {})


def test_shape_does_not_depend_on_the_order_of_keys() -> None:
    one, two = ({"nodeSelector": dict(pairs)} for pairs in ([("a", "1"), ("b", "2")], [("b", "2"), ("a", "1")]))
    assert plan_shape(a_template(pod=one), {}) == plan_shape(a_template(pod=two), {})


ABSENT = ApiAnswer(404, "NotFound")
ACCEPTED = ApiAnswer(201)
FOREIGN = ApiAnswer(200, job=a_job(identity="0" * 64))
CLOSED_IMAGE = "registry.example/elsewhere:1"


class Cluster:
    """A cluster with one answer for each kind of request. `asked`: the requests, in order."""

    def __init__(self, get: ApiAnswer = ABSENT, create: ApiAnswer = ACCEPTED) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._get, self._create = get, create

    async def get(self, name: str) -> ApiAnswer:
        self.asked.append(("get", name))
        return self._get

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        self.asked.append(("try", manifest))
        return self._create


async def refusal(cluster: Cluster, order: LaunchSpec | None = None, template: Template | None = None) -> Hold | None:
    templates: Mapping[str, Template | str] = {"default": template or a_template(), "broken": "no container"}
    return await Trial(cluster, SITE).refusal(order or an_order(), templates)


def found(order: LaunchSpec, **changes: Any) -> ApiAnswer:
    """The answer of the API server with the Job of this order."""
    attempt, number = order.task.attempt, order.launch.number
    made: Job = msgspec.structs.replace(a_job(attempt, number), identity=identity_of(order))
    return ApiAnswer(200, job=msgspec.structs.replace(made, **changes))


async def test_accepted_job_is_no_refusal() -> None:
    assert await refusal(Cluster()) is None


async def test_row_of_which_no_job_can_be_built_ends_no_round() -> None:
    """Otherwise one row, by a bug of ours, would keep the janitor from the rows of all teams."""
    cluster = Cluster()
    assert await refusal(cluster, template=msgspec.structs.replace(a_template(), manifest={})) is None
    assert cluster.asked == []


async def test_trial_gets_the_name_first_and_then_tries_the_same_job() -> None:
    cluster, order = Cluster(), an_order(task=a_task(attempt=2), launch=Launch(1))
    await refusal(cluster, order)
    wanted = build_job(order, a_template(), SITE)
    assert cluster.asked == [("get", name_of(order, "dispatcher")), ("try", wanted)]
    assert wanted["metadata"]["name"].endswith("-2")


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_invalid_job_is_poison_with_the_message_of_the_server(status: int) -> None:
    hold = await refusal(Cluster(create=ApiAnswer(status, "Invalid", "spec.x: must not be")))
    assert hold == Hold(HoldReason.POISON, f"{status} spec.x: must not be")


async def test_denied_admission_is_poison() -> None:
    hold = await refusal(Cluster(create=ApiAnswer(403, "Forbidden", "denied by policy no-gpus")))
    assert hold == Hold(HoldReason.POISON, f"{BY_POLICY}: 403 denied by policy no-gpus")


UNCLEAR = [
    ApiAnswer(0, message="timeout"),
    ApiAnswer(401, "Unauthorized"),
    ApiAnswer(403, "Forbidden", "jobs is forbidden: exceeded quota: q"),
    ApiAnswer(403, "Forbidden", 'jobs.batch is forbidden: User "x" cannot create resource "jobs"'),
    ApiAnswer(403, "Forbidden", "unable to create new content", ("NamespaceTerminating",)),
    ApiAnswer(403, message="a proxy's page", is_told=False),
    ApiAnswer(404, "NotFound", 'namespaces "jobs" not found'),
    ApiAnswer(409, "AlreadyExists"),
    ApiAnswer(409, "Conflict"),
    ApiAnswer(422, message="a proxy's page", is_told=False),
    ApiAnswer(429, "TooManyRequests"),
    ApiAnswer(500, "InternalError", "failed calling webhook"),
    ApiAnswer(503, "ServiceUnavailable"),
]


@pytest.mark.parametrize("answer", UNCLEAR, ids=lambda answer: f"{answer.status} {answer.message or answer.reason}")
async def test_answer_that_is_not_about_the_row_is_no_refusal(answer: ApiAnswer) -> None:
    assert await refusal(Cluster(create=answer)) is None


COLLISIONS = {
    "a foreign Job": FOREIGN,
    "no Job of a dispatcher": ApiAnswer(200),
    "a Job of another attempt": found(an_order(), attempt=2),
    "a Job of another launch": found(an_order(), launch=2),
}


@pytest.mark.parametrize("answer", COLLISIONS.values(), ids=COLLISIONS)
async def test_other_object_of_the_name_is_a_collision(answer: ApiAnswer) -> None:
    cluster = Cluster(get=answer)
    hold = await refusal(cluster)
    assert hold is not None
    assert hold.reason is HoldReason.NAME_COLLISION
    assert cluster.asked[0][1] in hold.detail
    assert len(cluster.asked) == 1


async def test_row_that_has_its_job_is_not_tried() -> None:
    order = an_order()
    cluster = Cluster(get=found(order))
    assert await refusal(cluster, order) is None
    assert [question for question, _ in cluster.asked] == ["get"]


@pytest.mark.parametrize(
    "get",
    [ApiAnswer(0), ApiAnswer(403, "Forbidden"), ApiAnswer(429), ApiAnswer(500), ApiAnswer(404, is_told=False)],
    ids=lambda answer: f"{answer.status} {answer.reason}",
)
async def test_unclear_answer_of_get_ends_the_trial(get: ApiAnswer) -> None:
    cluster = Cluster(get, ApiAnswer(422, "Invalid"))
    assert await refusal(cluster) is None
    assert [question for question, _ in cluster.asked] == ["get"]


async def test_job_against_the_policy_causes_no_request() -> None:
    order = an_order(
        spec={"image": CLOSED_IMAGE}
    )  # for the second check: there is an offer, although the template is closed
    cluster = Cluster()
    hold = await refusal(cluster, order)
    assert hold is not None
    assert hold.reason is HoldReason.POLICY_DENIED
    assert CLOSED_IMAGE in hold.detail or "image" in hold.detail
    assert cluster.asked == []
