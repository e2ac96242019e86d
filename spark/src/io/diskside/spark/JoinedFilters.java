package io.diskside.spark;

import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Keeps a filter above each filtered table of a join. Spark prunes one side of a join by the keys of the other where it sees that the other
 * is filtered, and sees nothing of filters that a source does itself. The filter that is kept is true of all rows.
 */
final class JoinedFilters extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
        return visited(plan, AttributeSet$.MODULE$.empty());
    }

    /** {@code keys} are the columns by which the joins above compare: those are read anyway. */
    private static LogicalPlan visited(LogicalPlan plan, AttributeSet keys) {
        if (plan instanceof Filter filter && filter.child() instanceof DataSourceV2Relation relation) {
            return relation.table() instanceof DisksideTable ? kept(filter, keys) : plan;
        }
        AttributeSet below = AttributeSet$.MODULE$.empty();
        if (plan instanceof Join join && isPruned(join)) {
            below = keys.$plus$plus(join.condition().get().references());
        } else if (plan instanceof Project || plan instanceof Filter) {
            below = keys;
        }
        AttributeSet passed = below;
        return plan.mapChildren(child -> visited(child, passed));
    }

    private static boolean isPruned(Join join) {
        boolean isKind = join.joinType().equals(Inner$.MODULE$) || join.joinType().equals(LeftSemi$.MODULE$);
        return isKind && join.condition().isDefined();
    }

    private static LogicalPlan kept(Filter filter, AttributeSet keys) {
        scala.collection.Iterator<Attribute> columns = filter.child().output().iterator();
        while (columns.hasNext()) {
            Attribute column = columns.next();
            if (keys.contains(column)) {
                Expression always = new EqualNullSafe(column, column);
                return new Filter(new And(filter.condition(), always), filter.child());
            }
        }
        return filter;
    }
}
