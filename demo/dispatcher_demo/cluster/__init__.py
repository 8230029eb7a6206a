"""A cluster in memory: the part of the Kubernetes API that our programs use, and the controllers behind it.

    api (HTTP) ─▶ registry (what a write means) ─▶ storage (versions, history) ─▶ watches, controllers
                                                                 controllers: jobs · scheduler · garbage · nodes

For the demo and for tests. All objects are gone when the process ends. The contract suite compares the answers with
those of a real API server. Our programs do not use discovery, RBAC, quotas, server-side apply and tables, so these are
not implemented.
"""
