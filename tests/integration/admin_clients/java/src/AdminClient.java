import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.common.policies.data.AuthAction;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * Drives a service through Apache Pulsar's admin client and prints what came of each check.
 *
 * <p>Arguments: the service's HTTP URL, its cluster, a topic with ten messages, and optionally for how many
 * seconds to wait until a value that was set is seen.
 */
public final class AdminClient {
    private static final String TENANT = "java-admin";
    private static final String NS = TENANT + "/ns";

    public static void main(String[] arguments) throws Exception {
        String cluster = arguments[1];
        Checks checks = new Checks(arguments.length > 3 ? Integer.parseInt(arguments[3]) : 0);
        try (PulsarAdmin admin = Credentials.admin(arguments[0]).build()) {
            tenants(checks, admin, cluster);
            namespaces(checks, admin, cluster);
            bundles(checks, admin);
            NamespacePolicies.run(checks, admin.namespaces(), NS, cluster);
            TopicChecks.run(checks, admin, NS);
            String topic = "persistent://" + NS + "/policies";
            checks.check("a topic for policies", () -> admin.topics().createNonPartitionedTopic(topic));
            TopicPolicyChecks.run(checks, admin.topicPolicies(), admin.topics(), topic, cluster);
            SchemaChecks.run(checks, admin.schemas(), topic);
            ClusterChecks.run(checks, admin, cluster, NS);
            MessageChecks.run(checks, admin, arguments[2]);
            TransactionChecks.run(checks, admin, "persistent://" + NS + "/transactions");
            deletion(checks, admin);
        }
        System.out.println(checks.failed() == 0 ? "all ok" : checks.failed() + " failed");
    }

    private static void tenants(Checks checks, PulsarAdmin admin, String cluster) {
        TenantInfo info = TenantInfo.builder().adminRoles(Set.of("root")).allowedClusters(Set.of(cluster)).build();
        checks.check("create a tenant", () -> {
            admin.tenants().createTenant(TENANT, info);
            Checks.same(info, admin.tenants().getTenantInfo(TENANT));
            Checks.that(admin.tenants().getTenants().contains(TENANT), "it is not listed");
        });
        checks.refused("create a tenant twice", PulsarAdminException.ConflictException.class,
                () -> admin.tenants().createTenant(TENANT, info));
        checks.check("update a tenant", () -> {
            TenantInfo other = TenantInfo.builder()
                    .adminRoles(Set.of("root", "other")).allowedClusters(Set.of(cluster)).build();
            admin.tenants().updateTenant(TENANT, other);
            Checks.same(other, admin.tenants().getTenantInfo(TENANT));
        });
        checks.refused("a missing tenant", PulsarAdminException.NotFoundException.class,
                () -> admin.tenants().getTenantInfo("missing"));
        checks.refused("delete a missing tenant", PulsarAdminException.NotFoundException.class,
                () -> admin.tenants().deleteTenant("missing"));
        checks.refused("a tenant with a slash", PulsarAdminException.PreconditionFailedException.class,
                () -> admin.tenants().createTenant("not a name", info));
    }

    private static void namespaces(Checks checks, PulsarAdmin admin, String cluster) {
        Namespaces namespaces = admin.namespaces();
        checks.check("create a namespace", () -> {
            namespaces.createNamespace(NS, 4);
            Checks.same(List.of(NS), namespaces.getNamespaces(TENANT));
            Checks.same(4, namespaces.getBundles(NS).getNumBundles());
            Checks.same(List.of(), namespaces.getTopics(NS));
        });
        checks.refused("create a namespace twice", PulsarAdminException.ConflictException.class,
                () -> namespaces.createNamespace(NS));
        checks.refused("a namespace of a missing tenant", PulsarAdminException.NotFoundException.class,
                () -> namespaces.createNamespace("missing/ns"));
        checks.refused("policies of a missing namespace", PulsarAdminException.NotFoundException.class,
                () -> namespaces.getPolicies(TENANT + "/missing"));
        checks.refused("delete a missing namespace", PulsarAdminException.NotFoundException.class,
                () -> namespaces.deleteNamespace(TENANT + "/missing"));
        checks.check("permissions of a namespace", () -> {
            namespaces.grantPermissionOnNamespace(NS, "somebody", Set.of(AuthAction.consume));
            Checks.same(Map.of("somebody", Set.of(AuthAction.consume)), namespaces.getPermissions(NS));
            namespaces.revokePermissionsOnNamespace(NS, "somebody");
            Checks.same(Map.of(), namespaces.getPermissions(NS));
        });
        checks.check("permissions of a subscription", () -> {
            namespaces.grantPermissionOnSubscription(NS, "sub", Set.of("one", "two"));
            Checks.same(Map.of("sub", Set.of("one", "two")), namespaces.getPermissionOnSubscription(NS));
            namespaces.revokePermissionOnSubscription(NS, "sub", "one");
            namespaces.revokePermissionOnSubscription(NS, "sub", "two");
        });
    }

    private static void bundles(Checks checks, PulsarAdmin admin) {
        Namespaces namespaces = admin.namespaces();
        String first = "0x00000000_0x40000000";
        checks.check("split a bundle", () -> {
            namespaces.splitNamespaceBundle(NS, first, true, null);
            checks.seen(5, () -> namespaces.getBundles(NS).getNumBundles());
            Checks.that(namespaces.getBundles(NS).getBoundaries().contains("0x20000000"), "not in its middle");
            Checks.that(namespaces.getPolicies(NS).bundles.getNumBundles() == 5, "not in the policies");
        });
        checks.check("unload a bundle", () -> namespaces.unloadNamespaceBundle(NS, "0x00000000_0x20000000"));
        checks.check("unload a namespace", () -> namespaces.unload(NS));
        checks.check("clear the backlog of a namespace", () -> {
            namespaces.clearNamespaceBacklog(NS);
            namespaces.clearNamespaceBacklogForSubscription(NS, "sub");
            namespaces.clearNamespaceBundleBacklog(NS, "0x00000000_0x20000000");
        });
    }

    private static void deletion(Checks checks, PulsarAdmin admin) {
        checks.refused("delete a namespace that has topics", PulsarAdminException.ConflictException.class,
                () -> admin.namespaces().deleteNamespace(NS));
        checks.refused("delete a tenant that has namespaces", PulsarAdminException.ConflictException.class,
                () -> admin.tenants().deleteTenant(TENANT));
        checks.check("delete a namespace with force", () -> {
            admin.namespaces().deleteNamespace(NS, true);
            Checks.same(List.of(), admin.namespaces().getNamespaces(TENANT));
        });
        checks.check("delete a tenant with force", () -> {
            admin.namespaces().createNamespace(NS);
            admin.topics().createNonPartitionedTopic("persistent://" + NS + "/topic");
            admin.tenants().deleteTenant(TENANT, true);
            Checks.that(!admin.tenants().getTenants().contains(TENANT), "it is still listed");
        });
    }
}
