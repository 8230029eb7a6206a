"""The scheduler extender: answers the HTTP calls of kube-scheduler, and keeps reservations of room on nodes."""
