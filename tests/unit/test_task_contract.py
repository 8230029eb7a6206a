"""The environment of a task's container, as `dispatcher exec` and `dispatcher.task` read it."""

from pathlib import Path

import pytest

from dispatcher.container.contract import WrongEnvironment, read_contract
from dispatcher.task.body import DatabaseFault

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


def test_contract_has_the_parameters_of_task_start_in_their_order() -> None:
    contract = read_contract(GOOD)
    assert contract.me == (42, KEY, 1, 2, "job", "node", "pod")
    assert (contract.database_url, contract.limit_seconds) == (GOOD["TASK_DATABASE_URL"], 3600)


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


PASSES = ["", "08006", "53300", "53100", "57P03", "40001", "25006", "28P01", "42501", "42883", "55P03", "55000"]
"""No server, no login, no lock or no room: faults that pass or that a person mends."""


@pytest.mark.parametrize("state", [None, *PASSES, "54000", "P0001", "XX000"])
def test_fault_that_may_pass_is_asked_again(state: str | None) -> None:
    assert not DatabaseFault(OSError(), state).is_of_values


@pytest.mark.parametrize("state", ["22P05", "22023", "54001", "DI007"])
def test_fault_of_the_values_is_final(state: str) -> None:
    assert DatabaseFault(OSError(), state).is_of_values


def test_fault_is_told_in_one_line() -> None:
    assert str(DatabaseFault(OSError("two\n  lines"), None)) == "OSError: two lines"


def test_package_is_marked_as_typed() -> None:
    assert (Path(__file__).parents[2] / "dispatcher" / "py.typed").is_file()
