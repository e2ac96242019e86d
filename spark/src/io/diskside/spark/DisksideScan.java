package io.diskside.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.function.BooleanSupplier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** A scan of files, in parts. */
final class DisksideScan implements SupportsReportStatistics, SupportsRuntimeV2Filtering, Batch {
    /** Bytes that Spark takes a row for, besides its values. */
    private static final int ROW_BYTES = 8;

    private final DisksideTable table;
    private final StructType schema;
    private final List<String> words;
    private final List<Part> parts;
    private final List<String> columns;
    private final Listing listing;
    private final OptionalLong rows;
    private final BooleanSupplier takesKeys;
    private NamedReference[] keyColumns;
    /**
     * The keys that Spark told since the query runs, until it asks for the parts, which it does next. A plan may have the scan in two places,
     * with keys in one of them: the other one asks on its own.
     */
    private final ThreadLocal<String> keys = new ThreadLocal<>();

    DisksideScan(
            DisksideTable table,
            StructType schema,
            List<String> words,
            List<String> columns,
            List<Part> parts,
            Listing listing,
            OptionalLong rows,
            BooleanSupplier takesKeys) {
        this.table = table;
        this.schema = schema;
        this.words = words;
        this.parts = parts;
        this.columns = columns;
        this.listing = listing;
        this.rows = rows;
        this.takesKeys = takesKeys;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    /** Shown by {@code explain()}: the command without its files. */
    @Override
    public String description() {
        StringBuilder text = new StringBuilder("diskside scan ").append(table.name());
        List<String> shown = new ArrayList<>(words);
        if (!columns.isEmpty()) {
            shown.addAll(List.of("--columns", PartReader.listed(columns)));
        }
        for (String word : shown) {
            text.append(' ').append(word.matches("[-\\w.,*]+") ? word : "'" + word.replace("'", "'\\''") + "'");
        }
        return text.append(" --place ").append(table.options().place()).append(", parts: ").append(parts.size()).toString();
    }

    /** Two scans of the same rows are read once: Spark compares them. */
    @Override
    public boolean equals(Object other) {
        return other instanceof DisksideScan scan
                && table.options().equals(scan.table.options())
                && schema.equals(scan.schema)
                && words.equals(scan.words)
                && columns.equals(scan.columns)
                && parts.equals(scan.parts);
    }

    @Override
    public int hashCode() {
        return Objects.hash(schema, words, columns, parts);
    }

    /** The rows of the files are counted: how many fulfil the conditions is not known. Groups are few. */
    @Override
    public Statistics estimateStatistics() {
        long rowBytes = ROW_BYTES;
        for (StructField field : schema.fields()) {
            rowBytes += field.dataType().defaultSize();
        }
        long allBytes = ROW_BYTES;
        for (Column column : table.columnsByName().values()) {
            allBytes += column.type().defaultSize();
        }
        double share = (double) rowBytes / allBytes;
        long size;
        if (columns.isEmpty()) {
            size = DisksideScanBuilder.GROUPS_MAX * rowBytes;
        } else if (rows.isPresent()) {
            size = saturatedProduct(rows.getAsLong(), rowBytes);
        } else {
            size = (long) (listing.sizeBytes() * share);
        }
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(Math.max(1, size));
            }

            @Override
            public OptionalLong numRows() {
                return rows;
            }
        };
    }

    private static long saturatedProduct(long a, long b) {
        return a > Long.MAX_VALUE / b ? Long.MAX_VALUE : a * b;
    }

    /** Columns by whose values the other side of a join may prune this one. Of a small table Spark makes the other side's keys. */
    @Override
    public NamedReference[] filterAttributes() {
        if (keyColumns == null) {
            boolean isSmall = estimateStatistics().sizeInBytes().getAsLong() <= SQLConf.get().autoBroadcastJoinThreshold();
            keyColumns = isSmall || !takesKeys.getAsBoolean() ? new NamedReference[0] : columnsOfKeys();
        }
        return keyColumns;
    }

    private NamedReference[] columnsOfKeys() {
        return Arrays.stream(schema.fieldNames())
                .filter(name -> table.columnsByName().get(name).kind().isKey())
                .map(FieldReference::column)
                .toArray(NamedReference[]::new);
    }

    @Override
    public void filter(Predicate[] predicates) {
        keys.set(new Conditions(table.columnsByName()).ofKeys(List.of(predicates)).orElse(null));
    }

    @Override
    public Batch toBatch() {
        String condition = keys.get();
        keys.remove();
        return condition == null ? this : new OfKeys(condition);
    }

    /** The scan, of the rows with some keys. */
    private final class OfKeys implements Batch {
        private final String condition;

        OfKeys(String condition) {
            this.condition = condition;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return parts.stream().map(part -> part.where(condition)).toArray(InputPartition[]::new);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return DisksideScan.this.createReaderFactory();
        }
    }

    @Override
    public InputPartition[] planInputPartitions() {
        return parts.toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        boolean mayLackColumns = !listing.isOneFile() && parts.size() > 1;
        ArrayList<String> said = new ArrayList<>(words);
        if (mayLackColumns) {
            table.addTypesOfDirectories(said, listing);
        }
        return new Readers(table.options(), said, new ArrayList<>(columns), schema, mayLackColumns, !SQLConf.get().ansiEnabled());
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return Metrics.all();
    }

    /** Makes the readers of parts, on the executors. */
    record Readers(
            Options options, ArrayList<String> words, ArrayList<String> columns, StructType schema, boolean mayLackColumns, boolean wraps)
            implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition part) {
            throw new UnsupportedOperationException("rows come in batches");
        }

        @Override
        public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition part) {
            return new PartReader(this, (Part) part);
        }

        @Override
        public boolean supportColumnarReads(InputPartition part) {
            return true;
        }
    }
}
