import java.util.Objects;
import org.apache.pulsar.client.admin.PulsarAdminException;

/** Runs checks one after the other and prints a line for each: "ok NAME" or "FAILED NAME: why". */
final class Checks {
    interface Step {
        void run() throws Exception;
    }

    interface Getter<T> {
        T get() throws Exception;
    }

    interface Setter<T> {
        void set(T value) throws Exception;
    }

    private final int patienceSeconds;
    private int failed;

    /** How long a value that was set may take to be seen; 0 for a server on which it holds at once. */
    Checks(int patienceSeconds) {
        this.patienceSeconds = patienceSeconds;
    }

    int failed() {
        return failed;
    }

    void check(String name, Step step) {
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Throwable problem) {
            failed++;
            System.out.println("FAILED " + name + ": " + oneLine(problem));
        }
    }

    /** The client throws this class of exception, with a reason in it. */
    void refused(String name, Class<? extends PulsarAdminException> expected, Step step) {
        check(name, () -> {
            PulsarAdminException refusal = refusal(step);
            that(refusal.getClass() == expected, "thrown as " + oneLine(refusal));
        });
    }

    /** The client throws an exception of this status, for which it has no class. */
    void refused(String name, int status, Step step) {
        check(name, () -> same(status, refusal(step).getStatusCode()));
    }

    private static PulsarAdminException refusal(Step step) throws Exception {
        try {
            step.run();
        } catch (PulsarAdminException refusal) {
            that(refusal.getHttpError() != null && !refusal.getHttpError().isBlank(), "no reason is given");
            return refusal;
        }
        throw new AssertionError("not refused");
    }

    /** Set, seen, removed, and then what it was at first. */
    <T> void policy(String name, T value, Setter<T> setter, Getter<T> getter, Step remover) {
        check(name, () -> {
            T before = getter.get();
            if (Objects.equals(before, value)) {
                throw new AssertionError("it is " + value + " before it is set");
            }
            setter.set(value);
            seen(value, getter);
            remover.run();
            seen(before, getter);
        });
    }

    /** Set and seen, and set back to what it was. */
    <T> void setting(String name, T value, Setter<T> setter, Getter<T> getter) {
        check(name, () -> {
            T before = getter.get();
            setter.set(value);
            seen(value, getter);
            setter.set(before);
            seen(before, getter);
        });
    }

    <T> void seen(T expected, Getter<T> getter) throws Exception {
        long deadline = System.nanoTime() + patienceSeconds * 1_000_000_000L;
        T found = getter.get();
        while (!Objects.equals(expected, found) && System.nanoTime() < deadline) {
            Thread.sleep(50);
            found = getter.get();
        }
        same(expected, found);
    }

    static void same(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void that(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    private static String oneLine(Throwable problem) {
        String text = problem.toString();
        if (problem instanceof PulsarAdminException refusal) {
            text = problem.getClass().getSimpleName() + " " + refusal.getStatusCode() + " " + refusal.getHttpError();
        }
        return text.replaceAll("\\s+", " ").substring(0, Math.min(600, text.replaceAll("\\s+", " ").length()));
    }
}
