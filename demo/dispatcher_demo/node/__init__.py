"""Kubernetes on one machine, for the demo and for tests. This folder speaks the Kubernetes API and knows no tasks.

`kubelet` is a node whose containers are local processes: no images, no namespaces, no network of their own, no limits
of memory or CPU, and no isolation from the account that runs it. It refuses Pods that need more.
"""
