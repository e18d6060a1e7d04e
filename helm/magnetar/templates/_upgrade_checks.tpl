{{/*
Changes of a release that would cost data, refused. `lookup` shows what is there when helm installs and upgrades, and
nothing when it only renders (helm template, and what is built on it).
*/}}
{{- define "magnetar.upgradeChecks" -}}
{{- $bookies := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "magnetar.name" (list . "bookie")) -}}
{{- if and .Values.bookie.scaleDownCheck $bookies -}}
{{- $there := int $bookies.spec.replicas -}}
{{- if gt (sub $there (int .Values.bookie.replicas)) 1 -}}
{{- fail (printf "bookie.replicas=%d: this release has %d bookies. All copies of an entry may be on those that would go at once: decommission %s-%d, take that one away (bookie.replicas=%d), and go on with the next; docs/kubernetes.md#more-and-fewer-pods" (int .Values.bookie.replicas) $there (include "magnetar.name" (list . "bookie")) (sub $there 1) (sub $there 1)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.etcd.enabled -}}
{{- $members := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "magnetar.name" (list . "etcd")) -}}
{{- if and $members (ne (int $members.spec.replicas) (int .Values.etcd.replicas)) -}}
{{- fail (printf "etcd.replicas=%d: this release has %d members, and members are not added or removed by an upgrade; docs/kubernetes.md#more-and-fewer-pods says how to move to more" (int .Values.etcd.replicas) (int $members.spec.replicas)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.etcd.enabled }}
{{- $members := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "magnetar.name" (list . "etcd")) -}}
{{- if and $members (ne (contains "--peer-client-cert-auth" (toJson $members)) .Values.tls.etcd.enabled) -}}
{{- fail (printf "tls.etcd.enabled=%t: members of etcd know each other by the URLs that they began with, and an upgrade does not change those; docs/kubernetes.md#tls-and-authentication" .Values.tls.etcd.enabled) -}}
{{- end -}}
{{- end -}}
{{- $settings := lookup "v1" "ConfigMap" .Release.Namespace (include "magnetar.name" (list . "bookie")) -}}
{{- if $settings -}}
{{- $there := regexFind "(?m)^clusterName=.*$" (get ($settings.data | default dict) "bookie.conf") -}}
{{- $wanted := printf "clusterName=%s" (include "magnetar.clusterName" .) -}}
{{- if and $there (ne $there $wanted) -}}
{{- fail (printf "%s: this release has %s. Metadata and bookies' disks are bound to it: bookies would refuse to start, and brokers would find no topics. Set clusterName to what it was" $wanted $there) -}}
{{- end -}}
{{- end -}}
{{- end -}}
