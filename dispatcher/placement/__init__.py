"""Job → node: where a Pod has to go, where its cache is warm, and what kube-scheduler is told of it."""
