import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminBuilder;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.PulsarClient;

/** Makes clients with the token and the authority's certificate that the environment names, if it does. */
final class Credentials {
    private static final String TOKEN = System.getenv("ADMIN_CLIENT_TOKEN");
    private static final String AUTHORITY = System.getenv("ADMIN_CLIENT_TRUST");

    private Credentials() {}

    static PulsarAdminBuilder admin(String url) {
        PulsarAdminBuilder builder = PulsarAdmin.builder().serviceHttpUrl(url);
        if (TOKEN != null) {
            builder.authentication(AuthenticationFactory.token(TOKEN));
        }
        if (AUTHORITY != null) {
            builder.tlsTrustCertsFilePath(AUTHORITY).enableTlsHostnameVerification(true);
        }
        return builder;
    }

    static ClientBuilder client(String url) {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(url);
        if (TOKEN != null) {
            builder.authentication(AuthenticationFactory.token(TOKEN));
        }
        if (AUTHORITY != null) {
            builder.tlsTrustCertsFilePath(AUTHORITY).enableTlsHostnameVerification(true);
        }
        return builder;
    }
}
