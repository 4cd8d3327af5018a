//! What the driver and the database are.

use std::collections::HashSet;
use std::sync::Arc;

use adbc_core::error::Result;
use adbc_core::options::InfoCode;
use adbc_core::{constants, schemas};
use arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, UInt32Array, UnionArray, new_empty_array,
};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatchReader;

use crate::nested::{reader, texts};

/// The version of Arrow that the driver uses.
const ARROW_VERSION: &str = "59.3";

/// The types of relations, as `information_schema` has them.
pub(crate) const TABLE_TYPES: [&str; 2] = ["BASE TABLE", "VIEW"];

/// What there is to know.
enum Fact {
    Text(&'static str),
    Switch(bool),
    Number(i64),
}

const FACTS: [(InfoCode, Fact); 10] = [
    (InfoCode::VendorName, Fact::Text("Weft")),
    (InfoCode::VendorVersion, Fact::Text(env!("CARGO_PKG_VERSION"))),
    (InfoCode::VendorArrowVersion, Fact::Text(ARROW_VERSION)),
    (InfoCode::VendorSql, Fact::Switch(true)),
    (InfoCode::VendorSubstrait, Fact::Switch(false)),
    (InfoCode::DriverName, Fact::Text("ADBC Driver for Weft")),
    (InfoCode::DriverVersion, Fact::Text(env!("CARGO_PKG_VERSION"))),
    (InfoCode::DriverArrowVersion, Fact::Text(ARROW_VERSION)),
    (InfoCode::DriverAdbcVersion, Fact::Number(constants::ADBC_VERSION_1_1_0 as i64)),
    (InfoCode::Other(XDBC_KEYWORDS_ARE_QUOTED_BY), Fact::Text("\"")),
];

/// XDBC's code of the character that names are quoted by.
const XDBC_KEYWORDS_ARE_QUOTED_BY: u32 = 504;

/// What is known of these codes; all that is known without codes. Codes that are not known are left out.
pub(crate) fn info(
    codes: Option<&HashSet<InfoCode>>,
) -> Result<Box<dyn RecordBatchReader + Send + 'static>> {
    let wanted = |code: &InfoCode| codes.is_none_or(|codes| codes.contains(code));
    let facts: Vec<&(InfoCode, Fact)> = FACTS.iter().filter(|(code, _)| wanted(code)).collect();
    let names = UInt32Array::from_iter_values(facts.iter().map(|(code, _)| u32::from(code)));
    let (mut words, mut switches, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kinds, mut places) = (Vec::new(), Vec::new());
    for (_, fact) in facts {
        let (kind, place) = match fact {
            Fact::Text(text) => {
                words.push(Some(*text));
                (0, words.len())
            }
            Fact::Switch(is_on) => {
                switches.push(*is_on);
                (1, switches.len())
            }
            Fact::Number(number) => {
                numbers.push(*number);
                (2, numbers.len())
            }
        };
        kinds.push(kind);
        places.push(i32::try_from(place - 1).unwrap_or(i32::MAX));
    }
    let schema = &schemas::GET_INFO_SCHEMA;
    let DataType::Union(fields, _) = schema.field(1).data_type() else {
        return crate::error::not_implemented("information that is no union");
    };
    let mut children: Vec<ArrayRef> = vec![
        texts(words.into_iter()),
        Arc::new(BooleanArray::from(switches)),
        Arc::new(Int64Array::from(numbers)),
        Arc::new(Int32Array::from(Vec::<i32>::new())),
    ];
    children.extend(fields.iter().skip(4).map(|(_, field)| new_empty_array(field.data_type())));
    let values = UnionArray::try_new(fields.clone(), kinds.into(), Some(places.into()), children)?;
    reader(schema, vec![Arc::new(names), Arc::new(values)])
}

/// The types of relations.
pub(crate) fn table_types() -> Result<Box<dyn RecordBatchReader + Send + 'static>> {
    reader(&schemas::GET_TABLE_TYPES_SCHEMA, vec![texts(TABLE_TYPES.into_iter().map(Some))])
}
