import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.pulsar.client.admin.LongRunningProcessStatus;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.common.policies.data.PersistentTopicInternalStats;

/** Subscriptions and messages of a topic that has ten, "message 0" to "message 9", one by one. */
final class MessageChecks {
    private static final int MESSAGES = 10;

    private MessageChecks() {}

    static void run(Checks checks, PulsarAdmin admin, String topic) {
        Topics topics = admin.topics();
        subscriptions(checks, topics, topic);
        cursors(checks, topics, topic);
        messages(checks, topics, topic);
        statistics(checks, topics, topic);
        end(checks, topics, topic);
    }

    private static void subscriptions(Checks checks, Topics topics, String topic) {
        checks.check("create a subscription", () -> {
            topics.createSubscription(topic, "cursor", MessageId.earliest, false, Map.of("who", "java"));
            topics.createSubscription(topic, "late", MessageId.latest);
            Checks.same(new HashSet<>(List.of("cursor", "late")), new HashSet<>(topics.getSubscriptions(topic)));
            Checks.same((long) MESSAGES, backlog(topics, topic));
            Checks.same(0L, topics.getStats(topic).getSubscriptions().get("late").getMsgBacklog());
        });
        checks.refused("create a subscription twice", PulsarAdminException.ConflictException.class,
                () -> topics.createSubscription(topic, "cursor", MessageId.earliest));
        checks.check("properties of a subscription", () -> {
            Checks.same(Map.of("who", "java"), topics.getSubscriptionProperties(topic, "cursor"));
            topics.updateSubscriptionProperties(topic, "cursor", Map.of("who", "else"));
            Checks.same(Map.of("who", "else"), topics.getSubscriptionProperties(topic, "cursor"));
        });
        checks.refused("skip messages of a missing subscription", PulsarAdminException.NotFoundException.class,
                () -> topics.skipMessages(topic, "missing", 1));
        checks.refused("reset a missing subscription", PulsarAdminException.NotFoundException.class,
                () -> topics.resetCursor(topic, "missing", 0));
        checks.refused("delete a missing subscription", PulsarAdminException.NotFoundException.class,
                () -> topics.deleteSubscription(topic, "missing"));
    }

    private static void cursors(Checks checks, Topics topics, String topic) {
        checks.check("skip messages", () -> {
            topics.skipMessages(topic, "cursor", 3);
            Checks.same(MESSAGES - 3L, backlog(topics, topic));
        });
        checks.check("clear a backlog", () -> {
            topics.skipAllMessages(topic, "cursor");
            Checks.same(0L, backlog(topics, topic));
        });
        checks.check("reset a cursor by time", () -> {
            topics.resetCursor(topic, "cursor", 0);
            Checks.same((long) MESSAGES, backlog(topics, topic));
        });
        checks.check("reset a cursor by id", () -> {
            MessageId fourth = topics.peekMessages(topic, "cursor", 4).get(3).getMessageId();
            topics.resetCursor(topic, "cursor", fourth);
            Checks.same(MESSAGES - 3L, backlog(topics, topic));
            topics.resetCursor(topic, "cursor", fourth, true);
            Checks.same(MESSAGES - 4L, backlog(topics, topic));
        });
        checks.check("reset a cursor to its ends", () -> {
            topics.resetCursor(topic, "cursor", MessageId.latest);
            Checks.same(0L, backlog(topics, topic));
            topics.resetCursor(topic, "cursor", MessageId.earliest);
            Checks.same((long) MESSAGES, backlog(topics, topic));
        });
        checks.check("expire messages by age", () -> {
            Thread.sleep(2_100);
            topics.expireMessages(topic, "cursor", 1);
            checks.seen(0L, () -> backlog(topics, topic));
            topics.resetCursor(topic, "cursor", 0);
        });
        checks.check("expire messages by id", () -> {
            MessageId fourth = topics.peekMessages(topic, "cursor", 4).get(3).getMessageId();
            topics.expireMessages(topic, "cursor", fourth, false);
            checks.seen(MESSAGES - 4L, () -> backlog(topics, topic));
            topics.resetCursor(topic, "cursor", 0);
        });
        checks.check("delete a subscription", () -> {
            topics.deleteSubscription(topic, "late");
            Checks.same(List.of("cursor"), topics.getSubscriptions(topic));
        });
        checks.check("expire messages of all subscriptions", () -> {
            topics.expireMessagesForAllSubscriptions(topic, 1);
            checks.seen(0L, () -> backlog(topics, topic));
            topics.resetCursor(topic, "cursor", 0);
        });
        checks.check("analyze a backlog", () -> {
            Checks.same((long) MESSAGES,
                    topics.analyzeSubscriptionBacklog(topic, "cursor", Optional.empty()).getMessages());
        });
    }

    private static void messages(Checks checks, Topics topics, String topic) {
        checks.check("peek messages", () -> {
            List<Message<byte[]>> found = topics.peekMessages(topic, "cursor", 5);
            Checks.same(5, found.size());
            for (int number = 0; number < 5; number++) {
                Checks.same("message " + number, text(found.get(number)));
                Checks.same(String.valueOf(number), found.get(number).getProperty("number"));
                Checks.same("key", found.get(number).getKey());
                Checks.that(found.get(number).getPublishTime() > 0, "no publish time");
            }
        });
        checks.check("examine messages", () -> {
            Checks.same("message 0", text(topics.examineMessage(topic, "earliest", 1)));
            Checks.same("message 2", text(topics.examineMessage(topic, "earliest", 3)));
            Checks.same("message 9", text(topics.examineMessage(topic, "latest", 1)));
        });
        checks.check("a message by its id", () -> {
            String[] last = topics.getLastMessageId(topic).toString().split(":");
            long ledger = Long.parseLong(last[0]), entry = Long.parseLong(last[1]);
            Checks.same("message 9", text(topics.getMessagesById(topic, ledger, entry).get(0)));
            MessageId first = topics.getMessageIdByTimestamp(topic, 0);
            Checks.that(first.compareTo(topics.getLastMessageId(topic)) < 0, "the first is not before the last");
        });
        checks.refused("a message that is not there", PulsarAdminException.NotFoundException.class, () -> {
            topics.getMessagesById(topic, 987_654_321, 0);
        });
        checks.check("backlog from a message on", () -> {
            MessageId first = topics.getMessageIdByTimestamp(topic, 0);
            Checks.that(topics.getBacklogSizeByMessageId(topic, first) > 0, "no bytes from the first message on");
        });
    }

    private static void statistics(Checks checks, Topics topics, String topic) {
        checks.check("statistics of a topic", () -> {
            Checks.that(topics.getStats(topic).getStorageSize() > 0, "no bytes are stored");
            Checks.same(Map.of("who", "else"),
                    topics.getStats(topic, true).getSubscriptions().get("cursor").getSubscriptionProperties());
        });
        checks.check("internal statistics of a topic", () -> {
            PersistentTopicInternalStats stats = topics.getInternalStats(topic);
            Checks.same((long) MESSAGES, stats.numberOfEntries);
            Checks.that(stats.cursors.containsKey("cursor"), "no cursor");
            Checks.that(!stats.ledgers.isEmpty(), "no ledger");
            Checks.that(!topics.getInternalInfo(topic).isBlank(), "no internal info");
        });
        checks.check("compaction and offload have not run", () -> {
            Checks.same(LongRunningProcessStatus.Status.NOT_RUN, topics.compactionStatus(topic).status);
            Checks.same(LongRunningProcessStatus.Status.NOT_RUN, topics.offloadStatus(topic).getStatus());
        });
    }

    private static void end(Checks checks, Topics topics, String topic) {
        checks.check("trim a topic", () -> topics.trimTopic(topic));
        checks.check("terminate a topic", () -> {
            Checks.same(topics.getLastMessageId(topic).toString(), topics.terminateTopic(topic).toString());
            Checks.same("Terminated", topics.getInternalStats(topic).state);
        });
        checks.check("truncate a topic", () -> {
            topics.truncate(topic);
            checks.seen(0L, () -> backlog(topics, topic));
        });
        checks.check("delete a topic with force", () -> topics.delete(topic, true));
    }

    private static long backlog(Topics topics, String topic) throws PulsarAdminException {
        return topics.getStats(topic, true).getSubscriptions().get("cursor").getMsgBacklog();
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }
}
