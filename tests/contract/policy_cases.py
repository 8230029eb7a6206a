"""Jobs that the admission policy refuses, with the words of the refusal, and Jobs that it accepts."""

from typing import Any

from tests.controlplane.api import Json

STOLEN = "dispatcher-migrate-database"
"""The Secret with the login of the schema's owner."""
CACHES = "/var/cache/tasks"
DIGEST = "0123456789abcdef0123456789abcdef01234567"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
LISTS = {
    "hostPathPrefixes": ["/mnt/shared", "/var"],
    "secrets": ["team-a"],
    "configMaps": ["team-a"],
    "serviceAccounts": ["default", "team-a"],
    "priorityClasses": ["batch-low"],
    "runtimeClasses": ["sandboxed"],
    "schedulers": ["volcano"],
    "templates": {
        "builder": {
            "secrets": ["registry"], "configMaps": ["builds"], "serviceAccounts": ["builder"],
            "hostPathPrefixes": ["/srv/images"], "volumeKinds": ["nfs"], "priorityClasses": ["high"],
            "runtimeClasses": ["bare"], "schedulers": ["mine"], "privileged": True, "capabilities": ["SYS_PTRACE"],
            "hostPorts": [8080],
        },
        "reader": {"secrets": ["team-b"], "privileged": False},
    },
}  # fmt: skip


def volume(**source: Any) -> Json:
    return {"volumes": [{"name": "more", **source}]}


def projected(**source: Any) -> Json:
    return volume(projected={"sources": [source]})


def env(**source: Any) -> Json:
    return {"env": [{"name": "URL", "valueFrom": source}]}


def key(name: str) -> Json:
    return {"name": name, "key": "url"}


def secured(**context: Any) -> Json:
    return {"securityContext": context}


def host_path(path: str) -> Json:
    return volume(hostPath={"path": path})


OTHER_SECRET = "Secret dispatcher-migrate-database is not in the list secrets: "
OTHER_MAP = "ConfigMap other is not in the list configMaps: "
OTHER_PATH = "is not below one of hostPathPrefixes: "
OTHER_KIND = "are not in the list volumeKinds: "
OTHER_ACCOUNT = "ServiceAccount dispatcher is not in the list serviceAccounts: "
HOST = "hostNetwork, hostPID, hostIPC and hostPort are not for Jobs of ours"
PRIVILEGED = "privileged, procMount and hostProcess are not for Jobs of ours"
CONFINED = "seccomp and AppArmor stay confined"
NAMED = {"name": STOLEN}
METADATA = {"httpGet": {"host": "169.254.169.254", "port": 80}}

RUNS_ONCE = "a container of a Job of ours runs once"
OTHER_CACHE = "is not the folder of one cache"
CONTAINER_ATTACKS: dict[str, tuple[Json, str]] = {
    "env of a Secret": (env(secretKeyRef=key(STOLEN)), OTHER_SECRET),
    "env of a Secret that may be missing": (env(secretKeyRef=key(STOLEN) | {"optional": True}), OTHER_SECRET),
    "env from a Secret": ({"envFrom": [{"secretRef": NAMED}]}, OTHER_SECRET),
    "env of a ConfigMap": (env(configMapKeyRef=key("other")), OTHER_MAP),
    "env from a ConfigMap": ({"envFrom": [{"configMapRef": {"name": "other"}}]}, OTHER_MAP),
    "hostPort": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, HOST),
    "privileged": (secured(privileged=True), PRIVILEGED),
    "a capability": (secured(capabilities={"add": ["SYS_ADMIN"]}), "a capability is added"),
    "seccomp": (secured(seccompProfile={"type": "Unconfined"}), CONFINED),
    "AppArmor": (secured(appArmorProfile={"type": "Unconfined"}), CONFINED),
    "SELinux type": (secured(seLinuxOptions={"type": "spc_t"}), CONFINED),
    "SELinux role": (secured(seLinuxOptions={"role": "sysadm_r"}), CONFINED),
    "restarts after a failure": ({"restartPolicy": "OnFailure"}, RUNS_ONCE),
    "restarts by a rule": (
        {
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
        },
        RUNS_ONCE,
    ),
    "a hook": ({"lifecycle": {"preStop": METADATA}, "restartPolicy": "Always"}, "probes and hooks"),
    "a probe": ({"livenessProbe": METADATA, "restartPolicy": "Always"}, "probes and hooks"),
}
POD_ATTACKS: dict[str, tuple[Json, str]] = {
    "a volume of a Secret": (volume(secret={"secretName": STOLEN}), OTHER_SECRET),
    "a projection of a Secret": (projected(secret=NAMED), OTHER_SECRET),
    "a driver's Secret": (volume(csi={"driver": "x.y", "nodePublishSecretRef": NAMED}), OTHER_SECRET),
    "a Secret to pull by": ({"imagePullSecrets": [{"name": "team-a"}, NAMED]}, OTHER_SECRET),
    "flexVolume's Secret": (volume(flexVolume={"driver": "x/y", "secretRef": NAMED}), OTHER_SECRET),
    "cephfs' Secret": (volume(cephfs={"monitors": ["m"], "secretRef": NAMED}), OTHER_SECRET),
    "azureFile's Secret": (volume(azureFile={"shareName": "s", "secretName": STOLEN}), OTHER_SECRET),
    "flexVolume": (volume(flexVolume={"driver": "x/y"}), f"flexVolume {OTHER_KIND}"),
    "iscsi": (volume(iscsi={"targetPortal": "p", "iqn": "iqn.2001-04.com.x:y", "lun": 0}), f"iscsi {OTHER_KIND}"),
    "glusterfs": (volume(glusterfs={"endpoints": "e", "path": "p"}), f"glusterfs {OTHER_KIND}"),
    "a volume of a ConfigMap": (volume(configMap={"name": "other"}), OTHER_MAP),
    "a projection of a ConfigMap": (projected(configMap={"name": "other"}), OTHER_MAP),
    "a token of the default account": (projected(serviceAccountToken={"path": "t"}), "a token or certificate"),
    "our account": ({"serviceAccountName": "dispatcher"}, OTHER_ACCOUNT),
    "our account by the old name of the field": ({"serviceAccount": "dispatcher"}, OTHER_ACCOUNT),
    "the node's root": (host_path("/"), OTHER_PATH),
    "a folder above the caches": (host_path("/var/cache"), OTHER_CACHE),
    "the folder of all caches, with a slash": (host_path(f"{CACHES}/"), OTHER_CACHE),
    "the caches behind two slashes": (host_path("/var//cache/tasks/dispatcher"), OTHER_CACHE),
    "a folder beside one that is listed without a slash": (host_path("/mnt/shared-of-others"), OTHER_PATH),
    "the folder of all caches": (host_path(CACHES), OTHER_CACHE),
    "a folder that ends like the caches": (host_path(f"/etc{CACHES}/x"), OTHER_PATH),
    "a path that is not written plainly": (host_path("/mnt/shared/./x"), OTHER_PATH),
    "the folder of our caches": (host_path(f"{CACHES}/dispatcher"), OTHER_CACHE),
    "what the keeper writes": (host_path(f"{CACHES}/dispatcher/.aside.{DIGEST}"), OTHER_CACHE),
    "a folder of one cache": (host_path(f"{CACHES}/dispatcher/{DIGEST}/x"), OTHER_CACHE),
    "a short digest": (host_path(f"{CACHES}/dispatcher/0123"), OTHER_CACHE),
    "a driver": (volume(csi={"driver": "x.y"}), f"csi {OTHER_KIND}"),
    "a server of files": (volume(nfs={"server": "s", "path": "/"}), f"nfs {OTHER_KIND}"),
    "a claim of its own": (volume(ephemeral={"volumeClaimTemplate": {"spec": CLAIM}}), f"ephemeral {OTHER_KIND}"),
    "a high priority": ({"priorityClassName": "system-node-critical"}, "PriorityClass system-node-critical is not in"),
    "a runtime": ({"runtimeClassName": "bare"}, "RuntimeClass bare is not in the list runtimeClasses"),
    "a scheduler": ({"schedulerName": "mine"}, "scheduler mine is not in the list schedulers"),
    "a node": ({"nodeName": "node-1"}, "nodeName passes by the scheduler"),
    "hostNetwork": ({"hostNetwork": True}, HOST),
    "hostPID": ({"hostPID": True}, HOST),
    "hostProcess": ({"hostNetwork": True, **secured(windowsOptions={"hostProcess": True})}, HOST),
    "hostIPC": ({"hostIPC": True}, HOST),
    "seccomp of the Pod": (secured(seccompProfile={"type": "Unconfined"}), CONFINED),
    "a sysctl": (secured(sysctls=[{"name": "kernel.msgmax", "value": "65536"}]), "a sysctl is set"),
}
LEGAL_CONTAINERS: dict[str, Json] = {
    "a listed Secret": env(secretKeyRef=key("team-a")),
    "a listed ConfigMap": {"envFrom": [{"configMapRef": {"name": "team-a"}}, {"secretRef": {"name": "task-database"}}]},
    "a capability of baseline": secured(capabilities={"add": ["CHOWN"]}),
    "a probe of itself": {"livenessProbe": {"httpGet": {"path": "/", "port": 80}}, "ports": [{"containerPort": 80}]},
    "as much env as a row has": {"env": [{"name": f"N{n}", "value": "x" * 2000} for n in range(100)]},
}
LEGAL_PODS: dict[str, Json] = {
    "a listed account and a token of it": {
        "serviceAccountName": "team-a",
        **projected(serviceAccountToken={"path": "t", "audience": "vault"}),
    },
    "the default account by its name": {"serviceAccountName": "default"},
    "a claim": volume(persistentVolumeClaim={"claimName": "any"}),
    "a listed Secret as a volume": volume(secret={"secretName": "team-a"}),
    "a projection of everything listed": projected(secret={"name": "team-a"}),
    "one of our caches": host_path(f"{CACHES}/dispatcher/{DIGEST}"),
    "below another prefix": host_path("/mnt/shared/a/b"),
    "beside the caches, below a listed folder": host_path(f"{CACHES}-of-others"),
    "a listed priority": {"priorityClassName": "batch-low"},
    "a listed runtime": {"runtimeClassName": "sandboxed"},
    "a listed scheduler": {"schedulerName": "volcano"},
    "our scheduler": {"schedulerName": "dispatcher-scheduler"},
    "memory": volume(emptyDir={"medium": "Memory"}),
    "namespaces of its own": {"hostUsers": False, "shareProcessNamespace": True},
    "what baseline allows": secured(
        sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "4096 87380 6291456"}], seLinuxOptions={"type": "container_t"}
    ),
}
OF_BUILDER: dict[str, Json] = {
    "its Secret": {"container": env(secretKeyRef=key("registry"))},
    "its ConfigMap": {"container": {"envFrom": [{"configMapRef": {"name": "builds"}}]}},
    "its account": {"serviceAccountName": "builder"},
    "its folder": host_path("/srv/images/a"),
    "its kind of volume": volume(nfs={"server": "s", "path": "/"}),
    "its priority": {"priorityClassName": "high"},
    "its runtime": {"runtimeClassName": "bare"},
    "its scheduler": {"schedulerName": "mine"},
    "privileged": {"container": secured(privileged=True)},
    "its capability": {"container": secured(capabilities={"add": ["SYS_PTRACE", "CHOWN"]})},
    "its port": {"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}},
    "what all may": {"container": env(secretKeyRef=key("team-a")), **host_path("/mnt/shared/a")},
}
"""Pods that a template of this name may have; `container` has fields of one container."""
BEYOND_BUILDER: dict[str, Json] = {
    "the Secret of another template": {"container": env(secretKeyRef=key("team-b"))},
    "another capability": {"container": secured(capabilities={"add": ["SYS_ADMIN"]})},
    "another port": {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
    "another mount of /proc": {"container": secured(procMount="Unmasked"), "hostUsers": False},
    "the network of the node": {"hostNetwork": True},
    "another folder": host_path("/srv/images-of-others"),
    "a folder above": host_path("/srv"),
}
