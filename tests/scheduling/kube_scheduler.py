"""A second kube-scheduler at the API server of the control plane, for Pods that name it.

A test gives its configuration. It starts in a tenth of a second, so each test can have its own; it ends with the test.
Tests read its decisions from its log, which has the points of every node, and from its metrics.
"""

import re
import secrets
import ssl
from functools import cache
from pathlib import Path

import aiohttp
import yaml

from dispatcher.extender.configuration import build_extender
from dispatcher.settings.definition import ExtenderSettings
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.ports import free_ports
from tests.controlplane.processes import Server
from tests.scheduling.certificates import OF_SERVERS, Authority, Pair

VERBOSITY = ("-v=3", "--vmodule=schedule_one=10,scheduling_queue=5,eventhandlers=4")
"""Logs all points, and each event that makes kube-scheduler try a Pod again, but no requests to the API server."""
OPEN = "--authorization-always-allow-paths=/healthz,/readyz,/metrics"
FIELD = re.compile(r'(\w+)="?((?<=")(?:[^"\\]|\\.)*(?=")|[^\s"]+)')


def entry(url: str, **changes: object) -> Json:
    """The entry of one extender with the recommended fields. A change to None removes the field."""
    whole = build_extender(ExtenderSettings()) | {"urlPrefix": url} | changes
    return {name: value for name, value in whole.items() if value is not None}


def configuration(*extenders: Json, **profile: object) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "", **profile}],
        "extenders": list(extenders),
    }


@cache
def certified(folder: Path) -> tuple[Authority, Pair]:
    """One certificate for all schedulers of a control plane: making a key takes longer than a start."""
    authority = Authority(folder, "schedulers")
    return authority, authority.pair("kube-scheduler", usage=OF_SERVERS)


class KubeScheduler:
    """One process. `name`: its unique scheduler name, so that no other kube-scheduler takes its Pods."""

    verbosity: tuple[str, ...] = VERBOSITY

    def __init__(self, plane: ControlPlane, folder: Path, wanted: Json) -> None:
        self.name = f"scheduler-{secrets.token_hex(4)}"
        self._folder = folder / self.name
        self._folder.mkdir()
        (self._port,) = free_ports(1)
        self._log = self._folder / "log"
        kubeconfig = plane.kubeconfig(self._folder / "kubeconfig", token=plane.admin_token, namespace="default")
        config = self._folder / "config.yaml"
        config.write_text(yaml.safe_dump(self._fitted(wanted, kubeconfig)))
        program = str(plane.programs["kube-scheduler"])
        assert plane.ca_file, "only the real control plane has schedulers beside its own"
        self._authority, pair = certified(plane.ca_file.parent)
        address = (f"--secure-port={self._port}", "--bind-address=127.0.0.1")
        shown = (f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}")
        flags = (f"--config={config}", *address, *shown, OPEN, "--authentication-skip-lookup", *self.verbosity)
        self._server = Server(self.name, [program, *flags], self._log)

    def _fitted(self, wanted: Json, kubeconfig: Path) -> Json:
        """The wanted configuration with the name, connection and lease of this process."""
        (profile,) = wanted["profiles"]
        return wanted | {
            "profiles": [profile | {"schedulerName": self.name}],
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 300, "burst": 600},
            "leaderElection": {"leaderElect": False},
        }

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def check(self) -> None:
        """Raises ServerDied if the process ended by itself."""
        self._server.check()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self, message: str, **fields: str) -> list[dict[str, str]]:
        """The fields of every line of its log with this message and these fields."""
        lines = [dict(FIELD.findall(line)) for line in self.log.splitlines() if f'"{message}"' in line]
        return [line for line in lines if fields.items() <= line.items()]

    def retries_after(self, pod: str, event: str) -> int:
        """How often this event made kube-scheduler try the Pod again after it was unschedulable."""
        lines = self.said("Pod moved to an internal scheduling queue", pod=pod, event=event)
        own = self.said("Pod moved to an internal scheduling queue because the Pod is updated", pod=pod, event=event)
        return len(lines) + len(own)

    def final_scores(self, pod: str) -> dict[str, int]:
        """Points by node, of all plugins and extenders, of the last scoring for this Pod (`namespace/name`)."""
        return {
            line["node"]: int(line["score"]) for line in self.said("Calculated node's final score for pod", pod=pod)
        }

    def plugin_scores(self, pod: str, node: str) -> dict[str, int]:
        found = self.said("Plugin scored node for pod", pod=pod, node=node)
        return {line["plugin"]: int(line["score"]) for line in found}

    def extender_score(self, pod: str, node: str) -> int:
        """The points that the extenders added to the node, in kube-scheduler's own scale."""
        return self.final_scores(pod)[node] - sum(self.plugin_scores(pod, node).values())

    async def metrics(self) -> str:
        context = ssl.create_default_context(cafile=self._authority.certificate)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{self._port}/metrics", ssl=context) as answer,
        ):
            answer.raise_for_status()
            return await answer.text()

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples with these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = [line for line in (await self.metrics()).splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in samples if all(part in line for part in wanted))
