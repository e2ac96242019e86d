package io.diskside.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The rows of a part, as a command of its own sends them. */
final class PartReader implements PartitionReader<ColumnarBatch> {
    private static final int BUFFER_BYTES = 256 << 10;

    private final DisksideScan.Readers readers;
    private final Part part;
    private BufferAllocator memory;
    private Command command;
    private BufferedInputStream stream;
    private ArrowStreamReader reader;
    private ColumnVector[] columns;
    private ColumnarBatch batch;
    private boolean isOver;
    private CustomTaskMetric[] metrics = Metrics.none();

    PartReader(DisksideScan.Readers readers, Part part) {
        this.readers = readers;
        this.part = part;
    }

    @Override
    public boolean next() throws IOException {
        if (isOver) {
            return false;
        }
        if (reader == null) {
            begin();
        }
        return advance();
    }

    private boolean advance() throws IOException {
        boolean isMore;
        try {
            isMore = reader.loadNextBatch();
        } catch (IOException broken) {
            throw command.failed(broken);
        }
        if (columns == null) {
            columns = columns(reader.getVectorSchemaRoot());
        }
        if (!isMore) {
            finish();
            return false;
        }
        batch = new ColumnarBatch(columns, reader.getVectorSchemaRoot().getRowCount());
        return true;
    }

    private void begin() throws IOException {
        TaskContext task = TaskContext.get();
        List<String> words = new ArrayList<>(readers.words());
        if (!readers.columns().isEmpty()) {
            List<String> sent = readers.columns();
            if (readers.mayLackColumns()) {
                Set<String> there = columnsOfPart();
                sent = sent.stream().filter(there::contains).toList();
                // Rows are counted by any column.
                sent = sent.isEmpty() ? List.of(there.iterator().next()) : sent;
            }
            words.addAll(List.of("--columns", listed(sent)));
        }
        words.addAll(List.of("--place", readers.options().place(), "--format", "arrow", "--out", "-", "--json"));
        part.addTo(words);
        command = new Command(readers.options(), words, () -> task != null && task.isInterrupted());
        memory = ArrowUtils.rootAllocator().newChildAllocator("diskside scan", 0, Long.MAX_VALUE);
        stream = new BufferedInputStream(command.stream(), BUFFER_BYTES);
        reader = new ArrowStreamReader(stream, memory);
    }

    /** Names as {@code --columns} takes them. */
    static String listed(List<String> names) {
        return String.join(",", names.stream().map(Column::quoted).toList());
    }

    private Set<String> columnsOfPart() throws IOException {
        List<String> words = new ArrayList<>(readers.options().format());
        words.addAll(List.of("--limit", "0", "--format", "arrow"));
        part.addTo(words);
        Set<String> names = new LinkedHashSet<>();
        try (Command asked = new Command(readers.options(), words, () -> false)) {
            DisksideTable.fieldsOf(asked).forEach(field -> names.add(field.getName()));
        }
        return names;
    }

    /** The columns that Spark wants, in its order: those of a result have the same order, and may be followed by others. */
    private ColumnVector[] columns(VectorSchemaRoot root) throws IOException {
        List<ColumnVector> found = new ArrayList<>();
        int at = 0;
        for (StructField wanted : readers.schema().fields()) {
            FieldVector vector = at < root.getFieldVectors().size() ? root.getVector(at) : null;
            if (readers.mayLackColumns() && (vector == null || !vector.getName().equals(wanted.name()))) {
                found.add(Vectors.nulls(wanted.dataType()));
                continue;
            }
            if (wanted.name().startsWith(Aggregates.MEAN) && readers.columns().isEmpty()) {
                found.add(Vectors.mean(wanted.dataType(), vector, root.getVector(at + 1)));
                at += 2;
                continue;
            }
            check(wanted, vector);
            found.add(Vectors.of(wanted.dataType(), vector, readers.wraps()));
            at++;
        }
        return found.toArray(ColumnVector[]::new);
    }

    private void check(StructField wanted, FieldVector vector) throws IOException {
        DataType type = Column.typeOf(vector.getField());
        boolean isSum = readers.columns().isEmpty() && wanted.name().startsWith(Aggregates.NAME);
        if (!isSum && (!type.equals(wanted.dataType()) || !vector.getName().equals(wanted.name()))) {
            throw new IOException(part.files().get(0).name() + ": column `" + wanted.name() + "` is " + wanted.dataType().sql()
                    + " in the table, and `" + vector.getName() + "` " + type.sql() + " in the files that are read: load the table again");
        }
    }

    /** That a file changed meanwhile, or that the rest could not be read, is known only now. */
    private void finish() throws IOException {
        isOver = true;
        byte[] report = stream.readAllBytes();
        command.finish();
        JsonNode told = Listing.JSON.readTree(report);
        metrics = Metrics.of(told);
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return metrics;
    }

    @Override
    public void close() throws IOException {
        isOver = true;
        release();
    }

    private void release() throws IOException {
        columns = null;
        if (command != null) {
            command.close();
        }
        if (reader != null) {
            reader.close(false);
            memory.close();
            reader = null;
        }
    }
}
