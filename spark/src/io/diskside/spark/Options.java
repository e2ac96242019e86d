package io.diskside.spark;

import java.io.File;
import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The options of a DataFrame, each of them checked. */
record Options(
        String path,
        String command,
        List<String> format,
        String place,
        String where,
        String columns,
        long targetBytes,
        boolean aggregates,
        boolean isParquet)
        implements Serializable {

    private static final Set<String> KNOWN = new TreeSet<>(Set.of(
            "aggregates", "columns", "command", "delimiter", "header", "input", "partitions", "place", "target", "types", "where"));
    private static final Set<String> PLACES = Set.of("auto", "host", "device");
    private static final long TARGET_BYTES = 128L << 20;
    private static final Pattern SIZE = Pattern.compile("(\\d+(?:\\.\\d+)?)\\s*([kmgt]?)(i?)b?");

    static Options of(Map<String, String> properties) {
        Map<String, String> given = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        given.putAll(properties);
        String path = given.remove("path");
        if (given.remove("paths") != null) {
            throw new IllegalArgumentException("load() takes one URL: name a directory or a pattern for several files");
        }
        if (path == null || path.isEmpty()) {
            throw new IllegalArgumentException("load() takes a URL, such as diskside://HOST/EXPORT/PATH");
        }
        for (String option : given.keySet()) {
            if (!KNOWN.contains(option.toLowerCase(Locale.ROOT))) {
                throw new IllegalArgumentException(option + ": no such option; there are " + String.join(", ", KNOWN));
            }
        }
        List<String> format = new ArrayList<>();
        for (String option : List.of("input", "delimiter", "types")) {
            if (given.containsKey(option)) {
                format.add("--" + option);
                format.add(given.get(option));
            }
        }
        if (!truth(given, "header")) {
            format.add("--no-header");
        }
        if (!truth(given, "partitions")) {
            format.add("--no-partitions");
        }
        String place = given.getOrDefault("place", "auto");
        if (!PLACES.contains(place)) {
            throw new IllegalArgumentException("place: '" + place + "' is none of auto, host and device");
        }
        String input = given.get("input");
        boolean isParquet = input == null ? path.matches("(?i).*\\.(parquet|parq|pq)") : input.equals("parquet");
        return new Options(
                path,
                command(given.get("command")),
                List.copyOf(format),
                place,
                given.get("where"),
                given.get("columns"),
                bytes(given.get("target")),
                truth(given, "aggregates"),
                isParquet);
    }

    private static boolean truth(Map<String, String> given, String option) {
        String value = given.getOrDefault(option, "true");
        if (!value.equalsIgnoreCase("true") && !value.equalsIgnoreCase("false")) {
            throw new IllegalArgumentException(option + ": '" + value + "' is neither true nor false");
        }
        return value.equalsIgnoreCase("true");
    }

    /** An executor looks by itself: null unless the option says where the command is. */
    private static String command(String given) {
        return given == null || given.isEmpty() ? null : given;
    }

    private static long bytes(String text) {
        if (text == null) {
            return TARGET_BYTES;
        }
        Matcher found = SIZE.matcher(text.trim().toLowerCase(Locale.ROOT));
        if (found.matches()) {
            int power = "kmgt".indexOf(found.group(2)) + (found.group(2).isEmpty() ? 0 : 1);
            BigDecimal unit = BigDecimal.valueOf(found.group(3).isEmpty() ? 1000 : 1024).pow(power);
            BigDecimal size = new BigDecimal(found.group(1)).multiply(unit);
            if (size.compareTo(BigDecimal.ONE) >= 0 && size.compareTo(BigDecimal.valueOf(Long.MAX_VALUE)) <= 0) {
                return size.longValue();
            }
        }
        throw new IllegalArgumentException("target: '" + text + "' is no size; write one such as 128MiB");
    }

    /** The command on this machine: that of the option, of the environment or of PATH. */
    String program() {
        if (command != null) {
            return command;
        }
        String named = System.getenv("DISKSIDE");
        if (named != null && !named.isEmpty()) {
            return named;
        }
        String path = System.getenv("PATH");
        for (String directory : path == null ? new String[0] : path.split(File.pathSeparator)) {
            File file = new File(directory.isEmpty() ? "." : directory, "diskside");
            if (file.isFile() && file.canExecute()) {
                return file.getPath();
            }
        }
        throw new IllegalStateException("there is no command `diskside` in PATH on this machine: install it, or say where it is "
                + "by the option `command` or the environment variable DISKSIDE");
    }
}
