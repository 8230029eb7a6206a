"""Reservations of room on nodes, the Pods they are for, and the Pods that wait because of them."""
