package io.diskside.spark;

import java.util.ArrayList;
import java.util.List;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.sql.util.ArrowUtils;

/** The numbers of a small scan: of the first row group, or of another one if statistics rule that out. */
record Sample(long resultRows, long selectedRows, long readRows) {

    static Sample of(Options options, int rowGroups, List<String> what) {
        Sample sample = ofRowGroup(options, 0, what);
        for (int at : new int[] {rowGroups - 1, rowGroups / 2}) {
            if (sample.readRows() > 0 || at <= 0) {
                break;
            }
            sample = ofRowGroup(options, at, what);
        }
        return sample;
    }

    private static Sample ofRowGroup(Options options, int at, List<String> what) {
        List<String> words = new ArrayList<>(options.format());
        words.addAll(List.of("--row-groups", at + ".." + (at + 1)));
        words.addAll(what);
        words.addAll(List.of("--place", options.place(), "--format", "arrow", "--out", "-", "--json", "--", options.path()));
        try (BufferAllocator memory = ArrowUtils.rootAllocator().newChildAllocator("diskside sample", 0, Long.MAX_VALUE)) {
            ByteArrayInputStream printed = new ByteArrayInputStream(Command.output(options, words));
            long rows = 0;
            try (ArrowStreamReader reader = new ArrowStreamReader(printed, memory)) {
                while (reader.loadNextBatch()) {
                    rows += reader.getVectorSchemaRoot().getRowCount();
                }
                JsonNode report = Listing.JSON.readTree(printed.readAllBytes());
                return new Sample(rows, report.get("rows_selected").asLong(), report.get("rows_read").asLong());
            }
        } catch (IOException error) {
            throw new IllegalStateException(error.getMessage(), error);
        }
    }
}
