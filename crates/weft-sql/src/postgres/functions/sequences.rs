//! Functions of sequences, as PostgreSQL has them.

use datafusion::logical_expr::Volatility;

use crate::postgres::functions::{
    Arguments, Definition, Surroundings, define, number, number_type,
};
use crate::sequences;

pub(crate) fn functions() -> Vec<Definition> {
    let all = [
        define("nextval", (1, 1), number_type, |around, arguments| {
            number(arguments.text(0).map(|name| sequences::next(around, &name)).transpose()?)
        }),
        define("currval", (1, 1), number_type, |around, arguments| {
            number(arguments.text(0).map(|name| sequences::current(around, &name)).transpose()?)
        }),
        define("lastval", (0, 0), number_type, |around, _| number(Some(sequences::last(around)?))),
        define("setval", (2, 3), number_type, set),
    ];
    // Each call is one of its own, and none is computed before the statement runs.
    let volatile = |of| Definition { volatility: Volatility::Volatile, ..of };
    all.into_iter().map(volatile).collect()
}

/// `setval(name, value[, is_given])`
fn set(
    around: &Surroundings,
    arguments: &Arguments<'_>,
) -> crate::error::Result<datafusion::common::ScalarValue> {
    let is_given = match arguments.value(2) {
        Some(_) => arguments.is_true(2),
        None => Some(true),
    };
    match (arguments.text(0), arguments.number(1), is_given) {
        (Some(name), Some(value), Some(is_given)) => {
            let snapshot = around.snapshot()?;
            let sequence = sequences::name_in(&name)?;
            around.access(&snapshot).check_sequence(&snapshot, &sequence)?;
            number(Some(sequences::set(around, &name, value, is_given)?))
        }
        _ => number(None),
    }
}
