import com.google.protobuf.Timestamp;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.pulsar.PulsarVersion;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException.IncompatibleSchemaException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SchemaSerializationException;
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
        SCENARIOS.put("schema-auto-produce", Schemas::autoProduce);
        SCENARIOS.put("schema-evolution", Schemas::evolution);
        SCENARIOS.put("schema-refused", Schemas::refused);
        SCENARIOS.put("schema-first-consumer", Schemas::firstConsumer);
        SCENARIOS.put("schema-enforced", Schemas::enforced);
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

    /** A person with a field more, which is null by default. */
    public static final class Citizen {
        public String name;
        public int age;
        public String city;

        public Citizen() {}
    }

    /** A person with a field more that has no default. */
    public static final class Voter {
        public String name;
        public int age;
        public int district;

        public Voter() {}
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

    private static void autoProduce(Context context) throws Exception {
        Schema<Person> schema = Schema.AVRO(Person.class);
        Producer<Person> first = context.client().newProducer(schema).topic(context.topic).create();
        Consumer<Person> consumer = consumer(context, context.topic, schema);
        first.send(PERSONS.get(0));
        Producer<byte[]> producer =
                context.client().newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(context.topic).create();
        producer.send(schema.encode(PERSONS.get(1)));
        List<Message<Person>> messages = Context.take(consumer, 2);
        Check.equal(messages.stream().map(Message::getValue).toList(), PERSONS, "values");
        Check.that(
                Arrays.equals(messages.get(0).getSchemaVersion(), messages.get(1).getSchemaVersion()),
                "the producers have different versions of one schema");
        Check.refused(SchemaSerializationException.class, () -> producer.send(new byte[] {5}), "bytes of another form");
    }

    private static <T> Producer<T> producer(Context context, Schema<T> schema) throws Exception {
        return context.client().newProducer(schema).topic(context.topic).create();
    }

    private static void evolution(Context context) throws Exception {
        Consumer<byte[]> consumer = context.consumer("sub").subscribe();
        Citizen citizen = new Citizen();
        citizen.name = "Ada";
        citizen.age = 36;
        citizen.city = "Rome";
        producer(context, Schema.AVRO(Person.class)).send(PERSONS.get(0));
        producer(context, Schema.AVRO(Citizen.class)).send(citizen);
        producer(context, Schema.AVRO(Person.class)).send(PERSONS.get(1));
        List<byte[]> versions = Context.take(consumer, 3).stream().map(Message::getSchemaVersion).toList();
        Check.that(!Arrays.equals(versions.get(0), versions.get(1)), "both schemas have one version");
        Check.that(Arrays.equals(versions.get(0), versions.get(2)), "the first schema has two versions");
        Consumer<Citizen> reader = context.client()
                .newConsumer(Schema.AVRO(Citizen.class))
                .topic(context.topic)
                .subscriptionName("reader")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        List<Citizen> citizens = Context.take(reader, 3).stream().map(Message::getValue).toList();
        Check.equal(citizens.stream().map(each -> each.age).toList(), List.of(36, 36, -1), "ages");
        Check.equal(citizens.stream().map(each -> String.valueOf(each.city)).toList(), List.of("null", "Rome", "null"), "cities");
    }

    private static void refused(Context context) throws Exception {
        Producer<Person> producer = producer(context, Schema.AVRO(Person.class));
        producer.send(PERSONS.get(0));
        for (Schema<?> schema : List.of(Schema.AVRO(Voter.class), Schema.STRING)) {
            Check.refused(IncompatibleSchemaException.class, () -> producer(context, schema), "a producer");
        }
        Check.refused(
                IncompatibleSchemaException.class, () -> consumer(context, context.topic, Schema.STRING), "a consumer");
        producer.send(PERSONS.get(1));
        Consumer<Person> consumer = consumer(context, context.topic, Schema.AVRO(Person.class));
        Check.equal(Context.take(consumer, 2).stream().map(Message::getValue).toList(), PERSONS, "values");
    }

    private static void firstConsumer(Context context) throws Exception {
        if (!PulsarVersion.getVersion().startsWith("2.")) { // since 3.0 such a consumer tells brokers what it is
            context.client()
                    .newConsumer(Schema.AUTO_CONSUME())
                    .topic(context.topic)
                    .subscriptionName("any")
                    .subscribe();
        }
        Consumer<Person> consumer = consumer(context, context.topic, Schema.AVRO(Person.class));
        Check.refused(IncompatibleSchemaException.class, () -> producer(context, Schema.STRING), "a producer");
        producer(context, Schema.AVRO(Person.class)).send(PERSONS.get(0));
        Check.equal(Context.take(consumer, 1).get(0).getValue(), PERSONS.get(0), "value");
    }

    private static void enforced(Context context) throws Exception {
        producer(context, Schema.AVRO(Person.class));
        context.producer().create().close();
        context.ask("enforce", context.topic);
        Check.soon(
                () -> {
                    try {
                        context.producer().create().close();
                    } catch (IncompatibleSchemaException refused) {
                        return true;
                    }
                    return false;
                },
                "a producer without a schema is still taken");
        producer(context, Schema.AVRO(Person.class)).send(PERSONS.get(0));
    }
}
