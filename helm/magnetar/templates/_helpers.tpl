{{/* Shared names, labels, addresses and images. */}}

{{/* Name prefix of all objects. A StatefulSet's pods get a label of prefix, component and hash: 63 characters. */}}
{{- define "magnetar.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 36 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 36 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 27 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{- define "magnetar.clusterName" -}}
{{- .Values.clusterName | default (include "magnetar.fullname" .) -}}
{{- end -}}

{{/* Name of a component's objects, from (list root component). */}}
{{- define "magnetar.name" -}}
{{- printf "%s-%s" (include "magnetar.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* Immutable labels for selectors, from (list root component). */}}
{{- define "magnetar.selectorLabels" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object, from (list root component). */}}
{{- define "magnetar.labels" -}}
{{ include "magnetar.selectorLabels" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/part-of: magnetar
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Reference of a Magnetar image, from (list root image). */}}
{{- define "magnetar.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{- end -}}
{{- end -}}

{{- define "magnetar.etcdImage" -}}
{{- $image := .Values.etcd.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}@{{ $image.digest }}{{- else -}}:{{ $image.tag }}{{- end -}}
{{- end -}}

{{/* DNS domain of a component's pods, from (list root component). */}}
{{- define "magnetar.podDomain" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (include "magnetar.name" .) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* Members of etcd, as comma-separated host:port. */}}
{{- define "magnetar.etcdEndpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $name := include "magnetar.name" (list . "etcd") -}}
{{- $domain := include "magnetar.podDomain" (list . "etcd") -}}
{{- range $number := until (int .Values.etcd.replicas) -}}
{{- if $number }},{{ end }}{{ $name }}-{{ $number }}.{{ $domain }}:2379
{{- end -}}
{{- else -}}
{{- join "," .Values.externalEtcd.endpoints -}}
{{- end -}}
{{- end -}}

{{/* URL of the metadata. */}}
{{- define "magnetar.metadataUrl" -}}
{{- if .Values.tls.etcd.enabled -}}
etcd:https://{{ include "magnetar.etcdEndpoints" . | replace "," ",https://" }}
{{- else -}}
etcd:{{ include "magnetar.etcdEndpoints" . }}
{{- end -}}
{{- end -}}

{{/* Service account of a component's pods, from (list root component). */}}
{{- define "magnetar.serviceAccount" -}}
{{- if (index . 0).Values.serviceAccounts.create -}}{{ include "magnetar.name" . }}{{- else -}}default{{- end -}}
{{- end -}}

{{/*
Settings as a properties file, in the order of their keys. Values of YAML are written as services read them: numbers
without an exponent, lists with commas, and a backslash twice.
*/}}
{{- define "magnetar.properties" -}}
{{- $settings := . -}}
{{- range $key := keys $settings | sortAlpha -}}
{{- $value := get $settings $key -}}
{{- if kindIs "slice" $value }}
{{ $key }}={{ join "," $value }}
{{- else if kindIs "string" $value }}
{{ $key }}={{ $value | replace "\\" "\\\\" | replace "\n" "\\n" }}
{{- else if not (kindIs "invalid" $value) }}
{{ $key }}={{ toJson $value }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Numeric setting, from (list config key default). */}}
{{- define "magnetar.number" -}}
{{- $given := get (index . 0) (index . 1) -}}
{{- if or (kindIs "invalid" $given) (eq (toString $given) "") -}}{{ index . 2 }}{{- else -}}{{ toString $given | float64 | int64 }}{{- end -}}
{{- end -}}

{{/* Termination grace period in seconds: the shutdown timeout and a margin, from (list config key default). */}}
{{- define "magnetar.gracePeriod" -}}
{{- add (div (add (include "magnetar.number" . | int64) 999) 1000) 10 -}}
{{- end -}}

{{/* Settings of brokers: the chart's own, overridden by the values. */}}
{{- define "magnetar.brokerSettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataStoreUrl" (include "magnetar.metadataUrl" .) -}}
{{- if .Values.offload.location -}}
{{- $_ := set $own "magnetarOffloadLocation" .Values.offload.location -}}
{{- end -}}
{{- include "magnetar.settings" (list . "broker" $own) -}}
{{- end -}}

{{- define "magnetar.bookieSettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataServiceUri" (include "magnetar.metadataUrl" .) "ledgerDirectories" "/data/bookie" -}}
{{- include "magnetar.settings" (list . "bookie" $own) -}}
{{- end -}}

{{- define "magnetar.discoverySettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataStoreUrl" (include "magnetar.metadataUrl" .) "magnetarProxyThroughServiceUrl" .Values.discovery.proxy -}}
{{- include "magnetar.settings" (list . "discovery" $own) -}}
{{- end -}}

{{- define "magnetar.consoleSettings" -}}
{{- include "magnetar.settings" (list . "console" dict) -}}
{{- end -}}

{{/* Ports for clients that are offered, as a YAML map of names. */}}
{{- define "magnetar.clientPorts" -}}
{{- if not (include "magnetar.onlyTls" .) }}
pulsar: 6650
http: 8080
{{- end }}
{{- if .Values.tls.clients.enabled }}
pulsar-ssl: 6651
https: 8443
{{- end }}
{{- end -}}
