import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.common.policies.data.AuthAction;

/** Topics and partitioned topics: made, grown, described, permitted, unloaded, deleted. */
final class TopicChecks {
    private TopicChecks() {}

    static void run(Checks checks, PulsarAdmin admin, String ns) {
        Topics topics = admin.topics();
        String plain = "persistent://" + ns + "/plain";
        checks.check("create a topic", () -> {
            topics.createNonPartitionedTopic(plain, Map.of("made", "here"));
            Checks.same(List.of(plain), topics.getList(ns));
            Checks.same("here", topics.getProperties(plain).get("made"));
        });
        checks.check("properties of a topic", () -> {
            topics.updateProperties(plain, Map.of("b", "2"));
            Checks.same("2", topics.getProperties(plain).get("b"));
            topics.removeProperties(plain, "b");
            Checks.same(null, topics.getProperties(plain).get("b"));
        });
        checks.refused("create a topic twice", PulsarAdminException.ConflictException.class,
                () -> topics.createNonPartitionedTopic(plain));
        checks.check("permissions of a topic", () -> {
            topics.grantPermission(plain, "somebody", Set.of(AuthAction.produce, AuthAction.consume));
            Checks.same(Map.of("somebody", Set.of(AuthAction.produce, AuthAction.consume)),
                    topics.getPermissions(plain));
            topics.revokePermissions(plain, "somebody");
            Checks.same(Map.of(), topics.getPermissions(plain));
        });
        checks.check("look a topic up", () -> {
            String address = admin.lookups().lookupTopic(plain);
            String scheme = admin.getServiceUrl().startsWith("https:") ? "pulsar+ssl://" : "pulsar://";
            Checks.that(address.startsWith(scheme), "no address of a broker: " + address);
            Checks.that(admin.lookups().getBundleRange(plain).contains("_"), "no bundle");
        });
        checks.check("unload a topic", () -> topics.unload(plain));
        checks.check("a topic that is unloaded is there", () -> Checks.same(0L, topics.getStats(plain).getMsgInCounter()));
        checks.check("delete a topic", () -> {
            topics.delete(plain);
            Checks.same(List.of(), topics.getList(ns));
        });
        partitioned(checks, admin, ns);
        missing(checks, admin, ns);
    }

    private static void partitioned(Checks checks, PulsarAdmin admin, String ns) {
        Topics topics = admin.topics();
        String parts = "persistent://" + ns + "/parts";
        checks.check("create a partitioned topic", () -> {
            topics.createPartitionedTopic(parts, 3, Map.of("owner", "us"));
            Checks.same(3, topics.getPartitionedTopicMetadata(parts).partitions);
            Checks.same(List.of(parts), topics.getPartitionedTopicList(ns));
            Checks.same("us", topics.getProperties(parts).get("owner"));
        });
        checks.refused("create a partitioned topic twice", PulsarAdminException.ConflictException.class,
                () -> topics.createPartitionedTopic(parts, 3));
        checks.check("subscription of every partition", () -> {
            topics.createSubscription(parts, "all", MessageId.earliest);
            Checks.same(List.of("all"), topics.getSubscriptions(parts));
        });
        checks.check("grow a partitioned topic", () -> {
            topics.updatePartitionedTopic(parts, 5);
            Checks.same(5, topics.getPartitionedTopicMetadata(parts).partitions);
            List<String> expected = new ArrayList<>();
            for (int number = 0; number < 5; number++) {
                expected.add(parts + "-partition-" + number);
            }
            Checks.same(new TreeSet<>(expected), new TreeSet<>(topics.getList(ns)));
            Checks.same(List.of("all"), topics.getSubscriptions(parts + "-partition-4"));
        });
        checks.refused("shrink a partitioned topic", 422, () -> topics.updatePartitionedTopic(parts, 2));
        checks.check("statistics of a partitioned topic", () -> {
            Checks.same(5, topics.getPartitionedStats(parts, true).getPartitions().size());
            Checks.same(Map.of(), topics.getPartitionedStats(parts, false).getPartitions());
            Checks.same(Set.of("all"), topics.getPartitionedStats(parts, false).getSubscriptions().keySet());
            Checks.same(5, topics.getPartitionedInternalStats(parts).partitions.size());
        });
        checks.check("look a partitioned topic up",
                () -> Checks.same(5, admin.lookups().lookupPartitionedTopic(parts).size()));
        checks.check("a subscription on all partitions", () -> {
            topics.skipAllMessages(parts, "all");
            topics.resetCursor(parts, "all", 0);
            topics.resetCursor(parts, "all", MessageId.earliest);
            topics.expireMessages(parts, "all", 1);
            topics.expireMessagesForAllSubscriptions(parts, 1);
            topics.updateSubscriptionProperties(parts, "all", Map.of("k", "v"));
            Checks.same(Map.of("k", "v"), topics.getSubscriptionProperties(parts, "all"));
            Checks.same(Map.of("k", "v"), topics.getSubscriptionProperties(parts + "-partition-3", "all"));
        });
        checks.check("storage of all partitions", () -> {
            topics.trimTopic(parts);
            topics.truncate(parts);
        });
        checks.check("missing partitions", () -> topics.createMissedPartitions(parts));
        checks.check("unload a partitioned topic", () -> topics.unload(parts));
        checks.check("terminate a partitioned topic",
                () -> Checks.same(5, topics.terminatePartitionedTopic(parts).size()));
        checks.check("delete a subscription of all partitions", () -> {
            topics.deleteSubscription(parts, "all");
            Checks.same(List.of(), topics.getSubscriptions(parts));
        });
        checks.check("delete a partitioned topic with force", () -> {
            topics.deletePartitionedTopic(parts, true);
            Checks.same(Collections.emptyList(), topics.getPartitionedTopicList(ns));
            Checks.same(Collections.emptyList(), topics.getList(ns));
        });
    }

    private static void missing(Checks checks, PulsarAdmin admin, String ns) {
        Topics topics = admin.topics();
        String missing = "persistent://" + ns + "/missing";
        Class<PulsarAdminException.NotFoundException> notFound = PulsarAdminException.NotFoundException.class;
        checks.refused("statistics of a missing topic", notFound, () -> topics.getStats(missing));
        checks.refused("internal statistics of a missing topic", notFound, () -> topics.getInternalStats(missing));
        checks.refused("partitioned statistics of a missing topic", notFound,
                () -> topics.getPartitionedStats(missing, true));
        checks.refused("subscriptions of a missing topic", notFound, () -> topics.getSubscriptions(missing));
        checks.refused("delete a missing topic", notFound, () -> topics.delete(missing));
        checks.refused("delete a missing partitioned topic", notFound, () -> topics.deletePartitionedTopic(missing));
        checks.refused("grow a missing partitioned topic", PulsarAdminException.ConflictException.class,
                () -> topics.updatePartitionedTopic(missing, 3));
        checks.refused("unload a missing topic", notFound, () -> topics.unload(missing));
        checks.refused("skip all of a missing topic", notFound, () -> topics.skipAllMessages(missing, "any"));
        checks.refused("topics of a missing namespace", notFound, () -> topics.getList(ns + "-missing"));
        checks.refused("a topic in a missing namespace", notFound,
                () -> topics.createNonPartitionedTopic("persistent://" + ns + "-missing/topic"));
    }
}
