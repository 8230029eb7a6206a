"""Tests with a real kube-scheduler that asks an extender.

`kube_scheduler` starts a second kube-scheduler at the control plane, with the configuration of a test. The extender is
one of these:

* `scripted_extender`: the test sets its answers.
* `own_extender`: `dispatcher extender` runs as in production.
* `fast_clock_extender`: our extender runs on an event loop whose clock the test can move forward.
* `skewed_clock_extender`: our extender runs with a wrong wall clock.

`nodes_and_pods` makes the nodes and Pods of one test. `shared_nodes` makes nodes that many tests share. `reservations`
makes reservations on these nodes, and `node_usage` checks after every change that Pods leave them free. `certificates`
makes the certificates of servers and clients. A module of tests gets all of this from `fixtures`.
"""
