"""A real Prometheus for tests, and what it is told: by scraping what a node's cAdvisor serves, or by what was written.

server (`PrometheusServer`) scrapes exporter (`Exporter`); traces (`Trace`) is what it would have scraped in production,
at intervals no test waits for. scripted is no Prometheus: it answers as a broken one would.
Not real: no container uses anything, so what cAdvisor measures, and when it does, is the test's word.
"""
