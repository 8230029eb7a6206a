"""Adapter to the Kubernetes API: the only importer of kubernetes_asyncio, and of that only the kubeconfig loader."""
