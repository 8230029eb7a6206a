"""Jobs that the admission policy refuses, with the words of the refusal, and Jobs that it accepts."""

from typing import Any

from tests.controlplane.api import Json

STOLEN = "dispatcher-migrate-database"
"""The Secret with the login of the schema's owner."""
CACHES = "/var/cache/tasks"
LISTS = {
    "hostPathPrefixes": ["/mnt/shared"],
    "secrets": ["team-a"],
    "configMaps": ["team-a"],
    "serviceAccounts": ["default", "team-a"],
}


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
    "a folder beside the caches": (host_path(f"{CACHES}-of-others"), OTHER_PATH),
    "the folder above the caches": (host_path("/var/cache"), OTHER_PATH),
    "a folder beside one that is listed without a slash": (host_path("/mnt/shared-of-others"), OTHER_PATH),
    "the caches of another installation": (host_path(f"{CACHES}/other/x"), OTHER_PATH),
    "the folder of all caches": (host_path(CACHES), OTHER_PATH),
    "a folder that ends like the caches": (host_path(f"/etc{CACHES}/x"), OTHER_PATH),
    "a path that is not written plainly": (host_path(f"{CACHES}/./x"), OTHER_PATH),
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
    "the folder of our caches": host_path(f"{CACHES}/dispatcher"),
    "below another prefix": host_path("/mnt/shared/a/b"),
    "a driver": volume(csi={"driver": "x.y"}),
    "memory": volume(emptyDir={"medium": "Memory"}),
    "namespaces of its own": {"hostUsers": False, "shareProcessNamespace": True},
}
