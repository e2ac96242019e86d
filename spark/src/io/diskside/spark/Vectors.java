package io.diskside.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.function.IntToLongFunction;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.DateMilliVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.FixedSizeBinaryVector;
import org.apache.arrow.vector.Float2Vector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.UInt1Vector;
import org.apache.arrow.vector.UInt2Vector;
import org.apache.arrow.vector.UInt4Vector;
import org.apache.arrow.vector.UInt8Vector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Arrow vectors as columns of Spark. They belong to the reader of the stream, which releases them. */
final class Vectors {
    private static final MathContext ROUNDED = new MathContext(DecimalType.MAX_PRECISION(), RoundingMode.HALF_UP);
    private static final long DAY_MS = 86_400_000L;

    private Vectors() {}

    /**
     * A column of a type, which is the one that {@link Column#typeOf} gives, or that of a sum.
     *
     * @param wraps a sum of more than 64 bits is the number in the lowest ones
     */
    static ColumnVector of(DataType type, FieldVector vector, boolean wraps) {
        if (vector instanceof DecimalVector decimals && type instanceof DecimalType) {
            return new Decimals(type, decimals);
        }
        if (vector instanceof DecimalVector decimals && type.equals(DataTypes.LongType)) {
            return new Totals(decimals, wraps);
        }
        if (vector instanceof UInt1Vector bytes) {
            return new Converted(type, vector, row -> bytes.get(row) & 0xffL);
        }
        if (vector instanceof UInt2Vector shorts) {
            return new Converted(type, vector, row -> shorts.get(row));
        }
        if (vector instanceof UInt4Vector ints) {
            return new Converted(type, vector, row -> ints.get(row) & 0xffff_ffffL);
        }
        if (vector instanceof UInt8Vector longs) {
            return new Converted(type, vector, longs::get);
        }
        if (vector instanceof DateMilliVector dates) {
            return new Converted(type, vector, row -> Math.floorDiv(dates.get(row), DAY_MS));
        }
        if (vector instanceof TimeStampVector moments) {
            return new Converted(type, vector, micros(moments));
        }
        if (vector instanceof Float2Vector halves) {
            return new Halves(type, halves);
        }
        if (vector instanceof FixedSizeBinaryVector bytes) {
            return new Bytes(type, bytes);
        }
        return new Unowned(vector);
    }

    /** Spark closes the columns of a batch before the next one, and a struct that is closed has lost its members. */
    private static final class Unowned extends ArrowColumnVector {
        Unowned(FieldVector vector) {
            super(vector);
        }

        @Override
        public void close() {}
    }

    /** Means, each of them a sum by a number of values. */
    static ColumnVector mean(DataType type, FieldVector sums, FieldVector counts) {
        return new Means(type, sums, (BigIntVector) counts);
    }

    /** A column that the files of a part lack. */
    static ColumnVector nulls(DataType type) {
        return new Nulls(type);
    }

    private static IntToLongFunction micros(TimeStampVector moments) {
        TimeUnit unit = ((ArrowType.Timestamp) moments.getField().getType()).getUnit();
        return switch (unit) {
            case SECOND -> row -> Math.multiplyExact(moments.get(row), 1_000_000L);
            case MILLISECOND -> row -> Math.multiplyExact(moments.get(row), 1000L);
            case MICROSECOND -> moments::get;
            case NANOSECOND -> row -> Math.floorDiv(moments.get(row), 1000L);
        };
    }

    /** A column whose getters are those of its type alone. */
    private abstract static class Values extends ColumnVector {
        private final FieldVector vector;

        Values(DataType type, FieldVector vector) {
            super(type);
            this.vector = vector;
        }

        private UnsupportedOperationException other() {
            return new UnsupportedOperationException("a value of a column of " + type + " was taken for one of another type");
        }

        @Override
        public void close() {}

        @Override
        public boolean hasNull() {
            return vector.getNullCount() > 0;
        }

        @Override
        public int numNulls() {
            return vector.getNullCount();
        }

        @Override
        public boolean isNullAt(int row) {
            return vector.isNull(row);
        }

        @Override
        public boolean getBoolean(int row) {
            throw other();
        }

        @Override
        public byte getByte(int row) {
            throw other();
        }

        @Override
        public short getShort(int row) {
            throw other();
        }

        @Override
        public int getInt(int row) {
            throw other();
        }

        @Override
        public long getLong(int row) {
            throw other();
        }

        @Override
        public float getFloat(int row) {
            throw other();
        }

        @Override
        public double getDouble(int row) {
            throw other();
        }

        @Override
        public ColumnarArray getArray(int row) {
            throw other();
        }

        @Override
        public ColumnarMap getMap(int row) {
            throw other();
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            throw other();
        }

        @Override
        public UTF8String getUTF8String(int row) {
            throw other();
        }

        @Override
        public byte[] getBinary(int row) {
            throw other();
        }

        @Override
        public ColumnVector getChild(int at) {
            throw other();
        }
    }

    /** Whole numbers of another width in Spark; 64-bit ones without a sign are decimals. */
    private static final class Converted extends Values {
        private final IntToLongFunction value;

        Converted(DataType type, FieldVector vector, IntToLongFunction value) {
            super(type, vector);
            this.value = value;
        }

        @Override
        public short getShort(int row) {
            return (short) value.applyAsLong(row);
        }

        @Override
        public int getInt(int row) {
            return (int) value.applyAsLong(row);
        }

        @Override
        public long getLong(int row) {
            return value.applyAsLong(row);
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            if (isNullAt(row)) {
                return null;
            }
            return Decimal.apply(new BigDecimal(new BigInteger(Long.toUnsignedString(value.applyAsLong(row)))), precision, scale);
        }
    }

    /** Decimals: those of at most 18 digits are made of 64 bits, without the big numbers that Arrow's vector would make of each. */
    private static class Decimals extends Values {
        static final int BYTES = DecimalVector.TYPE_WIDTH;
        private final DecimalVector vector;

        Decimals(DataType type, DecimalVector vector) {
            super(type, vector);
            this.vector = vector;
        }

        final long low(int row) {
            return vector.getDataBuffer().getLong((long) row * BYTES);
        }

        final BigInteger digits(int row) {
            ArrowBuf data = vector.getDataBuffer();
            byte[] bytes = new byte[BYTES];
            for (int at = 0; at < BYTES; at++) {
                bytes[BYTES - 1 - at] = data.getByte((long) row * BYTES + at);
            }
            return new BigInteger(bytes);
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            if (isNullAt(row)) {
                return null;
            }
            if (precision <= Decimal.MAX_LONG_DIGITS()) {
                return Decimal.createUnsafe(low(row), precision, scale);
            }
            return Decimal.apply(new BigDecimal(digits(row), scale), precision, scale);
        }
    }

    /** Sums of 64-bit numbers, which came as decimals with one digit behind the point, so that none is too large on its way. */
    private static final class Totals extends Decimals {
        private final boolean wraps;

        Totals(DecimalVector vector, boolean wraps) {
            super(DataTypes.LongType, vector);
            this.wraps = wraps;
        }

        @Override
        public long getLong(int row) {
            BigInteger total = digits(row).divide(BigInteger.TEN);
            if (wraps || total.bitLength() < Long.SIZE) {
                return total.longValue();
            }
            throw new ArithmeticException("long overflow: a sum is " + total + "; sum decimals, or set spark.sql.ansi.enabled to false");
        }
    }

    /** Means as Spark computes them: decimals are rounded twice, to 38 digits and then to those of the type. */
    private static final class Means extends Values {
        private final FieldVector sums;
        private final BigIntVector counts;

        Means(DataType type, FieldVector sums, BigIntVector counts) {
            super(type, sums);
            this.sums = sums;
            this.counts = counts;
        }

        @Override
        public double getDouble(int row) {
            return (double) ((BigIntVector) sums).get(row) / counts.get(row);
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            if (isNullAt(row)) {
                return null;
            }
            BigDecimal count = BigDecimal.valueOf(counts.get(row));
            BigDecimal mean = ((DecimalVector) sums).getObject(row).divide(count, ROUNDED);
            return Decimal.apply(mean.setScale(scale, RoundingMode.HALF_UP), precision, scale);
        }
    }

    private static final class Halves extends Values {
        private final Float2Vector vector;

        Halves(DataType type, Float2Vector vector) {
            super(type, vector);
            this.vector = vector;
        }

        @Override
        public float getFloat(int row) {
            return vector.getValueAsFloat(row);
        }
    }

    private static final class Bytes extends Values {
        private final FixedSizeBinaryVector vector;

        Bytes(DataType type, FixedSizeBinaryVector vector) {
            super(type, vector);
            this.vector = vector;
        }

        @Override
        public byte[] getBinary(int row) {
            return isNullAt(row) ? null : vector.get(row);
        }
    }

    private static final class Nulls extends Values {
        Nulls(DataType type) {
            super(type, null);
        }

        @Override
        public boolean hasNull() {
            return true;
        }

        @Override
        public int numNulls() {
            return Integer.MAX_VALUE;
        }

        @Override
        public boolean isNullAt(int row) {
            return true;
        }

        @Override
        public Decimal getDecimal(int row, int precision, int scale) {
            return null;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return null;
        }

        @Override
        public byte[] getBinary(int row) {
            return null;
        }
    }
}
