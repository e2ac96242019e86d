package io.diskside.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/** The files that a URL means now. */
record Listing(List<OneFile> files, boolean isOneFile) {
    static final ObjectMapper JSON = new ObjectMapper();

    /** A file, with a version that others of its contents do not have; null of a volume, which has none. */
    record OneFile(String name, long sizeBytes, String version) implements Serializable {}

    static Listing of(Options options) {
        try {
            List<String> words = new ArrayList<>(options.format());
            words.addAll(List.of("--list", "--", options.path()));
            JsonNode printed = JSON.readTree(Command.output(options, words));
            List<OneFile> files = new ArrayList<>();
            for (JsonNode file : printed.get("files")) {
                JsonNode version = file.get("version");
                String known = version.isNull() ? null : version.asText();
                files.add(new OneFile(file.get("file").asText(), file.get("size_bytes").asLong(), known));
            }
            return new Listing(List.copyOf(files), printed.get("is_one_file").asBoolean());
        } catch (IOException error) {
            throw new IllegalStateException(error.getMessage(), error);
        }
    }

    long sizeBytes() {
        return files.stream().mapToLong(OneFile::sizeBytes).sum();
    }
}
