{{/* A size with a unit, as the exporter or as Kubernetes writes it, in bytes. */}}
{{- define "orgdata-exporter.bytes" -}}
{{- $units := dict "" 1 "m" 0.001 "K" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $unit := regexFind "[A-Za-z]*$" . | trimSuffix "B" | replace "k" "K" -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $units $unit) | int64 -}}
{{- end -}}

{{/* Checks that JSON Schema cannot express. Renders nothing. */}}
{{- define "orgdata-exporter.checks" -}}
{{- if and .Values.api.key .Values.api.existingSecret -}}
{{- fail "api.key and api.existingSecret are both set; set only one: `api.key` creates a Secret, `api.existingSecret` uses yours" -}}
{{- end -}}
{{- if not (or .Values.audit.enabled .Values.tickets.enabled) -}}
{{- fail "audit.enabled and tickets.enabled are both false: there is nothing left to do" -}}
{{- end -}}
{{- if ne (or (eq .Values.metrics.actorLabel "hash") (eq .Values.otlp.actor "hash")) (ne .Values.metrics.hashKeySecret "") -}}
{{- fail "metrics.actorLabel or otlp.actor hash and metrics.hashKeySecret go together: the Secret holds the key of the hash" -}}
{{- end -}}
{{- $size := include "orgdata-exporter.bytes" .Values.persistence.size | float64 -}}
{{- if lt $size (mulf 1.25 (include "orgdata-exporter.bytes" .Values.state.maxSize | float64)) -}}
{{- fail (printf "persistence.size (%s) has to be at least a quarter larger than state.maxSize (%s): a full volume stops the exporter, a full state file only pauses it" .Values.persistence.size .Values.state.maxSize) -}}
{{- end -}}
{{- if and .Values.persistence.existingClaim (not .Values.persistence.enabled) -}}
{{- fail "persistence.existingClaim is set, but persistence.enabled is false: the state would not be in that claim" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled are both true: Prometheus would have each series twice" -}}
{{- end -}}
{{- if and .Values.collector.enabled .Values.otlp.endpoint -}}
{{- fail "collector.enabled and otlp.endpoint are both set: records go to the collector of this release, or to the one at the address" -}}
{{- end -}}
{{- if and .Values.collector.enabled (eq .Values.otlp.protocol "http/protobuf") -}}
{{- fail "collector.enabled and otlp.protocol http/protobuf are both set: the collector of this release takes gRPC" -}}
{{- end -}}
{{- if and .Values.web.certificate.enabled (ne .Values.web.scheme "HTTPS") -}}
{{- fail "web.certificate.enabled needs web.scheme HTTPS: probes and monitors would ask without TLS" -}}
{{- end -}}
{{- if and .Values.web.certificate.enabled (not .Values.web.certificate.issuerRef.name) -}}
{{- fail "web.certificate.issuerRef.name is missing: the Issuer of cert-manager that signs the certificate" -}}
{{- end -}}
{{- $set := concat (include "orgdata-exporter.settings" . | fromYaml | keys) (list "POD_NAMESPACE" "POD_NAME" "OTEL_RESOURCE_ATTRIBUTES") -}}
{{- range .Values.extraEnv -}}
{{- if eq .name "ORGDATA_API_KEY" -}}
{{- fail "extraEnv: ORGDATA_API_KEY would show the key to whoever may read the pod; use api.existingSecret, which is mounted as a file" -}}
{{- end -}}
{{- if has .name $set -}}
{{- fail (printf "extraEnv: the chart sets %s already; change the value that it comes from, or use settings" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails before an upgrade changes anything if the StatefulSet has other values in fields that cannot be changed; otherwise the ConfigMap
would be changed already when the API server refuses the StatefulSet. Without a cluster (`helm template`) it finds nothing. */}}
{{- define "orgdata-exporter.unchangeable" -}}
{{- $name := include "orgdata-exporter.fullname" . -}}
{{- $namespace := include "orgdata-exporter.namespace" . -}}
{{- $set := dict -}}
{{- if and .Release.IsUpgrade .Values.upgradeCheck -}}
{{- $set = lookup "apps/v1" "StatefulSet" $namespace $name -}}
{{- end -}}
{{- if $set -}}
{{- $wrong := list -}}
{{- $there := first ($set.spec.volumeClaimTemplates | default (list dict)) -}}
{{- $wanted := first ((include "orgdata-exporter.claims" . | fromYaml).volumeClaimTemplates | default (list dict)) -}}
{{- if ne (empty $there) (empty $wanted) -}}
{{- $wrong = append $wrong "persistence.enabled or persistence.existingClaim" -}}
{{- else if $there -}}
{{- $sizes := list -}}
{{- range list $there $wanted -}}
{{- $sizes = append $sizes (include "orgdata-exporter.bytes" .spec.resources.requests.storage) -}}
{{- end -}}
{{- if ne (first $sizes) (last $sizes) -}}
{{- $wrong = append $wrong (printf "persistence.size (%s there)" $there.spec.resources.requests.storage) -}}
{{- end -}}
{{- if ne ($there.spec.storageClassName | default "") ($wanted.spec.storageClassName | default "") -}}
{{- $wrong = append $wrong "persistence.storageClassName" -}}
{{- end -}}
{{- if ne (toJson $there.spec.accessModes) (toJson $wanted.spec.accessModes) -}}
{{- $wrong = append $wrong "persistence.accessModes" -}}
{{- end -}}
{{- range $key := list "labels" "annotations" -}}
{{- if ne (get $there.metadata $key | default dict | toJson) (get $wanted.metadata $key | default dict | toJson) -}}
{{- $wrong = append $wrong (printf "persistence.%s" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne (toJson $set.spec.selector.matchLabels) (include "orgdata-exporter.selectorLabels" (list . "") | fromYaml | toJson) -}}
{{- $wrong = append $wrong "nameOverride" -}}
{{- end -}}
{{- if ne ($set.spec.podManagementPolicy | default "OrderedReady") "Parallel" -}}
{{- $wrong = append $wrong "podManagementPolicy, which was another one in an older chart" -}}
{{- end -}}
{{- if $wrong -}}
{{- $kubectl := printf "\n  kubectl -n %s" $namespace -}}
{{- $patch := "" -}}
{{- if contains "persistence.size" (toString $wrong) -}}
{{- $patch = print $kubectl " patch pvc state-" $name "-0 -p '{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"" .Values.persistence.size "\"}}}}'   # if it is to grow" -}}
{{- end -}}
{{- fail (print "no upgrade can change these in the StatefulSet " $name ": " (join ", " $wrong) ". Nothing was changed. Delete the StatefulSet and its pod, which keeps the claim state-" $name "-0, and upgrade again:\n"
  $patch $kubectl " delete statefulset " $name " --cascade=orphan" $kubectl " delete pod " $name "-0\n") -}}
{{- end -}}
{{- end -}}
{{- end -}}
