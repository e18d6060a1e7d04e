{{/* TLS and authentication: what each service is told, which secrets it mounts, and where. */}}

{{/* "true" where pods need a certificate of the services' authority: between services, or towards the bundled etcd. */}}
{{- define "magnetar.servicesTls" -}}
{{- if or .Values.tls.internal.enabled (and .Values.tls.etcd.enabled .Values.etcd.enabled) -}}true{{- end -}}
{{- end -}}

{{/* "true" where plain ports for clients are closed. */}}
{{- define "magnetar.onlyTls" -}}
{{- if and .Values.tls.clients.enabled .Values.tls.clients.only -}}true{{- end -}}
{{- end -}}

{{/* Secret with tls.crt, tls.key and ca.crt, from (list root side component); side: clients or services. */}}
{{- define "magnetar.certificateSecret" -}}
{{- $root := index . 0 -}}
{{- $given := get (get $root.Values.tls.existingSecret (index . 1)) (index . 2) -}}
{{- $given | default (printf "%s-%s-%s-tls" (include "magnetar.fullname" $root) (index . 2) (index . 1)) -}}
{{- end -}}

{{/* Service in the URI of a component's certificate, from its component. */}}
{{- define "magnetar.identity" -}}
{{- get (dict "offload" "job" "tools" "admin" "test" "admin" "bookie-check" "backup" "etcd-users" "etcd") . | default . -}}
{{- end -}}

{{- define "magnetar.tokenKeySecret" -}}
{{- .Values.auth.tokens.secretKey | default (printf "%s-token-key" (include "magnetar.fullname" .)) -}}
{{- end -}}

{{- define "magnetar.tokensSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-tokens" (include "magnetar.fullname" .)) -}}
{{- end -}}

{{/* "true" where clients may be known by a certificate. */}}
{{- define "magnetar.certificateRoles" -}}
{{- if and .Values.auth.enabled .Values.auth.tls.enabled .Values.tls.clients.enabled -}}true{{- end -}}
{{- end -}}

{{/* Settings of authentication and authorization, the same for brokers and discovery. */}}
{{- define "magnetar.authSettings" -}}
{{- if .Values.auth.enabled -}}
{{- $providers := list -}}
{{- $class := "org.apache.pulsar.broker.authentication." -}}
{{- if include "magnetar.certificateRoles" . -}}
{{- $providers = append $providers (printf "%sAuthenticationProviderTls" $class) -}}
{{- end -}}
{{- if .Values.auth.tokens.enabled -}}
{{- $providers = append $providers (printf "%sAuthenticationProviderToken" $class) -}}
{{- end -}}
{{- if .Values.auth.basic.existingSecret -}}
{{- $providers = append $providers (printf "%sAuthenticationProviderBasic" $class) -}}
{{- end -}}
{{- if .Values.auth.openid.enabled -}}
{{- $providers = append $providers (printf "%soidc.AuthenticationProviderOpenID" $class) -}}
{{- end -}}
{{- $settings := dict "authenticationEnabled" true "authenticationProviders" $providers -}}
{{- if .Values.auth.tokens.enabled -}}
{{- $_ := set $settings "tokenSecretKey" "file:///run/magnetar/token-key/secret.key" -}}
{{- end -}}
{{- if .Values.auth.basic.existingSecret -}}
{{- $_ := set $settings "basicAuthConf" "file:///run/magnetar/passwords/htpasswd" -}}
{{- end -}}
{{- with .Values.auth.openid -}}
{{- if .enabled -}}
{{- $_ := set $settings "openIDAllowedTokenIssuers" .allowedTokenIssuers -}}
{{- $_ := set $settings "openIDAllowedAudiences" .allowedAudiences -}}
{{- $_ := set $settings "openIDRoleClaim" .roleClaim -}}
{{- if .trustSecret -}}
{{- $_ := set $settings "openIDTokenIssuerTrustCertsFilePath" "/run/magnetar/openid/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.auth.anonymousRole -}}
{{- $_ := set $settings "anonymousUserRole" . -}}
{{- end -}}
{{- if .Values.auth.authorization.enabled -}}
{{- $_ := set $settings "authorizationEnabled" true -}}
{{- $_ := set $settings "superUserRoles" (concat (list "magnetar-admin" "magnetar-broker" (include "magnetar.discoveryRole" .)) .Values.auth.superUsers | uniq) -}}
{{- if .Values.auth.tokens.enabled -}}
{{- $_ := set $settings "proxyRoles" (list "magnetar-discovery") -}}
{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}
{{- end -}}

{{/* Role by which discovery asks brokers what it has authorized itself. A proxy role, which names its clients' roles, may not. */}}
{{- define "magnetar.discoveryRole" -}}
{{- if .Values.auth.tokens.enabled -}}magnetar-discovery-lookups{{- else -}}magnetar-discovery{{- end -}}
{{- end -}}

{{/* How brokers are called by brokers and discovery, from (list root component). */}}
{{- define "magnetar.brokerClientSettings" -}}
{{- $root := index . 0 -}}
{{- $settings := dict -}}
{{- if $root.Values.tls.clients.enabled -}}
{{- $_ := set $settings "brokerClientTrustCertsFilePath" "/run/magnetar/clients-tls/ca.crt" -}}
{{- $_ := set $settings (ternary "brokerClientTlsEnabled" "tlsEnabledWithBroker" (eq (index . 1) "broker")) true -}}
{{- end -}}
{{- $byToken := and $root.Values.auth.enabled $root.Values.auth.tokens.enabled (eq (index . 1) "discovery") -}}
{{- if and (include "magnetar.certificateRoles" $root) $byToken -}}
{{- /* Shown as a proxy only, for clients that are known by certificates. */ -}}
{{- $_ := set $settings "brokerClientCertificateFilePath" "/run/magnetar/clients-tls/tls.crt" -}}
{{- $_ := set $settings "brokerClientKeyFilePath" "/run/magnetar/clients-tls/tls.key" -}}
{{- end -}}
{{- if and (include "magnetar.certificateRoles" $root) (not $byToken) -}}
{{- $_ := set $settings "brokerClientAuthenticationPlugin" "org.apache.pulsar.client.impl.auth.AuthenticationTls" -}}
{{- $_ := set $settings "brokerClientAuthenticationParameters" "tlsCertFile:/run/magnetar/clients-tls/tls.crt,tlsKeyFile:/run/magnetar/clients-tls/tls.key" -}}
{{- else if and $root.Values.auth.enabled $root.Values.auth.tokens.enabled -}}
{{- $_ := set $settings "brokerClientAuthenticationPlugin" "org.apache.pulsar.client.impl.auth.AuthenticationToken" -}}
{{- $_ := set $settings "brokerClientAuthenticationParameters" (printf "file:///run/magnetar/tokens/%s.jwt" (index . 1)) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* TLS towards etcd. */}}
{{- define "magnetar.metadataTlsSettings" -}}
{{- if .Values.tls.etcd.enabled -}}
{{- $directory := ternary "/run/magnetar/etcd-tls" "/run/magnetar/services-tls" (not (empty .Values.tls.etcd.existingSecret)) -}}
magnetarMetadataTlsTrustCertsFilePath: {{ $directory }}/ca.crt
magnetarMetadataTlsCertificateFilePath: {{ $directory }}/tls.crt
magnetarMetadataTlsKeyFilePath: {{ $directory }}/tls.key
{{- end -}}
{{- end -}}

{{- define "magnetar.controlTlsSettings" -}}
{{- if .Values.tls.internal.enabled -}}
magnetarControlTlsCertificateFilePath: /run/magnetar/services-tls/tls.crt
magnetarControlTlsKeyFilePath: /run/magnetar/services-tls/tls.key
magnetarControlTlsTrustCertsFilePath: /run/magnetar/services-tls/ca.crt
{{- end -}}
{{- end -}}

{{/* Files of the ports for clients. */}}
{{- define "magnetar.clientsTlsSettings" -}}
webServicePortTls: 8443
tlsCertificateFilePath: /run/magnetar/clients-tls/tls.crt
tlsKeyFilePath: /run/magnetar/clients-tls/tls.key
tlsTrustCertsFilePath: /run/magnetar/clients-tls/ca.crt
tlsRequireTrustedClientCertOnConnect: {{ .Values.tls.clients.requireCertificate }}
{{- end -}}

{{- define "magnetar.brokerSecurity" -}}
{{- $parts := list (include "magnetar.authSettings" .) (include "magnetar.brokerClientSettings" (list . "broker")) (include "magnetar.metadataTlsSettings" .) (include "magnetar.controlTlsSettings" .) -}}
{{- $settings := dict -}}
{{- range $parts }}{{ $settings = merge $settings (fromYaml .) }}{{ end -}}
{{- if .Values.tls.clients.enabled -}}
{{- $settings = merge $settings (include "magnetar.clientsTlsSettings" . | fromYaml) (dict "brokerServicePortTls" 6651) -}}
{{- if include "magnetar.onlyTls" . -}}
{{- $settings = merge $settings (dict "brokerServicePort" "" "webServicePort" "") -}}
{{- end -}}
{{- end -}}
{{- if .Values.tls.internal.enabled -}}
{{- $settings = merge $settings (dict
  "bookkeeperTLSClientAuthentication" true
  "bookkeeperTLSTrustCertsFilePath" "/run/magnetar/services-tls/ca.crt"
  "bookkeeperTLSCertificateFilePath" "/run/magnetar/services-tls/tls.crt"
  "bookkeeperTLSKeyFilePath" "/run/magnetar/services-tls/tls.key") -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{- define "magnetar.bookieSecurity" -}}
{{- $settings := include "magnetar.metadataTlsSettings" . | fromYaml -}}
{{- if .Values.tls.internal.enabled -}}
{{- $settings = merge $settings (dict
  "tlsCertificatePath" "/run/magnetar/services-tls/tls.crt"
  "tlsKeyStore" "/run/magnetar/services-tls/tls.key"
  "tlsTrustStore" "/run/magnetar/services-tls/ca.crt"
  "tlsClientAuthentication" true) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{- define "magnetar.discoverySecurity" -}}
{{- $parts := list (include "magnetar.authSettings" .) (include "magnetar.brokerClientSettings" (list . "discovery")) (include "magnetar.metadataTlsSettings" .) (include "magnetar.controlTlsSettings" .) -}}
{{- $settings := dict -}}
{{- range $parts }}{{ $settings = merge $settings (fromYaml .) }}{{ end -}}
{{- if .Values.tls.clients.enabled -}}
{{- $settings = merge $settings (include "magnetar.clientsTlsSettings" . | fromYaml) (dict "servicePortTls" 6651) -}}
{{- if include "magnetar.onlyTls" . -}}
{{- $settings = merge $settings (dict "servicePort" "" "webServicePort" "") -}}
{{- end -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* What the console asks, and what browsers get. It has no rights of its own, so no token. */}}
{{- define "magnetar.consoleSecurity" -}}
{{- $discovery := include "magnetar.name" (list . "discovery") -}}
{{- if .Values.tls.clients.enabled -}}
webServiceUrl: https://{{ $discovery }}:8443
brokerServiceUrl: pulsar+ssl://{{ $discovery }}:6651
brokerClientTrustCertsFilePath: /run/magnetar/clients-tls/ca.crt
webServicePort: ""
webServicePortTls: 8493
tlsCertificateFilePath: /run/magnetar/clients-tls/tls.crt
tlsKeyFilePath: /run/magnetar/clients-tls/tls.key
{{- else -}}
webServiceUrl: http://{{ $discovery }}:8080
brokerServiceUrl: pulsar://{{ $discovery }}:6650
{{- end -}}
{{- end -}}

{{/* Settings with those of security, from (list root component own); a value under config may not contradict them. */}}
{{- define "magnetar.settings" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $security := include (printf "magnetar.%sSecurity" $component) $root | fromYaml -}}
{{- $config := get (get $root.Values $component) "config" -}}
{{- range $key := keys $security | sortAlpha -}}
{{- if hasKey $config $key -}}
{{- fail (printf "%s.config.%s: the chart sets it with tls and auth; take it out, or turn those off" $component $key) -}}
{{- end -}}
{{- end -}}
{{- merge (index . 2) $security $config | toYaml -}}
{{- end -}}

{{/* Names of the secrets' volumes that a component mounts, with their secrets, from (list root component). */}}
{{- define "magnetar.secrets" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $identity := include "magnetar.identity" $component -}}
{{- $values := $root.Values -}}
{{- $found := dict -}}
{{- if and $values.tls.clients.enabled (has $identity (list "broker" "discovery" "console")) -}}
{{- $_ := set $found "clients-tls" (dict "secretName" (include "magnetar.certificateSecret" (list $root "clients" $component))) -}}
{{- else if and $values.tls.clients.enabled (eq $identity "admin") -}}
{{- /* To trust, not to be: a client needs no key of a server. */ -}}
{{- $_ := set $found "clients-tls" (dict "secretName" (include "magnetar.certificateSecret" (list $root "clients" "discovery")) "items" (list (dict "key" "ca.crt" "path" "ca.crt"))) -}}
{{- end -}}
{{- if and (include "magnetar.servicesTls" $root) (has $identity (include "magnetar.certifiedServices" $root | fromYamlArray)) -}}
{{- $_ := set $found "services-tls" (dict "secretName" (include "magnetar.certificateSecret" (list $root "services" $identity))) -}}
{{- end -}}
{{- if and $values.tls.etcd.enabled $values.tls.etcd.existingSecret (not (has $identity (list "etcd" "job"))) -}}
{{- $_ := set $found "etcd-tls" (dict "secretName" $values.tls.etcd.existingSecret) -}}
{{- end -}}
{{- if and $values.auth.enabled (has $identity (list "broker" "discovery")) -}}
{{- if $values.auth.tokens.enabled -}}
{{- $_ := set $found "token-key" (dict "secretName" (include "magnetar.tokenKeySecret" $root) "items" (list (dict "key" "secret.key" "path" "secret.key"))) -}}
{{- end -}}
{{- with $values.auth.basic.existingSecret -}}
{{- $_ := set $found "passwords" (dict "secretName" . "items" (list (dict "key" "htpasswd" "path" "htpasswd"))) -}}
{{- end -}}
{{- if $values.auth.openid.enabled -}}
{{- with $values.auth.openid.trustSecret -}}
{{- $_ := set $found "openid" (dict "secretName" . "items" (list (dict "key" "ca.crt" "path" "ca.crt"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.auth.enabled $values.auth.tokens.enabled (or (has $identity (list "admin" "discovery")) (and (eq $identity "broker") (not (include "magnetar.certificateRoles" $root)))) -}}
{{- $key := printf "%s.jwt" $identity -}}
{{- $_ := set $found "tokens" (dict "secretName" (include "magnetar.tokensSecret" $root) "items" (list (dict "key" $key "path" $key))) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Volumes of a component's secrets, from (list root component). */}}
{{- define "magnetar.secretVolumes" -}}
{{- range $name, $secret := include "magnetar.secrets" . | fromYaml }}
- name: {{ $name }}
  secret:
    secretName: {{ $secret.secretName | quote }}
    defaultMode: 0400
    {{- with $secret.items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end }}
{{- end -}}

{{/* Mounts of them: whole directories, which Kubernetes keeps up to date. */}}
{{- define "magnetar.secretMounts" -}}
{{- range $name, $_ := include "magnetar.secrets" . | fromYaml }}
- {name: {{ $name }}, mountPath: /run/magnetar/{{ $name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* Combinations that cannot work. */}}
{{- define "magnetar.securityChecks" -}}
{{- $tls := .Values.tls -}}
{{- $auth := .Values.auth -}}
{{- if not $tls.certManager.enabled -}}
{{- if $tls.clients.enabled -}}
{{- range $component := include "magnetar.certifiedForClients" . | fromYamlArray -}}
{{- if not (get $tls.existingSecret.clients $component) -}}
{{- fail (printf "tls.clients.enabled: set tls.certManager.enabled=true, or name a secret in tls.existingSecret.clients.%s" $component) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "magnetar.servicesTls" . -}}
{{- range $service := include "magnetar.certifiedServices" . | fromYamlArray -}}
{{- if not (get $tls.existingSecret.services $service) -}}
{{- fail (printf "tls.internal.enabled or tls.etcd.enabled: set tls.certManager.enabled=true, or name a secret in tls.existingSecret.services.%s" $service) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $tls.etcd.enabled (not .Values.etcd.enabled) (not $tls.etcd.existingSecret) -}}
{{- fail "tls.etcd.enabled: with externalEtcd, tls.etcd.existingSecret has to name a secret with ca.crt, tls.crt and tls.key for it" -}}
{{- end -}}
{{- if and $tls.etcd.existingSecret .Values.etcd.enabled -}}
{{- fail "tls.etcd.existingSecret is for externalEtcd; the bundled etcd and its clients use the services' certificates" -}}
{{- end -}}
{{- if and $tls.clients.requireCertificate (include "magnetar.onlyTls" .) -}}
{{- fail "tls.clients.requireCertificate and tls.clients.only: probes show no certificate; set one of them to false" -}}
{{- end -}}
{{- if and .Values.console.enabled $tls.clients.requireCertificate -}}
{{- fail "console.enabled and tls.clients.requireCertificate: the console shows discovery no certificate; set one of them to false" -}}
{{- end -}}
{{- if and .Values.console.enabled $auth.enabled (not (or $auth.tokens.enabled $auth.openid.enabled $auth.anonymousRole)) -}}
{{- fail "console.enabled: its visitors log in with tokens; set auth.tokens.enabled or auth.openid.enabled to true" -}}
{{- end -}}
{{- if and $auth.authorization.enabled (not $auth.enabled) -}}
{{- fail "auth.authorization.enabled needs auth.enabled" -}}
{{- end -}}
{{- if $auth.enabled -}}
{{- if not (or (include "magnetar.certificateRoles" .) $auth.tokens.enabled) -}}
{{- fail "auth.enabled: brokers need a way to be known to each other: auth.tokens.enabled, or auth.tls.enabled with tls.clients.enabled" -}}
{{- end -}}
{{- if and (not $auth.tokens.enabled) .Values.discovery.proxy -}}
{{- fail "auth.tokens.enabled=false and discovery.proxy: discovery needs a token to ask brokers itself, where it also carries clients that are known by certificates" -}}
{{- end -}}
{{- if and $auth.openid.enabled (or (empty $auth.openid.allowedTokenIssuers) (empty $auth.openid.allowedAudiences)) -}}
{{- fail "auth.openid.enabled: auth.openid.allowedTokenIssuers and auth.openid.allowedAudiences have to name at least one each" -}}
{{- end -}}
{{- if and $auth.tokens.enabled (not $auth.tokens.secretKey) (not .Values.rbac.create) -}}
{{- fail "rbac.create=false: no hook can make tokens; name secrets in auth.tokens.secretKey and auth.existingSecret" -}}
{{- end -}}
{{- if and $auth.tokens.enabled $auth.tokens.secretKey (not $auth.existingSecret) -}}
{{- fail "auth.tokens.secretKey: auth.existingSecret has to name a secret with the tokens admin.jwt, broker.jwt and discovery.jwt, signed by that key" -}}
{{- end -}}
{{- if and $auth.tokens.enabled $auth.existingSecret (not $auth.tokens.secretKey) -}}
{{- fail "auth.existingSecret: auth.tokens.secretKey has to name the secret with the key that signed these tokens" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Components that have a certificate of the clients' authority, as a YAML list. */}}
{{- define "magnetar.certifiedForClients" -}}
{{- $found := list "broker" "discovery" -}}
{{- if .Values.console.enabled }}{{ $found = append $found "console" }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Services that have a certificate of the services' authority, as a YAML list. */}}
{{- define "magnetar.certifiedServices" -}}
{{- $found := list "bookie" "broker" "discovery" "admin" -}}
{{- if .Values.etcd.enabled }}{{ $found = append $found "etcd" }}{{ end -}}
{{- /* Jobs that read metadata and nothing else. */ -}}
{{- if and .Values.etcd.enabled .Values.tls.etcd.enabled (or .Values.backup.enabled .Values.bookie.scaleDownCheck) }}{{ $found = append $found "backup" }}{{ end -}}
{{- if .Values.offload.enabled }}{{ $found = append $found "job" }}{{ end -}}
{{- toYaml $found -}}
{{- end -}}
