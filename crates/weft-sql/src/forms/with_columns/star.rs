//! `*` and `t.*` with EXCLUDE, EXCEPT, REPLACE and RENAME, as the columns that are meant.

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, RenameSelectItem, Select, SelectItem, TableWithJoins,
    WildcardAdditionalOptions, With,
};

use super::item;
use super::probe::{FromColumn, columns_of};
use crate::error::{ErrorKind, Position, Result, SqlError};
use crate::statement::fold;

/// A column that `*` stands for: what it is computed from, and its name.
#[derive(Clone, Debug)]
pub(super) struct Picked {
    pub(super) expr: Expr,
    pub(super) name: String,
}

/// True if a select list has `*` with options.
pub(super) fn is_in(items: &[SelectItem]) -> bool {
    items.iter().any(|item| {
        matches!(item, SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)
            if has_options(options))
    })
}

fn has_options(options: &WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_some()
        || options.opt_except.is_some()
        || options.opt_replace.is_some()
        || options.opt_rename.is_some()
}

/// Writes out the columns of `*` with options.
///
/// # Errors
/// [`ErrorKind::Semantic`] for names of options that no column has.
pub(super) fn write_out(select: &mut Select, state: &SessionState, withs: &[With]) -> Result<()> {
    if !is_in(&select.projection) {
        return Ok(());
    }
    let mut written = Vec::with_capacity(select.projection.len());
    for old in std::mem::take(&mut select.projection) {
        let options = match &old {
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)
                if has_options(options) =>
            {
                options.clone()
            }
            _ => {
                written.push(old);
                continue;
            }
        };
        let picked = picked(&select.from, old, &options, state, withs)?;
        if picked.is_empty() {
            return Err(SqlError::new(ErrorKind::Semantic, "* EXCLUDE leaves no column"));
        }
        written.extend(picked.into_iter().map(|picked| item(picked.expr, &picked.name)));
    }
    select.projection = written;
    Ok(())
}

/// The columns that an item stands for, `*` or `t.*`, with its options.
///
/// # Errors
/// As [`write_out`].
pub(super) fn picked(
    from: &[TableWithJoins],
    item: SelectItem,
    options: &WildcardAdditionalOptions,
    state: &SessionState,
    withs: &[With],
) -> Result<Vec<Picked>> {
    let plain = match item {
        SelectItem::QualifiedWildcard(kind, _) => {
            SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())
        }
        _ => SelectItem::Wildcard(WildcardAdditionalOptions::default()),
    };
    let columns = columns_of(state, from, plain, withs)?;
    let mut picked: Vec<Option<Picked>> = columns
        .iter()
        .map(|column| Some(Picked { expr: column.expr(), name: column.name.clone() }))
        .collect();
    for (table, name) in excluded(options) {
        for place in places(&columns, table, name, "EXCLUDE")? {
            picked[place] = None;
        }
    }
    for replaced in options.opt_replace.iter().flat_map(|replace| &replace.items) {
        for place in places(&columns, None, &replaced.column_name, "REPLACE")? {
            let Some(picked) = &mut picked[place] else {
                return Err(excluded_already(&replaced.column_name, "REPLACE"));
            };
            picked.expr = replaced.expr.clone();
        }
    }
    for (old, new) in renamed(options) {
        for place in places(&columns, None, old, "RENAME")? {
            let Some(picked) = &mut picked[place] else {
                return Err(excluded_already(old, "RENAME"));
            };
            picked.name = fold(new.value.clone(), new.quote_style);
        }
    }
    Ok(picked.into_iter().flatten().collect())
}

/// The columns to leave out, some with their tables.
fn excluded(options: &WildcardAdditionalOptions) -> Vec<(Option<&Ident>, &Ident)> {
    let mut names = Vec::new();
    let excluded = match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => vec![name],
        Some(ExcludeSelectItem::Multiple(several)) => several.iter().collect(),
        None => Vec::new(),
    };
    for name in excluded {
        let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
        if let [before @ .., column] = parts.as_slice() {
            names.push((before.last().copied(), *column));
        }
    }
    if let Some(except) = &options.opt_except {
        names.push((None, &except.first_element));
        names.extend(except.additional_elements.iter().map(|name| (None, name)));
    }
    names
}

/// The columns to rename, with their new names.
fn renamed(options: &WildcardAdditionalOptions) -> Vec<(&Ident, &Ident)> {
    match &options.opt_rename {
        Some(RenameSelectItem::Single(one)) => vec![(&one.ident, &one.alias)],
        Some(RenameSelectItem::Multiple(several)) => {
            several.iter().map(|one| (&one.ident, &one.alias)).collect()
        }
        None => Vec::new(),
    }
}

/// The places of the columns that a name means: those that are written so, else those that differ in the case of letters.
///
/// # Errors
/// [`ErrorKind::Semantic`] if there is none.
pub(super) fn places(
    columns: &[FromColumn],
    table: Option<&Ident>,
    name: &Ident,
    clause: &str,
) -> Result<Vec<usize>> {
    let is_of_table = |column: &FromColumn| {
        table.is_none_or(|table| {
            let table = fold(table.value.clone(), table.quote_style);
            column.table.as_ref().is_some_and(|of| of.table() == table)
        })
    };
    let folded = fold(name.value.clone(), name.quote_style);
    let those = |is_meant: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let all = columns.iter().enumerate();
        all.filter(|(_, column)| is_of_table(column) && is_meant(&column.name))
            .map(|(place, _)| place)
            .collect()
    };
    let mut found = those(&|column| column == folded);
    if found.is_empty() && name.quote_style.is_none() {
        found = those(&|column| column.eq_ignore_ascii_case(&folded));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let message = format!("column {name} of {clause} does not exist");
    let error = SqlError::new(ErrorKind::Semantic, message);
    Err(placed(error, name).with_hint(format!("columns: {}", names.join(", "))))
}

fn excluded_already(name: &Ident, clause: &str) -> SqlError {
    let message = format!("column {name} of {clause} is excluded");
    placed(SqlError::new(ErrorKind::Semantic, message), name)
}

/// An error with the place of a name.
fn placed(error: SqlError, name: &Ident) -> SqlError {
    let start = name.span.start;
    match start.line {
        0 => error,
        line => error.with_position(Position { line, column: start.column }),
    }
}
