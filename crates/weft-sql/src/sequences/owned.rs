//! Columns that are declared SERIAL or AS IDENTITY: each has a sequence of its own, which comes and goes with it.

use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, ColumnOptionDef, CreateTable, DataType, Expr, GeneratedAs,
    SequenceOptions, UnaryOperator, Value,
};
use weft_store::{Change, Snapshot, Table, TableSchema};

use crate::error::{ErrorKind, Result, SqlError};
use crate::functions::call;
use crate::schemas::written;
use crate::sequences::statements::sequences_of;
use crate::sequences::syntax::Options;
use crate::sequences::{Owner, Sequence};
use crate::statement::fold;

/// The sequences of a table that is made.
#[derive(Default)]
pub(crate) struct OwnedSequences {
    made: Vec<(String, Sequence)>,
}

impl OwnedSequences {
    /// Takes SERIAL and AS IDENTITY from the definition of a table, whose columns get defaults instead.
    ///
    /// # Errors
    /// [`ErrorKind::Semantic`] for such columns that are not of integers or have defaults besides, and for bad options.
    pub(crate) fn take(
        snapshot: &Snapshot,
        create: &mut CreateTable,
        table: &str,
    ) -> Result<OwnedSequences> {
        let mut taken = OwnedSequences::default();
        for column in &mut create.columns {
            let serial = serial_type(&column.data_type);
            let identity = take_identity(column)?;
            let (owner, mut options) = match (&serial, identity) {
                (Some(_), Some(_)) => {
                    let message = format!("column {} is both SERIAL and an identity", column.name);
                    return Err(SqlError::new(ErrorKind::Semantic, message));
                }
                (Some(_), None) => (Owner::Column, Options::default()),
                (None, Some(found)) => found,
                (None, None) => continue,
            };
            if let Some(data_type) = serial {
                column.data_type = data_type;
            }
            let column_name = fold(column.name.value.clone(), column.name.quote_style);
            let Some(bounds) = bounds_of(&column.data_type) else {
                let message = format!(
                    "an identity column is of type SMALLINT, INTEGER or BIGINT, and {column_name} is not"
                );
                return Err(SqlError::new(ErrorKind::Semantic, message).about(column_name));
            };
            options.bounds = Some(bounds);
            let has_default =
                |option: &ColumnOptionDef| matches!(option.option, ColumnOption::Default(_));
            if column.options.iter().any(has_default) {
                let message = format!("column {column_name} has a default besides its sequence");
                return Err(SqlError::new(ErrorKind::Semantic, message).about(column_name));
            }
            let name = taken.free_name(snapshot, &format!("{table}_{column_name}_seq"));
            let sequence = Sequence::of(&name, &options, owner)?;
            let text = written(snapshot, &name);
            let default = call("nextval", [Expr::Value(Value::SingleQuotedString(text).into())]);
            let option = |option| ColumnOptionDef { name: None, option };
            column.options.push(option(ColumnOption::NotNull));
            column.options.push(option(ColumnOption::Default(default)));
            taken.made.push((name, sequence));
        }
        Ok(taken)
    }

    fn free_name(&self, snapshot: &Snapshot, wanted: &str) -> String {
        let is_free = |name: &String| {
            let is_there = Sequence::find(snapshot, name).is_ok_and(|found| found.is_none());
            is_there && self.made.iter().all(|(made, _)| made != name)
        };
        let numbered = (1_u32..).map(|number| format!("{wanted}{number}"));
        std::iter::once(wanted.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.made.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The changes that make them.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        self.made.iter().map(|(name, sequence)| sequence.create(name, false))
    }
}

/// The type that SERIAL and its like stand for.
fn serial_type(data_type: &DataType) -> Option<DataType> {
    let DataType::Custom(name, _) = data_type else { return None };
    match name.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(DataType::SmallInt(None)),
        "serial" | "serial4" => Some(DataType::Integer(None)),
        "bigserial" | "serial8" => Some(DataType::BigInt(None)),
        _ => None,
    }
}

/// The bounds of a type that an identity may have.
fn bounds_of(data_type: &DataType) -> Option<(i64, i64)> {
    match data_type {
        DataType::SmallInt(_) | DataType::Int2(_) | DataType::Int16 => {
            Some((i16::MIN.into(), i16::MAX.into()))
        }
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) | DataType::Int32 => {
            Some((i32::MIN.into(), i32::MAX.into()))
        }
        DataType::BigInt(_) | DataType::Int8(_) | DataType::Int64 => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

/// Takes `GENERATED … AS IDENTITY` from a column.
fn take_identity(column: &mut ColumnDef) -> Result<Option<(Owner, Options)>> {
    let is_identity = |option: &ColumnOptionDef| {
        matches!(&option.option, ColumnOption::Generated { generation_expr: None, .. })
    };
    let Some(place) = column.options.iter().position(is_identity) else { return Ok(None) };
    let option = column.options.remove(place).option;
    let ColumnOption::Generated { generated_as, sequence_options, .. } = option else {
        return Ok(None);
    };
    let owner = match generated_as {
        GeneratedAs::Always => Owner::Always,
        _ => Owner::Column,
    };
    let mut options = Options::default();
    for option in sequence_options.into_iter().flatten() {
        match option {
            SequenceOptions::IncrementBy(number, _) => options.increment = Some(integer(&number)?),
            SequenceOptions::MinValue(number) => {
                options.min = number.as_ref().map(integer).transpose()?;
            }
            SequenceOptions::MaxValue(number) => {
                options.max = number.as_ref().map(integer).transpose()?;
            }
            SequenceOptions::StartWith(number, _) => options.start = Some(integer(&number)?),
            SequenceOptions::Cache(_) => {}
            // The parser notes whether NO stands in front.
            SequenceOptions::Cycle(is_not) => options.cycles = Some(!is_not),
        }
    }
    Ok(Some((owner, options)))
}

fn integer(expr: &Expr) -> Result<i64> {
    let text = match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
        other => other.to_string(),
    };
    text.parse().map_err(|_| {
        let message = format!("an option of a sequence is an integer, not {text}");
        SqlError::new(ErrorKind::Semantic, message)
    })
}

/// The sequence that a column owns, by its default.
fn owned_by(
    snapshot: &Snapshot,
    column: &weft_store::Column,
) -> Result<Option<(String, Sequence)>> {
    let Some(default) = &column.default else { return Ok(None) };
    for name in sequences_of(default) {
        let found = Sequence::find(snapshot, &name)?;
        if let Some(sequence) = found.filter(|of| of.owner != Owner::None) {
            return Ok(Some((name, sequence)));
        }
    }
    Ok(None)
}

/// True if a column of a table owns the sequence of this name.
pub(crate) fn owns_sequence(snapshot: &Snapshot, table: &Table, name: &str) -> bool {
    let columns = table.schema().columns.iter();
    let mut owned = columns.filter_map(|column| owned_by(snapshot, column).ok()?);
    owned.any(|(owned, _)| owned == name)
}

/// The sequence that a column of a table owns, as statements write it.
pub(crate) fn owned_sequence(snapshot: &Snapshot, table: &str, column: &str) -> Option<String> {
    let table = snapshot.table(table)?;
    let column = table.schema().columns.iter().find(|of| of.name == column)?;
    let (name, _) = owned_by(snapshot, column).ok()??;
    Some(written(snapshot, &name))
}

/// True of a column GENERATED ALWAYS AS IDENTITY.
///
/// # Errors
/// [`ErrorKind::Internal`] if the definition of its sequence cannot be read.
pub(crate) fn is_always(snapshot: &Snapshot, column: &weft_store::Column) -> Result<bool> {
    Ok(owned_by(snapshot, column)?.is_some_and(|(_, sequence)| sequence.owner == Owner::Always))
}

/// What a definition says of a column that owns a sequence.
pub(crate) fn identity_of(snapshot: &Snapshot, column: &weft_store::Column) -> Option<String> {
    let (_, sequence) = owned_by(snapshot, column).ok()??;
    let generated = match sequence.owner {
        Owner::Always => "ALWAYS",
        _ => "BY DEFAULT",
    };
    let Sequence { start, increment, .. } = sequence;
    let options = match (start, increment) {
        (1, 1) => String::new(),
        _ => format!(" (START WITH {start} INCREMENT BY {increment})"),
    };
    Some(format!("GENERATED {generated} AS IDENTITY{options}"))
}

/// The changes that drop the sequences of tables that are dropped.
///
/// # Errors
/// [`ErrorKind::Internal`] if the definition of a sequence cannot be read.
pub(crate) fn drop_owned(snapshot: &Snapshot, dropped: &[&Table]) -> Result<Vec<Change>> {
    let is_dropped = |name: &str| dropped.iter().any(|table| table.schema().name == name);
    let others: Vec<_> = snapshot
        .tables()
        .filter(|name| !is_dropped(name))
        .filter_map(|name| snapshot.table(name))
        .collect();
    let mut changes = Vec::new();
    for table in dropped {
        for column in &table.schema().columns {
            let Some((name, sequence)) = owned_by(snapshot, column)? else { continue };
            let mut elsewhere = others.iter().flat_map(|table| &table.schema().columns);
            let needs = |column: &weft_store::Column| {
                sequences_of(column.default.as_deref().unwrap_or_default()).contains(&name)
            };
            if !elsewhere.any(needs) {
                changes.extend(sequence.drop(&name));
            }
        }
    }
    Ok(changes)
}

/// The changes that drop the sequences that columns of a table owned before it was altered.
///
/// # Errors
/// [`ErrorKind::Internal`] if the definition of a sequence cannot be read.
pub(crate) fn released(
    snapshot: &Snapshot,
    before: &TableSchema,
    after: &TableSchema,
) -> Result<Vec<Change>> {
    let others = snapshot.tables().filter(|name| *name != before.name);
    let others: Vec<_> = others.filter_map(|name| snapshot.table(name)).collect();
    let mut changes = Vec::new();
    for column in &before.columns {
        let Some((name, sequence)) = owned_by(snapshot, column)? else { continue };
        let needs = |column: &weft_store::Column| {
            sequences_of(column.default.as_deref().unwrap_or_default()).contains(&name)
        };
        let mut elsewhere = others.iter().flat_map(|table| &table.schema().columns);
        if !after.columns.iter().any(needs) && !elsewhere.any(needs) {
            changes.extend(sequence.drop(&name));
        }
    }
    Ok(changes)
}
