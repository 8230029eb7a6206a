"""Logins with exactly the rights of their role."""

import base64
import json

from dispatcher.doctor.look_at_database import wanted_objects
from dispatcher.doctor.schema import READER, ROLE_OF_JANITOR, Grant, LoginRights, Membership, rights_of


def grants_of(group: str) -> tuple[Grant, ...]:
    rights = sorted(rights_of(group, wanted_objects()))
    return tuple(Grant(kind, name, part, group, right) for kind, name, part, right in rights)


def login(name: str, group: str) -> LoginRights:
    wanted = rights_of(group, wanted_objects())
    return LoginRights(name, (), (Membership(group, True),), grants_of(group), group=group, wanted=wanted)


GRANTS = grants_of(READER)
LOGIN, OF_JANITOR = login("reader", READER), login("janitor", ROLE_OF_JANITOR)


def jwt(claims: object) -> str:
    written = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{written}.c2ln"
