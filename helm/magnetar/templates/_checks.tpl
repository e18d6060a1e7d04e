{{/* Checks of value combinations, which values.schema.json cannot express. */}}
{{- define "magnetar.checks" -}}
{{- $values := .Values -}}
{{- $ensemble := include "magnetar.number" (list $values.broker.config "managedLedgerDefaultEnsembleSize" 3) | int -}}
{{- $write := include "magnetar.number" (list $values.broker.config "managedLedgerDefaultWriteQuorum" 3) | int -}}
{{- $ack := include "magnetar.number" (list $values.broker.config "managedLedgerDefaultAckQuorum" 2) | int -}}
{{- $spare := max 1 (sub $write $ack) | int -}}
{{- if or (lt $ensemble $write) (lt $write $ack) -}}
{{- fail (printf "broker.config: managedLedgerDefaultEnsembleSize=%d, ...WriteQuorum=%d and ...AckQuorum=%d: each may be at most the one before" $ensemble $write $ack) -}}
{{- end -}}
{{- if lt (int $values.bookie.replicas) $ensemble -}}
{{- fail (printf "bookie.replicas=%d: no ledger could be made, each is spread over managedLedgerDefaultEnsembleSize=%d bookies; have at least that many, or lower it and the quorums in broker.config" (int $values.bookie.replicas) $ensemble) -}}
{{- end -}}
{{- if and $values.bookie.podDisruptionBudget.enabled (gt (int $values.bookie.podDisruptionBudget.maxUnavailable) $spare) -}}
{{- fail (printf "bookie.podDisruptionBudget.maxUnavailable=%d: entries that go to %d bookies and are confirmed by %d can do without %d" (int $values.bookie.podDisruptionBudget.maxUnavailable) $write $ack $spare) -}}
{{- end -}}
{{- if and $values.etcd.enabled $values.externalEtcd.endpoints -}}
{{- fail "externalEtcd.endpoints is given: set etcd.enabled=false, or two places could be meant for the metadata" -}}
{{- end -}}
{{- if not (or $values.etcd.enabled $values.externalEtcd.endpoints) -}}
{{- fail "etcd.enabled=false: externalEtcd.endpoints has to say where etcd is, host:port of each member" -}}
{{- end -}}
{{- if and $values.metrics.podMonitor.enabled $values.metrics.serviceMonitor.enabled -}}
{{- fail "metrics.podMonitor and metrics.serviceMonitor are both enabled: every sample would be there twice; choose one" -}}
{{- end -}}
{{- if and $values.discovery.service.externalTrafficPolicy (eq $values.discovery.service.type "ClusterIP") -}}
{{- fail (printf "discovery.service.externalTrafficPolicy=%s is for discovery.service.type NodePort and LoadBalancer" $values.discovery.service.externalTrafficPolicy) -}}
{{- end -}}
{{- if and (hasPrefix "file:" $values.offload.location) (not $values.offload.volume.existingClaim) -}}
{{- fail (printf "offload.location=%s is a directory: offload.volume.existingClaim has to name a claim that brokers and jobs share" $values.offload.location) -}}
{{- end -}}
{{- if and (hasPrefix "file:" $values.offload.location) (not (hasPrefix (printf "file://%s" (trimSuffix "/" $values.offload.volume.mountPath)) $values.offload.location)) -}}
{{- fail (printf "offload.location=%s is not on the volume, which is mounted at %s" $values.offload.location $values.offload.volume.mountPath) -}}
{{- end -}}
{{- include "magnetar.securityChecks" . -}}
{{- if and $values.backup.enabled (not $values.backup.existingClaim) -}}
{{- fail "backup.enabled: backup.existingClaim has to name the claim that copies are written to" -}}
{{- end -}}
{{- end -}}
