import com.google.protobuf.Timestamp;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Scenarios of schemas: values come back as they were sent. */
final class Schemas {
    static final Map<String, ClientProgram.Scenario> SCENARIOS = new LinkedHashMap<>();

    private static final List<Person> PERSONS = List.of(new Person("Ada", 36), new Person("Grüße", -1));
    private static final List<Timestamp> TIMES = List.of(
            Timestamp.newBuilder().setSeconds(1_234_567_890L).setNanos(7).build(), Timestamp.getDefaultInstance());

    static {
        SCENARIOS.put("schema-string", context -> roundTrip(context, Schema.STRING, List.of("text", "", "Grüße, 世界 🙂")));
        SCENARIOS.put("schema-int64", context -> roundTrip(context, Schema.INT64, List.of(0L, -1L, Long.MAX_VALUE, Long.MIN_VALUE)));
        SCENARIOS.put("schema-json", context -> roundTrip(context, Schema.JSON(Person.class), PERSONS));
        SCENARIOS.put("schema-avro", context -> roundTrip(context, Schema.AVRO(Person.class), PERSONS));
        SCENARIOS.put("schema-protobuf", context -> roundTrip(context, Schema.PROTOBUF(Timestamp.class), TIMES));
        SCENARIOS.put("schema-protobuf-native", context -> roundTrip(context, Schema.PROTOBUF_NATIVE(Timestamp.class), TIMES));
        SCENARIOS.put("schema-key-value", Schemas::keyValue);
        SCENARIOS.put("schema-auto", Schemas::auto);
    }

    private Schemas() {}

    /** A record as users write it: a constructor without arguments, and fields. */
    public static final class Person {
        public String name;
        public int age;

        public Person() {}

        Person(String name, int age) {
            this.name = name;
            this.age = age;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Person person && Objects.equals(person.name, name) && person.age == age;
        }

        @Override
        public int hashCode() {
            return Objects.hash(name, age);
        }

        @Override
        public String toString() {
            return name + ", " + age;
        }
    }

    private static <T> void roundTrip(Context context, Schema<T> schema, List<T> values) throws Exception {
        roundTrip(context, context.topic, schema, values);
    }

    private static <T> List<Message<T>> roundTrip(Context context, String topic, Schema<T> schema, List<T> values)
            throws Exception {
        Consumer<T> consumer = consumer(context, topic, schema);
        Producer<T> producer = context.client().newProducer(schema).topic(topic).create();
        for (T value : values) {
            producer.send(value);
        }
        List<Message<T>> messages = Context.take(consumer, values.size());
        Check.equal(messages.stream().map(Message::getValue).toList(), values, "values");
        for (Message<T> message : messages) {
            Check.that(message.getSchemaVersion() != null, "a message without schema version");
        }
        return messages;
    }

    private static <T> Consumer<T> consumer(Context context, String topic, Schema<T> schema) throws Exception {
        return context.client()
                .newConsumer(schema)
                .topic(topic)
                .subscriptionName("sub")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private static void keyValue(Context context) throws Exception {
        List<KeyValue<String, Person>> values =
                List.of(new KeyValue<>("first", PERSONS.get(0)), new KeyValue<>("second", PERSONS.get(1)));
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<String, Person>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Person.class), encoding);
            List<Message<KeyValue<String, Person>>> messages =
                    roundTrip(context, context.topic + "-" + encoding.name().toLowerCase(), schema, values);
            boolean separated = encoding == KeyValueEncodingType.SEPARATED;
            Check.equal(messages.get(0).hasKey(), separated, "whether the key of " + encoding + " is the message's key");
        }
    }

    private static void auto(Context context) throws Exception {
        Producer<Person> producer = context.client().newProducer(Schema.AVRO(Person.class)).topic(context.topic).create();
        Consumer<GenericRecord> consumer = consumer(context, context.topic, Schema.AUTO_CONSUME());
        for (Person person : PERSONS) {
            producer.send(person);
        }
        for (Message<GenericRecord> message : Context.take(consumer, PERSONS.size())) {
            GenericRecord found = message.getValue();
            Person person = new Person(found.getField("name").toString(), (int) found.getField("age"));
            Check.that(PERSONS.contains(person), "not a record that was sent: " + person);
            Check.equal(found.getFields().stream().map(field -> field.getName()).sorted().toList(), List.of("age", "name"), "fields");
        }
    }
}
