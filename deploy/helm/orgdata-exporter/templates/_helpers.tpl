{{/* The name of every object: at most 52 characters, for a StatefulSet adds a hash to it in a label of 63. */}}
{{- define "orgdata-exporter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What no upgrade can change: the selectors and the claim of the volume have these labels and no others. A parent chart that has
this one twice gives each a name of its own, and .Chart.Name is that. Takes root and the part, which is "" for the exporter. */}}
{{- define "orgdata-exporter.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ compact (list $root.Chart.Name (index . 1)) | join "-" }}
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
{{- mergeOverwrite $labels $root.Values.labels $more (include "orgdata-exporter.selectorLabels" . | fromYaml) | toYaml -}}
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
  name: {{ .name | default (compact (list (include "orgdata-exporter.fullname" $root) $part) | join "-") }}
  namespace: {{ .namespace | default $root.Release.Namespace }}
  labels:
    {{- mergeOverwrite $labels $root.Values.labels (.labels | default dict) $own | toYaml | nindent 4 }}
  {{- with mergeOverwrite (dict) $root.Values.annotations (.annotations | default dict) }}
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

{{- define "orgdata-exporter.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Where pods may run, and who may fetch their images. */}}
{{- define "orgdata-exporter.placing" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
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

{{/* A probe of a path. Without a password, which has no place in a manifest, only the port can be asked. */}}
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
{{- end -}}
{{- end -}}

{{/* How a monitor scrapes. Takes root, the values of the monitor, and what the relabelings begin with, if anything. */}}
{{- define "orgdata-exporter.endpoint" -}}
{{- with .monitor -}}
path: {{ $.root.Values.web.telemetryPath | default "/metrics" }}
scheme: {{ lower $.root.Values.web.scheme }}
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
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
  - targetLabel: job
    replacement: orgdata-exporter
  # Otherwise the pod's address, which is another one after each restart: every counter a new series.
  - sourceLabels: [__meta_kubernetes_namespace, __meta_kubernetes_pod_name]
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

{{/* The port that an address is at. */}}
{{- define "orgdata-exporter.port" -}}
{{- $address := urlParse . -}}
{{- regexFind ":[0-9]+$" $address.host | trimPrefix ":" | default (ternary "80" "443" (eq $address.scheme "http")) -}}
{{- end -}}
