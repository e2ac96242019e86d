package io.diskside.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.BoxedUnit;

/** What a session has with the jar: Spark finds this by its services, without a setting. */
public final class Extensions implements SparkSessionExtensionsProvider {
    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        extensions.injectPreCBORule(session -> new JoinedFilters());
        return BoxedUnit.UNIT;
    }
}
