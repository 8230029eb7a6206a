"""The dispatcher in containers on real kubelets. `make node` runs these tests; `__main__.py` says how."""
