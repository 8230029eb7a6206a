"""A cluster in memory: the part of the Kubernetes API that our own programs use, and the controllers behind it.

    api (HTTP) ─▶ registry (what a write means) ─▶ storage (versions, history) ─▶ watches, controllers
                                                                 controllers: jobs · scheduler · garbage · nodes

For trying things out and for tests. Everything is gone when its process ends. What it does is what the contract suite
saw the real one do; what no program of ours asks for is not there: discovery, RBAC, quotas, server-side apply, tables.
"""
