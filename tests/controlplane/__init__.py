"""A real Kubernetes control plane for tests: etcd, API server, controllers and scheduler, with nodes of kwok.

binaries → commands → processes → cluster (`ControlPlane`). `stages.yaml` says how Pods change; `player` runs their
containers. The servers are real: Jobs, Pods, RBAC and watches behave as in a cluster. The nodes are not real: there are
no containers, so nothing tests images, cgroups, mounts or the network.
"""
