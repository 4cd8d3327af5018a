//! A join's build side ends in a sink that materializes and hashes it; then the probe side goes on.

use std::sync::Arc;

use datafusion::common::Result as DfResult;
use weft_exec::Lane;
use weft_exec::join::{Build, Join, Key, Which};
use weft_exec::program::{Constant, Program, Register, Step};

use super::expressions::{Expr, Expressions};
use super::join::Joining;
use super::join_probe::Joiner;
use super::join_sides::{Fate, Sides, fate, of_build};
use super::open::Open;
use super::stored::Stored;
use super::term::{Term, common_lane, in_lane};
use super::translate::{Plan, Translator};

/// The rows of a join.
///
/// # Errors
/// Those of its expressions.
pub(super) fn joined(
    translator: &mut Translator,
    joining: &Joining<'_>,
    sides: Sides,
) -> DfResult<Open> {
    let (build, probe) = match sides {
        Sides::BuildLeft => (joining.left, joining.right),
        Sides::BuildRight => (joining.right, joining.left),
    };
    let mut build_open = input(translator, build)?;
    let mut probe_open = input(translator, probe)?;
    let mut build_keys = terms(&mut build_open, build, joining.keys, sides == Sides::BuildLeft)?;
    let mut probe_keys = terms(&mut probe_open, probe, joining.keys, sides == Sides::BuildRight)?;
    for (a, b) in build_keys.iter_mut().zip(&mut probe_keys) {
        let lane = common_lane([a.lane, b.lane]).unwrap_or(a.lane);
        *a = in_lane(&mut build_open.program, a.clone(), lane);
        *b = in_lane(&mut probe_open.program, b.clone(), lane);
    }
    let (columns, filter_columns) = (joining.columns(), joining.filter_columns()?);
    let fate = fate(joining.join_type, sides);
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
    let fields: Vec<usize> = build_keys.iter().map(|key| stored.add_field(program, key)).collect();
    let (layout, registers) = stored.finish();
    let key_registers: Vec<Register> = fields.iter().map(|field| registers[*field]).collect();
    let keys = fields.iter().map(|field| Key { field: *field, nulls: joining.nulls }).collect();
    let is_preserved =
        matches!(fate, Fate::Pairs { rest: true, .. } | Fate::Build(Which::Unmatched | Which::All));
    let hash = hash(program, key_registers);
    let join = Arc::new(Join::new(layout, keys, is_preserved, false));
    let sink = Box::new(Build::new(join.clone(), hash, registers));
    let after = build_open.close(sink, "build", &mut translator.closed);
    let probe_open = probe_open.after(&after);
    let joiner = Joiner { joining, fate, columns, filter_columns, sides, join, stored: kept };
    joiner.probe(translator, probe_open, probe_keys)
}

fn input(translator: &mut Translator, plan: &Plan) -> DfResult<Open> {
    let open = translator.node(plan)?;
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
