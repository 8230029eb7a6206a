"""Kubernetes on one machine, for a demo and for tests: what stands here speaks the Kubernetes API and nothing of ours.

`kubelet` is a node whose containers are local processes: no images, no namespaces, no network of their own, no limits
of memory or CPU, and no isolation from whoever runs it. Pods that need more than that are refused.
"""
