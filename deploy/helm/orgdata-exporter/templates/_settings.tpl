{{/* A scalar as the exporter reads it: YAML's large numbers would get an exponent. */}}
{{- define "orgdata-exporter.scalar" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* The variables of the exporter, for the ConfigMap. What is empty is left to the exporter's own default. */}}
{{- define "orgdata-exporter.settings" -}}
{{- $values := .Values -}}
{{- $settings := dict
  "ORGDATA_API_BASE_URL" (required "api.baseUrl is missing: the service's base address, like https://api.example.com" $values.api.baseUrl)
  "ORGDATA_API_KEY_FILE" (printf "/etc/orgdata-exporter/api-key/%s" $values.api.secretKey)
  "ORGDATA_API_TIMEOUT" $values.api.timeout
  "ORGDATA_API_MAX_REQUESTS_PER_SECOND" $values.api.maxRequestsPerSecond
  "ORGDATA_API_CA_FILE" (ternary (printf "/etc/orgdata-exporter/api-ca/%s" $values.api.caKey) "" (ne $values.api.caConfigMap ""))
  "ORGDATA_AUDIT_ENABLED" (ternary "" "false" $values.audit.enabled)
  "ORGDATA_AUDIT_POLL_INTERVAL" $values.audit.pollInterval
  "ORGDATA_AUDIT_START" $values.audit.start
  "ORGDATA_AUDIT_ACTIVITY_TYPES" (join "," $values.audit.activityTypes)
  "ORGDATA_AUDIT_REREAD_INTERVAL" $values.audit.rereadInterval
  "ORGDATA_AUDIT_REREAD_WINDOW" $values.audit.rereadWindow
  "ORGDATA_TICKETS_ENABLED" (ternary "" "false" $values.tickets.enabled)
  "ORGDATA_TICKETS_SCAN_INTERVAL" $values.tickets.scanInterval
  "ORGDATA_TICKETS_MAX_AGE" $values.tickets.maxAge
  "ORGDATA_TICKETS_OPEN_STATES" (join "," $values.tickets.openStates)
  "ORGDATA_TICKETS_PRIORITIES" (join "," $values.tickets.priorities)
  "ORGDATA_METRICS_ACTOR_LABEL" $values.metrics.actorLabel
  "ORGDATA_METRICS_HASH_KEY_FILE" (ternary (printf "/etc/orgdata-exporter/hash-key/%s" $values.metrics.hashKeySecretKey) "" (ne $values.metrics.hashKeySecret ""))
  "ORGDATA_METRICS_MAX_ACTORS" $values.metrics.maxActors
  "ORGDATA_METRICS_EXCLUDE_ACTIVITY_TYPES" (join "," $values.metrics.excludeActivityTypes)
  "ORGDATA_METRICS_ZERO_HOLD" $values.metrics.zeroHold
  "ORGDATA_OTLP_ENDPOINT" (ternary (printf "http://%s-collector:4317" (include "orgdata-exporter.fullname" .)) $values.otlp.endpoint $values.collector.enabled)
  "ORGDATA_OTLP_PROTOCOL" (ternary "grpc" $values.otlp.protocol $values.collector.enabled)
  "ORGDATA_OTLP_BEARER_TOKEN_FILE" (ternary (printf "/etc/orgdata-exporter/otlp-token/%s" $values.otlp.bearerTokenSecretKey) "" (ne $values.otlp.bearerTokenSecret ""))
  "ORGDATA_OTLP_BATCH_SIZE" $values.otlp.batchSize
  "ORGDATA_OTLP_ACTOR" $values.otlp.actor
  "ORGDATA_OTLP_EXCLUDE_ACTIVITY_TYPES" (join "," $values.otlp.excludeActivityTypes)
  "ORGDATA_OTLP_REDACT" (join "," $values.otlp.redact)
  "ORGDATA_STATE_PATH" "/var/lib/orgdata-exporter/state.db"
  "ORGDATA_STATE_MAX_SIZE" $values.state.maxSize
  "ORGDATA_WEB_CONFIG_FILE" (ternary "/etc/orgdata-exporter/web/web.yml" "" (or $values.web.certificate.enabled (ne $values.web.configSecret "")))
  "ORGDATA_WEB_TELEMETRY_PATH" $values.web.telemetryPath
  "ORGDATA_LOG_LEVEL" $values.log.level
  "ORGDATA_LOG_FORMAT" $values.log.format
-}}
{{- range $name, $value := merge $settings (omit $values.settings "OTEL_RESOURCE_ATTRIBUTES") -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
{{ $name }}: {{ include "orgdata-exporter.scalar" $value | quote }}
{{- end -}}
{{- end -}}
{{- end -}}
