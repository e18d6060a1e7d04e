import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaInfo;

/**
 * Prints java_payloads.tsv: what Pulsar's Java client registers and writes for a few values.
 *
 * With two files of payloads of Order in hexadecimal, one a line, JSON in the first and Avro of Java's own definition in the
 * second, it prints instead what the client reads from them, written again by it.
 */
public class SchemaPayloads {
    public enum Color { RED, GREEN }

    public static class Line {
        public String sku;
        public int count;
    }

    public static class Order {
        public long number;
        public int count;
        public String customer;
        public boolean paid;
        public double price;
        public float weight;
        public byte[] raw;
        public Color color;
        public Line line;
        public List<String> tags;
        public List<Line> lines;
        public Map<String, Double> prices;
        public String note;
        public Line gift;
        public BigDecimal exact;
    }

    static Line line(String sku, int count) {
        Line line = new Line();
        line.sku = sku;
        line.count = count;
        return line;
    }

    static Order order() {
        Order order = new Order();
        order.number = 1L << 40;
        order.count = -3;
        order.customer = "Zo\u00eb";
        order.paid = true;
        order.price = 9.95;
        order.weight = 0.5f;
        order.raw = new byte[] {0, (byte) 255};
        order.color = Color.GREEN;
        order.line = line("one", 1);
        order.tags = List.of("a", "b");
        order.lines = List.of(line("two", 2));
        order.prices = Map.of("EUR", 1.5);
        order.gift = line("three", 3);
        order.exact = new BigDecimal("1.230");
        return order;
    }

    static <T> void print(String id, Schema<T> schema, T value) {
        SchemaInfo info = schema.getSchemaInfo();
        byte[] payload = schema.encode(value);
        HexFormat hex = HexFormat.of();
        StringBuilder properties = new StringBuilder();
        new TreeMap<>(info.getProperties()).forEach((key, each) -> properties.append(key + "=" + each + ";"));
        System.out.println(String.join("\t", id, info.getName(), info.getType().name(), hex.formatHex(info.getSchema()),
            properties.toString(), payload == null ? "null" : hex.formatHex(payload)));
    }

    static <T> void copy(Schema<T> schema, String file) throws Exception {
        HexFormat hex = HexFormat.of();
        for (String line : Files.readAllLines(Path.of(file))) {
            System.out.println(hex.formatHex(schema.encode(schema.decode(hex.parseHex(line)))));
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 2) {
            copy(Schema.JSON(Order.class), arguments[0]);
            copy(Schema.AVRO(Order.class), arguments[1]);
            return;
        }
        Instant moment = Instant.parse("2024-02-29T12:30:15.123456789Z");
        print("string", Schema.STRING, "Zo\u00eb \u8a9e");
        print("bool", Schema.BOOL, true);
        print("int8", Schema.INT8, (byte) -128);
        print("int16", Schema.INT16, (short) -2);
        print("int32", Schema.INT32, 0x01020304);
        print("int64", Schema.INT64, Long.MIN_VALUE);
        print("float", Schema.FLOAT, 0.15625f);
        print("double", Schema.DOUBLE, -0.1);
        print("date", Schema.DATE, Date.from(moment));
        print("time", Schema.TIME, new Time(45015123L));
        print("timestamp", Schema.TIMESTAMP, Timestamp.from(moment));
        print("instant", Schema.INSTANT, moment);
        print("instant-before-1970", Schema.INSTANT, Instant.parse("1969-12-31T23:59:59.5Z"));
        print("local-date", Schema.LOCAL_DATE, LocalDate.of(1969, 12, 31));
        print("local-time", Schema.LOCAL_TIME, LocalTime.of(12, 30, 15, 123456789));
        print("local-date-time", Schema.LOCAL_DATE_TIME, LocalDateTime.of(2024, 2, 29, 12, 30, 15, 123456789));
        print("json", Schema.JSON(Order.class), order());
        print("avro", Schema.AVRO(Order.class), order());
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<String, Line>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Line.class), encoding);
            String id = "key-value-" + encoding.name().toLowerCase();
            print(id, schema, new KeyValue<>("k", line("s", 2)));
            print(id + "-no-key", schema, new KeyValue<>(null, line("s", 2)));
            print(id + "-no-value", schema, new KeyValue<>("k", null));
            print(id + "-empty-key", schema, new KeyValue<>("", line("s", 2)));
        }
        print("key-value-bytes", Schema.KV_BYTES(), new KeyValue<>(new byte[] {1}, new byte[] {2}));
    }
}
