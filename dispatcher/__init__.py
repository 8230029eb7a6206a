"""The dispatcher makes Kubernetes Jobs from waiting rows of a Postgres table, and deletes them after the rows are over.

     row              gates                  Job                 node                 gone
     pg: tasks ─▶ admission.dispatch ─▶ jobs.submit ─▶ kube-scheduler, kubelet ─▶ sweep.sweep
       ▲  LISTEN      snapshot → plan       create,                                  row terminal →
       │  + poll      (pure)                409 = ours                               delete Job
       └── the task's container: task_start → heartbeat → task_finish (SQL, compare-and-set)

Each folder is one stage of this drawing. `app.py` draws how the stages are joined.
"""

__version__ = "0.1.0"
