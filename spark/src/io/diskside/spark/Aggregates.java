package io.diskside.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Avg;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's aggregates as a scan's, with Spark's types: those alone that have the same value to the last digit. Sums of floating-point
 * numbers depend on the order in which they are added, and Spark's NaN is the greatest number: these are left to Spark.
 *
 * @param by columns that rows are grouped by, as a scan has them
 * @param sums the aggregates as a scan has them
 * @param schema the columns of the result
 */
record Aggregates(String by, String sums, StructType schema) {
    /** How columns of aggregates are called, with a number behind it. */
    static final String NAME = "diskside aggregate ";
    /** How columns of means are called: each is made of a sum and a number. */
    static final String MEAN = "diskside mean ";
    private static final int KEYS_MAX = 8;
    private static final int DIGITS_MAX = 38;
    /** Digits that a sum of decimals has more than they have. */
    private static final int SUM_DIGITS = 10;
    /** Digits that a mean of decimals has more, all of them behind the point. */
    private static final int MEAN_DIGITS = 4;
    private static final int DOUBLE_BITS = 53;

    /** One aggregate: its text, and its type in Spark. */
    private record One(String text, DataType type) {}

    /** Empty: a scan does not do all of them. */
    static Optional<Aggregates> of(Aggregation wanted, Map<String, Column> columns, OptionalLong rows) {
        Expressions expressions = new Expressions(columns);
        StructType schema = new StructType();
        List<String> keys = new ArrayList<>();
        for (Expression key : wanted.groupByExpressions()) {
            Optional<Column> column = expressions.column(key).filter(of -> of.kind().isOrdered());
            if (column.isEmpty() || keys.contains(column.get().quoted())) {
                return Optional.empty();
            }
            keys.add(column.get().quoted());
            schema = schema.add(column.get().name(), column.get().type(), true);
        }
        List<String> sums = new ArrayList<>();
        for (AggregateFunc function : wanted.aggregateExpressions()) {
            Optional<One> one = one(function, expressions, rows);
            if (one.isEmpty()) {
                return Optional.empty();
            }
            String name = (function instanceof Avg ? MEAN : NAME) + sums.size();
            sums.add(one.get().text() + " as " + Column.quoted(name));
            schema = schema.add(name, one.get().type(), true);
            if (function instanceof Avg avg) {
                sums.add("count(" + expressions.column(avg.column()).orElseThrow().quoted() + ") as " + Column.quoted(NAME + sums.size()));
            }
        }
        if (keys.size() > KEYS_MAX || (keys.isEmpty() && sums.isEmpty())) {
            return Optional.empty();
        }
        return Optional.of(new Aggregates(String.join(", ", keys), String.join(", ", sums), schema));
    }

    private static Optional<One> one(AggregateFunc function, Expressions expressions, OptionalLong rows) {
        if (function instanceof CountStar) {
            return Optional.of(new One("count(*)", DataTypes.LongType));
        }
        if (function instanceof Count count && !count.isDistinct()) {
            return expressions.column(count.column()).filter(of -> of.kind() != Column.Kind.OTHER)
                    .map(of -> new One("count(" + of.quoted() + ")", DataTypes.LongType));
        }
        if (function instanceof Sum sum && !sum.isDistinct()) {
            return expressions.value(sum.column()).flatMap(Aggregates::sum);
        }
        if (function instanceof Avg avg && !avg.isDistinct()) {
            return expressions.column(avg.column()).flatMap(column -> mean(column, rows));
        }
        if (function instanceof Min min) {
            return extreme("min", min.column(), expressions);
        }
        if (function instanceof Max max) {
            return extreme("max", max.column(), expressions);
        }
        return Optional.empty();
    }

    private static Optional<One> sum(Expressions.Value value) {
        // A scan sums up whole numbers in 64 bits with a sign, which few unsigned ones of 64 bits exceed.
        if (value.kind() == Column.Kind.INTEGER && value.type() instanceof DecimalType) {
            return Optional.empty();
        }
        if (value.type() instanceof DecimalType decimal) {
            int precision = Math.min(DIGITS_MAX, decimal.precision() + SUM_DIGITS);
            return Optional.of(new One("sum(" + value.text() + ")", DataTypes.createDecimalType(precision, decimal.scale())));
        }
        if (value.kind() != Column.Kind.INTEGER) {
            return Optional.empty();
        }
        // A scan refuses a sum of more than 64 bits, and Spark may wrap it: with a digit behind the point there is room.
        return Optional.of(new One("sum(" + value.text() + " * 1.0)", DataTypes.LongType));
    }

    /** The sum; the number of values follows it. Spark adds whole numbers as floating-point ones: both have the same sum up to 53 bits. */
    private static Optional<One> mean(Column of, OptionalLong rows) {
        String text = "sum(" + of.quoted() + ")";
        if (of.kind() == Column.Kind.DECIMAL && of.type() instanceof DecimalType decimal) {
            int precision = Math.min(DIGITS_MAX, decimal.precision() + MEAN_DIGITS);
            boolean isWhole = decimal.precision() + MEAN_DIGITS <= DIGITS_MAX;
            DataType type = DataTypes.createDecimalType(precision, decimal.scale() + MEAN_DIGITS);
            return isWhole ? Optional.of(new One(text, type)) : Optional.empty();
        }
        int bits = of.type().defaultSize() * Byte.SIZE - 1;
        boolean isSame = of.kind() == Column.Kind.INTEGER && bits < DOUBLE_BITS && rows.isPresent()
                && rows.getAsLong() < 1L << (DOUBLE_BITS - bits);
        return isSame ? Optional.of(new One(text, DataTypes.DoubleType)) : Optional.empty();
    }

    private static Optional<One> extreme(String which, Expression of, Expressions expressions) {
        return expressions.column(of).filter(column -> column.kind().isExact() || column.kind() == Column.Kind.TEXT)
                .map(column -> new One(which + "(" + column.quoted() + ")", column.type()));
    }
}
