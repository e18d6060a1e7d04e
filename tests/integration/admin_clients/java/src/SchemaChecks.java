import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.admin.Schemas;
import org.apache.pulsar.common.schema.SchemaInfo;
import org.apache.pulsar.common.schema.SchemaType;

/** Schemas of a topic that has none. */
final class SchemaChecks {
    private SchemaChecks() {}

    static void run(Checks checks, Schemas schemas, String topic) {
        byte[] definition = ("{\"type\":\"record\",\"name\":\"Reading\",\"fields\":"
                + "[{\"name\":\"value\",\"type\":\"int\"}]}").getBytes(StandardCharsets.UTF_8);
        SchemaInfo schema = SchemaInfo.builder().name("policies").type(SchemaType.AVRO)
                .schema(definition).properties(Map.of("a", "1")).build();
        checks.refused("a missing schema", PulsarAdminException.NotFoundException.class,
                () -> schemas.getSchemaInfo(topic));
        checks.check("create a schema", () -> {
            schemas.createSchema(topic, schema);
            SchemaInfo found = schemas.getSchemaInfo(topic);
            Checks.same(SchemaType.AVRO, found.getType());
            Checks.same(schema.getSchemaDefinition(), found.getSchemaDefinition());
            Checks.same("1", found.getProperties().get("a"));
            Checks.same(0L, schemas.getSchemaInfoWithVersion(topic).getVersion());
            Checks.same(1, schemas.getAllSchemas(topic).size());
            Checks.same(SchemaType.AVRO, schemas.getSchemaInfo(topic, 0).getType());
        });
        checks.check("the version of a schema",
                () -> Checks.same(0L, schemas.getVersionBySchema(topic, schema)));
        checks.check("compatibility of a schema",
                () -> Checks.that(schemas.testCompatibility(topic, schema).isCompatibility(), "not with itself"));
        checks.check("delete a schema", () -> schemas.deleteSchema(topic, true));
    }
}
