{{- define "plimsoll.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "plimsoll.selectorLabels" -}}
app.kubernetes.io/name: plimsoll
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "plimsoll.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "plimsoll.fullname" .) -}}
{{- end -}}

{{- /* A digest wins over a tag; without either it is the version this chart was made for. */}}
{{- define "plimsoll.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The variables of operator/plimsoll/settings.py: settings.sweepSeconds is PLIMSOLL_SWEEP_SECONDS. */}}
{{- define "plimsoll.env" -}}
- name: PLIMSOLL_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- if not .Values.settings.gateImage }}
- name: PLIMSOLL_GATE_IMAGE
  value: {{ include "plimsoll.image" . | quote }}
{{- end }}
{{- with .Values.namespaces }}
- name: PLIMSOLL_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- if .Values.podPolicy }}
- name: PLIMSOLL_POD_POLICY
  value: /etc/plimsoll/pod-policy/pod-policy.yaml
{{- end }}
{{- if .Values.inventory }}
- name: PLIMSOLL_INVENTORY
  value: /etc/plimsoll/inventory/inventory.yaml
{{- end }}
{{- if .Values.activation }}
- name: PLIMSOLL_ACTIVATION
  value: /etc/plimsoll/activation/activation.yaml
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- $text := include "plimsoll.setting" $value }}
{{- if $text }}
- name: PLIMSOLL_{{ snakecase $name | upper }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* A setting as text: a list with commas (an empty one is "none"), a map as JSON. */}}
{{- define "plimsoll.setting" -}}
{{- if kindIs "slice" . -}}
{{- join "," . | default "none" -}}
{{- else if kindIs "map" . -}}
{{- if . }}{{ toJson . }}{{ end -}}
{{- else if not (kindIs "invalid" .) -}}
{{- toString . -}}
{{- end -}}
{{- end -}}
