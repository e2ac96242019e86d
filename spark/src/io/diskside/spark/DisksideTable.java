package io.diskside.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The files of one {@code load()}. Columns are those that the files had then; which files there are is looked up for each query. */
final class DisksideTable implements SupportsRead {
    /** Footers of more files are not read for the number of rows. */
    private static final int COUNTED_FILES_MAX = 64;

    private final Options options;
    private final Map<String, Column> columns;
    /** The files that had these columns when they were looked at last. */
    private Listing looked;
    private State known;

    /** Numbers of files that did not change since they were asked for. */
    private record State(Listing listing, int rowGroups, OptionalLong rows) {}

    private DisksideTable(Options options, Map<String, Column> columns, Listing looked) {
        this.options = options;
        this.columns = columns;
        this.looked = looked;
    }

    /** Asks for the columns of files; none of their rows is read. */
    static DisksideTable load(Options options) {
        // First which files there are: those that come later are looked at again.
        Listing listing = Listing.of(options);
        return new DisksideTable(options, columnsOf(options), listing);
    }

    private static Map<String, Column> columnsOf(Options options) {
        List<String> words = new ArrayList<>(options.format());
        if (options.columns() != null) {
            words.addAll(List.of("--columns", options.columns()));
        }
        words.addAll(List.of("--limit", "0", "--format", "arrow", "--", options.path()));
        Map<String, Column> columns = new LinkedHashMap<>();
        try (Command command = new Command(options, words, () -> false)) {
            for (Field field : fieldsOf(command)) {
                if (columns.put(field.getName(), Column.of(field)) != null) {
                    throw new IllegalArgumentException(options.path() + ": several columns are called `" + field.getName() + "`");
                }
            }
        } catch (IOException error) {
            throw new IllegalArgumentException(error.getMessage(), error);
        }
        return columns;
    }

    /** The columns of a stream without rows. */
    static List<Field> fieldsOf(Command command) throws IOException {
        try (BufferAllocator memory = ArrowUtils.rootAllocator().newChildAllocator("diskside columns", 0, Long.MAX_VALUE);
                ArrowStreamReader reader = new ArrowStreamReader(command.stream(), memory)) {
            List<Field> fields;
            try {
                fields = reader.getVectorSchemaRoot().getSchema().getFields();
            } catch (IOException error) {
                throw command.failed(error);
            }
            command.stream().readAllBytes();
            command.finish();
            return fields;
        }
    }

    /** Says the types of columns that directories are: those of a part alone may look like others. */
    void addTypesOfDirectories(List<String> words, Listing listing) {
        int at = words.indexOf("--types");
        String given = at < 0 ? "" : words.get(at + 1);
        List<String> types = new ArrayList<>();
        String path = listing.files().get(0).name();
        for (String directory : path.substring(0, path.lastIndexOf('/') + 1).split("/")) {
            Column column = columns.get(directory.contains("=") ? directory.substring(0, directory.indexOf('=')) : "");
            if (column == null || given.contains(column.name())) {
                continue;
            }
            String type = switch (column.kind()) {
                case INTEGER -> "integer";
                case DATE -> "date";
                default -> "text";
            };
            types.add(column.quoted() + " " + type);
        }
        if (types.isEmpty()) {
            return;
        }
        String all = String.join(", ", types);
        if (at < 0) {
            words.addAll(0, List.of("--types", all));
        } else {
            words.set(at + 1, given + ", " + all);
        }
    }

    Options options() {
        return options;
    }

    Map<String, Column> columnsByName() {
        return columns;
    }

    @Override
    public String name() {
        return options.path();
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
        StructType schema = new StructType();
        for (Column column : columns.values()) {
            schema = schema.add(column.name(), column.type(), true);
        }
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
        State now = look();
        return new DisksideScanBuilder(this, now.listing(), Part.of(now.listing(), options.targetBytes(), now.rowGroups()), now.rowGroups(), now.rows());
    }

    /** The files as they are now. */
    private synchronized State look() {
        Listing listing = Listing.of(options);
        boolean hasVersions = listing.files().stream().allMatch(file -> file.version() != null);
        if (known != null && hasVersions && known.listing().equals(listing)) {
            return known;
        }
        if (!hasVersions || !looked.equals(listing)) {
            checkColumns();
            looked = listing;
        }
        int rowGroups = 1;
        OptionalLong rows = OptionalLong.empty();
        if (options.isParquet() && listing.files().size() <= COUNTED_FILES_MAX) {
            JsonNode counted = report(List.of("--aggregate", "count(*)"));
            rowGroups = counted.get("row_groups").asInt(1);
            rows = OptionalLong.of(counted.get("rows_read").asLong());
        }
        known = new State(listing, rowGroups, rows);
        return known;
    }

    /** That columns have the types that they had. Spark was told of these, and takes sums of others for sums of them. */
    private void checkColumns() {
        Map<String, Column> now = columnsOf(options);
        for (Column was : columns.values()) {
            Column is = now.get(was.name());
            if (is != null && !is.type().equals(was.type())) {
                throw new IllegalStateException(options.path() + ": column `" + was.name() + "` was " + was.type().sql()
                        + " when the table was loaded, and is " + is.type().sql() + " now: its files were replaced; load the table again");
            }
        }
    }

    /** How a scan of all files went, the result of which is of no use. */
    JsonNode report(List<String> what) {
        List<String> words = new ArrayList<>(options.format());
        words.addAll(what);
        words.addAll(List.of("--format", "csv", "--out", "/dev/null", "--json", "--", options.path()));
        try {
            return Listing.JSON.readTree(Command.output(options, words));
        } catch (IOException error) {
            throw new IllegalStateException(error.getMessage(), error);
        }
    }
}
