//! `SELECT * FROM t` of a table with thousands of columns: DataFusion's planner compares the name of each column with those of all
//! others, several times. A query that is no more than a table's rows is planned without a select list, so that none of them
//! is looked at.

use std::sync::Arc;

use datafusion::logical_expr::{Limit, LogicalPlan};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    GroupByExpr, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    WildcardAdditionalOptions,
};

/// Takes `*` out of a query of all columns of one table; false for other statements, which stay as they are.
pub(crate) fn take_wildcard(statement: &mut DfStatement) -> bool {
    let DfStatement::Statement(statement) = statement else { return false };
    let Statement::Query(query) = statement.as_mut() else { return false };
    if !is_plain(query) {
        return false;
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return false };
    let is_whole = is_whole(select);
    if is_whole {
        select.projection.clear();
    }
    is_whole
}

/// True of a query that has nothing around its SELECT but a limit.
fn is_plain(query: &Query) -> bool {
    query.order_by.is_none() && query.fetch.is_none() && query.pipe_operators.is_empty()
}

fn is_whole(select: &Select) -> bool {
    let [SelectItem::Wildcard(options)] = select.projection.as_slice() else { return false };
    let [table] = select.from.as_slice() else { return false };
    let without_groups = match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) => keys.is_empty() && modifiers.is_empty(),
        GroupByExpr::All(_) => false,
    };
    has_no_options(options)
        && table.joins.is_empty()
        && matches!(table.relation, TableFactor::Table { .. })
        && without_groups
        && select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.into.is_none()
        && select.named_window.is_empty()
}

fn has_no_options(options: &WildcardAdditionalOptions) -> bool {
    let plain = WildcardAdditionalOptions {
        wildcard_token: options.wildcard_token.clone(),
        ..WildcardAdditionalOptions::default()
    };
    *options == plain
}

/// The plan of a query whose `*` was taken out, with all columns.
pub(crate) fn with_all_columns(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Limit(limit) => {
            let input = Arc::new(with_all_columns(Arc::unwrap_or_clone(limit.input)));
            LogicalPlan::Limit(Limit { input, ..limit })
        }
        LogicalPlan::Projection(projection) if projection.expr.is_empty() => {
            Arc::unwrap_or_clone(projection.input)
        }
        other => other,
    }
}
