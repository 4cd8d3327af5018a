//! Enumerations: types whose values are some labels, in an order of their own.
//!
//! A value is its label, as a text: what is made of texts, from a comparison by `=` to a key, a join or a file, takes it as it is. What
//! orders values orders their *codes*, the places of their labels (`casts.rs`, `nodes.rs`, `extremes.rs`). The metadata of a field says
//! which type its texts are of ([`ENUM`]), and a table's column keeps the same words as its kind, so that they are right whatever
//! becomes of the type that they are called by: ALTER TYPE changes the columns with the type (`statements.rs`). Whatever becomes a
//! value of a type passes the function `enum_of` (`functions.rs`). Within lists and structs values are plain texts.

mod casts;
mod extremes;
mod functions;
mod marks;
mod nodes;
mod statements;
mod syntax;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use arrow::datatypes::{DataType, Field};
use datafusion::execution::{SessionState, SessionStateBuilder};
use weft_store::Snapshot;

use crate::definitions::{self, Kind};
use crate::error::{ErrorKind, Result, SqlError};
use crate::identifiers::quoted;
use crate::types::WeftTypes;

pub(crate) use casts::EnumCasts;
pub(crate) use functions::enum_functions;
pub(crate) use statements::{adopt_kinds, enums_within, type_statements};
pub(crate) use syntax::{AlterType, CreateType, parse_alter, parse_create};

/// The key of a field's metadata that says which enumeration its texts are of.
pub(crate) const ENUM: &str = "weft.enum";

/// SQLSTATE of a text that is no value of the type that it is to be of.
const INVALID_TEXT: &str = "22P02";

/// Characters of a text that is no label which its error shows.
const SHOWN_MAX: usize = 40;

/// Labels that an error lists.
const LISTED_MAX: usize = 12;

/// Types that are kept by their words, at most.
const KNOWN_MAX: usize = 1_024;

/// A type of labels.
#[derive(Debug)]
pub(crate) struct EnumType {
    /// The name by which the catalog has it; `None` for one that a column was declared with.
    name: Option<String>,
    labels: Vec<String>,
    /// The places of the labels.
    codes: HashMap<String, u32>,
    /// The type in words, as fields and columns keep it.
    words: String,
}

impl EnumType {
    /// # Errors
    /// [`ErrorKind::Semantic`] for a label that occurs twice.
    pub(crate) fn new(name: Option<String>, labels: Vec<String>) -> Result<EnumType> {
        let mut codes = HashMap::with_capacity(labels.len());
        for (code, label) in (0..).zip(&labels) {
            if codes.insert(label.clone(), code).is_some() {
                let message = format!("the label {} occurs twice in an ENUM", in_quotes(label));
                return Err(SqlError::new(ErrorKind::Semantic, message));
            }
        }
        let words = marks::written(name.as_deref(), &labels);
        Ok(EnumType { name, labels, codes, words })
    }

    /// The type that words describe; `None` for words that describe none.
    pub(crate) fn read(words: &str) -> Option<Arc<EnumType>> {
        static KNOWN: LazyLock<Mutex<HashMap<String, Arc<EnumType>>>> =
            LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(words) {
            return Some(Arc::clone(found));
        }
        let (name, labels) = marks::read(words)?;
        let read = Arc::new(EnumType::new(name, labels).ok()?);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(words.to_owned(), Arc::clone(&read));
        Some(read)
    }

    /// The type of a field's texts; `None` for plain texts and other values.
    pub(crate) fn of_field(field: &Field) -> Option<Arc<EnumType>> {
        match field.data_type().is_string() {
            true => EnumType::read(field.metadata().get(ENUM)?),
            false => None,
        }
    }

    /// A field of values of the type.
    pub(crate) fn field(&self, name: &str) -> Field {
        let metadata = HashMap::from([(ENUM.to_owned(), self.words.clone())]);
        Field::new(name, DataType::Utf8View, true).with_metadata(metadata)
    }

    /// The name by which the catalog has it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The labels, in their order.
    pub(crate) fn labels(&self) -> &[String] {
        &self.labels
    }

    /// The type in words, as a column keeps it.
    pub(crate) fn words(&self) -> &str {
        &self.words
    }

    /// The place of a label.
    fn code(&self, label: &str) -> Option<u32> {
        self.codes.get(label).copied()
    }

    /// True if a text is a label.
    pub(crate) fn has(&self, label: &str) -> bool {
        self.codes.contains_key(label)
    }

    /// The type of the codes.
    fn code_type(&self) -> DataType {
        match self.labels.len() {
            0..=0x100 => DataType::UInt8,
            0x101..=0x1_0000 => DataType::UInt16,
            _ => DataType::UInt32,
        }
    }

    /// The definition as SQL writes it.
    pub(crate) fn listed(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|label| in_quotes(label)).collect();
        format!("ENUM({})", labels.join(", "))
    }

    /// No label is this text.
    fn no_label(&self, text: &str) -> SqlError {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        let more = if shown.len() < text.len() { "…" } else { "" };
        let labels = self.labels.iter().take(LISTED_MAX).map(|label| in_quotes(label));
        let mut labels = labels.collect::<Vec<_>>().join(", ");
        if self.labels.len() > LISTED_MAX {
            labels.push_str(", …");
        }
        let message = match &self.name {
            Some(_) => format!("'{shown}{more}' is no value of the type {self}"),
            None => format!("'{shown}{more}' is no label of an ENUM"),
        };
        let has = if labels.is_empty() {
            "it has no labels".into()
        } else {
            format!("its labels are {labels}")
        };
        SqlError::new(ErrorKind::Data, message).with_sqlstate(INVALID_TEXT).with_hint(has)
    }
}

/// What SQL calls the type: its name, or its labels if it has none.
impl fmt::Display for EnumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_deref() {
            None => f.write_str(&self.listed()),
            Some(name) => match name.split_once('.') {
                Some((schema, inner)) => write!(f, "{}.{}", quoted(schema), quoted(inner)),
                None => f.write_str(&quoted(name)),
            },
        }
    }
}

impl PartialEq for EnumType {
    fn eq(&self, other: &EnumType) -> bool {
        self.words == other.words
    }
}

impl Eq for EnumType {}

impl Hash for EnumType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words.hash(state);
    }
}

/// A text as a constant of SQL.
fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// True if values of a type have enumerations within them, as a declared type may say.
pub(crate) fn has_enum_within(data_type: &DataType) -> bool {
    let has =
        |field: &Field| EnumType::of_field(field).is_some() || has_enum_within(field.data_type());
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => has(item),
        DataType::Struct(fields) => fields.iter().any(|field| has(field)),
        _ => false,
    }
}

/// The types of a database, by the names by which the catalog has them.
#[derive(Debug, Default)]
pub(crate) struct Enums(HashMap<String, Arc<EnumType>>);

impl Enums {
    /// Those of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot) -> Enums {
        let named = |name: &str| {
            let words = definitions::text(snapshot, Kind::Type, name)?;
            Some((name.to_owned(), EnumType::read(words)?))
        };
        Enums(definitions::names(snapshot, Kind::Type).filter_map(named).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<EnumType>> {
        self.0.get(name)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The type of this name in a snapshot.
pub(crate) fn find(snapshot: &Snapshot, name: &str) -> Option<Arc<EnumType>> {
    EnumType::read(definitions::text(snapshot, Kind::Type, name)?)
}

/// A state in which the names of a snapshot's types stand for them.
pub(crate) fn with_types(state: SessionState, snapshot: &Snapshot) -> SessionState {
    let enums = Enums::of(snapshot);
    match enums.is_empty() {
        true => state,
        false => SessionStateBuilder::new_from_existing(state)
            .with_type_planner(Arc::new(WeftTypes::with(enums)))
            .build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mood() -> EnumType {
        let labels = ["sad", "it's", "ok, 1:x"].map(str::to_owned).to_vec();
        EnumType::new(Some("s.Mood".into()), labels).unwrap()
    }

    #[test]
    fn words_describe_types() {
        let mood = mood();
        let read = EnumType::read(mood.words()).unwrap();
        assert_eq!((read.name(), read.labels()), (Some("s.Mood"), mood.labels()));
        let none = EnumType::new(None, Vec::new()).unwrap();
        let read = EnumType::read(none.words()).unwrap();
        assert_eq!((read.name(), read.labels().len()), (None, 0));
        assert!(EnumType::read("enum 3:ab").is_none());
        assert!(EnumType::read("other").is_none());
    }

    #[test]
    fn fields_tell_their_types() {
        let mood = mood();
        let field = mood.field("e");
        assert_eq!(*EnumType::of_field(&field).unwrap(), mood);
        assert!(EnumType::of_field(&field.with_data_type(DataType::Int64)).is_none());
        assert_eq!(mood.to_string(), "s.\"Mood\"");
        assert_eq!(mood.listed(), "ENUM('sad', 'it''s', 'ok, 1:x')");
    }

    #[test]
    fn a_label_occurs_once() {
        assert!(EnumType::new(None, vec!["a".into(), "a".into()]).is_err());
    }
}
