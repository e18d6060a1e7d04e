{{/* Environment with the cluster's addresses for the command line. */}}
{{- define "magnetar.toolsEnvironment" -}}
- {name: MAGNETAR_SERVICE_URL, value: "pulsar://{{ include "magnetar.name" (list . "discovery") }}:6650"}
- {name: MAGNETAR_ADMIN_URL, value: "http://{{ include "magnetar.name" (list . "discovery") }}:8080"}
- {name: MAGNETAR_METADATA_STORE_URL, value: "etcd:{{ include "magnetar.etcdEndpoints" . }}"}
- {name: MAGNETAR_CLUSTER_NAME, value: {{ include "magnetar.clusterName" . | quote }}}
- {name: MAGNETAR_OFFLOAD_SERVICE, value: "{{ include "magnetar.name" (list . "brokers") }}:6750"}
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
