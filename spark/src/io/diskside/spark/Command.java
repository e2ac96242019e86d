package io.diskside.spark;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** A command {@code diskside scan} under way. Closing it ends the process, whatever it does. */
final class Command implements AutoCloseable {
    /** A longer message of the command is cut. */
    private static final int MESSAGE_BYTES_MAX = 8 << 10;
    /** A command that is told to end has so long before it is killed. */
    private static final long END_MS = 2000;
    private static final long LOOK_MS = 50;

    private final Process process;
    private final Thread watch;
    private final ByteArrayOutputStream message = new ByteArrayOutputStream();

    /** Starts {@code diskside scan WORDS}; it ends once {@code isUnwanted} says so. */
    Command(Options options, List<String> words, BooleanSupplier isUnwanted) throws IOException {
        List<String> all = new ArrayList<>(List.of(options.program(), "scan"));
        all.addAll(words);
        for (String word : all) {
            if (word.indexOf('\0') >= 0) {
                throw new IOException("a name or a value with a NUL cannot be scanned for: " + word.replace('\0', '?'));
            }
        }
        try {
            process = new ProcessBuilder(all).start();
        } catch (IOException error) {
            throw new IOException("cannot start " + all.get(0) + ": " + error.getMessage(), error);
        }
        process.getOutputStream().close();
        watch = new Thread(() -> watch(isUnwanted), "diskside-scan");
        watch.setDaemon(true);
        watch.start();
    }

    /** Runs a command to its end, and gives what it printed. */
    static byte[] output(Options options, List<String> words) throws IOException {
        try (Command command = new Command(options, words, () -> false)) {
            byte[] printed = command.stream().readAllBytes();
            command.finish();
            return printed;
        }
    }

    InputStream stream() {
        return process.getInputStream();
    }

    /** Waits for the end, after the output was read to its own. A command that failed says why. */
    void finish() throws IOException {
        try {
            int status = process.waitFor();
            watch.join();
            if (status != 0) {
                throw new IOException(failure(status));
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted while a scan ended", interrupted);
        }
    }

    /** Why its output is broken: the command says more, if it failed. One that still writes has not. */
    IOException failed(IOException broken) {
        try {
            if (process.waitFor(END_MS, TimeUnit.MILLISECONDS) && process.exitValue() != 0) {
                watch.join();
                return new IOException(failure(process.exitValue()), broken);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        return broken;
    }

    private String failure(int status) {
        String said = message.toString(StandardCharsets.UTF_8).strip();
        return said.isEmpty() ? "diskside scan ended with status " + status + " and no message" : said;
    }

    @Override
    public void close() {
        end();
        boolean interrupted = false;
        try {
            if (!process.waitFor(END_MS, TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
            }
            watch.join(END_MS);
        } catch (InterruptedException again) {
            process.destroyForcibly();
            interrupted = true;
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void end() {
        process.destroy();
        try {
            // The rest of its output is not read, and it must not wait for a reader.
            process.getInputStream().close();
        } catch (IOException ignored) {
            // It is closed.
        }
    }

    /** Keeps what the command says of its failure, and ends it where its task is killed: a read of its output cannot be interrupted. */
    private void watch(BooleanSupplier isUnwanted) {
        InputStream said = process.getErrorStream();
        byte[] buffer = new byte[4096];
        try {
            while (process.isAlive()) {
                while (said.available() > 0) {
                    keep(buffer, said.read(buffer));
                }
                if (isUnwanted.getAsBoolean()) {
                    process.destroy();
                }
                process.waitFor(LOOK_MS, TimeUnit.MILLISECONDS);
            }
            while (said.available() > 0) {
                keep(buffer, said.read(buffer));
            }
        } catch (IOException | InterruptedException ended) {
            // There is nothing more to be kept.
        }
    }

    private void keep(byte[] buffer, int count) {
        int room = MESSAGE_BYTES_MAX - message.size();
        if (count > 0 && room > 0) {
            message.write(buffer, 0, Math.min(count, room));
        }
    }
}
