{{/* Environment with the cluster's addresses for the command line. */}}
{{- define "magnetar.toolsEnvironment" -}}
{{- $discovery := include "magnetar.name" (list . "discovery") -}}
{{- if .Values.tls.clients.enabled -}}
- {name: MAGNETAR_SERVICE_URL, value: "pulsar+ssl://{{ $discovery }}:6651"}
- {name: MAGNETAR_ADMIN_URL, value: "https://{{ $discovery }}:8443"}
# What Python's TLS trusts.
- {name: SSL_CERT_FILE, value: /run/magnetar/clients-tls/ca.crt}
{{- else -}}
- {name: MAGNETAR_SERVICE_URL, value: "pulsar://{{ $discovery }}:6650"}
- {name: MAGNETAR_ADMIN_URL, value: "http://{{ $discovery }}:8080"}
{{- end }}
{{- if and .Values.auth.enabled .Values.auth.tokens.enabled }}
- {name: MAGNETAR_TOKEN, value: "file:/run/magnetar/tokens/admin.jwt"}
{{- end }}
{{ include "magnetar.metadataEnvironment" . }}
- {name: MAGNETAR_OFFLOAD_SERVICE, value: "{{ include "magnetar.name" (list . "brokers") }}:6750"}
{{- end -}}

{{/* Environment with the cluster's metadata for the command line. */}}
{{- define "magnetar.metadataEnvironment" -}}
- {name: MAGNETAR_METADATA_STORE_URL, value: {{ include "magnetar.metadataUrl" . | quote }}}
{{- range $key, $file := include "magnetar.metadataTlsSettings" . | fromYaml }}
- {name: MAGNETAR_{{ $key | snakecase | upper }}, value: {{ $file }}}
{{- end }}
- {name: MAGNETAR_CLUSTER_NAME, value: {{ include "magnetar.clusterName" . | quote }}}
{{- end -}}

{{/* Account, images and placement of pods with the command line. */}}
{{- define "magnetar.toolsPod" -}}
serviceAccountName: default
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tools.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tools.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
