//! Texts as they stand in CSV files: an empty text in quotes and NULL without, so that both come back as they were.
//!
//! The writer of CSV files quotes a value where a delimiter, quote or end of line in it demands that, and nothing else. Texts and the
//! names of columns are therefore quoted here, and the writer is told to quote nothing.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{ArrayRef, StringViewBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, Result as DfResult};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::error::Result;
use crate::one_argument::compute_one;

/// How values are put in a CSV file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CsvForm {
    pub delimiter: u8,
    pub quote: u8,
    /// Stands before a quote within a value.
    pub escape: u8,
    /// Stands for NULL.
    pub null: String,
}

impl CsvForm {
    /// False where the values of other types than text may contain the delimiter, or the quote: the writer has to look at them, too.
    pub(crate) fn fits_all_types(&self) -> bool {
        let is_apart = |byte: u8| {
            byte.is_ascii_control() || (byte.is_ascii_punctuation() && !b"+-.:_".contains(&byte))
        };
        is_apart(self.delimiter) && is_apart(self.quote)
    }

    /// The rows with their texts and the names of their columns quoted; columns named in `besides` stay as they are.
    ///
    /// # Errors
    /// Those of planning.
    pub(crate) fn quoted(&self, input: LogicalPlan, besides: &[String]) -> Result<LogicalPlan> {
        let schema = Arc::clone(input.schema());
        let quoting = ScalarUDF::from(Quoted(self.clone()));
        let exprs = schema.iter().map(|(qualifier, field)| {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            if besides.contains(field.name()) {
                return column;
            }
            let value = match field.data_type().is_string() {
                true => quoting.call(vec![column]),
                false => column,
            };
            let mut name = String::new();
            self.write(field.name(), &mut name);
            value.alias_qualified(qualifier.cloned(), name)
        });
        let exprs: Vec<Expr> = exprs.collect();
        Ok(LogicalPlanBuilder::from(input).project(exprs)?.build()?)
    }

    fn write(&self, text: &str, out: &mut String) {
        let is_special = |byte: u8| {
            matches!(byte, b'\n' | b'\r')
                || [self.delimiter, self.quote, self.escape].contains(&byte)
        };
        if !text.is_empty() && text != self.null && !text.bytes().any(is_special) {
            out.push_str(text);
            return;
        }
        out.push(char::from(self.quote));
        for character in text.chars() {
            if u8::try_from(character).is_ok_and(|byte| byte == self.quote || byte == self.escape) {
                out.push(char::from(self.escape));
            }
            out.push(character);
        }
        out.push(char::from(self.quote));
    }
}

/// The function of texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Quoted(CsvForm);

impl Quoted {
    fn quote(&self, texts: &ArrayRef) -> DfResult<ArrayRef> {
        let texts = cast(texts, &DataType::Utf8View)?;
        let mut quoted = StringViewBuilder::with_capacity(texts.len());
        let mut written = String::new();
        for text in texts.as_string_view() {
            match text {
                Some(text) => {
                    written.clear();
                    self.0.write(text, &mut written);
                    quoted.append_value(&written);
                }
                None => quoted.append_null(),
            }
        }
        Ok(Arc::new(quoted.finish()))
    }
}

impl ScalarUDFImpl for Quoted {
    fn name(&self) -> &str {
        "csv_text"
    }

    fn signature(&self) -> &Signature {
        static ANY_ONE: LazyLock<Signature> =
            LazyLock::new(|| Signature::any(1, Volatility::Immutable));
        &ANY_ONE
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        compute_one(self.name(), &args.args, |texts| self.quote(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_where_they_would_be_read_as_another_value() {
        let form = CsvForm { delimiter: b';', quote: b'\'', escape: b'\\', null: "NULL".into() };
        for (text, expected) in [
            ("a, b", "a, b"),
            ("", "''"),
            ("NULL", "'NULL'"),
            ("a;b", "'a;b'"),
            ("it's", r"'it\'s'"),
            (r"a\b", r"'a\\b'"),
            ("two\nlines", "'two\nlines'"),
        ] {
            let mut written = String::new();
            form.write(text, &mut written);
            assert_eq!(written, expected, "{text}");
        }
    }
}
