"""The environment of a task's container, as `dispatcher.task` reads it."""

from pathlib import Path

import pytest

from dispatcher.programs.exec_row import read_contract as read_for_exec
from dispatcher.task.contract import DatabaseFault, WrongEnvironment, read_contract

KEY = "0b5c7a3e-0000-4000-8000-00000000000A"
GOOD = {
    "TASK_DATABASE_URL": "postgresql://task:hush@db/rows",
    "TASK_ID": "42",
    "TASK_START_KEY": KEY,
    "TASK_ATTEMPT": "1",
    "TASK_LAUNCH": "2",
    "TASK_TIMEOUT_SECONDS": "3600",
    "JOB_UID": "job",
    "NODE_NAME": "node",
    "POD_NAME": "pod",
}
BAD = {
    "TASK_DATABASE_URL": "host=db password=hush",
    "TASK_ID": "-1",
    "TASK_START_KEY": "hush",
    "TASK_ATTEMPT": "1.5",
    "TASK_LAUNCH": "0",
    "TASK_TIMEOUT_SECONDS": "",
    "TASK_TAKEN_BY": "7",
    "TASK_RESULT_FILE": "/tmp/hush",
}


def test_contract_has_the_parameters_of_task_start_as_exec_has_them() -> None:
    contract, of_exec = read_contract(GOOD), read_for_exec(GOOD)
    assert contract.me == of_exec[1:8] == (42, KEY, 1, 2, "job", "node", "pod")
    assert (contract.database_url, contract.limit_seconds) == (of_exec.database_url, of_exec.limit_seconds)


def test_node_may_be_unknown_and_the_url_short() -> None:
    env = GOOD | {"NODE_NAME": "", "TASK_DATABASE_URL": "postgres://db"}
    assert (read_contract(env).me[5], read_contract(env).database_url) == ("", "postgres://db")


def test_missing_variables_are_named_at_once() -> None:
    with pytest.raises(WrongEnvironment) as caught:
        read_contract({})
    assert [name for name in GOOD.keys() - {"NODE_NAME"} if name not in str(caught.value)] == []


def test_wrong_variables_are_named_at_once_without_their_values() -> None:
    with pytest.raises(WrongEnvironment) as caught:
        read_contract(GOOD | BAD)
    assert [name for name in BAD if name not in str(caught.value)] == []
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD.items())
def test_one_wrong_variable_is_a_fault(name: str, value: str) -> None:
    with pytest.raises(WrongEnvironment, match=name):
        read_contract(GOOD | {name: value})


def test_key_with_more_than_a_uuid_is_a_fault() -> None:
    with pytest.raises(WrongEnvironment, match="TASK_START_KEY is not a UUID"):
        read_contract(GOOD | {"TASK_START_KEY": KEY + "0"})


@pytest.mark.parametrize(
    ("state", "is_away", "is_of_value"),
    [
        (None, True, False),
        ("", True, False),
        ("08006", True, False),
        ("53300", True, False),
        ("57P03", True, False),
        ("40001", True, False),
        ("25006", True, False),
        ("25001", False, False),
        ("28P01", False, False),
        ("42501", False, False),
        ("22P05", False, True),
        ("54001", False, True),
    ],
)
def test_state_says_whether_to_ask_again_and_whether_a_value_is_wrong(
    state: str | None, is_away: bool, is_of_value: bool
) -> None:
    fault = DatabaseFault(OSError("two\n  lines"), state)
    assert (fault.is_away, fault.is_of_value, str(fault)) == (is_away, is_of_value, "OSError: two lines")


def test_package_is_marked_as_typed() -> None:
    assert (Path(__file__).parents[2] / "dispatcher" / "py.typed").is_file()
