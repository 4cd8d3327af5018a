//! Constraints as CREATE TABLE declares them, of columns and of the table.

use datafusion::sql::sqlparser::ast::{
    self, ColumnOption, ConstraintCharacteristics, CreateTable, NullsDistinctOption,
    ReferentialAction, TableConstraint,
};

use super::included::included;
use crate::catalog::relation_name;
use crate::error::{ErrorKind, Result, SqlError};
use crate::statement::fold;

/// A constraint that was declared.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) name: Option<String>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// PRIMARY KEY or UNIQUE, with the columns that entries of its index have beside the key.
    Key { columns: Vec<Name>, included: Vec<Name>, is_primary: bool },
    /// CHECK, of a column if it was declared with that.
    Check { sql: String, column: Option<Name> },
    /// FOREIGN KEY or REFERENCES; without columns of the parent, its primary key counts.
    Foreign { columns: Vec<Name>, parent: String, parent_columns: Vec<Name> },
}

/// The name of a column as it was written.
#[derive(Clone, Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) is_quoted: bool,
}

impl Name {
    pub(super) fn of(ident: &ast::Ident) -> Name {
        let text = fold(ident.value.clone(), ident.quote_style);
        Name { text, is_quoted: ident.quote_style.is_some() }
    }
}

fn name_of(ident: Option<&ast::Ident>) -> Option<String> {
    ident.map(|ident| fold(ident.value.clone(), ident.quote_style))
}

/// Takes the constraints out of a definition, of which the rest is planned.
///
/// # Errors
/// [`ErrorKind::NotSupported`] for what is not carried out.
pub(crate) fn take_constraints(create: &mut CreateTable) -> Result<Vec<Declared>> {
    let mut declared = Vec::new();
    for column in &mut create.columns {
        let of = Name::of(&column.name);
        let mut kept = Vec::with_capacity(column.options.len());
        for option in std::mem::take(&mut column.options) {
            match of_column(&of, option.name.as_ref(), &option.option)? {
                Some(found) => declared.push(found),
                None => kept.push(option),
            }
        }
        column.options = kept;
    }
    for constraint in std::mem::take(&mut create.constraints) {
        declared.push(of_table(&constraint)?);
    }
    Ok(declared)
}

impl Declared {
    /// A constraint of a table.
    ///
    /// # Errors
    /// [`ErrorKind::NotSupported`] for what is not carried out.
    pub(crate) fn of_table(constraint: &TableConstraint) -> Result<Declared> {
        of_table(constraint)
    }
}

fn of_column(
    column: &Name,
    name: Option<&ast::Ident>,
    option: &ColumnOption,
) -> Result<Option<Declared>> {
    let columns = vec![column.clone()];
    let (inner, kind) = match option {
        ColumnOption::PrimaryKey(key) => {
            check_timing(key.characteristics.as_ref())?;
            (&key.name, Kind::Key { columns, included: Vec::new(), is_primary: true })
        }
        ColumnOption::Unique(key) => {
            check_timing(key.characteristics.as_ref())?;
            check_nulls(&key.nulls_distinct)?;
            (&key.name, Kind::Key { columns, included: Vec::new(), is_primary: false })
        }
        ColumnOption::Check(check) => {
            check_enforced(check.enforced)?;
            let sql = check.expr.to_string();
            (&check.name, Kind::Check { sql, column: Some(column.clone()) })
        }
        ColumnOption::ForeignKey(key) => (&key.name, foreign(key, columns)?),
        _ => return Ok(None),
    };
    Ok(Some(Declared { name: name_of(name.or(inner.as_ref())), kind }))
}

fn of_table(constraint: &TableConstraint) -> Result<Declared> {
    let (name, kind) = match constraint {
        TableConstraint::PrimaryKey(key) => {
            check_timing(key.characteristics.as_ref())?;
            let (columns, included) = (columns_of(&key.columns)?, included(&key.index_options)?);
            (&key.name, Kind::Key { columns, included, is_primary: true })
        }
        TableConstraint::Unique(key) => {
            check_timing(key.characteristics.as_ref())?;
            check_nulls(&key.nulls_distinct)?;
            let (columns, included) = (columns_of(&key.columns)?, included(&key.index_options)?);
            (&key.name, Kind::Key { columns, included, is_primary: false })
        }
        TableConstraint::Check(check) => {
            check_enforced(check.enforced)?;
            (&check.name, Kind::Check { sql: check.expr.to_string(), column: None })
        }
        TableConstraint::ForeignKey(key) => {
            let columns = key.columns.iter().map(Name::of).collect();
            (&key.name, foreign(key, columns)?)
        }
        other => return Err(SqlError::not_supported(format!("the constraint {other}"))),
    };
    Ok(Declared { name: name_of(name.as_ref()), kind })
}

fn foreign(key: &ast::ForeignKeyConstraint, columns: Vec<Name>) -> Result<Kind> {
    check_timing(key.characteristics.as_ref())?;
    for action in [&key.on_delete, &key.on_update].into_iter().flatten() {
        if !matches!(action, ReferentialAction::NoAction | ReferentialAction::Restrict) {
            let what = format!("{action} of a foreign key");
            return Err(SqlError::not_supported(what)
                .with_hint("rows that are referred to cannot go: leave the clause out"));
        }
    }
    if let Some(kind) = &key.match_kind
        && !matches!(kind, ast::ConstraintReferenceMatchKind::Simple)
    {
        return Err(SqlError::not_supported(format!("{kind} of a foreign key")));
    }
    let parent_columns = key.referred_columns.iter().map(Name::of).collect();
    Ok(Kind::Foreign { columns, parent: relation_name(&key.foreign_table)?, parent_columns })
}

/// The columns of a key of a table.
fn columns_of(columns: &[ast::IndexColumn]) -> Result<Vec<Name>> {
    let column = |of: &ast::IndexColumn| match &of.column.expr {
        ast::Expr::Identifier(ident) if of.column.options == ast::OrderByOptions::default() => {
            Ok(Name::of(ident))
        }
        _ => {
            let message = format!("a key consists of columns, and {of} is none");
            Err(SqlError::new(ErrorKind::Semantic, message))
        }
    };
    columns.iter().map(column).collect()
}

fn check_timing(characteristics: Option<&ConstraintCharacteristics>) -> Result<()> {
    match characteristics {
        Some(other) if other.deferrable == Some(true) || other.enforced == Some(false) => {
            Err(SqlError::not_supported(format!("a constraint that is {other}"))
                .with_hint("each statement is checked as a whole, at its end"))
        }
        _ => Ok(()),
    }
}

fn check_enforced(enforced: Option<bool>) -> Result<()> {
    match enforced {
        Some(false) => Err(SqlError::not_supported("NOT ENFORCED")),
        _ => Ok(()),
    }
}

fn check_nulls(nulls: &NullsDistinctOption) -> Result<()> {
    match nulls {
        NullsDistinctOption::NotDistinct => Err(SqlError::not_supported("NULLS NOT DISTINCT")),
        _ => Ok(()),
    }
}
