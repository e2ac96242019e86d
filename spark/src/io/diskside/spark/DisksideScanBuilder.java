package io.diskside.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.BooleanSupplier;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Avg;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The part of a query that a scan does. Spark makes one for each use of a table, and tells it the filters, then the aggregates, then the
 * limits.
 */
final class DisksideScanBuilder
        implements SupportsPushDownV2Filters,
                SupportsPushDownAggregates,
                SupportsPushDownLimit,
                SupportsPushDownTopN,
                SupportsPushDownRequiredColumns {
    /** Rows that a scan sorts. */
    private static final int ORDERED_ROWS_MAX = 64 << 10;
    private static final int ORDER_COLUMNS_MAX = 8;
    /** Groups of a row group, by which it is guessed whether all of them are few. */
    static final long GROUPS_MAX = 4096;
    private static final long GROUP_ROWS_MIN = 8;
    /** Rows of which one in so many is wanted anyway are few: their scan need not wait until the keys of another table are known. */
    private static final long FEW = 8;
    /** Bytes of all conditions: one word of a command has room for twice as many, of which keys of a join take the rest. */
    private static final int CONDITIONS_LEN_MAX = 64 << 10;
    private static final int PARENTHESES_AND_LEN = 7;

    private final DisksideTable table;
    private final Listing listing;
    private final List<Part> parts;
    private final int rowGroups;
    private final OptionalLong rows;
    private final List<String> conditions = new ArrayList<>();
    private final List<Predicate> pushed = new ArrayList<>();
    private final Set<String> knownColumns = new HashSet<>();
    private boolean isFiltered;
    private boolean hasMeans;
    private boolean isRefused;
    private StructType wanted;
    private Aggregates aggregates;
    private String order;
    private SortOrder[] orderedBy = new SortOrder[0];
    private Integer limit;

    DisksideScanBuilder(DisksideTable table, Listing listing, List<Part> parts, int rowGroups, OptionalLong rows) {
        this.table = table;
        this.listing = listing;
        this.parts = parts;
        this.rowGroups = rowGroups;
        this.rows = rows;
        this.wanted = table.schema();
    }

    /** Files of several parts may lack a column: then the conditions on it are Spark's, as are all others. */
    private boolean isUniform() {
        return listing.isOneFile() || parts.size() == 1;
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        Conditions translate = new Conditions(table.columnsByName());
        List<Predicate> left = new ArrayList<>();
        int length = table.options().where() == null ? 0 : Conditions.lengthOf(table.options().where());
        for (Predicate predicate : predicates) {
            Optional<String> condition = isUniform() ? translate.of(predicate) : Optional.empty();
            length += condition.map(text -> Conditions.lengthOf(text) + PARENTHESES_AND_LEN).orElse(0);
            if (condition.isEmpty() || length > CONDITIONS_LEN_MAX) {
                left.add(predicate);
                continue;
            }
            conditions.add(condition.get());
            pushed.add(predicate);
            if (predicate.name().equals("IS_NOT_NULL")) {
                new Expressions(table.columnsByName()).column(predicate.children()[0]).ifPresent(column -> knownColumns.add(column.name()));
            }
        }
        isFiltered = !left.isEmpty();
        return left.toArray(Predicate[]::new);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed.toArray(Predicate[]::new);
    }

    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
        hasMeans = Arrays.stream(aggregation.aggregateExpressions()).anyMatch(function -> function instanceof Avg);
        if (!hasMeans) {
            return parts.size() == 1;
        }
        // Spark would make a sum and a number of a mean, in types that hold no large ones: all rows are one part then.
        isRefused = Aggregates.of(aggregation, table.columnsByName(), rows).isEmpty();
        return !isRefused;
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        if (!table.options().aggregates() || isFiltered || isRefused || !isUniform()) {
            return false;
        }
        Optional<Aggregates> found = Aggregates.of(aggregation, table.columnsByName(), rows);
        if (found.isEmpty() || (!found.get().by().isEmpty() && !hasFewGroups(found.get()))) {
            return false;
        }
        aggregates = found.get();
        return true;
    }

    /** A server has little memory for groups, and many of them are no shorter than their rows. */
    private boolean hasFewGroups(Aggregates of) {
        if (!listing.isOneFile()) {
            return false;
        }
        List<String> words = new ArrayList<>(List.of("--by", of.by(), "--aggregate", "count(*)"));
        words.addAll(where());
        words.addAll(List.of("--limit", String.valueOf(GROUPS_MAX + 1)));
        Sample sample = Sample.of(table.options(), rowGroups, words);
        boolean areFew = sample.resultRows() <= GROUPS_MAX && sample.resultRows() * GROUP_ROWS_MIN <= sample.selectedRows();
        return areFew && sample.selectedRows() > 0;
    }

    private boolean hasFewRows() {
        boolean isNarrowed = table.options().where() != null || pushed.stream().anyMatch(one -> !one.name().equals("IS_NOT_NULL"));
        if (!isNarrowed || !listing.isOneFile()) {
            return false;
        }
        List<String> words = new ArrayList<>(List.of("--aggregate", "count(*)"));
        words.addAll(where());
        Sample sample;
        try {
            sample = Sample.of(table.options(), rowGroups, words);
        } catch (IllegalStateException failure) {
            // The scan itself says so, if there is one.
            return false;
        }
        return sample.readRows() > 0 && sample.selectedRows() * FEW <= sample.readRows();
    }

    @Override
    public boolean pushLimit(int limit) {
        if (isFiltered || aggregates != null) {
            return false;
        }
        this.limit = limit;
        return true;
    }

    @Override
    public boolean pushTopN(SortOrder[] orders, int limit) {
        if (isFiltered || aggregates != null || !isUniform() || limit > ORDERED_ROWS_MAX || orders.length > ORDER_COLUMNS_MAX) {
            return false;
        }
        Expressions expressions = new Expressions(table.columnsByName());
        List<String> texts = new ArrayList<>();
        for (SortOrder one : orders) {
            Optional<Column> column = expressions.column(one.expression());
            if (column.isEmpty() || !column.get().kind().isOrdered()) {
                return false;
            }
            // A scan has NULL last: it is the same where there is none.
            if (one.nullOrdering() != NullOrdering.NULLS_LAST && !knownColumns.contains(column.get().name())) {
                return false;
            }
            texts.add(column.get().quoted() + (one.direction() == SortDirection.DESCENDING ? " desc" : " asc"));
        }
        order = String.join(", ", texts);
        orderedBy = orders;
        this.limit = limit;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true;
    }

    @Override
    public void pruneColumns(StructType required) {
        StructType kept = new StructType();
        for (StructField field : required.fields()) {
            Column column = table.columnsByName().get(field.name());
            kept = kept.add(column.name(), column.type(), true);
        }
        wanted = kept;
    }

    private List<String> where() {
        List<String> all = new ArrayList<>(conditions);
        if (table.options().where() != null) {
            all.add(0, table.options().where());
        }
        if (all.isEmpty()) {
            return List.of();
        }
        return List.of("--where", String.join(" and ", all.stream().map(one -> "(" + one + ")").toList()));
    }

    @Override
    public Scan build() {
        List<String> words = new ArrayList<>(table.options().format());
        words.addAll(where());
        StructType schema = aggregates == null ? wanted : aggregates.schema();
        if (aggregates != null) {
            if (!aggregates.by().isEmpty()) {
                words.addAll(List.of("--by", aggregates.by()));
            }
            if (!aggregates.sums().isEmpty()) {
                words.addAll(List.of("--aggregate", aggregates.sums()));
            }
        }
        List<String> columns = aggregates == null ? columns() : List.of();
        if (order != null) {
            words.addAll(List.of("--order", order));
        }
        if (limit != null) {
            words.addAll(List.of("--limit", String.valueOf(limit)));
        }
        List<Part> read = aggregates != null && hasMeans ? List.of(Part.whole(listing)) : parts;
        BooleanSupplier takesKeys = () -> aggregates == null && limit == null && isUniform() && !hasFewRows();
        return new DisksideScan(table, schema, words, columns, read, listing, aggregates == null ? rows : OptionalLong.empty(), takesKeys);
    }

    /** Columns that go out: the wanted ones, those that are sorted by, or a narrow one by which rows are counted. */
    private List<String> columns() {
        List<String> names = new ArrayList<>(List.of(wanted.fieldNames()));
        Expressions expressions = new Expressions(table.columnsByName());
        for (SortOrder one : orderedBy) {
            String name = expressions.column(one.expression()).orElseThrow().name();
            if (!names.contains(name)) {
                names.add(name);
            }
        }
        if (names.isEmpty()) {
            Column narrowest = null;
            for (Column column : table.columnsByName().values()) {
                boolean isNarrower = narrowest == null || column.type().defaultSize() < narrowest.type().defaultSize();
                narrowest = isNarrower ? column : narrowest;
            }
            names.add(narrowest.name());
        }
        return names;
    }
}
