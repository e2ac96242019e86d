package io.diskside.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The data source behind {@code spark.read.format("diskside")}: Parquet, Arrow, CSV and JSON lines files of Diskside servers, of which
 * servers send the columns, rows and sums that a query needs.
 */
public final class DisksideSource implements TableProvider, DataSourceRegister {
    /** Spark asks for the schema first, and then for the table: the same instance is asked for both. */
    private DisksideTable found;

    @Override
    public String shortName() {
        return "diskside";
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        found = DisksideTable.load(Options.of(options.asCaseSensitiveMap()));
        return found.schema();
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        Options options = Options.of(properties);
        return found != null && found.options().equals(options) ? found : DisksideTable.load(options);
    }
}
