"""The table of checks: names, questions, and commands that a shell can read."""

import re
import shlex
import string

import pytest

from dispatcher.doctor.checks import CHECKS, Check, Part

PROGRAMS = {
    "psql", "kubectl", "helm", "dispatcher", "curl", "unset", "chronyc", "pg_upgrade", "kube-controller-manager",
    "DISPATCHER_DATABASE_URL=postgresql://work_dispatcher_migrate:PASSWORD@HOST/DATABASE",
}  # fmt: skip


@pytest.mark.parametrize(("name", "check"), CHECKS.items(), ids=list(CHECKS))
def test_check_has_a_name_a_question_and_a_command(name: str, check: Check) -> None:
    assert re.fullmatch(r"([A-Z][a-z]+)+", name)
    assert check.asks.endswith("?")
    assert check.why.endswith(".")
    words = {field for _, field, _, _ in string.Formatter().parse(check.mend) if field}
    command = shlex.split(check.mend.format(**dict.fromkeys(words, "x")), comments=True)
    assert command[0] in PROGRAMS


def test_every_part_has_checks() -> None:
    assert {check.part for check in CHECKS.values()} == set(Part)
