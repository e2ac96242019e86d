package io.diskside.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** Numbers of scans that Spark shows with a query, each of them from the report of the command. */
public final class Metrics {
    private Metrics() {}

    static CustomMetric[] all() {
        return new CustomMetric[] {new ReceivedBytes(), new DecodedRows(), new PrunedRowGroups(), new PartsAtServer()};
    }

    static CustomTaskMetric[] none() {
        return new CustomTaskMetric[0];
    }

    static CustomTaskMetric[] of(JsonNode report) {
        Value[] values = {
            new Value(ReceivedBytes.NAME, report.path("received_bytes").asLong()),
            new Value(DecodedRows.NAME, report.path("rows_read").asLong()),
            new Value(PrunedRowGroups.NAME, report.path("row_groups_pruned").asLong()),
            new Value(PartsAtServer.NAME, report.path("side").asText().equals("device") ? 1 : 0),
        };
        return Arrays.copyOf(values, values.length, CustomTaskMetric[].class);
    }

    private record Value(String name, long value) implements CustomTaskMetric {}

    /** Spark makes these by their class: they need a constructor without arguments that everybody may call. */
    public static final class ReceivedBytes extends CustomSumMetric {
        static final String NAME = "receivedBytes";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String description() {
            return "bytes that servers sent";
        }
    }

    /** See {@link ReceivedBytes}. */
    public static final class DecodedRows extends CustomSumMetric {
        static final String NAME = "decodedRows";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String description() {
            return "rows that scans decoded";
        }
    }

    /** See {@link ReceivedBytes}. */
    public static final class PrunedRowGroups extends CustomSumMetric {
        static final String NAME = "prunedRowGroups";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String description() {
            return "row groups that statistics ruled out";
        }
    }

    /** See {@link ReceivedBytes}. */
    public static final class PartsAtServer extends CustomSumMetric {
        static final String NAME = "partsAtServer";

        @Override
        public String name() {
            return NAME;
        }

        @Override
        public String description() {
            return "parts that a server scanned";
        }
    }
}
