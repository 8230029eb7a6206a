{{/* Names */}}
{{- define "dispatcher.jobsNamespace" -}}
{{ .Values.jobsNamespace | default .Release.Namespace }}
{{- end }}

{{/* Refuses a namespace of Jobs that does not exist, before anything is made. `helm template` asks no cluster. */}}
{{- define "dispatcher.checkNamespace" -}}
{{- $jobs := include "dispatcher.jobsNamespace" . }}
{{- if and .Values.clusterRights (lookup "v1" "Namespace" "" "kube-system") (not (lookup "v1" "Namespace" "" $jobs)) (ne $jobs .Release.Namespace) }}
  {{- fail (printf "namespace %s does not exist: kubectl create namespace %s" $jobs $jobs) }}
{{- end }}
{{- end }}

{{- define "dispatcher.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "dispatcher.labels" -}}
app.kubernetes.io/name: dispatcher
app.kubernetes.io/instance: {{ .Values.installation }}
app.kubernetes.io/version: {{ .Chart.AppVersion }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels of the Pods of one program: (list ROOT COMPONENT). They never change between versions. */}}
{{- define "dispatcher.selector" -}}
app.kubernetes.io/name: dispatcher
app.kubernetes.io/instance: {{ (index . 0).Values.installation }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Settings of `run` and `janitor`. Those that other values of the chart set cannot be set here. */}}
{{- define "dispatcher.settings" -}}
{{- include "dispatcher.checkNames" . }}
{{- $owners := dict "INSTALLATION" "installation" "NAMESPACE" "jobsNamespace" "TASK_SECRET" "secrets.taskDatabase" "DATABASE_URL" "secrets.database" "DATABASE_URL_FILE" "secrets.database" "TEMPLATES_DIR" "templates" }}
{{- $settings := dict "INSTALLATION" .Values.installation "NAMESPACE" (include "dispatcher.jobsNamespace" .) "TASK_SECRET" .Values.secrets.taskDatabase }}
{{- if not .Values.clusterRights }}
  {{- $_ := set $owners "CHECK_ROOM" "clusterRights" }}
  {{- $_ := set $settings "CHECK_ROOM" "false" }}
{{- end }}
{{- if .Values.scheduler.enabled }}
  {{- $_ := set $owners "SCHEDULER_NAME" "scheduler.enabled" }}
  {{- $_ := set $settings "SCHEDULER_NAME" (printf "%s-scheduler" .Values.installation) }}
{{- end }}
{{- range $name, $value := .Values.settings }}
  {{- with get $owners $name }}{{ fail (printf "settings.%s cannot be set here: the value %s sets it" $name .) }}{{ end }}
  {{- $_ := set $settings $name (kindIs "string" $value | ternary $value (toJson $value)) }}
{{- end }}
{{- range $name, $value := $settings }}
DISPATCHER_{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The folder of our caches on each node; empty: there are none. */}}
{{- define "dispatcher.cacheFolder" -}}
{{- with .Values.settings.CACHE_ROOT }}{{ toString . | trimSuffix "/" }}/{{ $.Values.installation }}{{ end }}
{{- end }}

{{/* Whether cache keepers run; empty: no. Without the policy, a stolen account of one could change our settings. */}}
{{- define "dispatcher.keepsCaches" -}}
{{- if and .Values.cacheKeeper.enabled .Values.settings.CACHE_ROOT .Values.clusterRights .Values.policy.enabled }}yes{{ end }}
{{- end }}

{{/* Fields of Pods that say where they run: (list ROOT PROGRAM'S-VALUES) */}}
{{- define "dispatcher.placed" -}}
{{- $root := index . 0 }}{{ $program := index . 1 -}}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $program.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $program.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $program.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Fields that every Pod of ours has, but for those of cache keepers: (list ROOT PROGRAM'S-VALUES) */}}
{{- define "dispatcher.pod" -}}
{{ include "dispatcher.placed" . }}
securityContext: # stricter than Pod Security `restricted`
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532 # reads the Secret
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Replicas on one node would end together; in a cluster of one node they run all the same. (list ROOT COMPONENT) */}}
{{- define "dispatcher.spread" -}}
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "dispatcher.selector" . | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}

{{/* Labels and annotations of Pods that Prometheus asks: (list ROOT COMPONENT PROGRAM'S-VALUES SETTINGS). Other
     settings make other Pods, so nobody may replace their digest; podAnnotations may replace the other annotations. */}}
{{- define "dispatcher.served" -}}
labels: {{- include "dispatcher.selector" . | nindent 2 }}
{{- $fixed := dict "dispatcher.internal/settings" (index . 3 | sha256sum | trunc 16) }}
{{- $asked := dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" }}
annotations:
  {{- toYaml (merge $fixed (index . 2).podAnnotations (ternary dict $asked (index . 0).Values.monitoring.podMonitor)) | nindent 2 }}
{{- end }}

{{- define "dispatcher.locked" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A missing database or API server must not cause a restart, which would not bring it back. So the liveness and startup
     probes only show that the event loop runs. Ready means that the program can do its work. */}}
{{- define "dispatcher.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: http
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet:
    path: /healthz
    port: http
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: http
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{/* The login of a program, as a file that it reads again at each connect: (list ROOT NAME-OF-SECRET) */}}
{{- define "dispatcher.login" -}}
- name: database
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
{{- end }}
