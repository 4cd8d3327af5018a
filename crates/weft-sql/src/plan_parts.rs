//! What occurs in a logical plan, so that rules that change something else need not walk it.

use std::ops::BitOr;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result as DfResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};

use crate::enums::{ENUM, has_enum_within};
use crate::uuids::{gives_uuid, has_uuid};

/// Kinds of nodes, of expressions and of types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts(u32);

impl Parts {
    const JOIN: Parts = Parts(1);
    const UNION: Parts = Parts(1 << 1);
    const DISTINCT: Parts = Parts(1 << 2);
    const LIMIT: Parts = Parts(1 << 3);
    /// A relation without rows.
    const EMPTY: Parts = Parts(1 << 4);
    const GROUPING: Parts = Parts(1 << 5);
    const FILTER: Parts = Parts(1 << 6);
    const SORT: Parts = Parts(1 << 7);
    /// `+`, `-`, `*` and signs.
    const ARITHMETIC: Parts = Parts(1 << 8);
    /// Functions of one row.
    const CALL: Parts = Parts(1 << 9);
    const CAST: Parts = Parts(1 << 10);
    const WINDOW: Parts = Parts(1 << 11);
    const AGGREGATE: Parts = Parts(1 << 12);
    const MEDIAN: Parts = Parts(1 << 13);
    pub(crate) const SUBQUERY: Parts = Parts(1 << 14);
    /// Dates, times and intervals.
    const TEMPORAL: Parts = Parts(1 << 15);
    const FLOAT: Parts = Parts(1 << 16);
    const DECIMAL: Parts = Parts(1 << 17);
    const UNSIGNED: Parts = Parts(1 << 18);
    const UUID: Parts = Parts(1 << 19);
    const ENUM: Parts = Parts(1 << 20);
    const ANY: Parts = Parts(u32::MAX);

    /// The parts of a plan and of the subqueries in it.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn of(plan: &LogicalPlan) -> DfResult<Parts> {
        let mut parts = Parts::default();
        plan.apply_with_subqueries(|node| {
            parts.add_node(node);
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    parts.add_expression(expr);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(parts)
    }

    /// True if any of these parts occurs.
    pub(crate) fn have(self, others: Parts) -> bool {
        others == Parts::ANY || self.0 & others.0 != 0
    }

    fn add(&mut self, others: Parts) {
        self.0 |= others.0;
    }

    fn add_node(&mut self, node: &LogicalPlan) {
        match node {
            LogicalPlan::Join(_) => self.add(Parts::JOIN),
            LogicalPlan::Union(_) => self.add(Parts::UNION),
            LogicalPlan::Distinct(_) => self.add(Parts::DISTINCT),
            LogicalPlan::Limit(_) => self.add(Parts::LIMIT),
            LogicalPlan::EmptyRelation(empty) if !empty.produce_one_row => self.add(Parts::EMPTY),
            LogicalPlan::Aggregate(_) => self.add(Parts::GROUPING),
            LogicalPlan::Filter(_) => self.add(Parts::FILTER),
            LogicalPlan::Sort(_) => self.add(Parts::SORT),
            _ => {}
        }
        for field in node.schema().fields() {
            self.add(Parts::of_field(field));
        }
    }

    fn add_expression(&mut self, expr: &Expr) {
        match expr {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => {
                if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply) {
                    self.add(Parts::ARITHMETIC);
                }
            }
            Expr::Negative(_) => self.add(Parts::ARITHMETIC),
            Expr::ScalarFunction(call) => {
                let is_uuid = gives_uuid(call.func.name());
                self.add(if is_uuid { Parts::UUID } else { Parts::default() });
                self.add(Parts::CALL);
            }
            Expr::HigherOrderFunction(_) => self.add(Parts::CALL),
            Expr::Cast(cast) => self.add(Parts::CAST | Parts::of_field(&cast.field)),
            Expr::TryCast(cast) => self.add(Parts::CAST | Parts::of_field(&cast.field)),
            Expr::Literal(value, _) => self.add(Parts::of_type(&value.data_type())),
            Expr::WindowFunction(_) => self.add(Parts::WINDOW),
            Expr::AggregateFunction(call) => {
                let is_median = call.func.name() == "median";
                self.add(if is_median { Parts::MEDIAN } else { Parts::default() });
                self.add(Parts::AGGREGATE);
            }
            Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::ScalarSubquery(_)
            | Expr::SetComparison(_) => self.add(Parts::SUBQUERY),
            _ => {}
        }
    }

    fn of_field(field: &Field) -> Parts {
        let parts = Parts::of_type(field.data_type());
        let parts = if has_uuid(field) { parts | Parts::UUID } else { parts };
        let is_enum = field.metadata().contains_key(ENUM) || has_enum_within(field.data_type());
        if is_enum { parts | Parts::ENUM } else { parts }
    }

    fn of_type(data_type: &DataType) -> Parts {
        match data_type {
            DataType::Null | DataType::Boolean => Parts::default(),
            data_type if data_type.is_signed_integer() || data_type.is_string() => Parts::default(),
            data_type if data_type.is_floating() => Parts::FLOAT,
            data_type if data_type.is_decimal() => Parts::DECIMAL,
            data_type if data_type.is_unsigned_integer() => Parts::UNSIGNED,
            data_type if data_type.is_temporal() => Parts::TEMPORAL,
            DataType::Binary | DataType::BinaryView | DataType::LargeBinary => Parts::default(),
            // Lists and structs may have values of any type.
            _ => Parts::TEMPORAL | Parts::FLOAT | Parts::DECIMAL | Parts::UNSIGNED,
        }
    }
}

impl BitOr for Parts {
    type Output = Parts;

    fn bitor(self, other: Parts) -> Parts {
        Parts(self.0 | other.0)
    }
}

/// What a rule changes: without it, a plan stays as it is. Rules that are not known here may change anything.
pub(crate) fn changed_by(rule: &str) -> Parts {
    match rule {
        "counted_duplicates"
        | "eliminate_join"
        | "decorrelate_lateral_join"
        | "extract_equijoin_predicate"
        | "eliminate_cross_join"
        | "filter_null_join_keys"
        | "eliminate_outer_join"
        | "join_order" => Parts::JOIN,
        "date_times" | "intervals" => Parts::TEMPORAL | Parts::CALL,
        "long_sums"
        | "nullif"
        | "rounded_digits"
        | "extract_leaf_expressions"
        | "push_down_leaf_projections" => Parts::CALL,
        "mixed_numbers" => {
            let types = Parts::TEMPORAL | Parts::FLOAT | Parts::DECIMAL | Parts::UNSIGNED;
            types | Parts::CALL | Parts::MEDIAN
        }
        "range_frames" | "interval_windows" | "window_arguments" => Parts::WINDOW,
        "window_filters" | "null_arguments" => Parts::WINDOW | Parts::AGGREGATE,
        "resolve_grouping_function"
        | "distinct_groups"
        | "grouping_sets"
        | "single_distinct_aggregation_to_group_by"
        | "eliminate_group_by_constant" => Parts::GROUPING,
        "json_casts" => Parts::CAST,
        "uuid_casts" => Parts::UUID,
        "enum_casts" => Parts::ENUM,
        // The first of them may make casts of calls.
        "rounding_casts" | "narrowing_casts" | "timestamp_casts" | "text_casts" => {
            Parts::CAST | Parts::CALL
        }
        "checked_integers" => Parts::ARITHMETIC,
        "checked_decimals" => Parts::DECIMAL | Parts::CALL,
        "canonical_floats" => Parts::FLOAT | Parts::CALL,
        "outer_aggregates"
        | "no_value"
        | "rewrite_set_comparison"
        | "decorrelate_predicate_subquery"
        | "scalar_subquery_to_join" => Parts::SUBQUERY,
        "subqueries" => Parts::SUBQUERY | Parts::JOIN,
        "constant_unions" | "optimize_unions" | "unions_to_filter" => Parts::UNION,
        "replace_distinct_aggregate" => Parts::DISTINCT,
        "eliminate_duplicated_expr" => Parts::SORT | Parts::GROUPING,
        "eliminate_filter" => Parts::FILTER,
        "push_down_filter" => Parts::FILTER | Parts::JOIN,
        "eliminate_limit" | "push_down_limit" => Parts::LIMIT,
        "propagate_empty_relation" => Parts::EMPTY,
        _ => Parts::ANY,
    }
}
