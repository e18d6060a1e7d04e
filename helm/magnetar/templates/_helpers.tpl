{{/* Names, labels, addresses, images: what many objects say the same way. */}}

{{/* What all names begin with. Pods of a StatefulSet get a label of this, a component and a hash: 63 characters. */}}
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

{{/* Of (list root component): the name of its objects. */}}
{{- define "magnetar.name" -}}
{{- printf "%s-%s" (include "magnetar.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/* Of (list root component): what never changes, for selectors. */}}
{{- define "magnetar.selectorLabels" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Of (list root component): labels of an object. */}}
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

{{/* Of (list root image): an image of Magnetar's. */}}
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

{{/* Of (list root component): the domain in which each of its pods has a name. */}}
{{- define "magnetar.podDomain" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (include "magnetar.name" .) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end -}}

{{/* Members of etcd, host:port with commas between them. */}}
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

{{/* Of (list root component): the account of its pods. */}}
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

{{/* Of (list config key default): a number of the settings. */}}
{{- define "magnetar.number" -}}
{{- $given := get (index . 0) (index . 1) -}}
{{- if or (kindIs "invalid" $given) (eq (toString $given) "") -}}{{ index . 2 }}{{- else -}}{{ toString $given | float64 | int64 }}{{- end -}}
{{- end -}}

{{/* Of (list config key default): seconds that a pod has to end in: what a clean stop may take, and some more. */}}
{{- define "magnetar.gracePeriod" -}}
{{- add (div (add (include "magnetar.number" . | int64) 999) 1000) 10 -}}
{{- end -}}

{{/* The settings that brokers are given: the chart's own, under those of the values. */}}
{{- define "magnetar.brokerSettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataStoreUrl" (printf "etcd:%s" (include "magnetar.etcdEndpoints" .)) -}}
{{- if .Values.offload.location -}}
{{- $_ := set $own "magnetarOffloadLocation" .Values.offload.location -}}
{{- end -}}
{{- merge $own .Values.broker.config | toYaml -}}
{{- end -}}

{{- define "magnetar.bookieSettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataServiceUri" (printf "etcd:%s" (include "magnetar.etcdEndpoints" .)) "ledgerDirectories" "/data/bookie" -}}
{{- merge $own .Values.bookie.config | toYaml -}}
{{- end -}}

{{- define "magnetar.discoverySettings" -}}
{{- $own := dict "clusterName" (include "magnetar.clusterName" .) "metadataStoreUrl" (printf "etcd:%s" (include "magnetar.etcdEndpoints" .)) "magnetarProxyThroughServiceUrl" .Values.discovery.proxy -}}
{{- merge $own .Values.discovery.config | toYaml -}}
{{- end -}}
