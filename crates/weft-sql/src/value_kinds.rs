//! VALUES with JSON, UUIDs or enumerations in a column and other values beside them: DataFusion wants one type's metadata in all rows, so the
//! others are cast.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, Expr, SetExpr, TypedString, Value,
};

use crate::types::is_made_name;
use crate::uuids::gives_uuid;

/// Casts what stands beside JSON, UUIDs or enumerations in a column of VALUES.
pub(crate) fn rewrite(body: &mut SetExpr) {
    let SetExpr::Values(values) = body else { return };
    let columns = values.rows.iter().map(|row| row.content.len()).min().unwrap_or_default();
    for column in 0..columns {
        let mut kinds = values.rows.iter().map(|row| kind_of(&row.content[column]));
        let Some(first) = kinds.next() else { return };
        let Some(kind) = kinds.find(|kind| *kind != first).and_then(|other| first.or(other)) else {
            continue;
        };
        let rows = values.rows.iter_mut().map(|row| &mut row.content[column]);
        for value in rows.filter(|value| kind_of(value).as_ref() != Some(&kind)) {
            let expr = Box::new(std::mem::replace(value, Expr::value(Value::Null)));
            let data_type = kind.clone();
            *value =
                Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
        }
    }
}

/// The type of JSON, UUIDs or an enumeration that a value is written as.
fn kind_of(value: &Expr) -> Option<SqlType> {
    match value {
        Expr::Nested(inner) => kind_of(inner),
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            let data_type = match data_type {
                SqlType::JSONB => &SqlType::JSON,
                other => other,
            };
            let is_marked = matches!(data_type, SqlType::JSON | SqlType::Uuid | SqlType::Enum(..));
            (is_marked || is_made_name(data_type)).then(|| data_type.clone())
        }
        Expr::Function(call) if gives_uuid(&call.name.to_string().to_ascii_lowercase()) => {
            Some(SqlType::Uuid)
        }
        _ => None,
    }
}
