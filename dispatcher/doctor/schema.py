"""Judges the rights of a login, the objects of both schemas, and the plans of frequent queries. Pure.

`judge_objects`: compares the objects with the list that is made with the schema, `sql/objects.json`. The walls between
teams, the wake-ups and the rules of INSERT are functions, views, triggers, policies and rights. The list has each of
them, fact by fact, so it also finds a change that nobody expected.

`group_of`: the group role of each program. Containers and teams have roles of their own, which are left out: a program
of ours that has their login lacks its rights.

`judge_login`: a program's login has exactly the rights of its group role.

`judge_plans`: each query that programs run often uses its indexes, and reads no whole table.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from msgspec import Struct

from dispatcher.doctor.finding import Finding, fault, good, ident, or_good, relation, shell, signature, unchecked
from dispatcher.model.rights import JANITOR, RUN

Facts = Mapping[str, str]
Objects = Mapping[str, Facts]
"""Facts by object, such as `{"function dispatch.task(bigint)": {"owner": "dispatch_owner", …}}`."""
Right = tuple[str, str, str, str]
"""Kind and name of an object, column (empty: the whole object), privilege. Names have their schema."""
RIGHT: Final = re.compile(r"right of (.+): ([A-Z ]+)(?: \((.+)\))?")
RELATIONS: Final = frozenset({"table", "view", "sequence"})
AGAIN: Final = "TRUNCATE dispatch_private.applied_functions"  # house: for a person to type
"""After this statement, `dispatcher migrate` makes every function, view and trigger again, and grants all rights."""
OWNER: Final = "dispatch_owner"
OF_FILES: Final = ("function ", "view ")
SHOWN: Final = 60
"""Characters of a fact that a message quotes, at most."""
SHOWN_MENDS: Final = 5
"""Commands of one finding, at most."""


def rights_of(group: str, objects: Objects) -> frozenset[Right]:
    found = ((one, RIGHT.fullmatch(fact)) for one, facts in objects.items() for fact in facts)
    return frozenset(
        (*kind_and_name(one), right[3] or "", right[2]) for one, right in found if right and right[1] == group
    )


def kind_and_name(one: str) -> tuple[str, str]:
    kind, _, name = one.partition(" ")
    return "relation" if kind in RELATIONS else kind, name


def indexes_of(objects: Objects) -> dict[str, str]:
    """The statement that makes each index, by name. An index of a constraint comes with the constraint."""
    made = {kind_and_name(one)[1]: facts["body"] for one, facts in objects.items() if one.startswith("index ")}
    for one, facts in objects.items():
        for fact, definition in facts.items():
            kind, _, name = fact.partition(" ")
            table = kind_and_name(one)[1]
            if kind == "constraint" and (index := f"{table.partition('.')[0]}.{name}") in made:
                made[index] = f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"  # house: for a person to type
    return made


def other_indexes(wanted: Objects, found: Objects) -> frozenset[str]:
    """Names of indexes that have another definition than ours of the same name."""
    ours = {one: facts["body"] for one, facts in wanted.items() if one.startswith("index ")}
    return frozenset(
        kind_and_name(one)[1].partition(".")[2] for one, body in ours.items() if found.get(one, {}).get("body") != body
    )


def judge_objects(wanted: Objects, found: Objects, compared: Set[str], database: str) -> Iterator[Finding]:
    """Judges all objects except indexes. `compared`: roles whose rights other checks compare."""
    keys = {f"constraint {name.partition('.')[2]}" for name in indexes_of(wanted)}
    for one in sorted({*wanted, *found}):
        if one.startswith("index "):
            continue
        if one not in found:
            yield fault("ObjectChanged", one, "it is missing", database=database, statement=AGAIN)
        elif one not in wanted:
            schema = kind_and_name(one)[1].partition(".")[0]
            yield fault("ObjectUnknown", one, "this version does not make it", database=database, schema=schema)
        elif differ := differences(wanted[one], found[one], compared, keys):
            said = "; ".join(told(fact, wanted[one].get(fact), found[one].get(fact)) for fact in differ)
            mends = dict.fromkeys(mend(one, fact, wanted[one].get(fact), found[one].get(fact)) for fact in differ)
            statement = next((look for look in mends if look.startswith("\\")), "; ".join(list(mends)[:SHOWN_MENDS]))
            yield fault("ObjectChanged", one, said, database=database, statement=statement)


OF_TABLES: Final[Mapping[tuple[str, str | None], str]] = {
    ("row security", "on"): "ENABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY",
    ("autovacuum", "on"): "RESET (autovacuum_enabled)",
    ("survives a crash", "yes"): "SET LOGGED",  # house: for a person to type
}
"""What ALTER TABLE does to a table that has not what is wanted."""


def differences(wanted: Facts, found: Facts, compared: Set[str], keys: Set[str]) -> list[str]:
    """The facts that differ. `keys`: constraints that are judged as indexes.

    A trigger of somebody else is no difference.
    """
    return [
        fact for fact in sorted({*wanted, *found})
        if wanted.get(fact) != found.get(fact)
        and fact not in keys
        and not ((right := RIGHT.fullmatch(fact)) and right[1] in compared)
        and not (fact.startswith("trigger ") and fact not in wanted)
    ]  # fmt: skip


def told(fact: str, wanted: str | None, found: str | None) -> str:
    if wanted is None:
        return f"{fact} is too much"
    if found is None:
        return f"{fact} is missing"
    return "its body is another one" if fact == "body" else f"{fact} is {found[:SHOWN]}, not {wanted[:SHOWN]}"


def mend(one: str, fact: str, wanted: str | None, found: str | None) -> str:
    """What psql runs for this object alone, or what makes `dispatcher migrate` run the files of functions again."""
    kind, name = kind_and_name(one)
    right, of_table = RIGHT.fullmatch(fact), f"ALTER TABLE {relation(name)}"  # house: for a person to type
    where = {"function": f"FUNCTION {signature(name)}", "schema": f"SCHEMA {ident(name)}"}.get(kind, relation(name))
    if right and wanted is None:
        part = f" ({ident(right[3])})" if right[3] else ""
        return f"REVOKE {right[2]}{part} ON {where} FROM {right[1] if right[1] == 'PUBLIC' else ident(right[1])}"
    trigger = fact.partition(" ")[2] if fact.startswith("trigger ") else ""
    if fact == "owner":
        return f"ALTER {where if kind in {'function', 'schema'} else f'TABLE {where}'} OWNER TO {OWNER}"
    if (fact, wanted) in OF_TABLES:
        return f"{of_table} {OF_TABLES[fact, wanted]}"
    if fact.startswith(("policy ", "rule ")) and wanted is None:
        what, _, its_name = fact.partition(" ")
        return f"DROP {what.upper()} {ident(its_name)} ON {relation(name)}"  # house: for a person to type
    if trigger and found == f"off,{(wanted or '').partition(',')[2]}":
        return f"{of_table} ENABLE TRIGGER {ident(trigger)}"
    return AGAIN if one.startswith(OF_FILES) or right or trigger else f"\\d+ {relation(name)}"


READER: Final = "dispatch_reader"
ROLE_OF_JANITOR: Final = "dispatch_janitor"
OF_PROGRAM: Final[Mapping[str, str]] = {RUN: READER, JANITOR: ROLE_OF_JANITOR}
"""Group role of each program with a login."""
SCHEMAS: Final = ("dispatch", "dispatch_private")


def group_of(roles: Iterable[str], program: str | None = None) -> str:
    """The group role that a login is to have.

    roles: the roles of which it is a member.
    program: the program that has the login; None: not known, so a member of only the janitor's role is the janitor's.
    """
    if found := OF_PROGRAM.get(program or ""):
        return found
    members = set(roles)
    return ROLE_OF_JANITOR if ROLE_OF_JANITOR in members and READER not in members else READER


PUBLIC: Final = "PUBLIC"
SHOWN_RIGHTS: Final = 8
"""Columns that a message names, at most."""
NAMES_IN: Final = ("pg_catalog", "pg_temp")
"""The schemas in which our sessions look up names."""
OF_PROVIDERS: Final = frozenset({
    "rds_iam", "rds_ad", "cloudsqliamuser", "cloudsqliamserviceaccount", "alloydbiamuser",
})  # fmt: skip
"""Roles of managed servers that say how a member proves who it is. They give no right."""


class Membership(Struct, frozen=True):
    """A role that the login is a member of. `inherits`: whether the login has its rights without SET ROLE."""

    role: str
    inherits: bool


class ForeignRight(Struct, frozen=True):
    """An object that a login owns, or has a right on.

    what: the object in words.
    mend: the statement that ends it, only for this object; None: there is none of this form.
    """

    is_owner: bool
    what: str
    mend: str | None


class Grant(Struct, frozen=True):
    """One privilege on an object. `name`: with its schema. `part`: the column; empty: the whole object."""

    kind: str
    name: str
    part: str
    grantee: str
    privilege: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.kind, self.name, self.part, self.privilege


class LoginRights(Struct, frozen=True):
    """The login and its rights.

    attributes: attributes of an administrator.
    groups: the roles of which it is a member, also through others.
    grants: all privileges in both schemas, of every role.
    elsewhere: rights of the login itself on objects of other schemas, and objects that it owns.
    group: the role that it is to have.
    wanted: the rights that this role has in this version, with those of PUBLIC.
    """

    name: str
    attributes: tuple[str, ...] = ()
    groups: tuple[Membership, ...] = ()
    grants: tuple[Grant, ...] = ()
    elsewhere: tuple[ForeignRight, ...] = ()
    group: str = READER
    wanted: frozenset[Right] = frozenset()


def judge_login(login: LoginRights, database: str) -> Iterator[Finding]:
    """Judges the login. A superuser has every right, so the other checks are left out for it."""
    if login.attributes:
        yield fault(
            "LoginAttributes", f"login {login.name}", f"it has {', '.join(login.attributes)}",
            database=database, login=ident(login.name), attributes=" ".join(f"NO{one}" for one in login.attributes),
        )  # fmt: skip
        return
    yield good("LoginAttributes", f"login {login.name}")
    groups = tuple(judge_groups(login, database))
    yield from or_good(groups, "LoginGroups", f"login {login.name}, of {login.group}")
    if not groups:
        yield from or_good(missing(login, database), "MissingRight", f"login {login.name}")
    yield from or_good(extra(login, database), "ExtraRight", f"login {login.name}")
    yield from or_good(elsewhere(login, database), "RightElsewhere", f"login {login.name}")


def judge_groups(login: LoginRights, database: str) -> Iterator[Finding]:
    group, where = login.group, f"login {login.name}"
    names = {"database": database, "login": ident(login.name), "group": group}
    own = next((one for one in login.groups if one.role == group), None)
    if own is None:
        statement = f"GRANT {group} TO {names['login']}"
        yield fault("LoginGroups", where, f"it is not a member of {group}", database=database, statement=statement)
    elif not own.inherits:
        yield fault("LoginInherits", where, f"it is a member of {group}, but does not inherit its rights", **names)
    others = [one.role for one in login.groups if one.role not in {group, *OF_PROVIDERS}]
    if others:
        statement = f"REVOKE {', '.join(map(ident, others))} FROM {names['login']}"
        said = f"it is also a member of {', '.join(others)}"
        yield fault("LoginGroups", where, said, database=database, statement=statement)


def held(login: LoginRights) -> list[Grant]:
    """The privileges of the login itself, of its group and of PUBLIC. Other groups are a fault of their own."""
    holders = {login.name, PUBLIC, login.group}
    return [grant for grant in login.grants if grant.grantee in holders]


def missing(login: LoginRights, database: str) -> Iterator[Finding]:
    has = {grant.key for grant in held(login)}
    whole = {(kind, name, privilege) for kind, name, part, privilege in has if not part}
    lacks: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for kind, name, part, privilege in sorted(login.wanted - has):
        if (kind, name, privilege) not in whole:
            lacks[kind, name, privilege].append(part)
    for (kind, name, privilege), parts in lacks.items():
        yield fault(
            "MissingRight", object_of(kind, name), f"{login.group} lacks {right_of(privilege, parts, SHOWN_RIGHTS)}",
            database=database, group=login.group, right=right_of(privilege, parts), object=sql_of(kind, name),
        )  # fmt: skip


def extra(login: LoginRights, database: str) -> Iterator[Finding]:
    found: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for grant in held(login):
        if grant.key not in login.wanted and is_judged(grant):
            found[grant.kind, grant.name, grant.grantee, grant.privilege].append(grant.part)
    for (kind, name, holder, privilege), parts in sorted(found.items()):
        where = database if kind == "database" else name
        yield fault(
            "ExtraRight", object_of(kind, where), f"{holder} has {right_of(privilege, parts, SHOWN_RIGHTS)}",
            database=database, right=right_of(privilege, parts), object=sql_of(kind, where), holder=sql_role(holder),
        )  # fmt: skip


def elsewhere(login: LoginRights, database: str) -> Iterator[Finding]:
    for one in login.elsewhere:
        said = f"it {'owns' if one.is_owner else 'has rights on'} {one.what}"
        statement = shell(one.mend) if one.mend else r"\ddp"
        yield fault("RightElsewhere", f"login {login.name}", said, database=database, statement=statement)


def is_judged(grant: Grant) -> bool:
    """Whether the right matters. A right to connect, or to use a type, gives nothing away."""
    return grant.kind in {"relation", "schema", "function"} or (grant.kind, grant.privilege) == ("database", "CREATE")


def right_of(privilege: str, parts: Iterable[str], most: int | None = None) -> str:
    names = sorted(part for part in parts if part)
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    return f"{privilege} ({', '.join(map(ident, names[:most]))}{more})" if names else privilege


def object_of(kind: str, name: str) -> str:
    """The object in words. Schema dispatch has no table."""
    if kind == "relation":
        kind = "view" if name.startswith("dispatch.") else "table"
    return f"{kind} {name}"


def sql_of(kind: str, name: str) -> str:
    """The object as GRANT and REVOKE name it."""
    if kind == "relation":
        return relation(name)
    return f"FUNCTION {signature(name)}" if kind == "function" else f"{kind.upper()} {ident(name)}"


def sql_role(name: str) -> str:
    return name if name == PUBLIC else ident(name)


def paths(written: str) -> tuple[str, ...]:
    return tuple(one.strip().strip('"') for one in written.split(","))


Plan = Mapping[str, Any]
Indexes = frozenset[str]
READY: Final = frozenset({"tasks_ready", "tasks_ready_of_submitter"})
DUE: Final = frozenset({"tasks_due", "tasks_due_of_submitter"})
BY_ID: Final = frozenset({"tasks_pkey"})
PROCESSING: Final = frozenset({"tasks_processing"})
HISTORY: Final = frozenset({"tasks_history"})
FINISHED: Final = frozenset({"tasks_finished"})
FAILED: Final = frozenset({"tasks_failed"})
OF_SUBMITTER: Final = frozenset({"tasks_of_submitter"})
OF_BATCH: Final = frozenset({"tasks_of_batch"})
OF_OWN_BATCH: Final = frozenset({"tasks_of_own_batch"})
LABELS: Final = frozenset({"tasks_labels"})
ENDED: Final = frozenset({"tasks_finished_of_queue"})
LAUNCHES: Final = frozenset({"task_launches_pkey"})
STARTS: Final = frozenset({"task_launches_starts"})
OF_EACH_CYCLE: Final[Mapping[str, tuple[Indexes, ...]]] = {
    "cycle/frame": (DUE, PROCESSING),
    "cycle/submitters": (READY, DUE),
    "cycle/candidates_of": (READY, DUE),
    "cycle/tasks": (BY_ID,),
    "cycle/contenders": (BY_ID,),
}
"""Queries of `run` and of the janitor."""
OF_RUN: Final[Mapping[str, tuple[Indexes, ...]]] = {
    **OF_EACH_CYCLE,
    "cycle/candidates": (READY, DUE),
    "cycle/kinds": (BY_ID,),
    "caches/histories": (HISTORY,),
    "caches/runs": (HISTORY,),
    # Counts of all queues, every 30 s. The others answer people, who may ask at any time.
    "queues/counts": (READY, DUE, STARTS, FINISHED),
    "explain/line": (READY, DUE),
    "explain/starts": (STARTS, BY_ID),
    "explain/launches": (LAUNCHES,),
    "pages/page": (BY_ID,),
    "explain/marks": (BY_ID,),
    "cycle/statuses": (BY_ID,),
    "batches/sources": (BY_ID,),
    "pages/matching": (BY_ID,),
    "pages/matching_among": (BY_ID,),
    "pages/matching_of_submitter": (OF_SUBMITTER,),
    "pages/matching_of_batch": (OF_BATCH,),
    "batches/owners_of_batch": (OF_BATCH,),
    "batches/batches": (OF_BATCH | OF_OWN_BATCH,),
    "pages/few_of_batch": (OF_BATCH,),
    "pages/few_with_labels": (LABELS,),
    "pages/few_of_status": (PROCESSING, FAILED),
    "pages/newest_waiting": (READY, DUE),
    "batches/failed": (FAILED,),
    "batches/failed_of_batch": (OF_OWN_BATCH, BY_ID),
    "queues/templates": (),
    "queues/queue_settings": (),
    "queues/queue_ends": (ENDED,),
    "queues/queue_times": (ENDED,),
    "queues/ends": (FINISHED,),
    "caches/warm_keys": (FINISHED,),
}
OF_JANITOR: Final[Mapping[str, tuple[Indexes, ...]]] = {
    **OF_EACH_CYCLE,
    "janitor/run_digests": (BY_ID | PROCESSING,),
    "janitor/with_cause": (LAUNCHES,),
    "janitor/old": (FINISHED,),
}
INDEXES: Final[Mapping[str, Mapping[str, tuple[Indexes, ...]]]] = {READER: OF_RUN, ROLE_OF_JANITOR: OF_JANITOR}
"""Indexes that the plan of each frequent query uses, one of each set. By group role and file/block of sql/queries."""
ONE_ROW: Final = frozenset({"cycle/ping", "cycle/start_secret", "pages/statement_timeout"})
"""Queries that read at most one row, of a table with few rows."""
SMALL_TABLE: Final = 100
"""Pages of a small table, at most. There every index is as good as another, and Postgres may use any."""
SMALL: Final = frozenset({"queues", "templates", "schema_version", "pg_index", "pg_class"})
"""Tables that a plan may read completely."""


def judge_plans(
    group: str, plans: Mapping[str, Plan | str], pages: Mapping[str, int], others: Set[str], database: str
) -> Iterator[Finding]:
    """Judges the plans of a group role. `plans`: a text says why there is none. `pages`: by table.

    others: indexes that differ from ours of the same name. Postgres may pass over any index by its statistics: if all
    rows have one queue, an index without the queue is as good.
    """
    for name, plan in plans.items():
        file, _, block = name.partition("/")
        where = f"query {block} in sql/queries/{file}.sql"
        if isinstance(plan, str):
            yield unchecked("PlanWithoutIndex", where, plan)
        elif told := [*unused(INDEXES[group][name], plan, pages, others), *read_completely(plan)]:
            yield fault("PlanWithoutIndex", where, f"its plan {' and '.join(told)}", database=database)
        else:
            yield good("PlanWithoutIndex", where)


def unused(indexes: tuple[Indexes, ...], plan: Plan, pages: Mapping[str, int], others: Set[str]) -> Iterator[str]:
    used = {node.get("Index Name", "") for node in nodes_of(plan)}
    missed = [each for each in indexes if not each & used and each & others]
    names = [" or ".join(sorted(each)) for each in missed if pages.get(table_of(each), 0) > SMALL_TABLE]
    if names:
        yield f"does not use {', '.join(names)}"


def read_completely(plan: Plan) -> Iterator[str]:
    tables = {node["Relation Name"] for node in nodes_of(plan) if node["Node Type"] == "Seq Scan"} - SMALL
    if tables:
        yield f"reads all of {', '.join(sorted(tables))}"


def table_of(indexes: Indexes) -> str:
    return "task_launches" if indexes <= LAUNCHES | STARTS else "tasks"


def nodes_of(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)
