//! TABLESAMPLE and USING SAMPLE. A sample is a condition of WHERE, a call of [`SAMPLE`] that no other condition may replace: TABLESAMPLE
//! becomes a query with it (`rewrite`), and where it stands in a plan, rows are chosen below the other conditions (`plan.rs`).

mod key;
mod plan;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, not_impl_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::{
    Expr, SetExpr, TableAlias, TableFactor, TableSample, TableSampleKind, TableSampleMethod,
    TableSampleUnit, TableWithJoins, Value,
};

use crate::functions::call;
use crate::using_joins::query_of;

pub(crate) use self::plan::planned;

/// The condition that is a sample: with the method, the amount, its unit and the seed.
pub(super) const SAMPLE: &str = "using_sample";

/// Makes a table with TABLESAMPLE a query with the condition. What has other parts of the clause is left, and refused later.
pub(crate) fn rewrite(factor: &mut TableFactor) {
    let (TableFactor::Table { sample, alias, .. } | TableFactor::Derived { sample, alias, .. }) =
        factor
    else {
        return;
    };
    let condition = match sample {
        Some(
            TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample),
        ) => condition(sample),
        None => return,
    };
    let Some(condition) = condition else { return };
    *sample = None;
    let mut alias = alias.take();
    if alias.is_none()
        && let TableFactor::Table { name, .. } = &*factor
        && let Some(name) = name.0.last().and_then(|part| part.as_ident())
    {
        alias =
            Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
    }
    let mut query = query_of(vec![TableWithJoins { relation: factor.clone(), joins: Vec::new() }]);
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.selection = Some(condition);
    }
    *factor =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
}

/// The condition that says the same as a clause.
fn condition(sample: &TableSample) -> Option<Expr> {
    let (quantity, None, None) = (sample.quantity.as_ref()?, &sample.bucket, &sample.offset) else {
        return None;
    };
    let unit = match quantity.unit {
        Some(TableSampleUnit::Percent) => "PERCENT",
        Some(TableSampleUnit::Rows) => "ROWS",
        None => return None,
    };
    let method = match sample.name.as_ref()? {
        TableSampleMethod::Bernoulli => "BERNOULLI",
        TableSampleMethod::System => "SYSTEM",
        TableSampleMethod::Row => "ROW",
        TableSampleMethod::Block => return None,
    };
    let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).into());
    let seed = match &sample.seed {
        Some(seed) => Expr::Value(seed.value.clone()),
        None => Expr::Value(Value::Null.into()),
    };
    Some(call(SAMPLE, [text(method), quantity.value.clone(), text(unit), seed]))
}

/// The functions of samples.
pub(crate) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [ScalarUDF::from(Mark::new()), key::sample_key()].into_iter().map(Arc::new)
}

/// The condition, which is never evaluated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl Mark {
    fn new() -> Mark {
        Mark { signature: Signature::any(4, Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        SAMPLE
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        not_impl_err!("USING SAMPLE within other conditions")
    }
}
