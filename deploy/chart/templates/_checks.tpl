{{/* Refuses a namespace of Jobs that does not exist, before anything is made. `helm template` asks no cluster. */}}
{{- define "dispatcher.checkNamespace" -}}
{{- $jobs := include "dispatcher.jobsNamespace" . }}
{{- if and .Values.clusterRights (lookup "v1" "Namespace" "" "kube-system") (not (lookup "v1" "Namespace" "" $jobs)) (ne $jobs .Release.Namespace) }}
  {{- fail (printf "namespace %s does not exist: kubectl create namespace %s" $jobs $jobs) }}
{{- end }}
{{- end }}

{{/* Refuses to leave Jobs behind: no program sees those of another namespace or installation, so their rows would run a
     second time. helm forgets what an earlier --set gave, so this happens by mistake. */}}
{{- define "dispatcher.checkMove" -}}
{{- $new := printf "%s/%s" .Values.installation (include "dispatcher.jobsNamespace" .) }}
{{- $old := include "dispatcher.installed" . }}
{{- if and $old (ne $old $new) (ne $old .Values.moveFrom) }}
  {{- $kept := splitList "/" $old }}
  {{- fail (printf "the Jobs of this release are those of installation %s in namespace %s, and these values say %s: rows with Jobs would run a second time. To stay, give --set installation=%s,jobsNamespace=%s, because helm forgets an earlier --set. To move, first do what docs/install.md says (Move), and then confirm by --set moveFrom=%s" (first $kept) (last $kept) (replace "/" " in namespace " $new) (first $kept) (last $kept) $old) }}
{{- end }}
{{- end }}

{{/* INSTALLATION/NAMESPACE-OF-JOBS as the cluster has it; empty: nothing is there. The account of whoever installs can
     read ConfigMaps by their names, and is asked to list them only where the name is lost. */}}
{{- define "dispatcher.installed" -}}
{{- $own := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-settings" .Values.installation) }}
{{- if and .Release.IsUpgrade (not $own) }}
  {{- range (lookup "v1" "ConfigMap" .Release.Namespace "").items }}
    {{- $release := get (.metadata.annotations | default dict) "meta.helm.sh/release-name" }}
    {{- if and (eq $release $.Release.Name) (hasKey (.data | default dict) "DISPATCHER_NAMESPACE") }}{{ $own = . }}{{ end }}
  {{- end }}
{{- end }}
{{- with ($own | default dict).data }}
  {{- printf "%s/%s" .DISPATCHER_INSTALLATION .DISPATCHER_NAMESPACE }}
{{- else }}{{/* `helm uninstall` leaves what the leader told */}}
  {{- $status := lookup "v1" "ConfigMap" .Release.Namespace (printf "%s-status" .Values.installation) }}
  {{- with get (get ($status.data | default dict) "status.json" | default "{}" | fromJson) "jobs_namespace" }}
    {{- printf "%s/%s" $.Values.installation . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Refuses a second installation in a namespace with the login of the first: each would take the runs of the other for lost. */}}
{{- define "dispatcher.checkLogin" -}}
{{- $first := ne .Values.installation "dispatcher" | ternary (lookup "apps/v1" "Deployment" .Release.Namespace "dispatcher") dict }}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $first }}
{{- range ne $release .Release.Name | ternary (dig "spec" "template" "spec" "volumes" list $first) list }}
  {{- if eq (dig "secret" "secretName" "" .) $.Values.secrets.database }}
    {{- fail (printf "installation dispatcher of this namespace has the login in the Secret %s, too, and each would begin the runs of the other again: run deploy/logins.sql with -v installation=%s in a database of its own, and name its Secrets in the values secrets" $.Values.secrets.database $.Values.installation) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Refuses the image that no registry has, where another one is installed. */}}
{{- define "dispatcher.checkImage" -}}
{{- $placeholder := "registry.example/dispatcher" }}
{{- if eq .Values.image.repository $placeholder }}
  {{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace .Values.installation }}
  {{- with dig "spec" "template" "spec" "containers" list $deployment | first }}
    {{- if not (hasPrefix $placeholder .image) }}
      {{- fail (printf "image.repository is %s, the placeholder of the chart, and %s is installed: give --set image.repository=…, because helm forgets an earlier --set, or write all values into a file" $placeholder .image) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Refuses what cannot be the name of a Secret. No task needs one, but each program of ours has its login. */}}
{{- define "dispatcher.checkSecrets" -}}
{{- $needed := dict "database" true "janitorDatabase" .Values.janitor.enabled "migrateDatabase" .Values.migrate.enabled }}
{{- range $value, $name := .Values.secrets }}
  {{- if and (or $name (get $needed $value)) (not (regexMatch "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$" $name)) }}
    {{- fail (printf "secrets.%s is %q: it must be the name of a Secret, in lower-case letters, digits, - and ." $value $name) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Refuses a kube-scheduler that is newer than the API server: it would wait for ever for kinds that are not served, and
     our Pods for it. `helm template` asks no cluster. */}}
{{- define "dispatcher.checkScheduler" -}}
{{- $image := .Values.scheduler.image }}
{{- $own := regexFind ":v?1[.][0-9]+" $image | regexFind "[0-9]+$" | int }}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor | int }}
{{- if and (gt $own $minor) (lookup "v1" "Namespace" "" "kube-system") }}
  {{- fail (printf "scheduler.image is %s, and the API server is Kubernetes 1.%d: give the kube-scheduler of 1.%d" $image $minor $minor) }}
{{- end }}
{{- end }}
