import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.StringJoiner;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.transaction.TxnID;

/** Writes the history of tests/transactions/history.py, one JSON line for each event. */
final class Journal {
    private final Writer lines;
    private long calls;

    Journal(Path file) throws IOException {
        lines = Files.newBufferedWriter(file, StandardCharsets.UTF_8);
    }

    /** One event; `fields` are names and values in turn. */
    synchronized void note(String kind, Object... fields) {
        StringJoiner line = new StringJoiner(", ", "{", "}\n");
        line.add("\"kind\": " + json(kind)).add("\"at\": " + System.nanoTime() / 1e9);
        for (int at = 0; at < fields.length; at += 2) {
            line.add(json(fields[at]) + ": " + json(fields[at + 1]));
        }
        try {
            lines.write(line.toString());
            lines.flush();
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /** The begin of a call; returns its number. */
    synchronized long begin(String kind, String worker, Object... fields) {
        Object[] all = new Object[fields.length + 4];
        all[0] = "call";
        all[1] = ++calls;
        all[2] = "worker";
        all[3] = worker;
        System.arraycopy(fields, 0, all, 4, fields.length);
        note(kind, all);
        return calls;
    }

    void ok(long call, Object... fields) {
        answer(call, "ok", fields);
    }

    void refused(long call, String error) {
        answer(call, "refused", "error", error);
    }

    void unknown(long call, Throwable error) {
        answer(call, "unknown", "error", error.getClass().getSimpleName() + ": " + error.getMessage());
    }

    private void answer(long call, String answer, Object... fields) {
        Object[] all = new Object[fields.length + 4];
        all[0] = "call";
        all[1] = call;
        all[2] = "answer";
        all[3] = answer;
        System.arraycopy(fields, 0, all, 4, fields.length);
        note("answer", all);
    }

    static List<Long> of(TxnID txn) {
        return List.of(txn.getMostSigBits(), txn.getLeastSigBits());
    }

    /** Ledger, entry and index in the batch; null for a message id without a position. */
    static List<Long> of(MessageId id) {
        MessageIdAdv position = (MessageIdAdv) id;
        if (position == null || position.getLedgerId() < 0) {
            return null;
        }
        return List.of(position.getLedgerId(), position.getEntryId(), (long) position.getBatchIndex());
    }

    private static String json(Object value) {
        if (value instanceof Collection<?> items) {
            StringJoiner all = new StringJoiner(", ", "[", "]");
            items.forEach(item -> all.add(json(item)));
            return all.toString();
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        StringBuilder text = new StringBuilder("\"");
        for (char each : value.toString().toCharArray()) {
            if (each < ' ') {
                text.append(' ');
            } else if (each == '"' || each == '\\') {
                text.append('\\').append(each);
            } else {
                text.append(each);
            }
        }
        return text.append('"').toString();
    }
}
