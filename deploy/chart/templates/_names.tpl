{{/* Refuses a name in the values that the chart does not know, and tells the nearest one. files/names.json has the names.
     Also refuses a name without a value (`settings:` and nothing behind it), which would remove the default. */}}
{{- define "dispatcher.checkNames" -}}
{{- range $path, $known := .Files.Get "files/names.json" | fromJson }}
  {{- $group := $.Values }}
  {{- range compact (splitList "." $path) }}{{ $group = get $group . }}{{ end }}
  {{- range $name := ternary (list) $known (or (kindIs "slice" $group) (eq $path "settings")) }}
    {{- if and (not (has $name (list "enabled" "global"))) (or (not (hasKey $group $name)) (kindIs "invalid" (get $group $name))) }}
      {{- fail (printf "%s has no value: give it one, or remove the name. After `helm upgrade --reuse-values`: use --reset-then-reuse-values, because a newer chart has more values" (printf "%s.%s" $path $name | trimPrefix ".")) }}
    {{- end }}
  {{- end }}
  {{- range $one := kindIs "slice" $group | ternary $group (list $group) }}
    {{- range $name, $_ := $one }}
      {{- if not (has $name $known) }}
        {{- $full := printf "%s.%s" $path $name | trimPrefix "." }}
        {{- fail (printf "%s is not a value of this chart; the nearest name is %s. README.md of the chart lists all values" $full (include "dispatcher.nearest" (list $name $known))) }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The known name that shares most pairs of letters with a name: (list NAME KNOWN) */}}
{{- define "dispatcher.nearest" -}}
{{- $name := index . 0 | lower }}{{ $nearest := "" }}{{ $most := -1 }}
{{- range $known := index . 1 }}
  {{- $shared := 0 }}
  {{- range $at := until (int (sub (len $name) 1)) }}
    {{- if contains (substr $at (int (add $at 2)) $name) (lower $known) }}{{ $shared = add1 $shared }}{{ end }}
  {{- end }}
  {{- $alike := div (mul 1000 $shared) (add (len $name) (len $known)) }}
  {{- if gt (int $alike) (int $most) }}{{ $most = $alike }}{{ $nearest = $known }}{{ end }}
{{- end }}
{{- $nearest }}
{{- end }}
