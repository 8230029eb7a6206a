"""What is reserved on nodes, for whom, and which Pods wait for it."""
