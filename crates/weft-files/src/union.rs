//! Several files as one table: their columns by name, and columns that are the same in all rows of a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt64Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::FormatOptions;
use weft_json::is_json;

use crate::error::{FilesError, Result};
use crate::source::{FileReader, Piece, Pieces, PlacedBatch, ReadPlan, TypesFrom};

/// Where a member has a column of the table from.
#[derive(Clone, Debug)]
pub enum MemberColumn {
    /// Its own column of this number.
    Own(usize),
    /// It has none: all NULL.
    Missing,
    /// The one value of this array, for all rows.
    Constant(ArrayRef),
}

/// One of the files.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its reader. Columns that have another type than the table's are cast.
    pub reader: Arc<dyn FileReader>,
    /// For each column of the table, where it comes from.
    pub columns: Vec<MemberColumn>,
}

/// The rows of all members, one after the other.
#[derive(Clone, Debug)]
pub struct Union {
    schema: SchemaRef,
    members: Arc<Vec<Member>>,
}

impl Union {
    /// A table with the columns of these files, by name: the exact one first, then one that differs in the case of its
    /// letters. With `may_differ`, files need not have all of them.
    ///
    /// # Errors
    /// [`FilesError::Data`] that names a file which lacks a column of the first one or has one more, unless they may.
    pub fn by_name(files: Vec<(PathBuf, Arc<dyn FileReader>)>, may_differ: bool) -> Result<Union> {
        let mut fields: Vec<Field> = Vec::new();
        for (number, (path, reader)) in files.iter().enumerate() {
            for field in reader.schema().fields() {
                let names: Vec<&str> = fields.iter().map(|known| known.name().as_str()).collect();
                match place_of(&names, field.name()) {
                    Some(at) => {
                        if !is_alike(&fields[at], field) {
                            let common = common_type(fields[at].data_type(), field.data_type());
                            fields[at] = Field::new(fields[at].name(), common, true);
                        }
                    }
                    None if number == 0 || may_differ => {
                        fields.push(field.as_ref().clone().with_nullable(true))
                    }
                    None => {
                        let problem = format!(
                            "has a column {}, which '{}' does not have",
                            field.name(),
                            files[0].0.display()
                        );
                        return Err(differing(path, problem));
                    }
                }
            }
        }
        let mut members = Vec::with_capacity(files.len());
        for (path, reader) in &files {
            let schema = reader.schema();
            let names: Vec<&str> =
                schema.fields().iter().map(|field| field.name().as_str()).collect();
            let column = |field: &Field| match place_of(&names, field.name()) {
                Some(at) => Ok(MemberColumn::Own(at)),
                None if may_differ => Ok(MemberColumn::Missing),
                None => {
                    let problem = format!(
                        "has no column {}, which '{}' has",
                        field.name(),
                        files[0].0.display()
                    );
                    Err(differing(path, problem))
                }
            };
            let columns = fields.iter().map(column).collect::<Result<_>>()?;
            members.push(Member { reader: Arc::clone(reader), columns });
        }
        Ok(Union::new(Arc::new(Schema::new(fields)), members))
    }

    /// The same with a column that has one value in each file, of which `values` has one row for each. A column of the
    /// files with its name gives way.
    #[must_use]
    pub fn with_constant(&self, name: &str, values: &ArrayRef) -> Union {
        assert_eq!(values.len(), self.members.len());
        let mut fields: Vec<Field> =
            self.schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        let place = place_of(&names, name);
        let field = Field::new(name, values.data_type().clone(), true);
        match place {
            Some(at) => fields[at] = field,
            None => fields.push(field),
        }
        let mut members = self.members.as_ref().clone();
        for (number, member) in members.iter_mut().enumerate() {
            let constant = MemberColumn::Constant(values.slice(number, 1));
            match place {
                Some(at) => member.columns[at] = constant,
                None => member.columns.push(constant),
            }
        }
        Union::new(Arc::new(Schema::new(fields)), members)
    }

    /// A table with these columns, all of which each member tells the origin of.
    pub fn new(schema: SchemaRef, members: Vec<Member>) -> Union {
        assert!(members.iter().all(|member| member.columns.len() == schema.fields().len()));
        Union { schema, members: Arc::new(members) }
    }
}

impl FileReader for Union {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn types_from(&self) -> TypesFrom {
        let members = self.members.iter().map(|member| member.reader.types_from());
        members.max().unwrap_or(TypesFrom::Certain)
    }

    fn bytes(&self) -> u64 {
        self.members.iter().map(|member| member.reader.bytes()).sum()
    }

    fn open(&self, plan: &ReadPlan) -> Result<Box<dyn Pieces>> {
        let schema = Arc::new(self.schema.project(&plan.projection).map_err(unexpected)?);
        let members = Arc::clone(&self.members);
        Ok(Box::new(UnionPieces { schema, members, plan: plan.clone(), next: 0, current: None }))
    }
}

/// A member that is being read: where its columns go, and its pieces.
type OpenMember = (Arc<Vec<MemberColumn>>, Box<dyn Pieces>);

struct UnionPieces {
    /// The columns that are wanted.
    schema: SchemaRef,
    members: Arc<Vec<Member>>,
    plan: ReadPlan,
    /// The member that comes next.
    next: usize,
    current: Option<OpenMember>,
}

impl UnionPieces {
    /// Opens the next member; false if there is none.
    fn advance(&mut self) -> Result<bool> {
        let Some(member) = self.members.get(self.next) else { return Ok(false) };
        self.next += 1;
        let mut own = Vec::new();
        let mut columns = Vec::with_capacity(self.plan.projection.len());
        for column in &self.plan.projection {
            columns.push(match &member.columns[*column] {
                MemberColumn::Own(number) => {
                    own.push(*number);
                    MemberColumn::Own(own.len() - 1)
                }
                other => other.clone(),
            });
        }
        let plan = ReadPlan { projection: own, ..self.plan.clone() };
        self.current = Some((Arc::new(columns), member.reader.open(&plan)?));
        Ok(true)
    }
}

impl Pieces for UnionPieces {
    fn next_piece(&mut self) -> Result<Option<Box<dyn Piece>>> {
        loop {
            if let Some((columns, pieces)) = &mut self.current {
                if let Some(piece) = pieces.next_piece()? {
                    let (schema, columns) = (Arc::clone(&self.schema), Arc::clone(columns));
                    let file = self.next - 1;
                    return Ok(Some(Box::new(UnionPiece { schema, columns, piece, file })));
                }
                self.current = None;
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }
}

struct UnionPiece {
    schema: SchemaRef,
    columns: Arc<Vec<MemberColumn>>,
    piece: Box<dyn Piece>,
    /// The number of the member that it is of.
    file: usize,
}

impl Piece for UnionPiece {
    fn bytes(&self) -> usize {
        self.piece.bytes()
    }

    fn decode(self: Box<Self>) -> Result<Vec<RecordBatch>> {
        let UnionPiece { schema, columns, piece, .. } = *self;
        let batches = piece.decode()?;
        batches.into_iter().map(|batch| united(&schema, &columns, &batch)).collect()
    }

    fn decode_placed(self: Box<Self>) -> Result<Vec<PlacedBatch>> {
        let UnionPiece { schema, columns, piece, file } = *self;
        let placed = |of: PlacedBatch| {
            let batch = united(&schema, &columns, &of.batch)?;
            Ok(PlacedBatch { batch, file: Some(file), lines: of.lines })
        };
        piece.decode_placed()?.into_iter().map(placed).collect()
    }
}

fn united(
    schema: &SchemaRef,
    columns: &[MemberColumn],
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    let mut arrays = Vec::with_capacity(columns.len());
    for (column, field) in columns.iter().zip(schema.fields()) {
        arrays.push(match column {
            MemberColumn::Own(number) => {
                let array = batch.column(*number);
                match array.data_type() == field.data_type() {
                    true => Arc::clone(array),
                    false => {
                        cast_with_options(array, field.data_type(), &options).map_err(unexpected)?
                    }
                }
            }
            MemberColumn::Missing => new_null_array(field.data_type(), rows),
            MemberColumn::Constant(value) => {
                take(value, &UInt64Array::from(vec![0; rows]), None).map_err(unexpected)?
            }
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).map_err(unexpected)
}

fn unexpected(error: arrow::error::ArrowError) -> FilesError {
    FilesError::option(format!("files do not have the columns of their table: {error}"))
}

/// The place of a name among others: the exact one, or else the first that differs in the case of its letters only.
fn place_of(names: &[&str], name: &str) -> Option<usize> {
    let exact = names.iter().position(|known| *known == name);
    exact.or_else(|| names.iter().position(|known| known.to_lowercase() == name.to_lowercase()))
}

/// True if the fields have values of one type.
fn is_alike(left: &Field, right: &Field) -> bool {
    left.data_type() == right.data_type() && is_json(left) == is_json(right)
}

/// A type that has the values of both.
fn common_type(left: &DataType, right: &DataType) -> DataType {
    match (left, right) {
        _ if left == right => left.clone(),
        (DataType::Null, other) | (other, DataType::Null) => other.clone(),
        (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) => {
            let (scale, whole) = ((*s).max(*t), (*p as i8 - s).max(*q as i8 - t));
            DataType::Decimal128((whole + scale).clamp(1, 38) as u8, scale)
        }
        _ if left.is_integer() && right.is_integer() => common_integer(left, right),
        _ if left.is_numeric() && right.is_numeric() => DataType::Float64,
        (DataType::Timestamp(unit, zone), DataType::Timestamp(other, other_zone))
            if zone.is_some() == other_zone.is_some() =>
        {
            let is_nanos = [unit, other].contains(&&TimeUnit::Nanosecond);
            let unit = if is_nanos { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
            DataType::Timestamp(unit, zone.clone())
        }
        (DataType::Date32, DataType::Timestamp(..)) => right.clone(),
        (DataType::Timestamp(..), DataType::Date32) => left.clone(),
        _ => DataType::Utf8View,
    }
}

/// An integer type that has the values of both, or a decimal if none has.
fn common_integer(left: &DataType, right: &DataType) -> DataType {
    let bits = |data_type: &DataType| 8 * data_type.primitive_width().unwrap_or(8);
    if left.is_signed_integer() == right.is_signed_integer() {
        return if bits(left) >= bits(right) { left.clone() } else { right.clone() };
    }
    let is_beyond = |data_type: &DataType| *data_type == DataType::UInt64;
    match is_beyond(left) || is_beyond(right) {
        true => DataType::Decimal128(20, 0),
        false => DataType::Int64,
    }
}

fn differing(path: &Path, problem: String) -> FilesError {
    FilesError::data(path, None, problem)
        .with_hint("read files with different columns by union_by_name = true, which fills those that a file lacks with NULL")
}
