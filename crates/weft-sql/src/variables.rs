//! Variables of a session: `SET VARIABLE x = expression`, and `getvariable('x')`, which is a constant to the planner.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use futures::FutureExt;

use crate::catalog::StatementCatalog;
use crate::error::{ErrorKind, Result, SqlError};
use crate::grammar::{expect_end, expected, is, slice};
use crate::run::{Run, Started};
use crate::spill_files::task_context;
use crate::statement::{Parsed, parse_query};
use crate::text;

/// The values of a session's variables, by names in lower case.
pub(crate) type Variables = BTreeMap<String, ScalarValue>;

/// Parses `SET VARIABLE name = expression`.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn parse_set(sql: &str, tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let significant = text::significant(tokens);
    let name = name(&significant)?;
    let equals = significant.get(3);
    let is_assigned = equals.is_some_and(|token| token.token == Token::Eq || is(token, "TO"));
    match (&significant[..], is_assigned) {
        ([.., end], true) if significant.len() > 4 => {
            let value = slice(sql, significant[4], end);
            Ok(Parsed::SetVariable {
                name,
                query: Box::new(parse_query(&format!("SELECT {value}"))?),
            })
        }
        ([.., end], _) => expected("= and the variable's value", equals.unwrap_or(end)),
        ([], _) => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected a variable")),
    }
}

/// Parses `RESET VARIABLE name`.
///
/// # Errors
/// [`ErrorKind::Syntax`].
pub(crate) fn parse_reset(tokens: &[TokenWithSpan]) -> Result<Parsed> {
    let name = name(&text::significant(tokens))?;
    expect_end(tokens, 3)?;
    Ok(Parsed::ResetVariable { name })
}

/// The name behind two words.
fn name(tokens: &[&TokenWithSpan]) -> Result<String> {
    match tokens.get(2) {
        Some(TokenWithSpan { token: Token::Word(name), .. }) => Ok(name.value.to_lowercase()),
        Some(other) => expected("the name of a variable", other),
        None => Err(SqlError::new(ErrorKind::Syntax, "syntax error: expected a variable's name")),
    }
}

impl Run {
    /// SET VARIABLE.
    pub(crate) async fn set_variable(
        &self,
        catalog: &StatementCatalog,
        name: String,
        query: ast::Query,
    ) -> Result<Started> {
        let statement = DfStatement::Statement(Box::new(ast::Statement::Query(Box::new(query))));
        let state = catalog.planning_state();
        let plan = catalog.plan(&state, statement).await?;
        let physical = self.physical(&state, &plan).await?;
        let run = self.clone();
        let work = async move {
            let schema = physical.schema();
            let [field] = schema.fields().as_ref() else {
                let message =
                    format!("variable {name} has one value, not {}", schema.fields().len());
                return Err(SqlError::new(ErrorKind::Semantic, message));
            };
            let batches = collect(physical, task_context(&state)).await?;
            let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
            let value = match (rows, batches.iter().find(|batch| batch.num_rows() > 0)) {
                (1, Some(batch)) => ScalarValue::try_from_array(batch.column(0), 0)?,
                (0, _) => ScalarValue::try_from(field.data_type())?,
                _ => {
                    let message = format!("variable {name} has one value, not {rows} rows");
                    return Err(SqlError::new(ErrorKind::Semantic, message).with_hint(
                        "write SET VARIABLE x = (SELECT list(a) FROM t) for all of them",
                    ));
                }
            };
            run.session.set_variable(name, Some(value))?;
            Ok(None)
        };
        Ok(Started::Command { tag: "SET", work: work.boxed() })
    }
}

/// The function that gives a session's variables their values.
pub(crate) fn variable_function(variables: &Variables) -> Arc<ScalarUDF> {
    let variables = Arc::new(variables.clone());
    let signature = Signature::any(1, Volatility::Immutable);
    Arc::new(ScalarUDF::from(GetVariable { variables, signature }))
}

/// `getvariable(name)`: NULL for one that was not set.
#[derive(Debug)]
struct GetVariable {
    variables: Arc<Variables>,
    signature: Signature,
}

impl GetVariable {
    fn value(&self, name: Option<&ScalarValue>) -> DfResult<ScalarValue> {
        match name.and_then(ScalarValue::try_as_str) {
            Some(Some(name)) => {
                let found = self.variables.get(&name.to_lowercase());
                Ok(found.cloned().unwrap_or(ScalarValue::Null))
            }
            Some(None) => Ok(ScalarValue::Null),
            None => plan_err!("getvariable takes the name of a variable as a constant text"),
        }
    }
}

impl PartialEq for GetVariable {
    fn eq(&self, other: &GetVariable) -> bool {
        self.variables == other.variables
    }
}

impl Eq for GetVariable {}

impl Hash for GetVariable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "getvariable".hash(state);
    }
}

impl ScalarUDFImpl for GetVariable {
    fn name(&self) -> &str {
        "getvariable"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        plan_err!("getvariable takes the name of a variable as a constant text")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DfResult<FieldRef> {
        let value = self.value(args.scalar_arguments.first().copied().flatten())?;
        Ok(Arc::new(Field::new(self.name(), value.data_type(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        match args.args.first() {
            Some(ColumnarValue::Scalar(name)) => Ok(ColumnarValue::Scalar(self.value(Some(name))?)),
            _ => plan_err!("getvariable takes the name of a variable as a constant text"),
        }
    }
}
