// Only for its manifests: the kinds PodMonitor and PrometheusRule of the Prometheus operator, which the chart may make.
module dispatcher.internal/controlplane-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
