"""The tree of faults. Each layer catches the base class that it can handle."""

import pytest

from dispatcher.model import errors


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (errors.SettingsError(("a",)), errors.DispatcherError),
        (errors.TemplateError(errors.TemplateFault((), "a")), errors.DispatcherError),
        (errors.DatabaseAway("a"), errors.DatabaseError),
        (errors.DatabaseNotPrimary("a"), errors.DatabaseError),
        (errors.DatabaseUnfit("a"), errors.DatabaseError),
        (errors.DatabaseError("a"), errors.DispatcherError),
        (errors.ClusterAway("a"), errors.ClusterError),
        (errors.ClusterStale("a"), errors.ClusterError),
        (errors.ClusterRefused("list", 410, "Expired", "a"), errors.ClusterError),
        (errors.ClusterError("a"), errors.DispatcherError),
    ],
)
def test_each_fault_has_its_base_class(fault: Exception, kind: type[Exception]) -> None:
    assert isinstance(fault, kind)


def test_a_refusal_carries_the_servers_message_cut_short() -> None:
    fault = errors.ClusterRefused("list jobs", 403, "Forbidden", "no " * 500)
    assert (fault.status, fault.reason) == (403, "Forbidden")
    assert str(fault).startswith("list jobs: 403 Forbidden: no no")
    assert len(str(fault)) < 340


def test_each_database_fault_has_its_code() -> None:
    codes = [errors.DatabaseAway.code, errors.DatabaseNotPrimary.code, errors.DatabaseUnfit.code]
    assert codes == ["DbAway", "DbNotPrimary", "DbUnfit"]
