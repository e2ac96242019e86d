package io.diskside.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * A partition: files, or row groups of one file.
 *
 * @param rowGroups the range as {@code FIRST..END}; null of all
 * @param keys a condition that is known since the query runs; null without one
 * @param isOneFile whether the URL names one file, whose directories are no columns
 */
record Part(List<Listing.OneFile> files, String rowGroups, boolean isOneFile, String keys) implements InputPartition {

    /** Parts of about so many bytes, in the order of the files. A Parquet file that is named alone is cut between its row groups. */
    static List<Part> of(Listing listing, long targetBytes, int rowGroups) {
        List<Listing.OneFile> files = listing.files();
        if (listing.isOneFile()) {
            long wanted = (listing.sizeBytes() - 1) / targetBytes + 1;
            int count = (int) Math.max(1, Math.min(wanted, rowGroups));
            if (count == 1) {
                return List.of(whole(listing));
            }
            List<Part> parts = new ArrayList<>();
            for (int at = 0; at < count; at++) {
                long first = (long) rowGroups * at / count;
                long end = (long) rowGroups * (at + 1) / count;
                parts.add(new Part(files, first + ".." + end, true, null));
            }
            return parts;
        }
        List<Part> parts = new ArrayList<>();
        int begun = 0;
        long bytes = 0;
        for (int at = 0; at < files.size(); at++) {
            bytes += files.get(at).sizeBytes();
            boolean isFull = bytes >= targetBytes || at + 1 - begun == FILES_MAX;
            if (isFull || at + 1 == files.size()) {
                parts.add(new Part(List.copyOf(files.subList(begun, at + 1)), null, false, null));
                begun = at + 1;
                bytes = 0;
            }
        }
        return parts;
    }

    /** All files. */
    static Part whole(Listing listing) {
        return new Part(listing.files(), null, listing.isOneFile(), null);
    }

    Part where(String condition) {
        return new Part(files, rowGroups, isOneFile, condition);
    }

    /** The names of a part's files are arguments of a command, which have room for so many. */
    private static final int FILES_MAX = 512;

    /** The words that say which rows, of which files and which versions of them. */
    void addTo(List<String> words) {
        if (keys != null) {
            int at = words.indexOf("--where");
            if (at < 0) {
                words.addAll(List.of("--where", keys));
            } else {
                words.set(at + 1, words.get(at + 1) + " and " + keys);
            }
        }
        if (rowGroups != null) {
            words.addAll(List.of("--row-groups", rowGroups));
        }
        List<Listing.OneFile> named = new ArrayList<>(files);
        if (files.size() == 1 && !isOneFile) {
            // The directories of one file that is named alone are no columns; those of one that is named twice are.
            named.add(files.get(0));
        }
        if (named.stream().allMatch(file -> file.version() != null)) {
            words.add("--versions");
            words.add(String.join(",", named.stream().map(Listing.OneFile::version).toList()));
        }
        words.add("--");
        named.forEach(file -> words.add(file.name()));
    }
}
