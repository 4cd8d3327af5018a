//! Aggregations: keys and arguments end a pipeline, the groups begin the next one.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Result as DfResult, internal_err};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use weft_exec::Lane;
use weft_exec::aggregate::{Aggregate, Aggregation, Keys, Output};
use weft_exec::program::{Constant, Program, Register, Step};

use super::aggregate_function::aggregate_of;
use super::asks::Asks;
use super::description::{list, shortened};
use super::expressions::Expressions;
use super::open::Open;
use super::term::{Term, in_register};
use super::translate::{Translator, column_of, passed};
use crate::plan_node::Plan;

/// The aggregation in one phase that two nodes do in two phases, or that one does already.
pub(super) fn in_one_phase(aggregate: &AggregateExec) -> Option<DfResult<AggregateExec>> {
    match aggregate.mode() {
        AggregateMode::Single | AggregateMode::SinglePartitioned => Some(Ok(aggregate.clone())),
        AggregateMode::Final | AggregateMode::FinalPartitioned => {
            let mut input: &Plan = aggregate.input();
            while let Some(inner) = passed(input) {
                input = inner;
            }
            let partial = input.downcast_ref::<AggregateExec>()?;
            (*partial.mode() == AggregateMode::Partial).then(|| {
                AggregateExec::try_new(
                    AggregateMode::Single,
                    partial.group_expr().clone(),
                    partial.aggr_expr().to_vec(),
                    partial.filter_expr().to_vec(),
                    partial.input().clone(),
                    partial.input_schema(),
                )
            })
        }
        _ => None,
    }
}

/// The groups of an aggregation in one phase. Groups that `asks` drop need not be made: if all keys that are asked
/// about are grouped by, rows are left out before.
///
/// # Errors
/// Those of its expressions.
pub(super) fn aggregate(
    translator: &mut Translator,
    node: &AggregateExec,
    asks: &Asks,
) -> DfResult<Open> {
    let below = asks.below(|column| {
        // What is left out in a grouping set is null, and another one has a group for no rows.
        let keys = node.group_expr();
        let key = keys.expr().get(column).filter(|_| !keys.has_grouping_set());
        key.and_then(|(key, _)| column_of(key))
    });
    let here = asks.rest(&[&below]);
    let open = translator.asked(node.input(), below.across())?;
    let mut open = translator.unwindowed(open)?;
    open.begin_sink();
    let input = node.input().schema();
    let by = node.group_expr();
    let mut code = Expressions::new(&mut open.program, &open.columns, &input);
    let keys: DfResult<Vec<Term>> = by.expr().iter().map(|(key, _)| code.term(key)).collect();
    let keys = keys?;
    let has_keys = !by.is_true_no_grouping();
    // A grouping set without keys has a group even if there are no rows.
    let has_rows = has_keys && !by.has_grouping_set();
    let mut aggregates: Vec<Aggregate> = Vec::new();
    for (function, filter) in node.aggr_expr().iter().zip(node.filter_expr()) {
        aggregates.push(aggregate_of(&mut code, function, filter.as_ref(), has_rows)?);
    }
    let schema = node.schema();
    let program = &mut open.program;
    let (aggregation, keys) = if !has_keys {
        (Aggregation::without_keys(program, &aggregates), keys)
    } else if by.has_grouping_set() {
        let Some(id) = schema.fields().get(keys.len()) else {
            return internal_err!("grouping sets have a number");
        };
        let sets = sets(program, keys, by.groups(), Lane::of(id.data_type()))?;
        let mut terms = sets.terms;
        terms.push(Term::new(Register(0), Lane::of(id.data_type()), id.data_type(), false));
        let lanes: Vec<(Lane, bool)> =
            terms.iter().map(|term| (term.lane, term.is_nullable)).collect();
        (Aggregation::by_keys(program, &lanes, sets.keys, &aggregates, sets.always), terms)
    } else {
        let registers = keys.iter().map(|key| in_register(program, key)).collect();
        let by_all = Keys::new(program, registers);
        let lanes: Vec<(Lane, bool)> =
            keys.iter().map(|term| (term.lane, term.is_nullable)).collect();
        (Aggregation::by_keys(program, &lanes, vec![by_all], &aggregates, Vec::new()), keys)
    };
    let label = label(node);
    let after = open.close(aggregation.sink(), &label, &mut translator.closed);
    let outputs: Vec<Output> = (0..keys.len())
        .map(Output::Key)
        .chain((0..aggregates.len()).map(Output::Aggregate))
        .collect();
    let lanes: Vec<Lane> = keys
        .iter()
        .map(|term| term.lane)
        .chain(aggregates.iter().map(|aggregate| aggregate.result))
        .collect();
    let groups = Open::new(aggregation.source(outputs), "groups", &lanes, |registers| {
        let of_keys = keys.iter().zip(registers).map(|(key, register)| key.moved(*register));
        let results = registers.iter().zip(&lanes).zip(schema.fields()).skip(keys.len());
        let of_results = results.map(|((register, lane), field)| {
            Term::new(*register, *lane, field.data_type(), field.is_nullable())
        });
        of_keys.chain(of_results).collect()
    });
    let mut groups = groups.after(&after);
    here.ask(&mut groups);
    Ok(groups)
}

/// The aggregation in words: its keys, and its functions.
fn label(node: &AggregateExec) -> String {
    let by = node.group_expr();
    let label = match by.is_true_no_grouping() {
        false => format!("group by {}", list(by.expr().iter().map(|(key, _)| key))),
        true => "aggregate".to_owned(),
    };
    let functions: Vec<&str> = node
        .aggr_expr()
        .iter()
        .map(|function| function.human_display().unwrap_or(function.name()))
        .collect();
    match functions.is_empty() {
        true => label,
        false => format!("{label}: {}", shortened(&functions.join(", "))),
    }
}

/// GROUPING SETS.
struct Sets {
    /// The keys, which may be null in some sets.
    terms: Vec<Term>,
    keys: Vec<Keys>,
    /// The keys of groups that there are without any rows.
    always: Vec<Vec<Option<Constant>>>,
}

/// Fills the keys that are not in a set with nulls, and adds the set's number: a bit for each of these keys, and how
/// many times the same set came before.
fn sets(
    program: &mut Program,
    keys: Vec<Term>,
    groups: &[Vec<bool>],
    lane: Lane,
) -> DfResult<Sets> {
    let terms: Vec<Term> = keys
        .into_iter()
        .enumerate()
        .map(|(number, key)| {
            let register = in_register(program, &key);
            let is_left_out = groups.iter().any(|group| group[number]);
            let is_nullable = key.is_nullable || is_left_out;
            Term { is_nullable, ..key.moved(register) }
        })
        .collect();
    let mut nulls: HashMap<usize, Register> = HashMap::new();
    let mut seen: HashMap<&[bool], u64> = HashMap::new();
    let mut sets = Sets { terms: Vec::new(), keys: Vec::new(), always: Vec::new() };
    for group in groups {
        let before = seen.entry(group).or_insert(0);
        let bits = group.iter().fold(0u64, |bits, is_null| bits << 1 | u64::from(*is_null));
        let number = Constant::of_integer(i128::from(bits | *before << group.len()), lane);
        *before += 1;
        let Some(number) = number else { return internal_err!("so many grouping sets") };
        let mut registers = Vec::new();
        for (key, (term, is_null)) in terms.iter().zip(group).enumerate() {
            registers.push(if *is_null {
                *nulls.entry(key).or_insert_with(|| {
                    let out = program.register(term.lane);
                    program.steps.push(Step::Fill { value: None, out });
                    out
                })
            } else {
                in_register(program, term)
            });
        }
        let out = program.register(lane);
        program.steps.push(Step::Fill { value: Some(number.clone()), out });
        registers.push(out);
        sets.keys.push(Keys::new(program, registers));
        if group.iter().all(|is_null| *is_null) {
            let none = group.iter().map(|_| None);
            sets.always.push(none.chain([Some(number)]).collect());
        }
    }
    Ok(Sets { terms, ..sets })
}

/// Why an aggregation has no pipelines.
pub(super) fn unsupported(node: &AggregateExec) -> Option<String> {
    let is_single = matches!(node.mode(), AggregateMode::Single | AggregateMode::SinglePartitioned);
    if !is_single {
        return Some("it is one phase of several".to_owned());
    }
    let has_no_keys = node.group_expr().expr().is_empty();
    (has_no_keys && node.group_expr().has_grouping_set() && node.aggr_expr().is_empty())
        .then(|| "grouping sets without keys".to_owned())
}

/// A plan whose aggregations in two phases are done in one.
pub(super) fn without_phases(plan: &Plan) -> DfResult<Plan> {
    match plan.downcast_ref::<AggregateExec>().and_then(in_one_phase) {
        Some(Ok(aggregate)) if *aggregate.mode() != *mode_of(plan) => {
            named(Arc::new(aggregate), plan)
        }
        Some(Err(error)) => Err(error),
        _ => Ok(plan.clone()),
    }
}

/// The columns of a plan with the names that those of another have. (A function that is reversed, as `first_value` becomes
/// `last_value` of the opposite order, has another name in the phase that DataFusion has reversed it in.)
fn named(plan: Plan, other: &Plan) -> DfResult<Plan> {
    let (own, wanted) = (plan.schema(), other.schema());
    let fields = own.fields().iter().zip(wanted.fields());
    if fields.clone().all(|(own, wanted)| own.name() == wanted.name()) {
        return Ok(plan);
    }
    let columns = fields.enumerate().map(|(number, (own, wanted))| ProjectionExpr {
        expr: Arc::new(Column::new(own.name(), number)),
        alias: wanted.name().clone(),
    });
    Ok(Arc::new(ProjectionExec::try_new(columns.collect::<Vec<_>>(), plan)?))
}

fn mode_of(plan: &Plan) -> &AggregateMode {
    plan.downcast_ref::<AggregateExec>().map_or(&AggregateMode::Single, AggregateExec::mode)
}
