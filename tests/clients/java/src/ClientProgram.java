import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Runs scenarios of catalogue.py with Apache Pulsar's own Java client: SERVICE_URL PREFIX KEYS [SCENARIO ...]. */
public final class ClientProgram {
    /** One row of the catalogue: returns when all is as it should be, throws when not. */
    interface Scenario {
        void run(Context context) throws Exception;
    }

    private static final List<String> DISRUPTIVE = List.of("moved", "killed", "txn-moved", "txn-killed");
    private static final int SECONDS_MAX = 30;
    private static final int SECONDS_MAX_DISRUPTIVE = 300;
    private static final int SECONDS_MAX_CLOSING = 5;

    private ClientProgram() {}

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Map<String, Scenario> known = known();
        List<String> wanted = Arrays.asList(arguments).subList(3, arguments.length);
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<CompletableFuture<Void>> closing = new ArrayList<>();
        for (String name : wanted.isEmpty() ? List.copyOf(known.keySet()) : wanted) {
            say("begin", name);
            Scenario scenario = known.get(name);
            if (scenario == null) {
                say("fail", name, "the Java program has no such scenario");
                continue;
            }
            String topics = "persistent://public/default/" + arguments[1] + "-" + name;
            Context context = new Context(arguments[0], topics, Path.of(arguments[2]).toAbsolutePath(), answers);
            String failure = failureOf(scenario, context, DISRUPTIVE.contains(name) ? SECONDS_MAX_DISRUPTIVE : SECONDS_MAX);
            closing.addAll(context.close());
            if (failure == null) {
                say("pass", name);
            } else {
                say("fail", name, failure);
            }
        }
        awaitClosed(closing);
        System.exit(0); // a scenario out of time may have left threads
    }

    private static void awaitClosed(List<CompletableFuture<Void>> closing) throws InterruptedException {
        try {
            CompletableFuture.allOf(closing.toArray(CompletableFuture[]::new)).get(SECONDS_MAX_CLOSING, TimeUnit.SECONDS);
        } catch (ExecutionException | TimeoutException failed) {
            System.err.println("not all clients are closed: " + failed);
        }
    }

    private static Map<String, Scenario> known() {
        Map<String, Scenario> known = new LinkedHashMap<>();
        known.putAll(Publishing.SCENARIOS);
        known.putAll(Producers.SCENARIOS);
        known.putAll(Consuming.SCENARIOS);
        known.putAll(Reading.SCENARIOS);
        known.putAll(Acknowledging.SCENARIOS);
        known.putAll(Schemas.SCENARIOS);
        known.putAll(Transactions.SCENARIOS);
        known.putAll(Disruptive.SCENARIOS);
        return known;
    }

    /** What went wrong, in one line, with the line of the scenario; null when it passed. */
    private static String failureOf(Scenario scenario, Context context, int secondsMax) throws InterruptedException {
        FutureTask<Void> task = new FutureTask<>(() -> {
            scenario.run(context);
            return null;
        });
        Thread thread = new Thread(task, "scenario");
        thread.setDaemon(true);
        thread.start();
        try {
            task.get(secondsMax, TimeUnit.SECONDS);
            return null;
        } catch (ExecutionException failed) {
            return failed.getCause() + " at " + place(failed.getCause().getStackTrace());
        } catch (TimeoutException late) {
            String place = place(thread.getStackTrace());
            thread.interrupt();
            return "not over after " + secondsMax + " s: waits at " + place;
        }
    }

    /** The innermost lines of the program itself, outermost last. */
    private static String place(StackTraceElement[] stack) {
        List<String> lines = new ArrayList<>();
        for (StackTraceElement element : stack) {
            if (!element.getClassName().contains(".")) {
                lines.add(element.getFileName() + ":" + element.getLineNumber());
            }
        }
        return lines.isEmpty() ? "an unknown line" : String.join(" < ", lines.subList(0, Math.min(3, lines.size())));
    }

    /** One line of the protocol. */
    static synchronized void say(String... words) {
        List<String> clean = new ArrayList<>();
        for (String word : words) {
            clean.add(word.replaceAll("\\s+", " "));
        }
        System.out.println(String.join("\t", clean));
        System.out.flush();
    }
}
