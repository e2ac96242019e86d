package io.diskside.spark;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.AlwaysFalse;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.And;
import org.apache.spark.sql.connector.expressions.filter.Not;
import org.apache.spark.sql.connector.expressions.filter.Or;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Spark's predicates as a scan's conditions, where both are true, false and NULL for the same rows. */
final class Conditions {
    private static final int DEPTH_MAX = 8;
    private static final int VALUES_MAX = 1000;
    private static final int TEXT_LEN_MAX = 16 << 10;
    /** Keys of a join may be more. With the conditions of a query they are one word of a command, which has room for 128 KiB. */
    private static final int KEYS_LEN_MAX = 60 << 10;
    private static final Set<String> COMPARISONS = Set.of("=", "<>", "<", "<=", ">", ">=");
    /** A comparison that NaN, the greatest number of Spark, fulfils, and the one that it is the opposite of. */
    private static final Map<String, String> OPPOSITES = Map.of(">", "<=", ">=", "<");

    private final Expressions expressions;

    Conditions(Map<String, Column> columns) {
        expressions = new Expressions(columns);
    }

    /** The condition as text; empty: a scan does not do it. */
    Optional<String> of(Predicate predicate) {
        return of(predicate, 0).filter(text -> lengthOf(text) <= TEXT_LEN_MAX);
    }

    /** Bytes of a text in the word of a command. */
    static int lengthOf(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    /** Predicates on the keys of a join, which are known since its other side was read; empty: there is none that a scan does. */
    Optional<String> ofKeys(List<Predicate> predicates) {
        List<String> texts = new ArrayList<>();
        int length = 0;
        for (Predicate predicate : predicates) {
            Optional<String> text = predicate.name().equals("IN") ? among(predicate.children(), Integer.MAX_VALUE) : Optional.empty();
            if (text.isPresent() && length + lengthOf(text.get()) <= KEYS_LEN_MAX) {
                length += lengthOf(text.get());
                texts.add(text.get());
            }
        }
        return texts.isEmpty() ? Optional.empty() : Optional.of("(" + String.join(" and ", texts) + ")");
    }

    private Optional<String> of(Predicate predicate, int depth) {
        if (depth > DEPTH_MAX || predicate instanceof AlwaysTrue || predicate instanceof AlwaysFalse) {
            return Optional.empty();
        }
        if (predicate instanceof And and) {
            return all(flat(and, And.class), " and ", depth);
        }
        if (predicate instanceof Or or) {
            return all(flat(or, Or.class), " or ", depth);
        }
        if (predicate instanceof Not not) {
            return of(not.child(), depth + 1).map(text -> "not (" + text + ")");
        }
        Expression[] parts = predicate.children();
        return switch (predicate.name()) {
            case "IS_NULL" -> expressions.column(parts[0]).map(column -> column.quoted() + " is null");
            case "IS_NOT_NULL" -> expressions.column(parts[0]).map(column -> column.quoted() + " is not null");
            case "STARTS_WITH" -> like(parts, "", "%");
            case "ENDS_WITH" -> like(parts, "%", "");
            case "CONTAINS" -> like(parts, "%", "%");
            case "IN" -> among(parts, VALUES_MAX);
            case "<=>" -> same(parts[0], parts[1]);
            default -> COMPARISONS.contains(predicate.name()) ? compared(predicate.name(), parts[0], parts[1]) : Optional.empty();
        };
    }

    /** The parts of a chain of the same operator, so that long ones are not deep. */
    private static List<Predicate> flat(Predicate whole, Class<? extends Predicate> operator) {
        List<Predicate> parts = new ArrayList<>();
        Deque<Expression> left = new ArrayDeque<>(List.of(whole));
        while (!left.isEmpty()) {
            Expression next = left.pop();
            if (operator.isInstance(next)) {
                left.push(next.children()[1]);
                left.push(next.children()[0]);
            } else {
                parts.add((Predicate) next);
            }
        }
        return parts;
    }

    private Optional<String> all(List<Predicate> parts, String word, int depth) {
        List<String> texts = new ArrayList<>();
        for (Predicate part : parts) {
            Optional<String> text = of(part, depth + 1);
            if (text.isEmpty()) {
                return Optional.empty();
            }
            texts.add(text.get());
        }
        return Optional.of("(" + String.join(word, texts) + ")");
    }

    private Optional<String> compared(String how, Expression one, Expression other) {
        Optional<Expressions.Value> left = value(one);
        Optional<Expressions.Value> right = value(other);
        if (left.isEmpty() || right.isEmpty()) {
            return Optional.empty();
        }
        return compared(how, left.get(), right.get());
    }

    private static Optional<String> compared(String how, Expressions.Value left, Expressions.Value right) {
        boolean isAlike = left.kind() == right.kind() && left.type().equals(right.type());
        // Texts of another collation have another type.
        boolean isText = isAlike && left.type().equals(DataTypes.StringType);
        boolean isExact = isAlike && left.kind().isExact();
        boolean isNumber = left.kind().isExact() && isNumber(left.kind()) && isNumber(right.kind());
        if (isText || isExact || isNumber) {
            return left.column() == null && right.column() == null ? Optional.empty() : Optional.of(text(left, how, right));
        }
        if (left.column() == null || right.column() != null || left.kind() != right.kind()) {
            return Optional.empty();
        }
        if (left.kind() == Column.Kind.FLOAT) {
            String opposite = OPPOSITES.get(how);
            return Optional.of(opposite == null ? text(left, how, right) : "not (" + text(left, opposite, right) + ")");
        }
        boolean isTruth = left.kind() == Column.Kind.BOOLEAN && (how.equals("=") || how.equals("<>"));
        return isTruth ? Optional.of(text(left, how, right)) : Optional.empty();
    }

    private static boolean isNumber(Column.Kind kind) {
        return kind == Column.Kind.INTEGER || kind == Column.Kind.DECIMAL;
    }

    private static String text(Expressions.Value left, String how, Expressions.Value right) {
        return left.text() + " " + how + " " + right.text();
    }

    private Optional<Expressions.Value> value(Expression expression) {
        if (expression instanceof AlwaysTrue || expression instanceof AlwaysFalse) {
            boolean value = expression instanceof AlwaysTrue;
            return Optional.of(new Expressions.Value(String.valueOf(value), DataTypes.BooleanType, Column.Kind.BOOLEAN, null));
        }
        return expressions.value(expression);
    }

    /** True or false, never NULL. */
    private Optional<String> same(Expression one, Expression other) {
        Optional<Column> column = expressions.column(one);
        if (column.isEmpty() || !(other instanceof LiteralValue<?> literal)) {
            return Optional.empty();
        }
        String name = column.get().quoted();
        if (literal.value() == null) {
            return Optional.of(name + " is null");
        }
        return compared("=", one, other).map(text -> "(" + text + " and " + name + " is not null)");
    }

    private Optional<String> among(Expression[] parts, int valuesMax) {
        Optional<Expressions.Value> value = expressions.value(parts[0]);
        boolean isColumn = value.isPresent() && value.get().column() != null && value.get().kind() != Column.Kind.BOOLEAN;
        if (!isColumn || parts.length > valuesMax || parts.length < 2) {
            return Optional.empty();
        }
        List<String> texts = new ArrayList<>();
        for (Expression part : Arrays.copyOfRange(parts, 1, parts.length)) {
            if (part instanceof LiteralValue<?> literal && literal.value() == null) {
                texts.add("null");
                continue;
            }
            Optional<Expressions.Value> one = expressions.value(part);
            if (!(part instanceof LiteralValue<?>) || one.isEmpty() || compared("=", value.get(), one.get()).isEmpty()) {
                return Optional.empty();
            }
            texts.add(one.get().text());
        }
        return Optional.of(value.get().text() + " in (" + String.join(", ", texts) + ")");
    }

    private Optional<String> like(Expression[] parts, String before, String after) {
        Optional<Column> column = expressions.column(parts[0]).filter(of -> of.kind() == Column.Kind.TEXT);
        if (column.isEmpty() || !(parts[1] instanceof LiteralValue<?> literal) || !(literal.value() instanceof UTF8String)) {
            return Optional.empty();
        }
        // Only texts that a literal takes.
        if (expressions.value(literal).isEmpty()) {
            return Optional.empty();
        }
        String escaped = literal.value().toString().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_");
        return Optional.of(column.get().quoted() + " like " + Expressions.quoted(before + escaped + after));
    }
}
