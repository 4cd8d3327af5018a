//! Joins: what DataFusion hashes ends in a build, the other side goes on with a probe, and where tuples of the build
//! side count that have matched or not, a second branch goes through those. A join without keys is one of rows that all
//! match.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{JoinSide, JoinType, NullEquality, Result as DfResult, internal_err};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use weft_exec::join::Nulls;

use super::asks::Asks;
use super::compare::have_one_order;
use super::expressions::Expr;
use super::join_build::joined;
use super::join_sides::Sides;
use super::open::Open;
use super::translate::{Translator, column_of};
use super::{index_choice, index_join};
use crate::plan_node::Plan;

/// A join of two inputs, whatever DataFusion calls it.
pub(super) struct Joining<'a> {
    pub(super) left: &'a Plan,
    pub(super) right: &'a Plan,
    pub(super) keys: &'a [(Expr, Expr)],
    pub(super) nulls: Nulls,
    pub(super) filter: Option<&'a JoinFilter>,
    pub(super) join_type: JoinType,
    /// Which columns it gives, of those that joins of its type have.
    pub(super) projection: Option<&'a [usize]>,
}

/// A column of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinColumn {
    /// Of the left input.
    Left(usize),
    /// Of the right input.
    Right(usize),
    /// Whether there is a match.
    Mark,
}

impl<'a> Joining<'a> {
    /// All pairs of rows of two inputs.
    fn pairs(left: &'a Plan, right: &'a Plan) -> Joining<'a> {
        Joining {
            left,
            right,
            keys: &[],
            nulls: Nulls::Never,
            filter: None,
            join_type: JoinType::Inner,
            projection: None,
        }
    }

    /// The columns that it gives.
    pub(super) fn columns(&self) -> Vec<JoinColumn> {
        use JoinType::{
            Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
        };
        let left = (0..width(self.left)).map(JoinColumn::Left);
        let right = (0..width(self.right)).map(JoinColumn::Right);
        let all: Vec<JoinColumn> = match self.join_type {
            Inner | Left | Right | Full => left.chain(right).collect(),
            LeftSemi | LeftAnti => left.collect(),
            RightSemi | RightAnti => right.collect(),
            LeftMark => left.chain([JoinColumn::Mark]).collect(),
            RightMark => right.chain([JoinColumn::Mark]).collect(),
        };
        match self.projection {
            Some(projection) => projection.iter().map(|column| all[*column]).collect(),
            None => all,
        }
    }

    /// What an input may be asked of `asks`: about its own columns, and about those that the other input's are equal to
    /// in every match. All that it loses are rows of the join with just these values, or matches of such rows. But rows
    /// that are completed with nulls where there is no match have other values then, and nothing is asked about them;
    /// and where a null makes it unknown whether there is a match, the other input keeps its nulls.
    pub(super) fn below(&self, asks: &Asks, input: JoinSide) -> Asks {
        use JoinType::{
            Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, Right, RightAnti, RightMark, RightSemi,
        };
        let is_kept = |side| match self.join_type {
            Inner => true,
            Left | LeftSemi | LeftAnti | LeftMark => side == JoinSide::Left,
            Right | RightSemi | RightAnti | RightMark => side == JoinSide::Right,
            Full => false,
        };
        let key = |(left, right): &(Expr, Expr)| Some((column_of(left)?, column_of(right)?));
        let equal = self.keys.iter().filter(|_| self.nulls != Nulls::Unknown);
        let keys: Vec<(usize, usize)> = equal.filter_map(key).collect();
        let columns = self.columns();
        let below = asks.below(|column| match (columns[column], input) {
            (JoinColumn::Left(column), JoinSide::Left) if is_kept(input) => Some(column),
            (JoinColumn::Right(column), JoinSide::Right) if is_kept(input) => Some(column),
            (JoinColumn::Left(column), JoinSide::Right) if is_kept(JoinSide::Left) => {
                keys.iter().find(|(left, _)| *left == column).map(|(_, right)| *right)
            }
            (JoinColumn::Right(column), JoinSide::Left) if is_kept(JoinSide::Right) => {
                keys.iter().find(|(_, right)| *right == column).map(|(left, _)| *left)
            }
            _ => None,
        });
        below.across()
    }

    /// The columns that its condition is about.
    pub(super) fn filter_columns(&self) -> DfResult<Vec<JoinColumn>> {
        let indices: &[ColumnIndex] = self.filter.map_or(&[], JoinFilter::column_indices);
        let column = |column: &ColumnIndex| match column.side {
            JoinSide::Left => Ok(JoinColumn::Left(column.index)),
            JoinSide::Right => Ok(JoinColumn::Right(column.index)),
            JoinSide::None => internal_err!("a condition of a join about no input"),
        };
        indices.iter().map(column).collect()
    }
}

fn width(plan: &Plan) -> usize {
    plan.schema().fields().len()
}

/// Why a join has no pipelines.
pub(super) fn unsupported(plan: &Plan) -> Option<String> {
    let node = plan.downcast_ref::<HashJoinExec>()?;
    let schemas: [SchemaRef; 2] = [node.left().schema(), node.right().schema()];
    node.on().iter().find_map(|(left, right)| {
        let types =
            left.data_type(&schemas[0]).and_then(|a| Ok((a, right.data_type(&schemas[1])?)));
        match types {
            // Values without an order of their own are compared as bytes, which is right for equality.
            Ok((left, right)) if left == right || have_one_order(&left, &right) => None,
            Ok((left, right)) => Some(format!("keys of {left} and {right}")),
            Err(error) => Some(error.to_string()),
        }
    })
}

/// What a node joins, if it does.
pub(super) fn joining(plan: &Plan) -> Option<Joining<'_>> {
    if let Some(node) = plan.downcast_ref::<HashJoinExec>() {
        let nulls = match (node.null_aware, node.null_equality()) {
            (true, _) => Nulls::Unknown,
            (false, NullEquality::NullEqualsNull) => Nulls::Equal,
            (false, NullEquality::NullEqualsNothing) => Nulls::Never,
        };
        return Some(Joining {
            left: node.left(),
            right: node.right(),
            keys: node.on(),
            nulls,
            filter: node.filter(),
            join_type: *node.join_type(),
            projection: node.projection.as_ref().map(AsRef::as_ref),
        });
    }
    if let Some(node) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return Some(Joining {
            filter: node.filter(),
            join_type: *node.join_type(),
            projection: node.projection().as_ref().map(AsRef::as_ref),
            ..Joining::pairs(node.left(), node.right())
        });
    }
    let node = plan.downcast_ref::<CrossJoinExec>()?;
    Some(Joining::pairs(node.left(), node.right()))
}

/// The rows of a join.
///
/// # Errors
/// Those of its expressions.
pub(super) fn join(
    translator: &mut Translator,
    joining: &Joining<'_>,
    asks: &Asks,
) -> DfResult<Open> {
    if let Some(choice) = index_choice::choose(translator, joining) {
        return index_join::join(translator, joining, &choice, asks);
    }
    // Only a probe knows what is unknown.
    let is_unknown = joining.nulls == Nulls::Unknown;
    let sides = if is_unknown { Sides::BuildRight } else { Sides::BuildLeft };
    joined(translator, joining, sides, asks)
}
