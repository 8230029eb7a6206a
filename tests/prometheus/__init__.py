"""A real Prometheus for tests. Its samples come from scrapes of a simulated cAdvisor, or from writes of a test.

* server: `PrometheusServer`, which scrapes `Exporter`.
* exporter: `Exporter`, the simulated cAdvisor of a node.
* traces: `Trace`, samples at the intervals of production, which are too long for a test to wait for.
* scripted: a server that answers as a broken Prometheus does.
* promtool: the alerts of deploy/chart/files on samples of hours and days. alert_cases: these samples.

Not real: no container uses anything. The test decides what cAdvisor measures, and when.
"""
