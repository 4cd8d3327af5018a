//! Select lists: `*` written out, and the names of the items.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, SelectItem, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::folded;
use super::relation::{Column, Relation};
use crate::same_names::free_name;

/// The items with the columns of FROM in place of `*`. Nothing if its options cannot be followed.
pub(super) fn write_out(items: &[SelectItem], relation: &Relation) -> Option<Vec<SelectItem>> {
    let mut written = Vec::with_capacity(items.len());
    for item in items {
        match item {
            SelectItem::Wildcard(options) => written.extend(columns(options, relation)?),
            other => written.push(other.clone()),
        }
    }
    Some(written)
}

fn columns(options: &WildcardAdditionalOptions, relation: &Relation) -> Option<Vec<SelectItem>> {
    if options.opt_ilike.is_some() || options.opt_rename.is_some() || options.opt_alias.is_some() {
        return None;
    }
    let excluded = excluded(options)?;
    let replaced = options.opt_replace.iter().flat_map(|replace| &replace.items);
    let replaced: Vec<_> = replaced.map(|item| (folded(&item.column_name), item)).collect();
    let is_column = |name: &String| relation.columns.iter().any(|column| column.name == *name);
    if !excluded.iter().chain(replaced.iter().map(|(name, _)| name)).all(is_column) {
        return None;
    }
    let kept = relation.columns.iter().filter(|column| !excluded.contains(&column.name));
    let item = |column: &Column| match replaced.iter().find(|(name, _)| *name == column.name) {
        Some((_, item)) => {
            SelectItem::ExprWithAlias { expr: item.expr.clone(), alias: item.column_name.clone() }
        }
        None => named(column),
    };
    Some(kept.map(item).collect())
}

/// A column as an item of its name.
fn named(column: &Column) -> SelectItem {
    let expr = column.expr(Span::empty());
    match column.is_plain() {
        true => SelectItem::UnnamedExpr(expr),
        false => {
            SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', column.name.clone()) }
        }
    }
}

/// The names after EXCLUDE or EXCEPT. Nothing if there is one twice, or one that is no name of a column.
fn excluded(options: &WildcardAdditionalOptions) -> Option<HashSet<String>> {
    let mut names = Vec::new();
    match &options.opt_exclude {
        Some(ExcludeSelectItem::Single(name)) => names.push(name),
        Some(ExcludeSelectItem::Multiple(several)) => names.extend(several),
        None => {}
    }
    let mut idents = Vec::with_capacity(names.len());
    for name in names {
        match name.0.as_slice() {
            [part] => idents.push(part.as_ident()?),
            _ => return None,
        }
    }
    if let Some(except) = &options.opt_except {
        idents.push(&except.first_element);
        idents.extend(&except.additional_elements);
    }
    let mut excluded = HashSet::new();
    idents.into_iter().all(|ident| excluded.insert(folded(ident))).then_some(excluded)
}

/// The name of an item that is one column, and what it is.
pub(super) fn name_of(item: &SelectItem) -> Option<(String, &Expr)> {
    match item {
        SelectItem::ExprWithAlias { expr, alias } => Some((folded(alias), expr)),
        SelectItem::UnnamedExpr(expr) => match expr {
            Expr::Identifier(name) => Some((folded(name), expr)),
            Expr::CompoundIdentifier(parts) => Some((folded(parts.last()?), expr)),
            _ => None,
        },
        _ => None,
    }
}

/// Gives names to items that DataFusion would not tell from an earlier one: it can where both are columns of
/// tables, and different ones.
pub(super) fn name_apart(items: &mut [SelectItem]) {
    let mut taken: HashSet<String> =
        items.iter().filter_map(name_of).map(|(name, _)| name).collect();
    for place in 1..items.len() {
        let (earlier, rest) = items.split_at_mut(place);
        let Some((name, expr)) = name_of(&rest[0]) else { continue };
        let is_own = |expr: &Expr| match expr {
            Expr::CompoundIdentifier(parts) => {
                parts.last().is_some_and(|last| folded(last) == name)
            }
            _ => false,
        };
        let is_taken = earlier.iter().filter_map(name_of).any(|(other, earlier)| {
            other == name && (!is_own(expr) || !is_own(earlier) || earlier == expr)
        });
        if is_taken {
            let alias = Ident::with_quote('"', free_name(&name, &mut taken));
            rest[0] = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
}
