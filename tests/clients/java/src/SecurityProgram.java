import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.apache.pulsar.client.impl.auth.oauth2.AuthenticationFactoryOAuth2;

/** Runs scenarios of security_catalogue.py: DIRECTORY TLS_PORT PLAIN_PORT ISSUER PREFIX [SCENARIO ...]. */
public final class SecurityProgram {
    private static final String USER = "bob";
    private static final String AUDIENCE = "urn:magnetar:tests";
    private static final int RENEWED_MESSAGES = 100;
    private static final int RENEWED_PAUSE_MS = 80;

    /** Returns when all is as it should be, throws when not. */
    interface Scenario {
        void run() throws Exception;
    }

    private final Path directory;
    private final String tls;
    private final String plain;
    private final String unnamed;
    private final String issuer;
    private final String topic;

    private SecurityProgram(String[] arguments, String name) {
        directory = Path.of(arguments[0]).toAbsolutePath();
        tls = "pulsar+ssl://localhost:" + arguments[1];
        unnamed = "pulsar+ssl://127.0.0.2:" + arguments[1];
        plain = "pulsar://localhost:" + arguments[2];
        issuer = arguments[3];
        topic = "persistent://public/default/" + arguments[4] + "-" + name;
    }

    public static void main(String[] arguments) {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        // Without a default truststore the OAuth2 client, which has no setting for one, would not know the issuer.
        System.setProperty("javax.net.ssl.trustStore", Path.of(arguments[0], "ca.p12").toString());
        System.setProperty("javax.net.ssl.trustStorePassword", "changeit");
        for (String name : Arrays.asList(arguments).subList(5, arguments.length)) {
            ClientProgram.say("begin", name);
            try {
                new SecurityProgram(arguments, name).scenarios().get(name).run();
                ClientProgram.say("pass", name);
            } catch (Exception | AssertionError failure) {
                ClientProgram.say("fail", name, String.valueOf(failure));
            }
        }
        System.exit(0);
    }

    private Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("token-tls", () -> exchange(client(tls, token("alice")), 10, 0));
        all.put("token-plain", () -> exchange(client(plain, token("alice")), 10, 0));
        all.put("basic-tls", () -> exchange(client(tls, basic()), 10, 0));
        all.put("certificate", () -> exchange(client(tls, AuthenticationFactory.TLS(path("carol.cert.pem"), path("carol.key.pem"))), 10, 0));
        all.put("name-right", () -> exchange(client(tls, token("alice")).enableTlsHostnameVerification(true), 10, 0));
        all.put("name-wrong", () -> {
            refused(PulsarClientException.class, client(unnamed, token("alice")).enableTlsHostnameVerification(true));
            exchange(client(unnamed, token("alice")), 10, 0);
        });
        all.put("token-forged", () -> refused(PulsarClientException.AuthenticationException.class, client(tls, token("forged"))));
        all.put("no-credentials", () -> refused(PulsarClientException.AuthenticationException.class, client(tls, null)));
        all.put("no-right", () -> refused(PulsarClientException.AuthorizationException.class, client(tls, token("mallory"))));
        all.put("token-renewed", () -> exchange(client(tls, AuthenticationFactory.token(() -> read("supplied.token"))), RENEWED_MESSAGES, RENEWED_PAUSE_MS));
        all.put("oauth2", () -> exchange(client(tls, oauth2()), 10, 0));
        return all;
    }

    private String path(String name) {
        return directory.resolve(name).toString();
    }

    private String read(String name) {
        try {
            return Files.readString(directory.resolve(name), StandardCharsets.UTF_8);
        } catch (java.io.IOException failure) {
            throw new java.io.UncheckedIOException(failure);
        }
    }

    private Authentication token(String name) {
        return AuthenticationFactory.token(read(name + ".token"));
    }

    private Authentication basic() {
        AuthenticationBasic basic = new AuthenticationBasic();
        basic.configure("{\"userId\":\"" + USER + "\",\"password\":\"" + read("bob.password") + "\"}");
        return basic;
    }

    private Authentication oauth2() throws Exception {
        URL credentials = directory.resolve("oauth2.json").toUri().toURL();
        return AuthenticationFactoryOAuth2.clientCredentials(new URL(issuer), credentials, AUDIENCE);
    }

    private ClientBuilder client(String url, Authentication authentication) {
        ClientBuilder builder = PulsarClient.builder()
                .serviceUrl(url)
                .operationTimeout(10, TimeUnit.SECONDS)
                .enableTlsHostnameVerification(false)
                .tlsTrustCertsFilePath(path("ca.pem"));
        return authentication == null ? builder : builder.authentication(authentication);
    }

    private void exchange(ClientBuilder builder, int messages, int pauseMs) throws Exception {
        try (PulsarClient client = builder.build();
                Consumer<byte[]> consumer = client.newConsumer()
                        .topic(topic)
                        .subscriptionName("sub")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            for (int number = 0; number < messages; number++) {
                producer.send(String.valueOf(number).getBytes(StandardCharsets.UTF_8));
                Message<byte[]> message = consumer.receive(10, TimeUnit.SECONDS);
                Check.that(message != null, "message " + number + " did not come");
                Check.equal(new String(message.getData(), StandardCharsets.UTF_8), String.valueOf(number), "the next message");
                consumer.acknowledge(message);
                Thread.sleep(pauseMs);
            }
        }
    }

    private void refused(Class<? extends PulsarClientException> kind, ClientBuilder builder) throws Exception {
        try (PulsarClient client = builder.build()) {
            Check.refused(kind, () -> client.newProducer().topic(topic).create(), "a producer");
        }
    }
}
