"""Logins with exactly the rights of their role."""

from dispatcher.doctor.group_rights import GROUPS, READER, ROLE_OF_JANITOR
from dispatcher.doctor.rights import Grant, Login, Member


def grants_of(group: str) -> tuple[Grant, ...]:
    return tuple(Grant(kind, name, part, group, right) for kind, name, part, right in sorted(GROUPS[group].rights))


GRANTS = grants_of(READER)
LOGIN = Login("reader", (), (Member(READER, True),), GRANTS)
OF_JANITOR = Login("janitor", (), (Member(ROLE_OF_JANITOR, True),), grants_of(ROLE_OF_JANITOR), group=ROLE_OF_JANITOR)
