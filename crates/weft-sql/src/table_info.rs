//! `PRAGMA table_info('t')`: the columns of a table, a view or a file, as SQLite and DuckDB tell them.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int32Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use weft_store::Column;

use crate::catalog::{StatementCatalog, relation_name};
use crate::error::Result;
use crate::grammar::{expect_eof, expected, parser, syntax};
use crate::result_types::result_schema;
use crate::run::{Run, Started};
use crate::statement::{Parsed, parse_query};
use crate::text::tokenize;
use crate::text_kinds::column_of;
use crate::types::column_type_name;

/// Parses `PRAGMA table_info('t')` and `PRAGMA table_info(t)`.
///
/// # Errors
/// [`crate::ErrorKind::Syntax`].
pub(crate) fn parse(tokens: Vec<TokenWithSpan>) -> Result<Parsed> {
    let mut outer = parser(tokens);
    outer.next_token();
    outer.next_token();
    let is_called = outer.consume_token(&Token::LParen);
    if !is_called && !outer.consume_token(&Token::Eq) {
        return expected("(", &outer.peek_token());
    }
    let table = match outer.peek_token().token {
        Token::SingleQuotedString(text) => {
            outer.next_token();
            let mut inner = parser(tokenize(&text)?);
            let name = inner.parse_object_name(false).map_err(syntax)?;
            expect_eof(&mut inner)?;
            name
        }
        _ => outer.parse_object_name(false).map_err(syntax)?,
    };
    if is_called {
        outer.expect_token(&Token::RParen).map_err(syntax)?;
    }
    expect_eof(&mut outer)?;
    Ok(Parsed::TableInfo { table })
}

impl Run {
    /// PRAGMA table_info.
    pub(crate) async fn table_info(
        &self,
        catalog: &StatementCatalog,
        name: &ast::ObjectName,
    ) -> Result<Started> {
        let stored = relation_name(name).ok().and_then(|name| catalog.snapshot().table(&name));
        let columns = match &stored {
            Some(table) => {
                catalog.check_read(&table.schema().name)?;
                table.schema().columns.clone()
            }
            None => self.columns_of(catalog, name).await?,
        };
        let is_key = |number: usize| {
            let table = stored.as_ref()?;
            let primary = table.indexes().find(|index| index.is_primary)?;
            Some(primary.columns.iter().any(|of| of.column == number))
        };
        let numbers = (0_i32..).zip(&columns).map(|(number, _)| number);
        let texts = |of: fn(&Column) -> Option<String>| -> ArrayRef {
            Arc::new(columns.iter().map(of).collect::<StringViewArray>())
        };
        let truths = |of: &dyn Fn(usize) -> bool| -> ArrayRef {
            Arc::new((0..columns.len()).map(|number| Some(of(number))).collect::<BooleanArray>())
        };
        let arrays: [(&str, ArrayRef); 6] = [
            ("cid", Arc::new(Int32Array::from_iter_values(numbers))),
            ("name", texts(|column| Some(column.name.clone()))),
            ("type", texts(|column| Some(column_type_name(column)))),
            ("notnull", truths(&|number| !columns[number].nullable)),
            ("dflt_value", texts(|column| column.default.clone())),
            ("pk", truths(&|number| is_key(number).unwrap_or(false))),
        ];
        let field = |(name, array): &(&str, ArrayRef)| -> Field {
            Field::new(*name, DataType::clone(array.data_type()), true)
        };
        let schema = Arc::new(Schema::new(arrays.iter().map(field).collect::<Vec<_>>()));
        let arrays = arrays.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
        let stream = futures::stream::iter([Ok(batch)]);
        Ok(Started::Rows(Box::pin(RecordBatchStreamAdapter::new(schema, stream))))
    }

    /// The columns of a view or a file.
    async fn columns_of(
        &self,
        catalog: &StatementCatalog,
        name: &ast::ObjectName,
    ) -> Result<Vec<Column>> {
        let query = parse_query(&format!("SELECT * FROM {name}"))?;
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        let schema = result_schema(&state, &plan)?;
        Ok(schema.fields().iter().map(|field| column_of(field)).collect())
    }
}
