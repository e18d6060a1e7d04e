import java.nio.charset.StandardCharsets;
import org.apache.pulsar.client.api.Message;

/** The content of a message: a name that is unique, an account and its balance; or a note, without an account. */
record Balance(String name, int account, long amount) {
    static final int NONE = -1;

    static Balance of(Message<byte[]> message) {
        String[] parts = new String(message.getData(), StandardCharsets.UTF_8).split("\\|");
        return new Balance(parts[0], Integer.parseInt(parts[1]), Long.parseLong(parts[2]));
    }

    byte[] bytes() {
        return (name + "|" + account + "|" + amount).getBytes(StandardCharsets.UTF_8);
    }

    boolean isNote() {
        return account == NONE;
    }
}
