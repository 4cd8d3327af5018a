//! ROLLUP, CUBE and GROUPING SETS as people write them and DataFusion refuses them, as grouping sets that it knows: with
//! keys that occur twice, with several columns that are one key, as in `ROLLUP ((a, b), c)`, in each other, as in
//! `GROUPING SETS (ROLLUP (a, b), c)`, beside each other, and with numbers of columns.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select,
    SelectItem, Value, Visit, Visitor,
};

use crate::error::{ErrorKind, SqlError};

/// Most keys of a CUBE that is put as grouping sets.
const CUBE_KEYS_MAX: usize = 12;

/// Puts grouping sets in place of what DataFusion refuses.
///
/// # Errors
/// [`ErrorKind::Semantic`] for the number of a column that there is not, and [`ErrorKind::NotSupported`] for a CUBE of
/// too many keys.
pub(crate) fn expand(select: &mut Select) -> ControlFlow<SqlError> {
    let GroupByExpr::Expressions(exprs, _) = &mut select.group_by else {
        return ControlFlow::Continue(());
    };
    // One group of all rows, which beside other keys says nothing.
    let keys = exprs.len();
    exprs.retain(|expr| !matches!(expr, Expr::Tuple(columns) if columns.is_empty()));
    if exprs.is_empty() && keys > 0 {
        exprs.push(Expr::GroupingSets(vec![Vec::new()]));
    }
    if exprs.is_empty()
        && select.having.is_some()
        && !calls_functions(&select.projection, &select.having)
    {
        exprs.push(Expr::GroupingSets(vec![Vec::new()]));
    }
    // Columns in parentheses are keys one by one.
    *exprs = std::mem::take(exprs)
        .into_iter()
        .flat_map(|expr| match expr {
            Expr::Tuple(columns) => columns,
            other => vec![other],
        })
        .collect();
    for expr in exprs.iter_mut() {
        let (Expr::Rollup(keys) | Expr::Cube(keys) | Expr::GroupingSets(keys)) = expr else {
            continue;
        };
        for key in keys.iter_mut().flatten() {
            name_numbered(key, &select.projection)?;
        }
        let mut seen = HashSet::new();
        let is_plain = keys.iter().all(|key| key.len() == 1)
            && keys.iter().flatten().all(|key| seen.insert(key));
        let sets = match expr {
            Expr::Rollup(keys) if !is_plain => rolled_up(keys),
            Expr::Cube(keys) if !is_plain => cubed(keys)?,
            Expr::GroupingSets(sets) => {
                let mut expanded = Vec::with_capacity(sets.len());
                for set in sets {
                    expanded.extend(nested(set, &select.projection)?);
                }
                expanded
            }
            _ => continue,
        };
        *expr = Expr::GroupingSets(sets);
    }
    combine(exprs, &select.projection)
}

/// True if there may be an aggregate, with which all rows are one group anyway.
fn calls_functions(projection: &[SelectItem], having: &Option<Expr>) -> bool {
    struct Functions;
    impl Visitor for Functions {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let in_items = projection.iter().any(|item| item.visit(&mut Functions).is_break());
    in_items || having.visit(&mut Functions).is_break()
}

/// Puts all combinations of grouping sets that stand beside each other, and beside other keys, as one list of sets.
fn combine(exprs: &mut Vec<Expr>, items: &[SelectItem]) -> ControlFlow<SqlError> {
    let is_sets =
        |expr: &Expr| matches!(expr, Expr::GroupingSets(_) | Expr::Rollup(_) | Expr::Cube(_));
    if exprs.len() < 2 || !exprs.iter().any(is_sets) {
        return ControlFlow::Continue(());
    }
    let mut combined = vec![Vec::new()];
    for expr in exprs.iter_mut() {
        let sets = match expr {
            Expr::GroupingSets(sets) => std::mem::take(sets),
            Expr::Rollup(keys) => rolled_up(keys),
            Expr::Cube(keys) => cubed(keys)?,
            key => {
                name_numbered(key, items)?;
                vec![vec![key.clone()]]
            }
        };
        if combined.len() * sets.len() > 1 << CUBE_KEYS_MAX {
            let problem = format!("more than {} grouping sets", 1 << CUBE_KEYS_MAX);
            return ControlFlow::Break(SqlError::not_supported(problem));
        }
        let with = |left: &Vec<Expr>, right: &Vec<Expr>| {
            let mut seen = HashSet::new();
            let keys = left.iter().chain(right).filter(|key| seen.insert(*key));
            keys.cloned().collect::<Vec<Expr>>()
        };
        combined = combined
            .iter()
            .flat_map(|left| sets.iter().map(move |right| with(left, right)))
            .collect();
    }
    *exprs = vec![Expr::GroupingSets(combined)];
    ControlFlow::Continue(())
}

/// The grouping sets of ROLLUP.
fn rolled_up(keys: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=keys.len()).rev().map(|count| keys[..count].concat()).collect()
}

/// The grouping sets of CUBE.
fn cubed(keys: &[Vec<Expr>]) -> ControlFlow<SqlError, Vec<Vec<Expr>>> {
    if keys.len() > CUBE_KEYS_MAX {
        let problem = format!("CUBE of {} keys that are not all single ones", keys.len());
        let hint = format!("use {CUBE_KEYS_MAX} keys at most, or GROUPING SETS");
        return ControlFlow::Break(SqlError::not_supported(problem).with_hint(hint));
    }
    let subsets = (0..1_usize << keys.len()).rev();
    let chosen = |subset: usize| {
        let chosen = (0..keys.len()).filter(move |key| subset >> key & 1 == 1);
        chosen.flat_map(|key| keys[key].iter().cloned()).collect()
    };
    ControlFlow::Continue(subsets.map(chosen).collect())
}

/// The grouping sets that one of GROUPING SETS is: several if it is a ROLLUP or CUBE, which are parsed as functions.
fn nested(set: &[Expr], items: &[SelectItem]) -> ControlFlow<SqlError, Vec<Vec<Expr>>> {
    let itself = || ControlFlow::Continue(vec![set.to_vec()]);
    let [Expr::Function(function)] = set else { return itself() };
    let name = function.name.to_string().to_lowercase();
    let Some(mut keys) = keys_of(function).filter(|_| name == "rollup" || name == "cube") else {
        return itself();
    };
    for key in keys.iter_mut().flatten() {
        name_numbered(key, items)?;
    }
    match name.as_str() {
        "rollup" => ControlFlow::Continue(rolled_up(&keys)),
        _ => cubed(&keys),
    }
}

/// The arguments of a function as keys.
fn keys_of(function: &Function) -> Option<Vec<Vec<Expr>>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let key = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(columns))) => Some(columns.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Nested(column))) => {
            Some(vec![column.as_ref().clone()])
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(column)) => Some(vec![column.clone()]),
        _ => None,
    };
    list.args.iter().map(key).collect()
}

/// Puts a column of the select list in place of its number.
fn name_numbered(key: &mut Expr, items: &[SelectItem]) -> ControlFlow<SqlError> {
    let Expr::Value(value) = &*key else { return ControlFlow::Continue(()) };
    let Value::Number(number, _) = &value.value else { return ControlFlow::Continue(()) };
    let at = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let Some(at) = at.filter(|at| *at < items.len()) else {
        let problem = format!("GROUP BY has {number}, but there is no such column");
        let hint = format!("the columns of the select list have the numbers 1 to {}", items.len());
        return ControlFlow::Break(SqlError::new(ErrorKind::Semantic, problem).with_hint(hint));
    };
    let columns = items[..=at].iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    });
    match columns.collect::<Option<Vec<&Expr>>>().as_deref() {
        Some([.., column]) => *key = (*column).clone(),
        _ => {
            let problem = format!("GROUP BY has {number} for a column behind *");
            let hint = "name the column instead";
            return ControlFlow::Break(SqlError::not_supported(problem).with_hint(hint));
        }
    }
    ControlFlow::Continue(())
}
