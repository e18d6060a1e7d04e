import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;

/** Assertions of the scenarios. */
final class Check {
    private static final long SOON_MS = 20_000;
    private static final long RECOVERED_MS = 120_000;
    private static final long LOOK_EVERY_MS = 50;

    private Check() {}

    static void that(boolean holds, String otherwise) {
        that(holds, () -> otherwise);
    }

    static void that(boolean holds, Supplier<String> otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise.get());
        }
    }

    static void equal(Object found, Object expected, String what) {
        that(Objects.equals(found, expected), () -> what + ": found " + found + ", expected " + expected);
    }

    /** Waits until it holds. */
    static void soon(Callable<Boolean> holds, String otherwise) throws Exception {
        within(SOON_MS, holds, otherwise);
    }

    /** Waits until it holds after a disruption: the client doubles its pauses while no broker answers. */
    static void recovered(Callable<Boolean> holds, String otherwise) throws Exception {
        within(RECOVERED_MS, holds, otherwise);
    }

    private static void within(long milliseconds, Callable<Boolean> holds, String otherwise) throws Exception {
        long end = System.nanoTime() + milliseconds * 1_000_000;
        while (!holds.call()) {
            that(System.nanoTime() < end, () -> otherwise + " after " + milliseconds + " ms");
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    /** Checks that it throws exactly this kind of exception, or a kind of it, and returns it. */
    static <E extends Throwable> E refused(Class<E> kind, Callable<?> call, String what) {
        Object returned;
        try {
            returned = call.call();
        } catch (Throwable failure) {
            Throwable cause = failure;
            while ((cause instanceof CompletionException || cause instanceof ExecutionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (kind.isInstance(cause)) {
                return kind.cast(cause);
            }
            throw new AssertionError(what + ": failed with " + cause + ", expected " + kind.getSimpleName());
        }
        throw new AssertionError(what + ": expected " + kind.getSimpleName() + ", but it worked: " + returned);
    }
}
