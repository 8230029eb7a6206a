"""A real kube-scheduler with an extender: one that a test scripts, or our own program.

scripted.py         an extender that says what a test wants
kube_scheduler.py   kube-scheduler beside the one of the control plane, with the configuration that a test gives
electing.py         the same as one of several replicas
ours.py             `dispatcher extender` as it runs in production; hasty.py: on a clock that can be put forward
ground.py           the nodes and Pods of one test; stage.py: those that many tests share
reserving.py        its reservations; ledger.py: what is taken of nodes with a hold, at every moment
certificates.py     an authority, and certificates of servers and clients
fixtures.py         all of it for tests
"""
