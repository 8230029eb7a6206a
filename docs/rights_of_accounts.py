"""The second part of `docs/rights.md`: the rights that the chart gives in the cluster. Pure.

The manifests can bind a role that they do not define. The page then has only its name. Its rules depend on the
cluster's version.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from docs.rights_of_roles import NOTHING, listed, section

CLUSTER: Final = "*cluster*"
ALL_OF_ROLE: Final = "everything that it allows"
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
"""The order of verbs on the page; other verbs come after these."""
AGGREGATED: Final = "rbac.authorization.k8s.io/aggregate-to-"
HEAD: Final = """\
## Cluster

A right in *cluster* holds for objects outside of namespaces, and in every namespace. A right without names holds for
every object. Every account may also ask about itself and discover the API. The admission policy restricts Jobs further.
The variants are the values in `deploy/rendered/values`.
"""
Json = Mapping[str, Any]


class Right(NamedTuple):
    """One verb on one resource. `where` is a namespace, or CLUSTER. No name: every object.

    A resource that begins with `/` is a path. A right to a whole role has the role's name and no resource.
    """

    subject: str
    where: str
    group: str
    resource: str
    name: str
    verb: str

    @property
    def of(self) -> str:
        """The resource in the form of kubectl."""
        if self.verb == ALL_OF_ROLE:
            return f"`{self.name}`"
        resource, slash, part = self.resource.partition("/") if self.resource[0] != "/" else (self.resource, "", "")
        return f"`{resource}{'.' if self.group else ''}{self.group}{slash}{part}`"


def accounts_part(installations: Mapping[str, Sequence[Json]]) -> str:
    """The part of the page as Markdown. `installations`: the objects of each variant of the chart."""
    verbs: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for folder, objects in installations.items():
        for right in rights_of(objects):
            name = "" if right.verb == ALL_OF_ROLE else right.name
            verbs[right.subject, right.where, right.of, name][folder].add(right.verb)
        for account in accounts_of(objects) - {right.subject for right in rights_of(objects)}:
            verbs[account, NOTHING, NOTHING, ""][folder].add(NOTHING)
    every = listed(sorted(installations))
    rows = [
        tuple("all" if word == every and len(installations) > 1 else word for word in row)
        for key in sorted(verbs, key=unquoted)
        for row in rows_of(key, verbs[key])
    ]
    heads = ("who", "where", "resource", "names", "verbs", "variants")
    return f"{HEAD}\n{section('Accounts', heads, rows)}"


def unquoted(key: Iterable[str]) -> list[str]:
    return [word.replace("`", "") for word in key]


def rows_of(key: tuple[str, ...], verbs_by_folder: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, ...]]:
    """One line for all folders that give the same verbs."""
    subject, where, resource, name = key
    folders: dict[str, list[str]] = defaultdict(list)
    for folder, verbs in verbs_by_folder.items():
        folders[" ".join(sorted(verbs, key=place))].append(folder)
    for verbs, found in sorted(folders.items()):
        yield subject, where, resource, f"`{name}`" if name else "", verbs, listed(sorted(found))


def place(verb: str) -> tuple[int, str]:
    return (VERBS.index(verb) if verb in VERBS else len(VERBS), verb)


def rights_of(objects: Iterable[Json]) -> set[Right]:
    """The rights of every subject that the objects name, and of later holders of their roles."""
    objects = tuple(objects)
    roles = {role_key(one): one for one in objects if one["kind"] in ("Role", "ClusterRole")}
    bindings = [one for one in objects if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    found = {right for binding in bindings for right in bound(binding, roles)}
    bound_roles = {bound_key(binding) for binding in bindings}
    for key, role in roles.items():
        for holder in later_holders(role, is_bound=key in bound_roles):
            found |= set(rules(holder, key[1] or CLUSTER, role))
    return found


def accounts_of(objects: Iterable[Json]) -> set[str]:
    return {subject_of(one | one["metadata"]) for one in objects if one["kind"] == "ServiceAccount"}


def role_key(role: Json) -> tuple[str, str, str]:
    return role["kind"], role["metadata"].get("namespace", ""), role["metadata"]["name"]


def bound_key(binding: Json) -> tuple[str, str, str]:
    """The key of the bound role. A RoleBinding may also give a ClusterRole, only in its own namespace."""
    kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
    return kind, binding["metadata"]["namespace"] if kind == "Role" else "", name


def bound(binding: Json, roles: Mapping[tuple[str, str, str], Json]) -> Iterator[Right]:
    where = binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else CLUSTER
    role = roles.get(bound_key(binding))
    for subject in binding.get("subjects", ()):
        who = subject_of(subject)
        if role is None:
            named = f"{binding['roleRef']['kind']} {binding['roleRef']['name']}"
            yield Right(who, where, "", "", named, ALL_OF_ROLE)
        else:
            yield from rules(who, where, role)


def later_holders(role: Json, *, is_bound: bool) -> list[str]:
    """Holders of the roles that include this role by its labels. An unbound role counts for its own later holders."""
    labels = role["metadata"].get("labels", {})
    wholes = [key.removeprefix(AGGREGATED) for key, on in labels.items() if key.startswith(AGGREGATED) and on == "true"]
    alone = [] if wholes or is_bound else [role["metadata"]["name"]]
    return [f"whoever has `{name}`" for name in wholes + alone]


def subject_of(subject: Json) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"`{subject['namespace']}/{subject['name']}`"
    return f"{subject['kind']} `{subject['name']}`"


def rules(who: str, where: str, role: Json) -> Iterator[Right]:
    if "aggregationRule" in role:
        raise ValueError(f"{role_key(role)}: its rights come from roles that it selects by label: name the rules in it")
    for rule in role.get("rules", ()):
        groups, names = rule.get("apiGroups", [""]), rule.get("resourceNames") or [""]
        for path, verb in product(rule.get("nonResourceURLs", ()), rule["verbs"]):
            yield Right(who, where, "", path, "", verb)
        for group, resource, name, verb in product(groups, rule.get("resources", ()), names, rule["verbs"]):
            yield Right(who, where, group, resource, name, verb)
