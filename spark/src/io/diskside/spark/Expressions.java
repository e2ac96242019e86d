package io.diskside.spark;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;

/** Values of Spark's expressions as a scan writes them: columns, literals, and sums and products of decimals. */
final class Expressions {
    private static final int DIGITS_MAX = 38;
    private static final int DEPTH_MAX = 12;
    private static final LocalDate FIRST_DAY = LocalDate.of(1, 1, 1);
    private static final LocalDate LAST_DAY = LocalDate.of(9999, 12, 31);
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss.SSSSSS");
    private static final long SECOND_MICROS = 1_000_000L;

    private final Map<String, Column> columns;

    Expressions(Map<String, Column> columns) {
        this.columns = columns;
    }

    /** An expression as text, with its type in Spark and the kind of its values. {@code column} is the one that it is, if it is one. */
    record Value(String text, DataType type, Column.Kind kind, Column column) {}

    Optional<Column> column(Expression expression) {
        if (expression instanceof NamedReference name && name.fieldNames().length == 1) {
            return Optional.ofNullable(columns.get(name.fieldNames()[0]));
        }
        return Optional.empty();
    }

    /** A value, if a scan has the same one. */
    Optional<Value> value(Expression expression) {
        return value(expression, 0);
    }

    private Optional<Value> value(Expression expression, int depth) {
        if (depth > DEPTH_MAX) {
            return Optional.empty();
        }
        Optional<Column> column = column(expression);
        if (column.isPresent()) {
            return column.map(of -> new Value(of.quoted(), of.type(), of.kind(), of));
        }
        if (expression instanceof LiteralValue<?> literal) {
            return literal(literal.value(), literal.dataType());
        }
        if (expression instanceof Cast cast) {
            return value(cast.expression(), depth + 1).filter(of -> isWidened(of.type(), cast.dataType()))
                    .map(of -> new Value(of.text(), cast.dataType(), kindOf(cast.dataType(), of.kind()), of.column()));
        }
        if (expression instanceof GeneralScalarExpression computed && computed.children().length == 2) {
            Optional<Value> left = value(computed.children()[0], depth + 1);
            Optional<Value> right = value(computed.children()[1], depth + 1);
            return left.isPresent() && right.isPresent() ? computed(computed.name(), left.get(), right.get()) : Optional.empty();
        }
        return Optional.empty();
    }

    /** Decimals alone: sums and products of 32 bits fail in Spark where they do not in a scan. */
    private static Optional<Value> computed(String how, Value left, Value right) {
        if (!(left.type() instanceof DecimalType a) || !(right.type() instanceof DecimalType b)) {
            return Optional.empty();
        }
        int scale;
        int precision;
        if (Set.of("+", "-").contains(how)) {
            scale = Math.max(a.scale(), b.scale());
            precision = Math.max(a.precision() - a.scale(), b.precision() - b.scale()) + scale + 1;
        } else if (how.equals("*")) {
            scale = a.scale() + b.scale();
            precision = a.precision() + b.precision() + 1;
        } else {
            return Optional.empty();
        }
        if (precision > DIGITS_MAX) {
            // Spark keeps at least six digits behind the point, and rounds the others.
            int kept = Math.max(DIGITS_MAX - (precision - scale), Math.min(scale, 6));
            if (kept < scale) {
                return Optional.empty();
            }
            precision = DIGITS_MAX;
        }
        String text = "(" + left.text() + " " + how + " " + right.text() + ")";
        return Optional.of(new Value(text, DataTypes.createDecimalType(precision, scale), Column.Kind.DECIMAL, null));
    }

    /** Whether a cast leaves every number what it is. */
    private static boolean isWidened(DataType from, DataType to) {
        if (from.equals(to)) {
            return true;
        }
        if (from.equals(DataTypes.FloatType) && to.equals(DataTypes.DoubleType)) {
            return true;
        }
        int wholeDigits;
        int scale = 0;
        if (from instanceof DecimalType decimal) {
            wholeDigits = decimal.precision() - decimal.scale();
            scale = decimal.scale();
        } else {
            wholeDigits = wholeDigits(from);
        }
        if (wholeDigits == 0) {
            return false;
        }
        if (to instanceof DecimalType decimal) {
            return decimal.precision() - decimal.scale() >= wholeDigits && decimal.scale() >= scale;
        }
        return scale == 0 && !(from instanceof DecimalType) && wholeDigits(to) > wholeDigits;
    }

    /** Digits of the largest whole number of a type; 0: it is not one of whole numbers. */
    private static int wholeDigits(DataType type) {
        if (type instanceof ByteType) {
            return 3;
        }
        if (type instanceof ShortType) {
            return 5;
        }
        if (type instanceof IntegerType) {
            return 10;
        }
        return type instanceof LongType ? 19 : 0;
    }

    private static Column.Kind kindOf(DataType type, Column.Kind otherwise) {
        return type instanceof DecimalType ? Column.Kind.DECIMAL : otherwise;
    }

    private static Optional<Value> literal(Object value, DataType type) {
        if (value == null) {
            return Optional.empty();
        }
        if (wholeDigits(type) > 0) {
            return Optional.of(new Value(String.valueOf(value), type, Column.Kind.INTEGER, null));
        }
        if (value instanceof Decimal decimal) {
            return exact(decimal.toJavaBigDecimal()).map(text -> new Value(text, type, Column.Kind.DECIMAL, null));
        }
        if (value instanceof Float || value instanceof Double) {
            return floating(((Number) value).doubleValue()).map(text -> new Value(text, type, Column.Kind.FLOAT, null));
        }
        if (type.equals(DataTypes.StringType)) {
            String text = value.toString();
            boolean isWhole = text.indexOf('\0') < 0 && text.indexOf('\ufffd') < 0;
            return isWhole ? Optional.of(new Value(quoted(text), type, Column.Kind.TEXT, null)) : Optional.empty();
        }
        if (type.equals(DataTypes.DateType)) {
            LocalDate day = LocalDate.ofEpochDay((Integer) value);
            boolean isWritten = !day.isBefore(FIRST_DAY) && !day.isAfter(LAST_DAY);
            return isWritten ? Optional.of(new Value("date '" + day + "'", type, Column.Kind.DATE, null)) : Optional.empty();
        }
        if (type.equals(DataTypes.TimestampType) || type.equals(DataTypes.TimestampNTZType)) {
            long micros = (Long) value;
            long seconds = Math.floorDiv(micros, SECOND_MICROS);
            LocalDateTime moment = LocalDateTime.ofEpochSecond(seconds, (int) Math.floorMod(micros, SECOND_MICROS) * 1000, ZoneOffset.UTC);
            boolean isWritten = !moment.toLocalDate().isBefore(FIRST_DAY) && !moment.toLocalDate().isAfter(LAST_DAY);
            String text = "timestamp '" + MOMENT.format(moment) + "'";
            return isWritten ? Optional.of(new Value(text, type, Column.Kind.MOMENT, null)) : Optional.empty();
        }
        if (value instanceof Boolean) {
            return Optional.of(new Value(value.toString(), type, Column.Kind.BOOLEAN, null));
        }
        return Optional.empty();
    }

    private static Optional<String> exact(BigDecimal value) {
        String text = value.toPlainString();
        long digits = text.chars().filter(Character::isDigit).count();
        return digits <= DIGITS_MAX && value.scale() < DIGITS_MAX ? Optional.of(text) : Optional.empty();
    }

    private static Optional<String> floating(double value) {
        if (Double.isNaN(value) || Double.isInfinite(value)) {
            return Optional.empty();
        }
        String text = Double.toString(value).toLowerCase(java.util.Locale.ROOT);
        return Optional.of(text.contains("e") ? text : text + "e0");
    }

    /** A text as conditions have it. */
    static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }
}
