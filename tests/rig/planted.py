"""The table of planted faults: for each check of `dispatcher doctor`, the test that plants its fault.

`named_in` reads from the text of a test which checks it names, so that the table cannot claim more than the tests show.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dispatcher.doctor.checks import CHECKS

TESTS: Final = Path(__file__).parents[1]
DATABASE: Final = "integration/test_doctor.py::test_fault_in_the_database_is_named_alone"
RIGHTS: Final = "integration/test_doctor_rights.py::test_right_that_the_janitor_lacks_or_has_too_much_is_named_alone"
LOGIN: Final = "integration/test_doctor.py::test_fault_of_the_login_is_named_alone"
CLUSTER: Final = "journey/test_doctor_cluster.py"
TEMPLATES: Final = "journey/test_doctor_templates.py"
SCHEDULER: Final = "journey/test_doctor_scheduler.py"
VARIANTS: Final = "journey/test_doctor_variants.py"
CACHES: Final = "journey/test_doctor_caches.py"
PLANTED: Final[Mapping[str, str]] = {
    "UnknownSetting": f"{CLUSTER}::test_unknown_setting_is_named",
    "DatabaseAway": "integration/test_doctor.py::test_server_that_is_away_is_one_finding",
    "LoginRefused": "integration/test_doctor.py::test_login_that_the_server_does_not_know_is_named",
    "DatabaseNotPrimary": "integration/test_doctor.py::test_standby_is_named",
    # The tests have one version of each server, so only the facts of these two are planted.
    "PostgresTooOld": "unit/test_doctor_judges_database.py::test_fault_of_the_server_is_named",
    "ApiServerTooOld": "unit/test_doctor_judges_cluster.py::test_fault_of_the_cluster_is_named_alone",
    "DatabaseEncoding": "integration/test_doctor.py::"
    "test_database_of_another_encoding_is_named_with_the_command_that_makes_one",
    "CollationChanged": "integration/test_doctor.py::test_collation_of_another_version_is_named",
    "ObjectChanged": DATABASE,
    "ObjectUnknown": "integration/test_doctor.py::test_object_that_nobody_knows_is_named",
    "SequenceBehind": DATABASE,
    "AutovacuumOff": "integration/test_doctor.py::test_server_that_does_not_clean_its_tables_is_named",
    "TriggersSkipped": "integration/test_doctor.py::test_sessions_that_run_no_trigger_are_named",
    "PasswordEnds": "integration/test_doctor.py::test_password_that_ends_soon_is_named",
    "LoginTalks": LOGIN,
    "RoleGone": "integration/test_doctor.py::test_queue_and_rows_of_roles_that_are_gone_are_named",
    # A test cannot wait for an hour.
    "PreparedTransaction": "unit/test_doctor_judges_database.py::test_each_fault_of_upkeep_is_named_with_its_mend",
    "OldSnapshot": "integration/test_doctor_rights.py::test_session_with_an_old_snapshot_is_named",
    "SchemaOld": DATABASE,
    "SchemaChanged": DATABASE,
    "RestoredWithoutRoles": "integration/test_restore.py::test_copy_without_the_roles_is_named_with_the_way_out",
    "SchemaOwner": DATABASE,
    "IndexMissing": DATABASE,
    "IndexInvalid": DATABASE,
    "PlanWithoutIndex": "integration/test_doctor.py::test_index_that_is_not_what_its_name_says_is_named",
    "LoginAttributes": LOGIN,
    "LoginGroups": LOGIN,
    "LoginInherits": LOGIN,
    "MissingRight": RIGHTS,
    "ExtraRight": RIGHTS,
    "RightElsewhere": DATABASE,
    "SearchPath": "unit/test_doctor_judges_database.py::test_fault_of_the_server_is_named",
    "ConnectionRoom": LOGIN,
    "NotifyQueue": "integration/test_doctor.py::test_filled_queue_of_notifications_is_named",
    "ClockOff": f"{CLUSTER}::test_wrong_clock_of_this_machine_is_named_once",
    "ApiServerAway": f"{CLUSTER}::test_api_server_that_is_away_hides_no_other_part",
    "MissingVerb": f"{CLUSTER}::test_verb_that_an_account_lacks_is_named",
    "NamespaceMissing": f"{VARIANTS}::test_namespace_of_jobs_that_is_gone_is_named_alone",
    "NamespaceTerminating": f"{CLUSTER}::test_namespace_that_goes_is_named",
    "PolicyMissing": f"{CLUSTER}::test_policy_that_is_gone_is_named",
    "PolicyUnbound": f"{CLUSTER}::test_policy_without_a_binding_is_named",
    "JobControllerSlow": f"{VARIANTS}::test_job_controller_is_judged_by_recent_jobs",
    "ProgramNotReady": "journey/test_doctor_cluster.py::test_programs_that_do_not_run_and_a_missing_leader_are_named",
    "NoLeader": "journey/test_doctor_cluster.py::test_programs_that_do_not_run_and_a_missing_leader_are_named",
    "CacheKeeperAbsent": f"{CACHES}::test_cache_keeper_that_is_not_ready_is_named",
    "CacheDiskFull": f"{CACHES}::test_disk_that_stays_full_is_named",
    "TemplateDoubtful": "unit/test_doctor_judges_templates.py::test_doubts_of_a_template_are_warnings",
    "EnvOpen": "unit/test_doctor_judges_templates.py::test_open_variables_beside_a_secret_are_a_warning",
    "NoTemplate": f"{TEMPLATES}::test_installation_without_a_template_is_named",
    "InvalidTemplate": f"{TEMPLATES}::test_faulty_template_is_named",
    "JobRefused": f"{TEMPLATES}::test_job_that_the_api_server_refuses_is_named",
    "JobChanged": f"{TEMPLATES}::test_policy_that_changes_jobs_is_named",
    "PodSecurity": f"{TEMPLATES}::test_pod_security_is_judged_with_the_field_that_fails",
    "QuotaFitsNoJob": f"{TEMPLATES}::test_quota_that_fits_no_job_is_named",
    "LimitRangeRefuses": f"{TEMPLATES}::test_limit_range_that_refuses_the_pod_is_named",
    "SecretMissing": f"{TEMPLATES}::test_secret_that_is_missing_is_named",
    "SecretKeyMissing": f"{TEMPLATES}::test_key_that_a_secret_lacks_is_named",
    "ObjectMissing": f"{TEMPLATES}::test_object_that_is_missing_is_named",
    "NoNodeFits": f"{TEMPLATES}::test_template_that_fits_no_node_is_named",
    "SchedulerAbsent": f"{SCHEDULER}::test_scheduler_that_is_absent_is_named",
    "ExtenderNotConfigured": f"{SCHEDULER}::test_scheduler_without_the_extender_is_named",
    "ExtenderNotAnswering": f"{SCHEDULER}::test_extender_that_does_not_answer_is_named",
    "ExtenderMisused": f"{SCHEDULER}::test_extender_that_two_schedulers_call_is_named",
    "PrometheusAway": f"{CLUSTER}::test_prometheus_that_is_away_is_named",
    "MetricUnknown": f"{SCHEDULER}::test_prometheus_without_metrics_of_containers_is_named",
}
"""By check: file and test."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
OTHER_STATES: Final = ("NOT_CHECKED", "GOOD")


def planted_in(test: str) -> set[str]:
    """The checks that this test, FILE::NAME, expects to be named."""
    file, _, name = test.partition("::")
    return named_in((TESTS / file).read_text(encoding="utf-8"), name)


def named_in(text: str, name: str) -> set[str]:
    """The checks that a test of this file expects as a fault or a warning.

    The test compares them by `==`, alone or from its table of parameters. Or they are the argument of `names`, which
    waits until the doctor names one fault alone. Raises KeyError without such a test.
    """
    tree = ast.parse(text)
    tests = {one.name: one for one in tree.body if isinstance(one, Function)}
    test = tests[name]
    compared = [one for one in ast.walk(test) if isinstance(one, ast.Assert) and is_about_faults(one.test, test)]
    awaited = [one for one in ast.walk(test) if isinstance(one, ast.Call) and called(one) == "names"]
    words = {word for one in (*compared, *awaited) for word in words_of(one)}
    variables = {one.id for each in compared for one in ast.walk(each) if isinstance(one, ast.Name)}
    return (words | set(parameters(test, tree, variables))) & set(CHECKS)


def is_about_faults(test: ast.expr, function: Function) -> bool:
    """Whether it compares by `==`, and nothing in it comes from findings that are good or not checked."""
    if not isinstance(test, ast.Compare) or not all(isinstance(one, ast.Eq) for one in test.ops):
        return False
    others = {
        target.id
        for one in ast.walk(function)
        if isinstance(one, ast.Assign) and mentions(one.value)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return not mentions(test) and not any(isinstance(one, ast.Name) and one.id in others for one in ast.walk(test))


def mentions(node: ast.AST) -> bool:
    """Whether it speaks of another state than fault and warning."""
    return any(word in ast.unparse(node) for word in OTHER_STATES)


def parameters(test: Function, tree: ast.Module, variables: set[str]) -> Iterator[str]:
    """The words of the test's tables of parameters, if it compares one of the parameters."""
    lists = {
        target.id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for decorator in test.decorator_list:
        if isinstance(decorator, ast.Call) and called(decorator) == "parametrize":
            names, table = decorator.args
            rows = lists[table.id] if isinstance(table, ast.Name) else table
            if set(words_of(names)) & variables and isinstance(rows, ast.List):
                yield from (word for row in rows.elts if not mentions(row) for word in words_of(row))


def called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def words_of(node: ast.AST) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))
