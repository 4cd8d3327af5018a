//! A join's build side ends in a sink that materializes and hashes it; then the probe side goes on, which may ask the
//! build side's filters wherever it loses nothing by it.

use std::sync::Arc;

use datafusion::common::{JoinSide, Result as DfResult};
use weft_exec::Lane;
use weft_exec::join::{Build, Join, Key, Which};
use weft_exec::program::{Constant, Program, Register, Step};

use super::asks::{Asks, Origin};
use super::expressions::{Expr, Expressions};
use super::join::Joining;
use super::join_probe::Joiner;
use super::join_sides::{Fate, Sides, fate, of_build};
use super::open::Open;
use super::stored::Stored;
use super::term::{Term, common_lane, in_lane};
use super::translate::{Translator, column_of};
use crate::plan_node::Plan;

/// The rows of a join, but for those that `asks` drop, if they are left out by one of its inputs.
///
/// # Errors
/// Those of its expressions.
pub(super) fn joined(
    translator: &mut Translator,
    joining: &Joining<'_>,
    sides: Sides,
    asks: &Asks,
) -> DfResult<Open> {
    let [left, right] = [JoinSide::Left, JoinSide::Right].map(|side| joining.below(asks, side));
    let here = asks.rest(&[&left, &right]);
    let (build, probe, build_asks, mut probe_asks) = match sides {
        Sides::BuildLeft => (joining.left, joining.right, left, right),
        Sides::BuildRight => (joining.right, joining.left, right, left),
    };
    let fate = fate(joining.join_type, sides);
    let mut build_open = input(translator, build, build_asks)?;
    build_open.begin_sink();
    let mut build_keys = terms(&mut build_open, build, joining.keys, sides == Sides::BuildLeft)?;
    let reserved = build_open.reserve(&mut translator.closed);
    let lanes = build_keys.iter().map(|key| key.lane).collect();
    let origin = Origin::new(&reserved.numbers, lanes, joining.nulls);
    if fate.drops_probe() {
        probe_asks.add(&origin, |key| {
            let (left, right) = &joining.keys[key];
            column_of(if sides == Sides::BuildLeft { right } else { left })
        });
    }
    let mut probe_open = input(translator, probe, probe_asks)?;
    let start = probe_open.steps();
    let mut probe_keys = terms(&mut probe_open, probe, joining.keys, sides == Sides::BuildRight)?;
    for (a, b) in build_keys.iter_mut().zip(&mut probe_keys) {
        let lane = common_lane([a.lane, b.lane]).unwrap_or(a.lane);
        *a = in_lane(&mut build_open.program, a.clone(), lane);
        *b = in_lane(&mut probe_open.program, b.clone(), lane);
    }
    let lanes: Vec<Lane> = build_keys.iter().map(|key| key.lane).collect();
    let (columns, filter_columns) = (joining.columns(), joining.filter_columns()?);
    let is_optional = matches!(fate, Fate::Pairs { outer: true, .. });
    let mut stored = Stored::default();
    let mut kept = vec![None; build_open.columns.len()];
    for column in columns.iter().chain(&filter_columns) {
        if let Some(column) = of_build(*column, sides).filter(|column| kept[*column].is_none()) {
            let term = &build_open.columns[column];
            kept[column] = Some(match is_optional {
                true => stored.add_optional(&mut build_open.program, term),
                false => stored.add(term),
            });
        }
    }
    let program = &mut build_open.program;
    let fields: Vec<usize> = build_keys.iter().map(|key| stored.add_key(program, key)).collect();
    let (layout, registers) = stored.finish_compact();
    let key_registers: Vec<Register> = fields.iter().map(|field| registers[*field]).collect();
    let keys = fields.iter().map(|field| Key { field: *field, nulls: joining.nulls }).collect();
    let is_preserved =
        matches!(fate, Fate::Pairs { rest: true, .. } | Fate::Build(Which::Unmatched | Which::All));
    let hash = hash(program, key_registers);
    let join = Arc::new(Join::new(layout, keys, is_preserved, origin.filters(&lanes)));
    let sink = Box::new(Build::new(join.clone(), hash, registers));
    build_open.close_as(&reserved, sink, "build", &mut translator.closed);
    let probe_open = probe_open.after(&reserved.numbers);
    let stored = kept;
    let joiner = Joiner { joining, fate, columns, filter_columns, sides, join, stored, start };
    let mut open = joiner.probe(translator, probe_open, probe_keys)?;
    here.ask(&mut open);
    Ok(open)
}

fn input(translator: &mut Translator, plan: &Plan, asks: Asks) -> DfResult<Open> {
    let open = translator.asked(plan, asks)?;
    translator.unwindowed(open)
}

/// The keys of one side.
fn terms(
    open: &mut Open,
    plan: &Plan,
    keys: &[(Expr, Expr)],
    is_left: bool,
) -> DfResult<Vec<Term>> {
    let schema = plan.schema();
    let mut code = Expressions::new(&mut open.program, &open.columns, &schema);
    let key = |(left, right): &(Expr, Expr)| code.term(if is_left { left } else { right });
    keys.iter().map(key).collect()
}

/// The hash of keys; the same for all tuples if there are none.
pub(super) fn hash(program: &mut Program, keys: Vec<Register>) -> Register {
    let out = program.register(Lane::U64);
    program.steps.push(if keys.is_empty() {
        Step::Fill { value: Some(Constant::U64(0)), out }
    } else {
        Step::Hash { keys, out }
    });
    out
}
