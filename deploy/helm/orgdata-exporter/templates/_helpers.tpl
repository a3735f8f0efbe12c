{{/* The application's name in labels. A parent chart that has this one twice gives each a name of its own, and .Chart.Name is that. */}}
{{- define "orgdata-exporter.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/* The name of every object: at most 52 characters, since a StatefulSet adds a hash to it in a label of 63. */}}
{{- define "orgdata-exporter.fullname" -}}
{{- $name := include "orgdata-exporter.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "orgdata-exporter.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The labels of selectors, which no upgrade can change. Takes root and the part, which is "" for the exporter. */}}
{{- define "orgdata-exporter.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ compact (list (include "orgdata-exporter.name" $root) (index . 1)) | join "-" | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
{{- end -}}

{{/* The pod's labels. The version of the chart is not among them: it would restart the exporter for nothing. */}}
{{- define "orgdata-exporter.podLabels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict "app.kubernetes.io/part-of" "orgdata-exporter" -}}
{{- $more := dict -}}
{{- if not (index . 1) -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $more = $root.Values.podLabels -}}
{{- end -}}
{{- mergeOverwrite $labels $root.Values.commonLabels $more (include "orgdata-exporter.selectorLabels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* The metadata of an object. Takes root, and perhaps part, name, namespace, labels and annotations of its own. */}}
{{- define "orgdata-exporter.metadata" -}}
{{- $root := .root -}}
{{- $part := .part | default "" -}}
{{- $labels := dict "app.kubernetes.io/part-of" "orgdata-exporter" "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63) -}}
{{- if not $part -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- end -}}
{{- $own := include "orgdata-exporter.selectorLabels" (list $root $part) | fromYaml -}}
metadata:
  name: {{ .name | default (compact (list (include "orgdata-exporter.fullname" $root) $part) | join "-") | quote }}
  namespace: {{ .namespace | default (include "orgdata-exporter.namespace" $root) | quote }}
  labels:
    {{- mergeOverwrite $labels $root.Values.commonLabels (.labels | default dict) $own | toYaml | nindent 4 }}
  {{- with mergeOverwrite (dict) $root.Values.commonAnnotations (.annotations | default dict) }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "orgdata-exporter.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "orgdata-exporter.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "orgdata-exporter.keySecretName" -}}
{{- .Values.api.existingSecret | default (printf "%s-api-key" (include "orgdata-exporter.fullname" .)) -}}
{{- end -}}

{{/* The full name of an image. Takes root and the values of the image. */}}
{{- define "orgdata-exporter.image" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
{{- $name := compact (list ($root.Values.global.imageRegistry | default .registry) .repository) | join "/" -}}
{{- if .digest }}{{ $name }}@{{ .digest }}{{ else }}{{ $name }}:{{ .tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Settings of a pod that the exporter's and the collector's have in common: where it runs, its images, its DNS. */}}
{{- define "orgdata-exporter.placing" -}}
{{- with concat (.Values.global.imagePullSecrets | default list) .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . | quote }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A probe. Takes root, the path, and the numbers. With users in the web configuration it can only open a connection, since a password does
not belong into a manifest. */}}
{{- define "orgdata-exporter.probe" -}}
{{- $values := (index . 0).Values -}}
{{- if eq $values.web.probes "tcp" -}}
tcpSocket:
  port: 10917
{{- else -}}
httpGet:
  path: {{ index . 1 }}
  port: 10917
  {{- if eq $values.web.scheme "HTTPS" }}
  scheme: HTTPS
  {{- end }}
{{- end }}
{{ toYaml (index . 2) }}
{{- end -}}

{{- define "orgdata-exporter.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What the exporter's container and that of `helm test` have in common. */}}
{{- define "orgdata-exporter.envFrom" -}}
- configMapRef:
    name: {{ include "orgdata-exporter.fullname" . | quote }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "orgdata-exporter.mounts" -}}
- name: state
  mountPath: /var/lib/orgdata-exporter
# Directories and no subPath, which would never show a rotated key.
- name: api-key
  mountPath: /etc/orgdata-exporter/api-key
  readOnly: true
{{- if .Values.api.caConfigMap }}
- name: api-ca
  mountPath: /etc/orgdata-exporter/api-ca
  readOnly: true
{{- end }}
{{- if .Values.metrics.hashKeySecret }}
- name: hash-key
  mountPath: /etc/orgdata-exporter/hash-key
  readOnly: true
{{- end }}
{{- if .Values.otlp.bearerTokenSecret }}
- name: otlp-token
  mountPath: /etc/orgdata-exporter/otlp-token
  readOnly: true
{{- end }}
{{- if or .Values.web.configSecret .Values.web.certificate.enabled }}
- name: web
  mountPath: /etc/orgdata-exporter/web
  readOnly: true
{{- end }}
{{- if .Values.web.certificate.enabled }}
- name: web-tls
  mountPath: /etc/orgdata-exporter/web-tls
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes, except for the state. */}}
{{- define "orgdata-exporter.volumes" -}}
- name: api-key
  secret:
    secretName: {{ include "orgdata-exporter.keySecretName" . | quote }}
    optional: false
    # 0444 in decimal, since some YAML parsers read 0444 as 444.
    defaultMode: 292
    items:
      - key: {{ .Values.api.secretKey | quote }}
        path: {{ .Values.api.secretKey | quote }}
{{- with .Values.api.caConfigMap }}
- name: api-ca
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- with .Values.metrics.hashKeySecret }}
- name: hash-key
  secret:
    secretName: {{ . | quote }}
    defaultMode: 292
{{- end }}
{{- with .Values.otlp.bearerTokenSecret }}
- name: otlp-token
  secret:
    secretName: {{ . | quote }}
    defaultMode: 292
{{- end }}
{{- if .Values.web.configSecret }}
- name: web
  secret:
    secretName: {{ .Values.web.configSecret | quote }}
    defaultMode: 292
{{- else if .Values.web.certificate.enabled }}
- name: web
  configMap:
    name: {{ printf "%s-web" (include "orgdata-exporter.fullname" .) | quote }}
{{- end }}
{{- if .Values.web.certificate.enabled }}
- name: web-tls
  secret:
    secretName: {{ printf "%s-web-tls" (include "orgdata-exporter.fullname" .) | quote }}
    optional: false
    defaultMode: 292
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The claim template, which no upgrade can change; apiVersion, kind, volumeMode and status are what the API server would add. */}}
{{- define "orgdata-exporter.claims" -}}
{{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) -}}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: state
      labels:
        {{- mergeOverwrite (deepCopy .Values.persistence.labels) (include "orgdata-exporter.selectorLabels" (list . "") | fromYaml) | toYaml | nindent 8 }}
      {{- with .Values.persistence.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      accessModes:
        {{- toYaml .Values.persistence.accessModes | nindent 8 }}
      volumeMode: Filesystem
      {{- with .Values.persistence.storageClassName }}
      storageClassName: {{ . | quote }}
      {{- end }}
      resources:
        requests:
          # The file (state.maxSize), its write-ahead log, and room for a copy of it.
          storage: {{ .Values.persistence.size | quote }}
    status:
      phase: Pending
{{- end -}}
{{- end -}}

{{/* How a monitor scrapes. Takes root, the values of the monitor, and what the relabelings begin with, if anything. */}}
{{- define "orgdata-exporter.endpoint" -}}
{{- with .monitor -}}
path: {{ $.root.Values.web.telemetryPath | default "/metrics" | quote }}
scheme: {{ lower $.root.Values.web.scheme }}
interval: {{ .interval | quote }}
scrapeTimeout: {{ .scrapeTimeout | quote }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .proxyUrl }}
proxyUrl: {{ . | quote }}
{{- end }}
{{- with .tlsConfig }}
tlsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .basicAuth }}
basicAuth:
  {{- toYaml . | nindent 2 }}
{{- end }}
relabelings:
  {{- with $.first }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  # The alerts know the job by this name; otherwise it would be another one for each release.
  - action: replace
    targetLabel: job
    replacement: orgdata-exporter
  # Otherwise it would be the pod's address, and each restart would start new series.
  - action: replace
    sourceLabels: [__meta_kubernetes_namespace, __meta_kubernetes_pod_name]
    separator: /
    targetLabel: instance
  {{- with .relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The beginning of a monitor's spec. Takes root and the values of the monitor. */}}
{{- define "orgdata-exporter.monitor" -}}
{{- with .monitor -}}
{{- if .namespace }}
namespaceSelector:
  matchNames:
    - {{ include "orgdata-exporter.namespace" $.root | quote }}
{{- end }}
{{- with .targetLabels }}
targetLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .podTargetLabels }}
podTargetLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
sampleLimit: {{ .sampleLimit | int64 }}
labelLimit: {{ .labelLimit | int64 }}
{{- end -}}
{{- end -}}

{{/* The port of an address, as the exporter reads it: a collector's may be HOST:PORT. Without a scheme and a port, it depends on more variables
which port is meant. */}}
{{- define "orgdata-exporter.port" -}}
{{- $text := toString . | trim -}}
{{- if not (or (contains "://" $text) (regexMatch ":[0-9]+$" $text)) -}}
{{- fail (printf "networkPolicy: %s has neither a scheme nor a port; write it as https://HOST or HOST:PORT" $text) -}}
{{- end -}}
{{- $address := urlParse (ternary $text (print "https://" $text) (contains "://" $text)) -}}
{{- regexFind ":[0-9]+$" $address.host | trimPrefix ":" | default (ternary "80" "443" (eq $address.scheme "http")) -}}
{{- end -}}

{{/* An expression of files/detections.yaml with the pattern and the hours of the values. */}}
{{- define "orgdata-exporter.detection" -}}
{{- with (index . 0).Values.prometheusRule.detections -}}
{{- index $ 1
  | replace "\"(?i).*(delete|remove|export|role|permission).*\"" (quote .sensitiveTypes)
  | replace "24 - 20)" (printf "24 - %d)" (int64 .quietFrom))
  | replace "(6 + 24" (printf "(%d + 24" (int64 .quietUntil)) -}}
{{- end -}}
{{- end -}}
