"""The scheduler extender: answers the HTTP calls of kube-scheduler."""
