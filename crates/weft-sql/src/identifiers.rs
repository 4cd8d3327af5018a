//! Names as SQL spells them.

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr, Statement, TableFactor};
use datafusion::sql::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::text::DIALECT;

/// Words of the standard that the grammar takes for names only where nothing else is possible.
const RESERVED: [&str; 35] = [
    "all",
    "and",
    "any",
    "as",
    "asc",
    "between",
    "by",
    "case",
    "cast",
    "check",
    "column",
    "constraint",
    "create",
    "default",
    "desc",
    "distinct",
    "else",
    "exists",
    "false",
    "foreign",
    "in",
    "interval",
    "is",
    "like",
    "not",
    "null",
    "or",
    "primary",
    "references",
    "table",
    "then",
    "to",
    "true",
    "unique",
    "when",
];

/// A name as SQL spells it: in quotes if it would be folded, cut or taken for a keyword otherwise.
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let is_bare = starts_well && name.chars().all(plain) && !is_reserved(name);
    match is_bare && stands_for_itself(name) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Whether the name is a keyword of expressions or begins a clause.
fn is_reserved(name: &str) -> bool {
    if RESERVED.contains(&name) {
        return true;
    }
    let at = ALL_KEYWORDS.binary_search(&name.to_ascii_uppercase().as_str());
    let keyword = at.ok().and_then(|at| ALL_KEYWORDS_INDEX.get(at));
    keyword.is_some_and(|keyword| {
        RESERVED_FOR_COLUMN_ALIAS.contains(keyword) || RESERVED_FOR_TABLE_ALIAS.contains(keyword)
    })
}

/// Whether the grammar takes a bare word for a table, a column and a column's definition.
fn stands_for_itself(name: &str) -> bool {
    let parse = |sql: &str| Parser::parse_sql(&DIALECT, sql).ok().and_then(|mut all| all.pop());
    let Some(Statement::Query(query)) = parse(&format!("SELECT {name} FROM {name}")) else {
        return false;
    };
    let SetExpr::Select(select) = *query.body else { return false };
    let is_column = matches!(select.projection.as_slice(),
        [SelectItem::UnnamedExpr(Expr::Identifier(found))] if found.value == name);
    let is_table = matches!(select.from.as_slice(),
        [from] if matches!(&from.relation, TableFactor::Table { name: found, alias: None, .. }
            if found.to_string() == name));
    let is_definition = matches!(parse(&format!("CREATE TABLE {name} ({name} INTEGER)")),
        Some(Statement::CreateTable(create))
            if create.constraints.is_empty()
                && matches!(create.columns.as_slice(), [column] if column.name.value == name));
    is_column && is_table && is_definition
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_where_they_are_needed() {
        for plain in ["orders", "_x9", "name", "date", "value", "year"] {
            assert_eq!(quoted(plain), plain);
        }
        for (name, expected) in [
            ("", "\"\""),
            ("Orders", "\"Orders\""),
            ("9x", "\"9x\""),
            ("größe", "\"größe\""),
            ("a\"b", "\"a\"\"b\""),
            ("select", "\"select\""),
            ("case", "\"case\""),
            ("null", "\"null\""),
            ("primary", "\"primary\""),
            ("interval", "\"interval\""),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }
}
