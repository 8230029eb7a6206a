"""The scheduler extender: the questions of kube-scheduler and their answers."""
