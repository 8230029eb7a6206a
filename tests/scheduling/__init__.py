"""A real kube-scheduler with an extender: an extender scripted by a test, or our own program.

scripted_extender.py       an extender whose answers a test sets
kube_scheduler.py          a second kube-scheduler at the control plane, with the configuration of a test
kube_scheduler_replica.py  the same, as one of several replicas
own_extender.py            `dispatcher extender` as it runs in production
fast_clock_extender.py     the same, with a loop clock that a test can move forward
skewed_clock_extender.py   the same, with a wrong wall clock
nodes_and_pods.py          the nodes and Pods of one test
shared_nodes.py            nodes that many tests share
reservations.py            the reservations of a test
node_usage.py              the use of nodes with a hold, checked after every change
certificates.py            a certificate authority, and certificates of servers and clients
fixtures.py                fixtures for all of this
"""
