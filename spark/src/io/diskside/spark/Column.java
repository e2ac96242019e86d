package io.diskside.spark;

import java.io.Serializable;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.util.ArrowUtils;

/** A column of files: its name, its type in Spark, and what a scan takes its values for. */
record Column(String name, DataType type, Kind kind) implements Serializable {
    /** How values are compared. */
    enum Kind {
        INTEGER,
        DECIMAL,
        FLOAT,
        TEXT,
        DATE,
        MOMENT,
        BOOLEAN,
        /** A type that a scan does not compare, or whose values are other ones in Spark. */
        OTHER;

        /** Whether rows are sorted and grouped by it: floating-point numbers have one zero in Spark, and two in a scan. */
        boolean isOrdered() {
            return isExact() || this == TEXT || this == BOOLEAN;
        }

        /** Whether tables are joined by it. */
        boolean isKey() {
            return isExact() || this == TEXT;
        }

        boolean isExact() {
            return this == INTEGER || this == DECIMAL || this == DATE || this == MOMENT;
        }
    }

    static Column of(Field field) {
        DataType type = typeOf(field);
        return new Column(field.getName(), type, kindOf(field.getType(), type));
    }

    /** The name as conditions have it. */
    String quoted() {
        return quoted(name);
    }

    static String quoted(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }

    /** The type in Spark, which holds all values: an unsigned number has the next larger one, and a time has microseconds. */
    static DataType typeOf(Field field) {
        ArrowType type = field.getType();
        if (type instanceof ArrowType.Int number && !number.getIsSigned()) {
            return switch (number.getBitWidth()) {
                case 8 -> DataTypes.ShortType;
                case 16 -> DataTypes.IntegerType;
                case 32 -> DataTypes.LongType;
                default -> DataTypes.createDecimalType(20, 0);
            };
        }
        if (type instanceof ArrowType.Timestamp moment) {
            return moment.getTimezone() == null ? DataTypes.TimestampNTZType : DataTypes.TimestampType;
        }
        if (type instanceof ArrowType.FloatingPoint number && number.getPrecision() == FloatingPointPrecision.HALF) {
            return DataTypes.FloatType;
        }
        if (type instanceof ArrowType.Date) {
            return DataTypes.DateType;
        }
        if (type instanceof ArrowType.FixedSizeBinary) {
            return DataTypes.BinaryType;
        }
        try {
            return ArrowUtils.fromArrowField(field);
        } catch (RuntimeException unknown) {
            throw new IllegalArgumentException("column `" + field.getName() + "` is of the type " + type + ", which Spark does not have; "
                    + "choose others by the option `columns`");
        }
    }

    private static Kind kindOf(ArrowType of, DataType type) {
        if (of instanceof ArrowType.Int) {
            return Kind.INTEGER;
        }
        if (of instanceof ArrowType.Decimal && type instanceof DecimalType decimal && decimal.scale() >= 0) {
            return Kind.DECIMAL;
        }
        if (of instanceof ArrowType.FloatingPoint number) {
            return number.getPrecision() == FloatingPointPrecision.HALF ? Kind.OTHER : Kind.FLOAT;
        }
        if (of instanceof ArrowType.Utf8 || of instanceof ArrowType.LargeUtf8) {
            return Kind.TEXT;
        }
        if (of instanceof ArrowType.Bool) {
            return Kind.BOOLEAN;
        }
        if (of instanceof ArrowType.Date date && date.getUnit() == DateUnit.DAY) {
            return Kind.DATE;
        }
        // Nanoseconds that Spark does not see would be compared.
        boolean isMoment = of instanceof ArrowType.Timestamp moment && moment.getUnit() != TimeUnit.NANOSECOND;
        return isMoment ? Kind.MOMENT : Kind.OTHER;
    }
}
