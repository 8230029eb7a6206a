"""The container's environment (docs/author.md). Values of a row arrive unchanged and replace no closed variable."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.env import (
    CONTRACT,
    FIELDS,
    FROM_THE_CLUSTER,
    build_env,
    check_env_names,
    is_closed,
    is_dispatchers,
    literal,
    pass_env,
    readers_of_nothing,
)
from dispatcher.jobs.manifest import build_job
from dispatcher.jobs.policy import check_job
from tests.property.kubelet import expand
from tests.rig.builders import SITE, a_template, an_order

NOTHING: frozenset[str] = frozenset()
ENV = frozenset({"env"})
CLOSED = [
    "TASK_ID", "TASK_QUEUE", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_START_KEY", "TASK_TIMEOUT_SECONDS", "TASK_CACHE_DIR",
    "NODE_NAME", "POD_NAME", "POD_NAMESPACE", "JOB_UID", "TASK_DATABASE_URL", "TASK_", "DISPATCHER_X",
    "KUBERNETES_SERVICE_HOST", "LD_PRELOAD",
]  # fmt: skip


TRUSTED_NAMES = [
    *("PATH", "HOME", "USER", "SHELL", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_x", "BROWSER", "PGHOST", "PGSSLMODE"),
    *("PYTHONPATH", "PYTHONWARNINGS", "NODE_OPTIONS", "NPM_CONFIG_PREFIX", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"),
    *("JDK_JAVA_OPTIONS", "CLASSPATH", "PERL5OPT", "PERL5LIB", "RUBYOPT", "GEM_HOME", "GIT_SSH_COMMAND", "SSH_ASKPASS"),
    *("GCONV_PATH", "LOCPATH", "HTTP_PROXY", "https_proxy", "All_Proxy", "no_proxy", "SSL_CERT_FILE", "CURL_CA_BUNDLE"),
    *("REQUESTS_CA_BUNDLE", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_CLIENT_ID", "KUBECONFIG"),
]


def run(env: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The environment of the container. Each variable may refer to earlier ones."""
    seen: dict[str, str] = {}
    for variable in env:
        field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        seen[variable["name"]] = f"<{field}>" if field else expand(variable["value"], seen)
    return seen


def names_of(env: Sequence[Mapping[str, Any]]) -> list[str]:
    return [variable["name"] for variable in env]


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("$(A)", "1"), ("$(A)-$(A)", "1-1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(B)", "$(B)"), ("$A", "$A"),
        ("${A}", "${A}"), ("$", "$"), ("x$", "x$"), ("$$$$$$(A)", "$$$(A)"), ("$(A$(B)", "$(A$(B)"), ("$(", "$("),
    ],
)  # fmt: skip
def test_the_model_of_kubelet_expands_as_kubelet_does(value: str, expanded: str) -> None:
    assert expand(value, {"A": "1"}) == expanded


# Values arrive unchanged

names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,3}", fullmatch=True).filter(lambda name: not is_closed(name))
values = st.text(alphabet=st.one_of(st.sampled_from("$()AB_ \n"), st.characters(exclude_characters="\0")), max_size=30)
maps = st.dictionaries(names, values, max_size=6)


@pytest.mark.fault(55)
@pytest.mark.museum("env $ unescaped")
@given(maps, maps, maps)
def test_values_of_row_contract_and_pass_env_arrive_unchanged(
    passed: dict[str, str], row: dict[str, str], contract: dict[str, str]
) -> None:
    own = [{"name": "SECRET", "value": "hunter2"}]
    contract = {f"TASK_{name}": value for name, value in contract.items()}
    assert run(build_env(passed, own, row, contract)) == (
        passed | {"SECRET": "hunter2"} | row | contract | {name: f"<{path}>" for name, path in FIELDS.items()}
    )


@given(values, maps)
def test_literal_value_refers_to_no_other_variable(value: str, known: dict[str, str]) -> None:
    assert expand(literal("X", value)["value"], known) == value


@pytest.mark.museum("duplicate env names")
@given(maps, maps, maps)
def test_env_does_not_depend_on_the_order_of_its_sources(
    passed: dict[str, str], row: dict[str, str], contract: dict[str, str]
) -> None:
    def shuffled(mapping: dict[str, str]) -> dict[str, str]:
        return dict(reversed(mapping.items()))

    own = [{"name": "OWN", "value": "1"}]
    again = build_env(shuffled(passed), own, shuffled(row), shuffled(contract))
    assert again == build_env(passed, own, row, contract)
    assert len(set(names_of(again))) == len(again)


# The layers, lowest first: PASS_ENV, template, row, contract


@pytest.mark.museum("duplicate env names")
def test_each_layer_replaces_those_below_it() -> None:
    passed = dict.fromkeys(["A", "B", "C", "TASK_ID"], "passed")
    own = [{"name": name, "value": "template"} for name in ("B", "C", "D")]
    env = run(build_env(passed, own, {"C": "row", "E": "row"}, {"TASK_ID": "42"}))
    assert {name: env[name] for name in ("A", "B", "C", "D", "E", "TASK_ID")} == {
        "A": "passed", "B": "template", "C": "row", "D": "template", "E": "row", "TASK_ID": "42",
    }  # fmt: skip


def test_variables_from_pod_fields_are_never_replaced() -> None:
    env = run(build_env({"POD_NAME": "me"}, [], {"NODE_NAME": "mine"}, {"JOB_UID": "x"}))
    assert env == {
        "NODE_NAME": "<spec.nodeName>",
        "POD_NAME": "<metadata.name>",
        "POD_NAMESPACE": "<metadata.namespace>",
        "JOB_UID": "<metadata.labels['batch.kubernetes.io/controller-uid']>",
    }


def test_template_variables_keep_their_order_and_may_refer_to_earlier_ones() -> None:
    own = [{"name": "Z", "value": "1"}, {"name": "A", "value": "$(Z)$(P)"}]
    assert run(build_env({"P": "2"}, own, {}, {}))["A"] == "12"


@pytest.mark.parametrize(
    ("opened", "value"), [({"env.R", "env.Z"}, "2-$(Z)"), ({"env"}, "2-$(R)")], ids=["by name", "all"]
)
def test_template_variables_may_refer_to_those_that_rows_may_set_by_name(opened: set[str], value: str) -> None:
    """Otherwise a row could add the name that a trusted value reads, such as `PATH=$(TOOLS)/bin`."""
    own = [{"name": "Z", "value": "1"}, {"name": "A", "value": "$(Z)-$(R)"}]
    assert run(build_env({}, own, {"R": "$(Z)", "Z": "2"}, {}, opened))["A"] == value


def test_template_variables_keep_their_order_if_pass_env_sets_one_of_them() -> None:
    own = [{"name": "Z", "value": "1"}, {"name": "A", "value": "$(Z)"}]
    assert run(build_env({"A": "passed"}, own, {}, {}))["A"] == "1"


def test_template_variable_is_copied_unchanged() -> None:
    secret = {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    *_, last = build_env({}, [secret], {}, {})
    assert last == secret
    assert last is not secret


def test_contract_comes_first_so_that_others_may_refer_to_it() -> None:
    own: list[dict[str, Any]] = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "A", "value": "$(POD_NAME)"},
    ]
    env = build_env({"P": "p"}, own, {"R": "r"}, {"TASK_ID": "1"})
    assert [one["name"] for one in env] == [
        "TASK_ID",
        "JOB_UID",
        "NODE_NAME",
        "POD_NAME",
        "POD_NAMESPACE",
        "P",
        "A",
        "R",
    ]
    assert env[3] == FROM_THE_CLUSTER["POD_NAME"]


@pytest.mark.parametrize(
    ("variable", "is_theirs"),
    [
        ({"name": "TASK_DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, False),
        ({"name": "KUBERNETES_SERVICE_HOST", "value": "1"}, False),
        ({"name": "LD_LIBRARY_PATH", "value": "/usr/lib/nvidia"}, False),
        ({"name": "A"}, False),
        ({"name": "POD_NAME", "value": "x"}, True),
        ({"name": "POD_NAME", "valueFrom": "x"}, True),
        ({"name": "POD_NAME", "valueFrom": {"fieldRef": "x"}}, True),
        ({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {}}}, True),
        ({"name": "POD_NAME"}, True),
        ({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, False),
        (
            {
                "name": "POD_NAME",
                "value": None,
                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
            },
            False,
        ),
        ({"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}}, True),
        ({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}, True),
        ({"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, True),
        ({"name": "NODE_NAME", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}, True),
        ({"name": "TASK_NAME", "value": "a"}, False),
        ({"name": "KUBERNETES_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}, False),
        ({"name": "LD_LIBRARY_PATH", "value": "/usr/local/cuda"}, False),
        ({"name": "TASK_DATABASE_URL", "value": "postgresql://"}, False),
        ({"name": "TASK_RESULT_FILE", "value": "/tmp/a"}, True),
        ({"name": "DISPATCHER_ISOLATED", "value": "1"}, True),
    ],
)
def test_template_may_name_what_the_dispatcher_would_set(variable: dict[str, Any], is_theirs: bool) -> None:
    assert is_dispatchers(variable) == is_theirs


# PASS_ENV


def test_pass_env_globs_select_variables() -> None:
    environ = {"S3_KEY": "k", "S3_URL": "u", "DB_HOST": "h", "DB_HOSTS": "x", "s3_low": "l"}
    assert list(pass_env(environ, ["S3_*", "DB_HOST"])) == ["DB_HOST", "S3_KEY", "S3_URL"]
    assert pass_env(environ, ["DB_HOS?"]) == {"DB_HOST": "h"}
    assert pass_env(environ, []) == {}


@pytest.mark.parametrize(
    "name", ["DISPATCHER_DATABASE_URL", "PGPASSWORD", "PG", "KUBERNETES_SERVICE_HOST", "PATH", "HOME", "LD_PRELOAD"]
)
@pytest.mark.parametrize("glob", ["*", "exactly"])
def test_pass_env_never_passes_variables_of_the_dispatcher(name: str, glob: str) -> None:
    assert pass_env({name: "x"}, [name if glob == "exactly" else glob]) == {}


def test_pass_env_passes_names_that_only_resemble_blocked_ones() -> None:
    assert list(pass_env({"PATHS": "1", "HOMEPAGE": "2", "MY_PG": "3"}, ["*"])) == ["HOMEPAGE", "MY_PG", "PATHS"]


def test_pass_env_leaves_out_names_that_kubernetes_refuses() -> None:
    assert pass_env({"BASH_FUNC_which%%": "() { :; }", "A": "1"}, ["*"]) == {"A": "1"}


# Names that rows may set


def test_contract_has_the_documented_names() -> None:
    assert set(CLOSED[:11]) == CONTRACT


@pytest.mark.fault(54)
@pytest.mark.parametrize("name", CLOSED)
def test_closed_names_are_closed_even_where_a_template_opens_them(name: str) -> None:
    assert is_closed(name)
    assert check_env_names([name], frozenset({"env", f"env.{name}"}), NOTHING) == f"env.{name} is closed to rows"


@pytest.mark.parametrize("name", ["TASK", "TASKS_ID", "MY_TASK_ID", "POD_NAMES", "LDAP_URL", "task_id"])
def test_other_names_are_not_closed(name: str) -> None:
    assert not is_closed(name)
    assert check_env_names([name], ENV, NOTHING) == ""


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A.B", "A B", "Ä", "A\n", "A" * 256])
def test_illegal_name_is_refused_without_showing_it(name: str) -> None:
    assert check_env_names([name], frozenset({"env", f"env.{name}"}), NOTHING) == "env has an illegal name"


@pytest.mark.fault(54)
@pytest.mark.parametrize(
    ("opened", "taken", "denied"),
    [
        ({"env"}, set(), ""),
        ({"env"}, {"A"}, "env.A is set by the template or PASS_ENV, and not opened"),
        ({"env", "env.A"}, {"A"}, ""),
        ({"env.A"}, {"A"}, ""),
        ({"env.A"}, set(), ""),
        ({"env.B"}, set(), "the template does not open env.A"),
        (set(), set(), "the template does not open env.A"),
        (set(), {"A"}, "the template does not open env.A"),
    ],
)
def test_a_row_may_add_names_and_replace_only_what_is_opened(opened: set[str], taken: set[str], denied: str) -> None:
    assert check_env_names(["A"], frozenset(opened), frozenset(taken)) == denied


@pytest.mark.parametrize("name", TRUSTED_NAMES)
def test_trusted_names_must_be_opened_by_name(name: str) -> None:
    assert "has to open it by name" in check_env_names([name], ENV, NOTHING)
    assert "has to open it by name" in check_env_names([name], ENV, frozenset({name}))
    assert check_env_names([name], frozenset({f"env.{name}"}), NOTHING) == ""


@pytest.mark.parametrize("name", TRUSTED_NAMES)
def test_second_check_finds_a_trusted_name_unless_it_is_opened(name: str) -> None:
    for template, allowed in ((a_template(opens="env"), False), (a_template(opens=f"env,env.{name}"), True)):
        order = an_order(template, env={name: "x"})
        assert (check_job(build_job(order, template, SITE), order, template, SITE) == "") is allowed


@pytest.mark.parametrize(
    "name",
    ["PATHS", "HOMEPAGE", "USERNAME", "ENVIRONMENT", "MY_PGHOST", "PROXY", "HTTP_PROXY_URL", "GCONV_PATHS"],
)
def test_names_that_only_resemble_trusted_ones_are_open(name: str) -> None:
    assert check_env_names([name], ENV, NOTHING) == ""


def test_row_without_variables_passes() -> None:
    assert check_env_names([], NOTHING, NOTHING) == ""


def test_first_fault_in_the_order_of_names_is_reported() -> None:
    assert check_env_names(["Z_1", "LD_X", "A", "POD_NAME"], ENV, NOTHING) == "env.LD_X is closed to rows"


def test_container_beside_the_task_that_reads_its_row_is_told() -> None:
    """kubelet leaves the text $(TASK_ID) there, and a shell reads a blank."""
    own = {"name": "own", "args": ["$(TASK_ID)"], "env": [{"name": "TASK_ID", "value": "7"}]}
    first = {"name": "first", "command": ["sh", "-c", "get $TASK_ID-$TASK_LAUNCH $TASK_DATABASE_URL"]}
    task, log = {"name": "task", "args": ["$(TASK_ID)"]}, {"name": "log", "env": [{"value": "/x/$(TASK_QUEUE)"}]}
    told = readers_of_nothing({"initContainers": [own, first], "containers": [log, task]}, 1)
    assert [words.partition(", which")[0] for words in told] == [
        "container first reads TASK_ID, TASK_LAUNCH", "container log reads TASK_QUEUE",
    ]  # fmt: skip
