"""All checks, in the order of the report: what each asks, why it matters, and the command that mends it.

docs/doctor.md is made from this table. Findings fill in the words in braces.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Part(StrEnum):
    """A part of the installation. Each part is read apart from the others."""

    SETTINGS = "settings"
    DATABASE = "database"
    CLUSTER = "cluster"
    TEMPLATES = "templates"
    SCHEDULING = "scheduler and extender"
    CACHES = "caches"
    PROMETHEUS = "Prometheus"


class Check(Struct, frozen=True):
    """One check.

    asks: the question that it answers with yes in a healthy installation.
    why: why a fault matters.
    mend: the command that mends it.
    """

    part: Part
    asks: str
    why: str
    mend: str


CLUSTER: Final[Mapping[str, Check]] = {
    "ApiServerAway": Check(
        Part.CLUSTER,
        "Does the API server answer?",
        "Without the API server nothing is launched and nothing is deleted.",
        "kubectl get --raw /readyz?verbose  # as the same account; then check address, account and network",
    ),
    "ApiServerTooOld": Check(
        Part.CLUSTER,
        "Is the API server Kubernetes 1.31 or later?",
        "Older servers lack fields of Jobs that the rules of launches depend on.",
        "kubectl version  # upgrade the control plane to 1.31 or later",
    ),
    "MissingVerb": Check(
        Part.CLUSTER,
        "May each program do what it needs?",
        "The program stops, or does a part of its work, where it is refused.",
        "helm upgrade {release} deploy/chart -n {namespace} --reset-then-reuse-values  # {release_is}",
    ),
    "NamespaceMissing": Check(
        Part.CLUSTER,
        "Do the namespaces of the programs and of the Jobs exist?",
        "No Job can be made.",
        "kubectl create namespace {namespace}",
    ),
    "NamespaceTerminating": Check(
        Part.CLUSTER,
        "Are the namespaces not being deleted?",
        "No Job can be made, and everything in the namespace goes.",
        "kubectl get namespace {namespace} -o jsonpath='{{.status.conditions}}'  # when it is gone, create it again",
    ),
    "PolicyMissing": Check(
        Part.CLUSTER,
        "Is the admission policy for the Jobs there?",
        "A Job can use every Secret and ServiceAccount of its namespace. Only the policy limits what ours name. "
        "Where the value policy.enabled is false, it is a warning.",
        "helm upgrade {release} deploy/chart -n {namespace} --reset-then-reuse-values --set policy.enabled=true"
        "  # {release_is}",
    ),
    "PolicyUnbound": Check(
        Part.CLUSTER,
        "Is the admission policy bound, with the action Deny, and about the account of our programs?",
        "Otherwise the API server does not enforce the policy. kustomize changes namespaces, and no names in a policy.",
        "helm upgrade {release} deploy/chart -n {namespace} --reset-then-reuse-values --set policy.enabled=true"
        "  # {release_is}",
    ),
    "ProgramNotReady": Check(
        Part.CLUSTER,
        "Does each program have a Pod that is ready, where a Deployment runs it?",
        "Without the dispatcher no row is launched. Without the janitor no cancel ends, and parked rows stay.",
        "kubectl -n {namespace} logs --prefix --tail=20 "
        "-l app.kubernetes.io/instance={installation},app.kubernetes.io/component={component}"
        "  # scaled to 0, or no Pod: kubectl scale or describe deployment {deployment}",
    ),
    "NoLeader": Check(
        Part.CLUSTER,
        "Does a replica of the dispatcher lead?",
        "Only the replica that leads launches rows.",
        "kubectl -n {namespace} logs --prefix --tail=20 "
        "-l app.kubernetes.io/instance={installation},app.kubernetes.io/component=run",
    ),
    "JobControllerSlow": Check(
        Part.CLUSTER,
        "Do Jobs get their Pods within seconds?",
        "The Job controller sends 20 requests a second by default: about five Jobs a second, whatever is launched.",
        "kube-controller-manager --kube-api-qps=300 --kube-api-burst=600 --concurrent-job-syncs=20  # its flags",
    ),
}
TEMPLATES: Final[Mapping[str, Check]] = {
    "NoTemplate": Check(
        Part.TEMPLATES,
        "Is there a template?",
        "Without a template no row can be launched.",
        "helm upgrade {release} deploy/chart -n {namespace} --reset-then-reuse-values --set settings.IMAGE=IMAGE"
        "  # {release_is}",
    ),
    "InvalidTemplate": Check(
        Part.TEMPLATES,
        "Can each template be used?",
        "Rows of the template are parked as InvalidTemplate.",
        "dispatcher render --template {template}  # after a change of its file",
    ),
    "TemplateDoubtful": Check(
        Part.TEMPLATES,
        "Does each template say which container is the task's, and can that one report?",
        "A row's variables, image and amounts go to one container. A task that cannot report is parked when it ends.",
        "dispatcher render --template {template}  # then correct its file",
    ),
    "EnvOpen": Check(
        Part.TEMPLATES,
        "Do templates with Secrets open the names of variables that rows need?",
        "A row sets variables for any library in the image. No list of dangerous names is complete.",
        "dispatcher render --template {template}  # in its file: dispatcher.internal/row-may-set: env.APP_MODE,…",
    ),
    "JobRefused": Check(
        Part.TEMPLATES,
        "Does the API server accept a Job of each template (dry run)?",
        "Rows of the template do not become Jobs.",
        "dispatcher render --template {template} | kubectl create --dry-run=server -f -",
    ),
    "JobChanged": Check(
        Part.TEMPLATES,
        "Does a Job of each template come back as it was sent, in what the dispatcher relies on (dry run)?",
        "A policy or webhook changes it, such as a time to live that forgets launches. Its rows wait as JobChanged.",
        "kubectl get mutatingadmissionpolicies,mutatingwebhookconfigurations  # exempt namespace {namespace}",
    ),
    "PodSecurity": Check(
        Part.TEMPLATES,
        "Does the Pod of each template pass the Pod Security level of the namespace?",
        "The Job is made, but its Pod is refused: each launch counts as one that never started.",
        "kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce={level}"
        "  # or change the template",
    ),
    "QuotaFitsNoJob": Check(
        Part.TEMPLATES,
        "Would each ResourceQuota, when empty, admit a Job of each template?",
        "Rows of the template wait as QuotaExceeded for ever.",
        "kubectl -n {namespace} edit resourcequota {quota}",
    ),
    "LimitRangeRefuses": Check(
        Part.TEMPLATES,
        "Does each LimitRange admit the Pod of each template?",
        "The Job is made, but its Pod is refused: each launch counts as one that never started.",
        "kubectl -n {namespace} edit limitrange {range}",
    ),
    "SecretMissing": Check(
        Part.TEMPLATES,
        "Does each Secret that a template names exist?",
        "The container never starts: kubelet waits for the Secret until the start deadline.",
        "kubectl -n {namespace} create secret generic {secret} --from-literal=KEY=VALUE",
    ),
    "SecretKeyMissing": Check(
        Part.TEMPLATES,
        "Has each Secret the keys that a template names?",
        "The container never starts: kubelet waits for the key until the start deadline.",
        'kubectl -n {namespace} patch secret {secret} -p \'{{"stringData": {{"{key}": "VALUE"}}}}\'',
    ),
    "ObjectMissing": Check(
        Part.TEMPLATES,
        "Does each ConfigMap, ServiceAccount, claim, and class of secrets, priority or runtime of a template exist?",
        "The Pod is refused, gets no node, or its container never starts.",
        "kubectl -n {namespace} get {name}  # make it, or take it out of the template",
    ),
    "NoNodeFits": Check(
        Part.TEMPLATES,
        "Is there a node that is large enough for the Pod of each template, and takes it?",
        "Rows of the template wait as NeverFits until there is such a node.",
        "kubectl describe nodes | grep -E -A7 'Name:|Taints:|Allocatable:'  # add a node, or change the template",
    ),
}
SCHEDULING: Final[Mapping[str, Check]] = {
    "SchedulerAbsent": Check(
        Part.SCHEDULING,
        "Is a kube-scheduler at work under DISPATCHER_SCHEDULER_NAME?",
        "Pods that name an absent scheduler stay Pending for ever.",
        "kubectl -n {namespace} rollout restart deployment/{scheduler}"
        "  # if there is none: --set scheduler.enabled=true, or unset DISPATCHER_SCHEDULER_NAME",
    ),
    "ExtenderNotConfigured": Check(
        Part.SCHEDULING,
        "Does the configuration of that kube-scheduler name the extender?",
        "Without the extender no cache is warm, and reservations do not hold.",
        "dispatcher extender --print-scheduler-config  # the configuration that it needs",
    ),
    "ExtenderNotAnswering": Check(
        Part.SCHEDULING,
        "Is the extender ready?",
        "Pods of ours wait with SchedulerError until the extender answers.",
        "kubectl -n {namespace} logs {pod} -c extender --tail=50",
    ),
    "ExtenderMisused": Check(
        Part.SCHEDULING,
        "Does one kube-scheduler alone call the extender, and as it should?",
        "Answers are dropped, or two schedulers choose the same room.",
        "dispatcher extender --print-scheduler-config  # one extender for each scheduler, configured like this",
    ),
}
CACHES: Final[Mapping[str, Check]] = {
    "CacheKeeperAbsent": Check(
        Part.CACHES,
        "Is a cache keeper ready on each node?",
        "Nobody removes cache directories of the node, until kubelet evicts Pods from its full disk. Without a "
        "DaemonSet it is a warning.",
        "kubectl -n {namespace} describe daemonset {installation}-cache-keeper"
        "  # if there is none: helm upgrade with cacheKeeper.enabled=true",
    ),
    "CacheDiskFull": Check(
        Part.CACHES,
        "Did each cache keeper find directories that may go, in the last hour?",
        "The disk stays above CACHE_HIGH_PERCENT. kubelet evicts Pods from a full disk.",
        "kubectl -n {namespace} exec $(kubectl -n {namespace} get pods -o name --field-selector spec.nodeName={node} "
        "-l app.kubernetes.io/component=cache-keeper,app.kubernetes.io/instance={installation}) "
        "-- dispatcher cache-keeper --dry-run  # docs/runbooks/DispatcherCacheDiskFull.md",
    ),
}
OF_PROMETHEUS: Final[Mapping[str, Check]] = {
    "PrometheusAway": Check(
        Part.PROMETHEUS,
        "Does Prometheus answer at DISPATCHER_PROMETHEUS_URL?",
        "Pods carry no real use of earlier runs, so the extender places them by their requests alone.",
        "curl -sS {url}/-/ready",
    ),
    "MetricUnknown": Check(
        Part.PROMETHEUS,
        "Does Prometheus know the container metrics of kubelets?",
        "Pods carry no real use of earlier runs, so the extender places them by their requests alone.",
        "curl -sS '{url}/api/v1/targets?state=active' | grep -c cadvisor  # scrape /metrics/cadvisor of each kubelet",
    ),
}


SETTINGS: Final[Mapping[str, Check]] = {
    "UnknownSetting": Check(
        Part.SETTINGS,
        "Is every DISPATCHER_… variable a setting?",
        "The programs ignore the variable, so what it was meant to change stays as it was.",
        "unset {name}  # in a cluster: take it out of the settings of the installation",
    ),
}
DATABASE: Final[Mapping[str, Check]] = {
    "DatabaseAway": Check(
        Part.DATABASE,
        "Does the database answer?",
        "Without the database nothing is launched and nothing is deleted.",
        'psql "$DISPATCHER_DATABASE_URL" -c "\\conninfo"  # as the program connects; then check server and network',
    ),
    "LoginRefused": Check(
        Part.DATABASE,
        "Does the database accept the login?",
        "Without the database nothing is launched and nothing is deleted.",
        "kubectl -n {namespace} create secret generic {secret} --dry-run=client -o yaml "
        "--from-literal=url='postgresql://LOGIN:PASSWORD@HOST/DATABASE' | kubectl apply -f -  # {secret_is}",
    ),
    "DatabaseNotPrimary": Check(
        Part.DATABASE,
        "Is the server the primary?",
        "Rows of a standby may be old, so no decision uses them.",
        "kubectl -n {namespace} create secret generic {secret} --dry-run=client -o yaml "
        "--from-literal=url='postgresql://LOGIN:PASSWORD@PRIMARY,STANDBY/DATABASE' | kubectl apply -f -  # {secret_is}",
    ),
    "PostgresTooOld": Check(
        Part.DATABASE,
        "Is the server Postgres 15 or later?",
        "Older servers lack what the schema uses, and get no security fixes.",
        "pg_upgrade --help  # to Postgres 15 or later",
    ),
    "DatabaseEncoding": Check(
        Part.DATABASE,
        "Is the encoding of the database UTF8?",
        "Another encoding holds texts that no program can read. One such row stops all launches.",
        "psql {database} -c 'CREATE DATABASE {new} ENCODING UTF8 TEMPLATE template0'  # then migrate it, and use it",
    ),
    "CollationChanged": Check(
        Part.DATABASE,
        "Does the server order texts as it did when the indexes were made?",
        "In an index of another order rows are not found: they are never launched, and keys are taken twice.",
        "psql {database} -c 'REINDEX DATABASE {object}' -c 'ALTER DATABASE {object} REFRESH COLLATION VERSION'",
    ),
    "SchemaOld": Check(
        Part.DATABASE,
        "Is every migration of this version applied, and are the functions those of this version?",
        "The programs do nothing without the migrations, and functions of another version do something else.",
        "DISPATCHER_DATABASE_URL='postgresql://work_dispatcher_migrate:PASSWORD@HOST/DATABASE' dispatcher migrate",
    ),
    "SchemaChanged": Check(
        Part.DATABASE,
        "Is each applied migration the one of this version?",
        "The schema may differ from what the programs were tested with, and `dispatcher migrate` stops.",
        "psql {database} -c 'SELECT version, name, checksum FROM dispatch.schema_version ORDER BY version'",
    ),
    "RestoredWithoutRoles": Check(
        Part.DATABASE,
        "Were the roles there when the database was restored?",
        "A dump has no roles. Without them all objects belong to who restored them, and all rights are lost.",
        "psql postgres -c 'CREATE DATABASE {database}_again'  # then deploy/logins.sql and the dump (docs/install.md)",
    ),
    "SchemaOwner": Check(
        Part.DATABASE,
        "Do both schemas belong to dispatch_owner?",
        "Another owner can put functions and tables of its own into the schema, and `dispatcher migrate` stops.",
        "psql {database} -c 'ALTER SCHEMA {schema} OWNER TO dispatch_owner'",
    ),
    "IndexMissing": Check(
        Part.DATABASE,
        "Is each index of the schema there?",
        "Without an index the programs are not ready, or each cycle reads whole tables.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c '{statement}'",
    ),
    "IndexInvalid": Check(
        Part.DATABASE,
        "Is each index of the schema valid?",
        "Postgres does not use an invalid index. The programs are not ready without the indexes that they need.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c 'REINDEX INDEX CONCURRENTLY {index}'",
    ),
    "PlanWithoutIndex": Check(
        Part.DATABASE,
        "Does each frequent query use its indexes?",
        "A query that reads the whole table gets slower with each row, and launches stop at its time limit.",
        "psql {database} -c 'ANALYZE dispatch_private.tasks' -c '\\d dispatch_private.tasks'  "
        "# compare with sql/migrations",
    ),
    "LoginAttributes": Check(
        Part.DATABASE,
        "Has the login no attribute of an administrator?",
        "A program needs none. A stolen password of this login could do much more than the program.",
        "psql {database} -c 'ALTER ROLE {login} {attributes}'",
    ),
    "LoginGroups": Check(
        Part.DATABASE,
        "Is the login a member of its program's role alone: dispatch_reader, or dispatch_janitor for the janitor?",
        "Without its role the program reads no row. With further roles a stolen password could do more.",
        "psql {database} -c '{statement}'",
    ),
    "LoginInherits": Check(
        Part.DATABASE,
        "Does the login inherit the rights of its role?",
        "Without them the program reads no row.",
        # Since Postgres 16 the attribute counts only when the role is granted.
        "psql {database} -c 'ALTER ROLE {login} INHERIT' -c 'REVOKE {group} FROM {login}' "
        "-c 'GRANT {group} TO {login}'",
    ),
    "MissingRight": Check(
        Part.DATABASE,
        "Has the login each right of its role?",
        "The program stops at the first query that it may not run.",
        "psql {database} -c 'SET ROLE dispatch_owner' -c 'GRANT {right} ON {object} TO {group}'",
    ),
    "ExtraRight": Check(
        Part.DATABASE,
        "Has the login only the rights of its role?",
        "A stolen password of this login could do more than the program.",
        "psql {database} -c 'REVOKE {right} ON {object} FROM {holder}'",
    ),
    "RightElsewhere": Check(
        Part.DATABASE,
        "Has the login no object of its own, and no right by name outside of our schemas?",
        "A program uses our schemas alone. A stolen password of this login could do more.",
        "psql {database} -c '{statement}'  # look at the object first",
    ),
    "SearchPath": Check(
        Part.DATABASE,
        "Does the session look up names only in pg_catalog?",
        "Otherwise whoever creates objects in another schema chooses what the program runs.",
        "psql {database} -c 'ALTER {object} SET search_path = pg_catalog, pg_temp'",
    ),
    "ObjectChanged": Check(
        Part.DATABASE,
        "Is each table, view, function, trigger, policy and right of both schemas as this version makes it?",
        "The walls between teams, the rules of INSERT and the wake-ups rest on them.",
        # After TRUNCATE, the migration runs all files of functions again. Tables are compared with sql/schema.sql.
        "psql {database} -c '{statement}'  # then: dispatcher migrate",
    ),
    "ObjectUnknown": Check(
        Part.DATABASE,
        "Does this version make every object of both schemas?",
        "What is in these schemas runs with the rights of their owner, or beside what the programs were tested with.",
        "psql {database} -c '\\df+ {schema}.*' -c '\\d {schema}.*'  # look at it, and drop it if nobody needs it",
    ),
    "SequenceBehind": Check(
        Part.DATABASE,
        "Is the sequence of ids at least at the largest id?",
        "Logical replication and data loads leave it behind. Then INSERT fails with a duplicate key.",
        "psql {database} -c 'SELECT setval($$dispatch_private.tasks_id_seq$$, max(id)) FROM dispatch_private.tasks'",
    ),
    "RoleGone": Check(
        Part.DATABASE,
        "Is the role of each queue there, and the login of each submitter with rows that have not ended?",
        "Nobody may insert into such a queue, and nobody but an operator can stop such rows.",
        "psql {database} -c '{statement}'  # with the role or login that is to have them",
    ),
    "AutovacuumOff": Check(
        Part.DATABASE,
        "Does the server vacuum and analyse tables by itself?",
        "Dead rows and old statistics make each cycle slower, until launches stop at a time limit.",
        "psql {database} -c 'ALTER SYSTEM SET autovacuum = on' -c 'ALTER SYSTEM SET track_counts = on' "
        "-c 'SELECT pg_reload_conf()'",
    ),
    "TriggersSkipped": Check(
        Part.DATABASE,
        "Does every session run the triggers of the views?",
        "With session_replication_role = replica an INSERT makes no row, and a change of a queue is lost.",
        "psql {database} -c 'ALTER {whose} RESET session_replication_role'",
    ),
    "PreparedTransaction": Check(
        Part.DATABASE,
        "Is no prepared transaction older than an hour?",
        "It keeps its locks, and no dead row can be removed, until somebody ends it.",
        "psql {database} -c 'ROLLBACK PREPARED {gid}'",
    ),
    "OldSnapshot": Check(
        Part.DATABASE,
        "Does VACUUM remove the dead rows of tasks?",
        "An old snapshot is kept. Each look passes by the dead rows, and takes longer with each of them.",
        "psql {database} -c 'SELECT {statement}'  # ask first whose it is, and what it does",
    ),
    "PasswordEnds": Check(
        Part.DATABASE,
        "Does no password of a program or of the tasks end within 30 days?",
        "After that day the login is refused: rows are not launched, or containers cannot report.",
        "psql {database} -c 'ALTER ROLE {login} VALID UNTIL $$infinity$$'  # or change passwords: docs/install.md",
    ),
    "LoginTalks": Check(
        Part.DATABASE,
        "Do the settings of no login of ours make the server tell what it works with?",
        "Any program with a login may set them for all sessions of that login. Keys of rows then stand in the log.",
        "psql {database} -c 'ALTER ROLE {login} {scope}RESET {setting}'",
    ),
    "ConnectionRoom": Check(
        Part.DATABASE,
        "Are connections left for a further replica?",
        "A new Pod, or a replica after a fail-over, gets no connection, and launches nothing.",
        "psql {database} -c 'ALTER {limit}'",
    ),
    "NotifyQueue": Check(
        Part.DATABASE,
        "Is the queue of notifications nearly empty?",
        "A session does not read its notifications. If the queue is full, every INSERT of a row fails.",
        "psql {database} -c 'SELECT pid, usename, xact_start, query FROM pg_stat_activity "
        "WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5'  # then pg_terminate_backend(pid)",
    ),
    "ClockOff": Check(
        Part.DATABASE,
        "Do the clocks of database, API server and this machine agree?",
        "Times of rows are compared with times of Jobs. Wrong clocks make waits, limits and logs wrong.",
        "chronyc tracking  # on {machine}; then start its time service",
    ),
}


CHECKS: Final[Mapping[str, Check]] = {
    **SETTINGS, **DATABASE, **CLUSTER, **TEMPLATES, **SCHEDULING, **CACHES, **OF_PROMETHEUS
}  # fmt: skip
