{{/* A size with a unit, as the exporter or as Kubernetes writes it, in bytes. */}}
{{- define "orgdata-exporter.bytes" -}}
{{- $units := dict "" 1 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]*$" . | trimSuffix "B" | replace "k" "K" -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units $unit) | int64 -}}
{{- end -}}

{{/* What a schema cannot say. Gives nothing. */}}
{{- define "orgdata-exporter.checks" -}}
{{- if and .Values.api.key .Values.api.existingSecret -}}
{{- fail "api.key and api.existingSecret are both set: the chart makes a Secret of the first, or uses the second" -}}
{{- end -}}
{{- if not (or .Values.audit.enabled .Values.tickets.enabled) -}}
{{- fail "audit.enabled and tickets.enabled are both false: there is nothing left to do" -}}
{{- end -}}
{{- if ne (eq .Values.metrics.actorLabel "hash") (ne .Values.metrics.hashKeySecret "") -}}
{{- fail "metrics.actorLabel hash and metrics.hashKeySecret go together: the Secret holds the key of the hash" -}}
{{- end -}}
{{- $size := include "orgdata-exporter.bytes" .Values.persistence.size | float64 -}}
{{- if lt $size (mulf 1.25 (include "orgdata-exporter.bytes" .Values.state.maxSize | float64)) -}}
{{- fail (printf "persistence.size (%s) has to be at least a quarter larger than state.maxSize (%s): a full volume stops the exporter, a full state file only pauses it" .Values.persistence.size .Values.state.maxSize) -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled are both true: Prometheus would have each series twice" -}}
{{- end -}}
{{- if and .Values.collector.enabled .Values.otlp.endpoint -}}
{{- fail "collector.enabled and otlp.endpoint are both set: records go to the collector of this release, or to the one at the address" -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "ORGDATA_API_KEY" -}}
{{- fail "extraEnv: ORGDATA_API_KEY would show the key to whoever may read the pod; use api.existingSecret, which is mounted as a file" -}}
{{- end -}}
{{- end -}}
{{- end -}}
