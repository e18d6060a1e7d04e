{{/* Parts of pods that components share. */}}

{{/* Placement of pods, from (list root component values). */}}
{{- define "magnetar.placement" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := index . 2 -}}
{{- $labels := include "magnetar.selectorLabels" (list $root $component) -}}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if eq $values.antiAffinity "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- $labels | nindent 12 }}
{{- else if eq $values.antiAffinity "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $labels | nindent 14 }}
{{- end }}
{{- if ne $values.zoneSpread "none" }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: {{ $values.zoneSpread }}
    labelSelector:
      matchLabels:
        {{- $labels | nindent 8 }}
{{- end }}
{{- end -}}

{{/* Service account settings of every pod, from (list root component). No service calls the API server. */}}
{{- define "magnetar.account" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "magnetar.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
Probes of a service. HTTP is the first thing that it starts and the last that it ends: /livez answers within seconds, and
all through the recovery of a full disk and a drain, which may take as long as they need. Only /readyz waits for them, and
says so when a broker cannot store: that is its bookies' illness as a rule, so nothing may restart a broker for it.
*/}}
{{- define "magnetar.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 300
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 3
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Probes of a service for clients: over HTTPS where it has no plain port. A kubelet does not verify the certificate. */}}
{{- define "magnetar.clientProbes" -}}
{{- $probes := include "magnetar.probes" . -}}
{{- if include "magnetar.onlyTls" . }}{{ $probes = $probes | replace "port: http}" "port: https, scheme: HTTPS}" }}{{ end -}}
{{- $probes -}}
{{- end -}}

{{/* Identity of the pod, for settings that differ by pod. */}}
{{- define "magnetar.podEnvironment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end -}}

{{/*
Waits until etcd answers: services end where it does not when they start, and a pod that fails at first is started
anew later and later.
*/}}
{{- define "magnetar.waitForEtcd" -}}
{{- $root := index . 0 -}}
{{- /* A member that wants certificates tells its health on the port of its metrics. */ -}}
{{- $endpoints := include "magnetar.etcdEndpoints" $root -}}
{{- if $root.Values.tls.etcd.enabled }}{{ $endpoints = $endpoints | replace ":2379" ":2381" }}{{ end -}}
- name: wait-for-etcd
  image: {{ include "magnetar.image" (list $root (index . 1)) }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [python3, -I, /opt/scripts/wait_for_etcd.py, {{ $endpoints | quote }}]
  resources:
    {{- include "magnetar.smallResources" $root | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    - {name: scripts, mountPath: /opt/scripts, readOnly: true}
{{- end -}}

{{- define "magnetar.smallResources" -}}
requests: {cpu: 20m, memory: 32Mi}
limits: {memory: 64Mi}
{{- end -}}
