import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.pulsar.client.admin.Brokers;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.common.naming.TopicVersion;
import org.apache.pulsar.common.policies.data.BookieInfo;
import org.apache.pulsar.common.policies.data.BookiesRackConfiguration;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.FailureDomain;
import org.apache.pulsar.common.policies.data.ResourceQuota;

/** Clusters, brokers and their figures, bookies, resource quotas. */
final class ClusterChecks {
    private ClusterChecks() {}

    static void run(Checks checks, PulsarAdmin admin, String cluster, String ns) {
        clusters(checks, admin, cluster);
        brokers(checks, admin, cluster);
        figures(checks, admin);
        bookies(checks, admin);
        quotas(checks, admin, ns);
    }

    private static void clusters(Checks checks, PulsarAdmin admin, String cluster) {
        ClusterData far = ClusterData.builder()
                .serviceUrl("http://far.example:8080").brokerServiceUrl("pulsar://far.example:6650").build();
        checks.check("clusters", () -> {
            Checks.that(admin.clusters().getClusters().contains(cluster), "this cluster is not listed");
            Checks.that(admin.clusters().getCluster(cluster).getServiceUrl() != null, "no URL of this cluster");
            admin.clusters().createCluster("far", far);
            Checks.same(far.getServiceUrl(), admin.clusters().getCluster("far").getServiceUrl());
        });
        checks.refused("create a cluster twice", PulsarAdminException.ConflictException.class,
                () -> admin.clusters().createCluster("far", far));
        checks.check("failure domains", () -> {
            FailureDomain domain = FailureDomain.builder().brokers(Set.of("broker-1")).build();
            admin.clusters().createFailureDomain("far", "east", domain);
            Checks.same(domain.getBrokers(), admin.clusters().getFailureDomain("far", "east").getBrokers());
            Checks.same(Set.of("east"), admin.clusters().getFailureDomains("far").keySet());
            admin.clusters().deleteFailureDomain("far", "east");
        });
        checks.check("delete a cluster", () -> admin.clusters().deleteCluster("far"));
        checks.refused("a missing cluster", PulsarAdminException.NotFoundException.class,
                () -> admin.clusters().getCluster("missing"));
    }

    private static void brokers(Checks checks, PulsarAdmin admin, String cluster) {
        Brokers brokers = admin.brokers();
        checks.check("brokers", () -> {
            List<String> active = brokers.getActiveBrokers(cluster);
            Checks.that(!active.isEmpty(), "none is active");
            Checks.same(active, brokers.getActiveBrokers());
            Checks.that(brokers.getLeaderBroker().getServiceUrl().startsWith("http://"), "no URL of the leader");
            int owned = 0;
            for (String each : active) {
                owned += brokers.getOwnedNamespaces(cluster, each).size();
                brokers.healthcheck(TopicVersion.V2, Optional.of(each));
            }
            Checks.that(owned > 0, "they own nothing");
            Checks.that(!brokers.getVersion().isBlank(), "no version");
        });
        checks.check("health of a broker", brokers::healthcheck);
        checks.check("check of backlog quotas", brokers::backlogQuotaCheck);
        checks.check("configuration of a broker", () -> {
            Checks.that(brokers.getRuntimeConfigurations().containsKey("clusterName"), "no clusterName");
            Checks.that(brokers.getInternalConfigurationData() != null, "no internal configuration");
        });
        checks.check("dynamic configuration", () -> {
            String name = "dispatchThrottlingRatePerTopicInMsg";
            Checks.that(brokers.getDynamicConfigurationNames().contains(name), name + " is not dynamic");
            brokers.updateDynamicConfiguration(name, "123456");
            checks.seen("123456", () -> brokers.getAllDynamicConfigurations().get(name));
            brokers.deleteDynamicConfiguration(name);
            checks.seen(null, () -> brokers.getAllDynamicConfigurations().get(name));
        });
        checks.refused("dynamic configuration that is not", PulsarAdminException.PreconditionFailedException.class,
                () -> brokers.updateDynamicConfiguration("clusterName", "other"));
    }

    private static void figures(Checks checks, PulsarAdmin admin) {
        checks.check("figures of a broker", () -> {
            Checks.that(admin.brokerStats().getTopics().startsWith("{"), "topics");
            Checks.that(admin.brokerStats().getMetrics().startsWith("["), "metrics");
            Checks.that(admin.brokerStats().getMBeans().startsWith("["), "beans");
            Checks.that(admin.brokerStats().getLoadReport().getNumBundles() > 0, "no bundles");
            Checks.that(admin.brokerStats().getAllocatorStats("default") != null, "no allocator");
        });
    }

    private static void bookies(Checks checks, PulsarAdmin admin) {
        checks.check("racks of bookies", () -> {
            BookieInfo info = BookieInfo.builder().rack("/east").hostname("bookie-1").build();
            admin.bookies().updateBookieRackInfo("127.0.0.1:3181", "default", info);
            checks.seen(info, () -> admin.bookies().getBookieRackInfo("127.0.0.1:3181"));
            BookiesRackConfiguration racks = admin.bookies().getBookiesRackInfo();
            Checks.same(Map.of("127.0.0.1:3181", info), racks.get("default"));
            admin.bookies().deleteBookieRackInfo("127.0.0.1:3181");
            Checks.that(admin.bookies().getBookies() != null, "no list of bookies");
        });
    }

    private static void quotas(Checks checks, PulsarAdmin admin, String ns) {
        checks.check("resource quotas", () -> {
            String bundle = "0x40000000_0x80000000";
            ResourceQuota before = admin.resourceQuotas().getDefaultResourceQuota();
            ResourceQuota quota = new ResourceQuota();
            quota.setMsgRateIn(11);
            quota.setMsgRateOut(22);
            quota.setBandwidthIn(3_300);
            quota.setBandwidthOut(4_400);
            quota.setMemory(55);
            quota.setDynamic(false);
            admin.resourceQuotas().setNamespaceBundleResourceQuota(ns, bundle, quota);
            checks.seen(quota, () -> admin.resourceQuotas().getNamespaceBundleResourceQuota(ns, bundle));
            admin.resourceQuotas().resetNamespaceBundleResourceQuota(ns, bundle);
            checks.seen(before, () -> admin.resourceQuotas().getNamespaceBundleResourceQuota(ns, bundle));
            admin.resourceQuotas().setDefaultResourceQuota(quota);
            checks.seen(quota, () -> admin.resourceQuotas().getDefaultResourceQuota());
            admin.resourceQuotas().setDefaultResourceQuota(before);
        });
    }
}
