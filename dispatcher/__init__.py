"""The dispatcher: waiting rows of a Postgres table become Kubernetes Jobs, and go away again.

     row              gates                  Job                 node                 gone
     pg: tasks ─▶ admission.dispatch ─▶ jobs.submit ─▶ kube-scheduler, kubelet ─▶ sweep.collect
       ▲  LISTEN      snapshot → plan       create,                                  row terminal →
       │  + poll      (pure)                409 = ours                               delete Job
       └── the task's container: task_start → heartbeat → task_finish (SQL, compare-and-set)

The folders are the stages, in the order of the journey. `app.py` draws how they are joined.
"""

__version__ = "0.1.0"
