{{/* Names. A name may look like a number or a boolean (1, true), so a value that is nothing but names stands in quotes. */}}
{{- define "dispatcher.jobsNamespace" -}}
{{ .Values.jobsNamespace | default .Release.Namespace }}
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
app.kubernetes.io/instance: {{ .Values.installation | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels by which Pods of one program are selected: (list ROOT COMPONENT). They never change between versions. */}}
{{- define "dispatcher.selector" -}}
app.kubernetes.io/name: dispatcher
app.kubernetes.io/instance: {{ (index . 0).Values.installation | quote }}
app.kubernetes.io/component: {{ index . 1 | quote }}
{{- end }}

{{/* Labels of the Pods of one program, and those that its podLabels add: (list ROOT COMPONENT PROGRAM'S-VALUES). Nobody may
     replace ours, because Deployments and NetworkPolicies select by them. */}}
{{- define "dispatcher.podLabels" -}}
{{ merge (include "dispatcher.selector" . | fromYaml) (index . 2).podLabels | toYaml }}
{{- end }}

{{/* Settings of `run`, `janitor` and `cache-keeper`. Those that the chart sets cannot be set here. */}}
{{- define "dispatcher.settings" -}}
{{- include "dispatcher.checkNames" . }}
{{- include "dispatcher.checkSecrets" . }}
{{- if eq .Values.installation "default" }}
  {{- fail "installation is default: every namespace has a ServiceAccount of this name, so each Pod that names none would get the rights of ours. Give another name" }}
{{- end }}
{{- $owners := include "dispatcher.owners" . | fromJson }}
{{- $settings := dict "INSTALLATION" .Values.installation "NAMESPACE" (include "dispatcher.jobsNamespace" .) "TASK_SECRET" .Values.secrets.taskDatabase }}
{{- if not .Values.clusterRights }}{{ $_ := set $settings "CHECK_ROOM" "false" }}{{ end }}
{{- if .Values.scheduler.enabled }}{{ $_ := set $settings "SCHEDULER_NAME" (printf "%s-scheduler" .Values.installation) }}{{ end }}
{{- range $name, $value := .Values.settings }}
  {{- with get $owners $name }}{{ fail (printf "settings.%s cannot be set here: %s" $name .) }}{{ end }}
  {{- $_ := set $settings $name (include "dispatcher.text" $value) }}
{{- end }}
{{- range $program := list "run" "janitor" "migrate" "scheduler" "cacheKeeper" }}
  {{- $set := eq $program "cacheKeeper" | ternary (list "NODE_NAME" "POD_NAME" "POD_UID") list }}
  {{- range (get $.Values $program).extraEnv }}
    {{- $name := .name | toString }}
    {{- if has $name $set }}{{ fail (printf "%s.extraEnv sets %s, which is set already: take it out" $program $name) }}{{ end }}
    {{- $set = append $set $name }}
    {{- with hasPrefix "DISPATCHER_" $name | ternary (get $owners (trimPrefix "DISPATCHER_" $name)) "" }}
      {{- fail (printf "%s.extraEnv cannot set %s: %s" $program $name .) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $name, $value := $settings }}
DISPATCHER_{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Settings and further variables of a program: (list ROOT PROGRAM'S-VALUES). They stand in the Pod: one that is made anew
     while a rollout fails, or by `kubectl rollout undo`, has the settings that it was rolled out with. */}}
{{- define "dispatcher.env" -}}
{{- $env := list }}{{ $own := dict }}
{{- range (index . 1).extraEnv }}{{ $_ := set $own (toString .name) true }}{{ end }}
{{- range $name, $value := include "dispatcher.settings" (index . 0) | fromYaml }}
  {{- if not (hasKey $own $name) }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end }}
{{- end }}
{{- concat $env (index . 1).extraEnv | toYaml }}
{{- end }}

{{/* Who sets what cannot be set in `settings`, as JSON. */}}
{{- define "dispatcher.owners" -}}
{{- $port := "the probes and NetworkPolicies of the chart name port 8080" }}
{{- $inside := "the extender listens on the loopback of its Pod, where kube-scheduler asks it" }}
{{- $account := "our Pods use their ServiceAccount" }}
{{- $owners := dict "LISTEN_ADDRESS" $port "EXTENDER_ADDRESS" $inside "EXTENDER_TLS_DIR" $inside "KUBECONFIG" $account "KUBE_CONTEXT" $account }}
{{- $values := dict "INSTALLATION" "installation" "NAMESPACE" "jobsNamespace" "TASK_SECRET" "secrets.taskDatabase" "DATABASE_URL" "secrets.database" "DATABASE_URL_FILE" "secrets.database" "TEMPLATES_DIR" "templates" }}
{{- if not .Values.clusterRights }}{{ $_ := set $values "CHECK_ROOM" "clusterRights" }}{{ end }}
{{- if .Values.scheduler.enabled }}{{ $_ := set $values "SCHEDULER_NAME" "scheduler.enabled" }}{{ end }}
{{- range $name, $value := $values }}{{ $_ := set $owners $name (printf "the value %s sets it" $value) }}{{ end }}
{{- $owners | toJson }}
{{- end }}

{{/* A value as a program reads it: 1000000 and not 1e+06. */}}
{{- define "dispatcher.text" -}}
{{ kindIs "string" . | ternary . (toJson .) }}
{{- end }}

{{/* The folder of our caches on each node; empty: there are none. */}}
{{- define "dispatcher.cacheFolder" -}}
{{- with .Values.settings.CACHE_ROOT }}{{ toString . | trimSuffix "/" }}/{{ $.Values.installation }}{{ end }}
{{- end }}

{{/* Whether cache keepers run; empty: no. Without the policy, a stolen account of one could change our templates. */}}
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
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
nodeSelector: {{- merge (deepCopy $program.nodeSelector) (dict "kubernetes.io/os" "linux") | toYaml | nindent 2 }}
{{- with $program.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $program.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Fields that every Pod of ours has, but for those of cache keepers: (list ROOT PROGRAM'S-VALUES) */}}
{{- define "dispatcher.pod" -}}
{{ include "dispatcher.placed" . }}
securityContext: # stricter than Pod Security `restricted`
  runAsNonRoot: true
  {{- with (index . 0).Values.runAsUser }}
  runAsUser: {{ int . }}
  runAsGroup: {{ int . }}
  fsGroup: {{ int . }} # reads the Secret
  {{- end }}
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

{{/* Labels and annotations of Pods that Prometheus asks: (list ROOT COMPONENT PROGRAM'S-VALUES CONFIGURATION). Another
     configuration makes other Pods, so nobody may replace its digest; podAnnotations may replace the other annotations. */}}
{{- define "dispatcher.served" -}}
labels: {{- include "dispatcher.podLabels" . | nindent 2 }}
{{- $fixed := ternary (dict "dispatcher.internal/settings" (index . 3 | sha256sum | trunc 16)) dict (ne (index . 3) "") }}
{{- $asked := dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" }}
{{- with merge $fixed (index . 2).podAnnotations (ternary dict $asked (index . 0).Values.monitoring.podMonitor) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
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
    secretName: {{ index . 1 | quote }}
    defaultMode: 0440
{{- end }}
