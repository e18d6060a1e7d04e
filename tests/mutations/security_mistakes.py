"""Mistakes in authentication and authorization."""

from __future__ import annotations

from typing import Final

from tests.mutations.mistake import Mistake

_SECURITY: Final = "libs/common/magnetar/common/security/"
_AUTHENTICATION: Final = f"{_SECURITY}authentication/"
_AUTHORIZATION: Final = f"{_SECURITY}authorization/"
_HANDLERS: Final = "services/broker/magnetar/broker/handlers/"
_ADMIN: Final = "services/broker/magnetar/broker/admin/"
_DISCOVERY: Final = "services/discovery/magnetar/discovery/"

_UNIT: Final = "tests/unit/common/security/"
_TOKEN: Final = f"{_UNIT}authentication/test_token.py"
_TLS: Final = f"{_UNIT}authentication/test_tls.py"
_AUTHENTICATOR: Final = f"{_UNIT}authentication/test_authenticator.py"
_DECISIONS: Final = f"{_UNIT}authorization/test_decisions.py"
_MODEL: Final = f"{_DECISIONS}::test_decisions_are_those_of_the_model"
_BOTH: Final = f"{_DECISIONS}::test_every_decision_needs_the_rights_of_a_proxy_and_of_its_client"
_AUTHORIZER: Final = f"{_UNIT}authorization/test_authorizer.py"
_BROKER: Final = "tests/unit/broker/handlers/"
_CONNECT: Final = f"{_BROKER}test_connect.py"
_COMMANDS: Final = f"{_BROKER}test_routes.py"
_EDGE: Final = "tests/unit/broker/admin/edge/"
_UNIT_DISCOVERY: Final = "tests/unit/discovery/"
_CALLERS: Final = "libs/common/magnetar/common/rpc/callers.py"
_UNIT_RPC: Final = "tests/unit/common/rpc/test_callers.py"
_GRPC_TLS: Final = "tests/unit/bookie/test_grpc_tls.py"

AUTHENTICATION: Final = (
    Mistake(
        "expiry_of_tokens_is_ignored",
        "a token is accepted after its time",
        f"{_AUTHENTICATION}claims.py",
        "    if now >= expires_at + skew_s:",
        "    if False:",
        (f"{_TOKEN}::test_expiry_and_validity_are_checked_with_the_allowed_skew",),
    ),
    Mistake(
        "tokens_hold_before_their_time",
        "a token is accepted before its time",
        f"{_AUTHENTICATION}claims.py",
        "now < not_before - skew_s:",
        "False:",
        (f"{_TOKEN}::test_expiry_and_validity_are_checked_with_the_allowed_skew",),
    ),
    Mistake(
        "revocation_of_tokens_is_ignored",
        "a revoked token is accepted",
        f"{_AUTHENTICATION}token.py",
        "        if self._revoked(token_id, subject, issued_at):",
        "        if False:",
        (f"{_TOKEN}::test_revoked_tokens_are_refused_also_those_accepted_before",),
    ),
    Mistake(
        "the_audience_is_ignored",
        "a token for another service is accepted",
        f"{_AUTHENTICATION}token.py",
        "        if config.audience_claim:",
        "        if False:",
        (f"{_TOKEN}::test_the_audience_must_be_named_where_one_is_configured",),
    ),
    Mistake(
        "the_token_chooses_its_algorithm",
        "a token is verified by the algorithm of its header, whatever the key is for",
        f"{_AUTHENTICATION}signed_token.py",
        """    if header.get("alg") not in key.algorithms:
        raise Refusal(
            "signature", f"algorithm {header.get('alg')!r:.20} is not one of {', '.join(key.algorithms)}"
        )
    try:
        payload = jwt.PyJWS().decode(token, key.key, algorithms=list(key.algorithms))
""",
        """    try:
        payload = jwt.PyJWS().decode(token, key.key, algorithms=[header["alg"]])
""",
        (_TOKEN,),
    ),
    Mistake(
        "signatures_are_not_verified",
        "a token of a foreign key is accepted",
        f"{_AUTHENTICATION}signed_token.py",
        "key.key, algorithms=list(key.algorithms))",
        'key.key, options={"verify_signature": False})',
        (f"{_TOKEN}::test_unsigned_tampered_and_foreign_tokens_are_refused",),
    ),
    Mistake(
        "the_first_common_name_is_the_role",
        "a certificate with several common names has the role of another one",
        f"{_AUTHENTICATION}tls.py",
        "names[-1].value",
        "names[0].value",
        (f"{_TLS}::test_the_role_is_the_last_common_name_as_it_stands",),
    ),
    Mistake(
        "revocation_of_certificates_is_ignored",
        "a revoked certificate is accepted",
        f"{_SECURITY}tls/revoked_certificates.py",
        "        self._close([sock for sock, found in list(self._ids.items()) if found in revoked])",
        "        self._close([])",
        (
            f"{_UNIT}tls/test_revoked_certificates.py::test_open_connections_with_a_revoked_certificate_end_and_others_go_on",
        ),
    ),
    Mistake(
        "the_beginning_of_a_password_suffices",
        "bcrypt is given a password of which it reads only the beginning",
        f"{_AUTHENTICATION}basic.py",
        "        if len(password) > BCRYPT_BYTES_MAX:\n            return False\n",
        "        password = password[:BCRYPT_BYTES_MAX]\n",
        (f"{_UNIT}authentication/test_basic.py::test_bcrypt_never_checks_a_part_of_a_password",),
    ),
    Mistake(
        "a_changed_password_holds",
        "a connection goes on after its user's password was changed",
        f"{_AUTHENTICATION}basic.py",
        "self._users.value.get(user) == stored",
        "self._users.value.get(user) is not None",
        (f"{_UNIT}authentication/test_basic.py::test_removed_users_and_changed_passwords_are_noticed",),
    ),
    Mistake(
        "a_refused_credential_is_anonymous",
        "a client whose credential is refused gets the anonymous role",
        f"{_AUTHENTICATION}authenticator.py",
        "        return await self._ask(credential, address, asked_first)\n",
        """        try:
            return await self._ask(credential, address, asked_first)
        except AuthenticationFailed:
            if self.anonymous is None:
                raise
            return self.anonymous
""",
        (
            f"{_AUTHENTICATOR}::test_the_wire_without_a_provider_is_anonymous_and_a_refused_credential_is_not",
            f"{_CONNECT}::test_a_refused_token_ends_the_connection_even_where_there_is_an_anonymous_role",
        ),
    ),
    Mistake(
        "any_credential_is_of_the_named_method",
        "an HTTP request names one method and authenticates by another",
        f"{_AUTHENTICATION}authenticator.py",
        "    return found if found is not None and found.method == method else None",
        "    return found",
        (f"{_AUTHENTICATOR}::test_http_credentials",),
    ),
)

AUTHORIZATION: Final = (
    Mistake(
        "roles_are_compared_by_their_beginning",
        "a role whose name begins as that of a super user is one",
        f"{_AUTHORIZATION}decisions.py",
        "        return role in self._super_users\n",
        "        return any((role or '').startswith(each) for each in self._super_users)\n",
        (_MODEL, f"{_AUTHORIZER}::test_each_class_has_those_who_pass", _DECISIONS),
    ),
    Mistake(
        "a_caller_without_a_role_is_a_super_user",
        "a client without any identity may do everything",
        f"{_AUTHORIZATION}decisions.py",
        "        return role in self._super_users\n",
        "        return role is None or role in self._super_users\n",
        (_MODEL, f"{_AUTHORIZER}::test_without_a_principal_only_what_is_open_passes"),
    ),
    Mistake(
        "removed_super_users_stay",
        "a role that was removed from superUserRoles may still do everything",
        f"{_AUTHORIZATION}decisions.py",
        "        if self._config.super_user_roles is not self._configured:",
        "        if False:",
        (f"{_DECISIONS}::test_super_users_follow_the_configuration_while_it_changes",),
    ),
    Mistake(
        "admins_of_other_tenants_are_accepted",
        "who administers one tenant administers each",
        f"{_AUTHORIZATION}decisions.py",
        "role is not None and (role in rights.admins or self.is_super_user(role))",
        "role is not None and (bool(rights.admins) or self.is_super_user(role))",
        (_MODEL,),
    ),
    Mistake(
        "a_proxy_needs_no_rights",
        "a proxy's own role is not asked for the right to produce",
        f"{_AUTHORIZATION}decisions.py",
        "        return self._allowed(principal.role, rights, PRODUCE) and (",
        "        known = principal.original is not None or self._allowed(principal.role, rights, PRODUCE)\n"
        "        return known and (",
        (_BOTH,),
    ),
    Mistake(
        "a_super_user_s_clients_are_super_users",
        "a proxy that is a super user makes one of each client",
        f"{_AUTHORIZATION}decisions.py",
        """        return self.is_super_user(principal.role) and (
            principal.original is None or self.is_super_user(principal.original)
        )
""",
        "        return self.is_super_user(principal.role)\n",
        (_BOTH,),
    ),
    Mistake(
        "subscription_mode_is_ignored",
        "a role consumes by a subscription whose name does not begin with it",
        f"{_AUTHORIZATION}grants.py",
        "        return not self.prefix_mode or subscription.startswith(role)",
        "        return True",
        (f"{_UNIT}authorization/test_grants.py::test_prefix_mode_is_a_plain_prefix_of_the_subscription",),
    ),
    Mistake(
        "roles_of_subscriptions_are_ignored",
        "a role consumes by a subscription that is granted to others",
        f"{_AUTHORIZATION}grants.py",
        "        if roles is not None and role not in roles:",
        "        if False:",
        (f"{_UNIT}authorization/test_grants.py::test_a_subscription_with_roles_is_open_to_them_alone",),
    ),
    Mistake(
        "wildcards_need_no_switch",
        "a granted role with * stands for others though the setting is off",
        f"{_AUTHORIZATION}grants.py",
        "    if wildcards:",
        "    if True:",
        (f"{_UNIT}authorization/test_grants.py", _MODEL),
    ),
    Mistake(
        "grants_of_topics_open_the_namespace",
        "a role that is granted one topic lists all of the namespace",
        f"{_AUTHORIZATION}decisions.py",
        "            role is not None and rights.namespace.allow(role, actions)\n",
        "            role is not None\n"
        "            and (rights.namespace.allow(role, actions) or rights.topic.allow(role, actions))\n",
        (f"{_DECISIONS}::test_grants_of_a_topic_do_not_list_the_namespace",),
    ),
    Mistake(
        "revoked_grants_stay",
        "what was granted once is decided on for ever",
        f"{_AUTHORIZATION}rights_cache.py",
        "        self.generation += 1\n        self._assembled.clear()\n        self._told(scope)",
        "        self.generation += 1\n        self._told(scope)",
        (f"{_AUTHORIZER}::test_changes_are_told_with_what_they_concern_and_decided_anew",),
    ),
)

CONNECTIONS: Final = (
    Mistake(
        "commands_are_served_while_credentials_are_checked",
        "a client need not wait for Connected, so it need not have the right",
        f"{_HANDLERS}routes.py",
        "    if not client.connected and command.type != _T.CONNECT:\n        if",
        "    if client.state is ConnectState.START and command.type != _T.CONNECT:\n        if",
        (f"{_CONNECT}::test_commands_while_credentials_are_checked_and_a_second_connect_break_the_protocol",),
    ),
    Mistake(
        "any_role_may_act_for_another",
        "a client that is no proxy names the role that it wants to be",
        f"{_HANDLERS}connect.py",
        "    if problem is not None:",
        "    if False:",
        (f"{_CONNECT}::test_roles_must_fit_where_authorization_is_on",),
    ),
    Mistake(
        "the_certificate_of_a_proxy_is_its_client_s",
        "a client behind a proxy names method tls and becomes the proxy",
        f"{_HANDLERS}connect.py",
        "        Credential(original_method, command.original_auth_data.encode()), host",
        "        Credential(\n"
        "            original_method, command.original_auth_data.encode(), client.peer.certificate\n"
        "        ),\n"
        "        host,",
        (f"{_CONNECT}::test_the_certificate_of_a_proxy_is_not_its_clients",),
    ),
    Mistake(
        "a_certificate_makes_a_role_of_any_method",
        "a client certificate counts although the client names no method",
        f"{_HANDLERS}connect.py",
        "    method = method_of(command)\n",
        '    method = "tls" if client.peer.certificate else method_of(command)\n',
        (f"{_CONNECT}::test_a_certificate_is_an_identity_for_the_method_tls_only",),
    ),
    Mistake(
        "a_refresh_may_bring_another_role",
        "a client answers AuthChallenge with the token of another role, and goes on",
        f"{_HANDLERS}credentials.py",
        "    if fresh.role != former.role:",
        "    if False:",
        (f"{_CONNECT}::test_fresh_credentials_of_another_role_close_without_an_error",),
    ),
    Mistake(
        "expired_credentials_are_not_renewed",
        "a connection lives on with an expired token",
        f"{_HANDLERS}credentials.py",
        "    if expires_at is None or client.services.clock.wall_ms() / 1000 < expires_at:",
        "    if True:",
        (f"{_CONNECT}::test_an_expired_token_is_asked_for_again_and_a_fresh_one_is_taken_silently",),
    ),
    Mistake(
        "a_challenge_needs_no_answer",
        "a client that does not answer AuthChallenge keeps its connection",
        f"{_HANDLERS}credentials.py",
        "    elif credentials.challenge_is_out:",
        "    elif False:",
        (f"{_CONNECT}::test_an_unanswered_challenge_closes_the_connection_at_the_next_look",),
    ),
    Mistake(
        "revocation_leaves_connections_open",
        "a client whose credential was revoked keeps its connection",
        f"{_HANDLERS}credentials.py",
        "        if identity is not None and not authenticator.still_valid(identity):",
        "        if False:",
        (
            f"{_CONNECT}::"
            "test_a_revoked_credential_ends_the_connection_also_when_it_is_that_of_the_client_of_a_proxy",
        ),
    ),
    Mistake(
        "lookups_need_no_right",
        "any client learns which broker owns a topic, and has it loaded",
        f"{_HANDLERS}lookup.py",
        "    await services.authorizer.check_lookup(client.principal, name)\n",
        "",
        (f"{_COMMANDS}::test_a_command_without_its_right_is_refused_in_its_own_form",),
    ),
    Mistake(
        "schemas_are_open",
        "any client reads the schema of a topic",
        f"{_HANDLERS}schemas.py",
        "    await client.services.authorizer.check_lookup(client.principal, name)\n",
        "",
        (f"{_COMMANDS}::test_a_command_without_its_right_is_refused_in_its_own_form",),
    ),
    Mistake(
        "an_initial_subscription_needs_no_right",
        "a producer makes a subscription that its role may not use",
        f"{_HANDLERS}producers.py",
        "        if command.initial_subscription_name:\n            await authorizer",
        "        if False:\n            await authorizer",
        (f"{_COMMANDS}::test_an_initial_subscription_needs_consume_for_its_name",),
    ),
    Mistake(
        "subscribing_does_not_name_the_subscription",
        "the rules of a subscription are not asked",
        f"{_HANDLERS}consumers.py",
        "check_consume(client.principal, name, command.subscription)",
        'check_consume(client.principal, name, "")',
        (f"{_COMMANDS}::test_a_command_without_its_right_is_refused_in_its_own_form",),
    ),
    Mistake(
        "a_right_is_not_checked_again_after_a_slow_opening",
        "a producer opens although its right was revoked while its topic was loaded",
        f"{_HANDLERS}producers.py",
        "    if checked != services.authorizer.generation:",
        "    if False:",
        (
            f"{_BROKER}test_producers.py::"
            "test_a_right_that_is_revoked_while_the_producer_is_opened_keeps_it_out",
        ),
    ),
    Mistake(
        "watchers_open_after_their_right_was_revoked",
        "a watcher of topics opens although its right was revoked meanwhile",
        f"{_HANDLERS}topic_lists.py",
        "    if checked != services.authorizer.generation:",
        "    if False:",
        (
            f"{_BROKER}test_topic_lists.py::"
            "test_a_right_that_is_revoked_while_the_watcher_is_opened_keeps_it_out",
        ),
    ),
    Mistake(
        "revoked_rights_leave_consumers_open",
        "a consumer that lost its right goes on",
        f"{_HANDLERS}revocation.py",
        "            if await self._authorizer.may_consume(client.principal, opened.topic.name, name):",
        "            if True:",
        (f"{_BROKER}test_revocation.py::test_what_lost_its_right_is_closed_and_told",),
    ),
)

HTTP: Final = (
    Mistake(
        "an_original_principal_is_believed",
        "a caller that sends X-Original-Principal has that role",
        f"{_ADMIN}edge/authentication.py",
        "    role = identity.role\n",
        "    role = original or identity.role\n",
        (
            f"{_EDGE}test_authentication.py::test_the_principal_is_kept_with_the_request_and_impossible_roles_are_refused",
        ),
    ),
    Mistake(
        "a_proxy_may_act_for_itself_over_http",
        "a proxy that loses its client's role acts with its own rights",
        f"{_ADMIN}edge/authentication.py",
        "    if problem is not None:\n",
        "    if problem is not None and original is not None:\n",
        (
            f"{_EDGE}test_authentication.py::test_the_principal_is_kept_with_the_request_and_impossible_roles_are_refused",
        ),
    ),
    Mistake(
        "routes_are_not_authorized",
        "any authenticated role may make every call",
        f"{_ADMIN}edge/routing.py",
        "        await authorize("
        "call, Operation.ANY if route.names_in_body else route.operation, route.path)\n",
        "",
        (f"{_EDGE}test_authorization.py::test_a_refusal_has_the_status_of_its_class_and_names_the_right",),
    ),
    Mistake(
        "tenants_in_bodies_are_not_authorized",
        "permissions of topics of any tenant are changed by a call that names them in its body",
        f"{_ADMIN}routes/permissions.py",
        "        await authorize_target(call, Operation.TENANT_ADMIN, Target(tenant=tenant))\n",
        "        pass\n",
        (f"{_EDGE}test_authorization.py::test_permissions_on_topics_need_every_tenant_of_the_body",),
    ),
    Mistake(
        "method_tls_goes_on_beside_our_certificate",
        "a caller that names method tls is this broker to the next one",
        f"{_ADMIN}edge/peers.py",
        "method != TLS and ",
        "",
        (f"{_EDGE}test_peers.py::test_the_caller_s_credentials_go_on_and_else_ours_with_the_caller_s_role",),
    ),
)

DISCOVERY: Final = (
    Mistake(
        "method_tls_is_carried",
        "a client's method tls over a link that shows discovery's certificate makes it discovery",
        f"{_DISCOVERY}handlers/handshake.py",
        "    if method_of(connect) != TLS:\n        return None\n",
        "    return None\n",
        (
            f"{_UNIT_DISCOVERY}handlers/test_handshake.py::"
            "test_method_tls_becomes_the_original_principal_of_discovery_s_own_certificate",
        ),
    ),
    Mistake(
        "original_principals_are_carried",
        "a client names its role, and discovery's certificate vouches for it",
        f"{_DISCOVERY}handlers/handshake.py",
        "        connect.ClearField(name)\n",
        "        pass\n",
        (
            f"{_UNIT_DISCOVERY}handlers/test_handshake.py::"
            "test_a_client_s_own_credentials_go_on_and_what_a_proxy_says_does_not",
        ),
    ),
    Mistake(
        "credentials_are_carried_as_they_came",
        "a Connect goes to a broker without a look at its credentials",
        f"{_DISCOVERY}transport/proxy.py",
        "expires_at = carry_credentials(connect, certificate, as_proxy=self._access.as_proxy)\n",
        "expires_at = None\n",
        (
            f"{_UNIT_DISCOVERY}transport/test_proxy.py::"
            "test_a_connect_goes_on_with_its_own_credentials_and_without_what_a_proxy_says",
        ),
    ),
    Mistake(
        "an_original_principal_passes_discovery",
        "a caller's X-Original-Principal reaches a broker",
        f"{_DISCOVERY}http/forwarding.py",
        "AUTH_METHOD.lower(), ORIGINAL_PRINCIPAL.lower(),",
        "AUTH_METHOD.lower(),",
        (
            f"{_UNIT_DISCOVERY}http/test_carried_credentials.py::"
            "test_headers_of_credentials_are_never_passed_on_as_they_came",
        ),
    ),
    Mistake(
        "our_certificate_is_shown_beside_a_token",
        "a request without method tls goes on over a link that makes it discovery's",
        f"{_DISCOVERY}http/carried_credentials.py",
        "    return CarriedCredentials([(_AUTHORIZATION, authorization), *named], as_proxy=False)",
        "    return CarriedCredentials([(_AUTHORIZATION, authorization), *named], as_proxy=as_proxy)",
        (
            f"{_UNIT_DISCOVERY}http/test_carried_credentials.py::"
            "test_the_certificate_of_discovery_is_shown_only_beside_a_client_s_role",
        ),
    ),
    Mistake(
        "discovery_answers_everybody",
        "lookups and lists of topics need no right where discovery answers them",
        f"{_DISCOVERY}handlers/routes.py",
        "check is not None and services.authorizer.enabled:",
        "check is not None and False:",
        (f"{_UNIT_DISCOVERY}handlers/test_routes.py::test_a_command_without_its_right_reaches_nothing",),
    ),
    Mistake(
        "discovery_answers_proxies",
        "a proxy's client looks topics up with the rights of the proxy",
        f"{_DISCOVERY}handlers/authentication.py",
        "    if authorization.enabled and identity.role in authorization.proxy_roles:",
        "    if False:",
        (
            f"{_UNIT_DISCOVERY}handlers/test_authentication.py::"
            "test_a_proxy_role_is_refused_because_its_client_is_not_known",
        ),
    ),
    Mistake(
        "discovery_serves_before_authentication_has_ended",
        "commands are answered while the credentials of their client are checked",
        f"{_DISCOVERY}transport/connection.py",
        "                elif self._authenticating:\n                    raise ProtocolError(",
        "                elif self._authenticating:\n                    self._handle(command)\n"
        "                elif False:\n                    raise ProtocolError(",
        (
            f"{_UNIT_DISCOVERY}transport/test_connection.py::"
            "test_a_command_while_credentials_are_checked_ends_the_connection",
        ),
    ),
)

SERVICES: Final = (
    Mistake(
        "services_of_other_clusters_call",
        "a bookie of one cluster serves the brokers of another",
        _CALLERS,
        " if each.cluster == self.cluster]",
        "]",
        (f"{_UNIT_RPC}::test_a_service_of_another_cluster_is_refused",),
    ),
    Mistake(
        "any_service_calls_any_method",
        "a job, or a discovery, may write to a bookie",
        _CALLERS,
        "            if identity.service in permitted and self._admits(identity):",
        "            if self._admits(identity):",
        (f"{_UNIT_RPC}::test_another_service_is_told_which_services_may_call",),
    ),
    Mistake(
        "methods_without_a_line_are_open",
        "a new method may be called by every service",
        _CALLERS,
        "self.table.get(method, frozenset())",
        "self.table.get(method, frozenset(Service))",
        (f"{_UNIT_RPC}::test_a_method_without_a_line_in_the_table_is_refused",),
    ),
    Mistake(
        "authorized_roles_are_ignored",
        "authorizedRoles does not narrow the services that call a bookie",
        _CALLERS,
        "        return not self.authorized or ",
        "        return True or ",
        (f"{_GRPC_TLS}::test_authorized_roles_narrow_what_services_may_call",),
    ),
    Mistake(
        "calls_are_not_guarded",
        "any certificate of the authority may call each method",
        _CALLERS,
        "                self.caller(method, context)\n",
        "                pass\n",
        (f"{_GRPC_TLS}::test_with_mutual_tls_a_certificate_of_a_client_or_of_another_service_cannot_append",),
    ),
)

SECURITY: Final = (*AUTHENTICATION, *AUTHORIZATION, *CONNECTIONS, *HTTP, *DISCOVERY, *SERVICES)
