"""Adapter to the Kubernetes API. Only this folder imports kubernetes_asyncio, and only for its kubeconfig loader."""
