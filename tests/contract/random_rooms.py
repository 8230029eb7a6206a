"""Random small clusters: nodes, Pods of others on them, and one Pod that looks for room. As manifests."""

from collections.abc import Iterator, Sequence
from random import Random

from tests.controlplane.api import Json
from tests.controlplane.objects import node

CLUSTER = "test.dispatcher.internal/cluster"
GPU = "example.com/gpu"
CLASSES = {"room-low": -10, "room-high": 1000, "room-polite": 2000}
"""PriorityClasses; Pods of `room-polite` preempt no others."""
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


class RandomCluster:
    """`name` is on all its nodes, as a label that its Pods select."""

    def __init__(self, name: str, chance: Random) -> None:
        self.name = name
        self._chance = chance
        self.node_names = [f"{name}-{number}" for number in range(chance.randint(1, 3))]
        self.nodes = [self._node(one) for one in self.node_names]
        self.pods = [self._pod_on(one, number) for one in self.node_names for number in range(chance.randint(0, 4))]
        self.wanted = self._wanted()

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    def _node(self, name: str) -> Json:
        size = {"cpu": str(self._chance.randint(1, 6)), "memory": f"{self._chance.randint(1, 8)}Gi",
                "pods": str(self._chance.randint(2, 6))}  # fmt: skip
        if self._maybe(0.3):
            size[GPU] = str(self._chance.randint(1, 3))
        if self._maybe(0.3):
            size["ephemeral-storage"] = f"{self._chance.randint(1, 8)}Gi"
        labels = {CLUSTER: self.name, "size": self._chance.choice(("0", "3", "4", "07", "9", "big"))}
        if self._maybe(0.7):
            labels["zone"] = self._chance.choice("abc")
        made = node(name, size, labels, [self._taint() for _ in range(self._chance.choice((0, 0, 0, 1, 2)))])
        made["spec"]["taints"] = list({(one["key"], one["effect"]): one for one in made["spec"]["taints"]}.values())
        if self._maybe(0.1):
            made["spec"]["unschedulable"] = True
        return made

    def _taint(self) -> Json:
        # NoExecute would make the control plane evict the Pods of others, so it is rare.
        effect = self._chance.choices(EFFECTS, (6, 1, 3))[0]
        return {"key": self._chance.choice(("team", "disk")), "value": self._chance.choice("xy"), "effect": effect}

    def _pod_on(self, name: str, number: int) -> Json:
        spec = {**self._spec(), "nodeName": name, "tolerations": [{"operator": "Exists"}]}
        return {"metadata": {"name": f"{name}-{number}"}, "spec": spec}

    def _wanted(self) -> Json:
        spec = self._spec()
        if self._maybe(0.4):
            spec["tolerations"] = [self._toleration() for _ in range(self._chance.randint(1, 2))]
        if self._maybe(0.5):
            terms = [self._term() for _ in range(self._chance.randint(1, 2))]
            spec["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            }
        return {"metadata": {"name": f"{self.name}-wanted"}, "spec": {**spec, "nodeSelector": {CLUSTER: self.name}}}

    def _toleration(self) -> Json:
        found: Json = {"operator": self._chance.choice(("Exists", "Equal"))}
        if found["operator"] == "Equal" or self._maybe(0.7):
            found["key"] = self._chance.choice(("team", "disk", "node.kubernetes.io/unschedulable"))
        if found["operator"] == "Equal":
            found["value"] = self._chance.choice(("x", "y", ""))
        if self._maybe(0.5):
            found["effect"] = self._chance.choice(EFFECTS)
        return found

    def _term(self) -> Json:
        term: Json = {}
        if self._maybe(0.8):
            term["matchExpressions"] = [self._requirement() for _ in range(self._chance.randint(1, 2))]
        if self._maybe(0.3) or not term:
            names = [self._chance.choice([*self.node_names, "elsewhere"])]
            operator = self._chance.choice(("In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
        return term

    def _requirement(self) -> Json:
        operator = self._chance.choice(OPERATORS)
        if operator in {"Gt", "Lt"}:
            key = self._chance.choice(("size", "size", "zone", "missing"))
            return {"key": key, "operator": operator, "values": [str(self._chance.randint(0, 9))]}
        key = self._chance.choice(("zone", "missing", "size"))
        values = self._chance.sample(("a", "b", "c", "4"), self._chance.randint(1, 2))
        return {"key": key, "operator": operator} | ({"values": values} if operator in {"In", "NotIn"} else {})

    def _spec(self) -> Json:
        spec: Json = {"containers": [self._container(f"c{n}") for n in range(self._chance.choice((1, 1, 2)))]}
        if self._maybe(0.3):
            spec["initContainers"] = list(self._first())
        if self._maybe(0.5):
            spec["priorityClassName"] = self._chance.choice([*CLASSES])
        return spec

    def _first(self) -> Iterator[Json]:
        for number in range(self._chance.randint(1, 2)):
            container = self._container(f"first{number}")
            yield container | ({"restartPolicy": "Always"} if self._maybe(0.4) else {})

    def _container(self, name: str) -> Json:
        asks: dict[str, str] = {}
        if self._maybe(0.8):
            asks["cpu"] = self._chance.choice(("0", "250m", "500m", "1", "1500m", "2", "3"))
        if self._maybe(0.6):
            asks["memory"] = self._chance.choice(("0", "512Mi", "1Gi", "1500M", "2Gi", "4Gi"))
        if self._maybe(0.1):
            asks["ephemeral-storage"] = self._chance.choice(("1Gi", "3Gi"))
        if self._maybe(0.1):
            return {"name": name, "image": "x", "resources": {"limits": {**asks, GPU: "1"}}}
        return {"name": name, "image": "x", "resources": {self._chance.choice(("requests", "limits")): asks}}


def priority_classes() -> Sequence[Json]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    never = {"room-polite": {"preemptionPolicy": "Never"}}
    return [
        {**kind, "metadata": {"name": name}, "value": value, **never.get(name, {})} for name, value in CLASSES.items()
    ]
