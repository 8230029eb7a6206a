"""A real Kubernetes control plane for tests: etcd, API server, controllers and scheduler, on nodes that kwok plays.

binaries → commands → processes → cluster (`ControlPlane`); `stages.yaml` says how Pods fare, `player` what they run.
Nothing here is a stand-in for the server: what a test sees of Jobs, Pods, RBAC and watches is what a cluster shows.
Not real: nodes have no containers, so images, cgroups, mounts and the network are never touched.
"""
