//! What a FROM clause offers: its columns as names without a table mean them.

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, TableFactor, Value,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::depth::tree;

/// A column of a table: what the table is called, and its name.
pub(super) type OwnColumn = (Option<TableReference>, String);

/// A column as a name without a table means it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// Columns of tables, of which it is the first that is not NULL.
    sources: Vec<OwnColumn>,
    /// It is the key of a join with USING or NATURAL.
    pub(super) is_merged: bool,
}

impl Column {
    /// The column, written out at a place of the statement's text.
    pub(super) fn expr(&self, span: Span) -> Expr {
        let mut sources = self.sources.iter().map(|column| own(column, span));
        match (sources.next(), self.is_plain()) {
            (Some(only), true) => only,
            (first, _) => coalesce(first.into_iter().chain(sources)),
        }
    }

    /// True of a column that is one of a table.
    pub(super) fn is_plain(&self) -> bool {
        self.sources.len() == 1
    }
}

/// The column of a table, named with the table.
fn own((table, column): &OwnColumn, span: Span) -> Expr {
    let mut parts = match table {
        None => Vec::new(),
        Some(TableReference::Bare { table }) => vec![table],
        Some(TableReference::Partial { schema, table }) => vec![schema, table],
        Some(TableReference::Full { catalog, schema, table }) => vec![catalog, schema, table],
    }
    .into_iter()
    .map(|part| Ident::with_quote_and_span('"', span, part.as_ref()))
    .collect::<Vec<_>>();
    let column = Ident::with_quote_and_span('"', span, column);
    if parts.is_empty() {
        return Expr::Identifier(column);
    }
    parts.push(column);
    Expr::CompoundIdentifier(parts)
}

fn coalesce(arguments: impl Iterator<Item = Expr>) -> Expr {
    let arguments = arguments.map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Which side a join's merged columns come from, and which sides it has columns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sides {
    /// Of both; merged columns are the left side's.
    Left,
    /// Of both; merged columns are the right side's.
    Right,
    /// Of both; merged columns are whichever side's there is.
    Either,
    /// Of the left side only.
    OnlyLeft,
    /// Of the right side only.
    OnlyRight,
}

/// What tables and their joins offer.
#[derive(Clone, Debug, Default)]
pub(super) struct Relation {
    /// In the order of `*`.
    pub(super) columns: Vec<Column>,
    /// The tables, each with its columns.
    pub(super) tables: Vec<(TableFactor, Vec<OwnColumn>)>,
}

impl Relation {
    /// A table.
    pub(super) fn table(table: TableFactor, own: Vec<OwnColumn>) -> Relation {
        let column = |column: &OwnColumn| Column {
            name: column.1.clone(),
            sources: vec![column.clone()],
            is_merged: false,
        };
        Relation { columns: own.iter().map(column).collect(), tables: vec![(table, own)] }
    }

    /// Both, without a common column.
    pub(super) fn beside(mut self, other: Relation) -> Relation {
        self.columns.extend(other.columns);
        self.tables.extend(other.tables);
        self
    }

    /// What a join with a condition offers.
    pub(super) fn joined(self, right: Relation, sides: Sides) -> Relation {
        match sides {
            Sides::OnlyLeft => self,
            Sides::OnlyRight => right,
            _ => self.beside(right),
        }
    }

    /// A join with common columns of these names: its condition, and what it offers. Nothing if one of
    /// the names is not that of exactly one column on each side.
    pub(super) fn merged(
        mut self,
        mut right: Relation,
        keys: &[String],
        sides: Sides,
    ) -> Option<(Expr, Relation)> {
        let whole = self.clone().joined(right.clone(), sides);
        let mut equal = Vec::with_capacity(keys.len());
        let mut columns = Vec::with_capacity(keys.len());
        for key in keys {
            let (left, right) = (self.take(key)?, right.take(key)?);
            equal.push(Expr::BinaryOp {
                left: Box::new(left.expr(Span::empty())),
                op: BinaryOperator::Eq,
                right: Box::new(right.expr(Span::empty())),
            });
            let sources = match sides {
                Sides::Right => right.sources,
                Sides::Either => [left.sources, right.sources].concat(),
                _ => left.sources,
            };
            columns.push(Column { name: key.clone(), sources, is_merged: true });
        }
        let condition = match equal.is_empty() {
            true => Expr::Value(Value::Boolean(true).into()),
            false => tree(equal, &BinaryOperator::And),
        };
        if matches!(sides, Sides::OnlyLeft | Sides::OnlyRight) {
            return Some((condition, whole));
        }
        columns.extend(self.columns);
        columns.extend(right.columns);
        Some((condition, Relation { columns, tables: whole.tables }))
    }

    /// The names that both have, in this one's order.
    pub(super) fn common(&self, other: &Relation) -> Vec<String> {
        let is_there = |name: &String| other.columns.iter().any(|column| column.name == *name);
        let names = self.columns.iter().map(|column| &column.name);
        names.filter(|name| is_there(name)).cloned().collect()
    }

    /// The only column of this name, which is not among the columns any more.
    fn take(&mut self, name: &str) -> Option<Column> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        let column = self.columns.remove(place);
        self.columns.iter().all(|other| other.name != name).then_some(column)
    }
}
