//! The functions that clients of PostgreSQL call about the catalog, the connection and the server.
//!
//! A function is computed value by value: it is called for a few rows of the catalog. What it says of tables, views and
//! roles is what the database has when it is called, as in PostgreSQL; what it says of the connection is its
//! [`Client`](crate::postgres::Client)'s answer.

mod connection;
mod names;
mod objects;
mod plain;
mod privileges;
mod sequences;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DataFusionError, Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use weft_store::Snapshot;

use crate::access::Access;
use crate::engine::Engine;
use crate::error::{Result, internal};
use crate::postgres::Connected;
use crate::random::Seed;
use crate::sequences::{CurrentValues, UsedSequences};
use crate::settings::SessionSettings;
use crate::statement_option::{StatementOption, Told};
use crate::transactions::SessionTransaction;

/// The version of PostgreSQL whose catalog and functions these are.
pub const POSTGRES_VERSION: &str = "14.20";

/// What functions look at: statements have it among their options.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// Plans, which may outlast the database by a moment, do not keep it open.
    pub(crate) engine: Weak<Engine>,
    pub(crate) connected: Connected,
    pub(crate) transaction: Option<Weak<SessionTransaction>>,
    /// Sequences that the statement has taken values of.
    pub(crate) sequences: Arc<UsedSequences>,
    /// Values that sequences have given the session.
    pub(crate) current: Arc<CurrentValues>,
    /// What the session's random numbers follow from.
    pub(crate) seed: Arc<Seed>,
    /// The role that the session acts for, if there is one.
    pub(crate) acting: Option<String>,
    /// The session's settings.
    pub(crate) settings: SessionSettings,
    /// Sequences give no values: it is only tried whether a value fits.
    pub(crate) is_trial: bool,
}

impl Surroundings {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        connected: &Connected,
        transaction: Option<&Arc<SessionTransaction>>,
    ) -> Surroundings {
        let transaction = transaction.map(Arc::downgrade);
        let settings = engine.session_defaults.clone();
        let (engine, connected) = (Arc::downgrade(engine), connected.clone());
        Surroundings {
            engine,
            connected,
            transaction,
            sequences: Arc::default(),
            current: Arc::default(),
            seed: Arc::default(),
            acting: None,
            settings,
            is_trial: false,
        }
    }

    /// The database, while a statement runs.
    ///
    /// # Errors
    /// If it is closed.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>> {
        self.engine.upgrade().ok_or_else(|| internal("the database is closed"))
    }

    /// What the session's role may do in a snapshot.
    pub(crate) fn access(&self, snapshot: &Snapshot) -> Access {
        self.acting.as_deref().map(|role| Access::of(snapshot, role)).unwrap_or_default()
    }

    /// The database as its last commit left it, or as the transaction sees it.
    ///
    /// # Errors
    /// If it is closed.
    pub(crate) fn snapshot(&self) -> Result<Arc<Snapshot>> {
        match &self.transaction {
            Some(transaction) => match transaction.upgrade() {
                Some(transaction) => transaction.snapshot(),
                None => Err(internal("the transaction has ended")),
            },
            None => Ok(self.engine()?.store().snapshot()),
        }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}

impl Told for Surroundings {
    const NAME: &'static str = "weft_surroundings";
}

/// The arguments of one call.
pub(crate) struct Arguments<'a> {
    values: &'a [ScalarValue],
}

impl Arguments<'_> {
    /// How many arguments there are.
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// An argument as text; `None` for NULL and for one that is not there.
    pub(crate) fn text(&self, number: usize) -> Option<String> {
        let value = self.values.get(number)?;
        match value.cast_to(&DataType::Utf8) {
            Ok(ScalarValue::Utf8(text)) => text,
            _ => None,
        }
    }

    /// An argument as a number; `None` also for texts that are none.
    pub(crate) fn number(&self, number: usize) -> Option<i64> {
        let value = self.values.get(number)?;
        match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        }
    }

    /// An argument as a floating point number; `None` also for texts that are none.
    pub(crate) fn float(&self, number: usize) -> Option<f64> {
        match self.values.get(number)?.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(number)) => number,
            _ => None,
        }
    }

    /// An argument as a truth value.
    pub(crate) fn is_true(&self, number: usize) -> Option<bool> {
        match self.values.get(number)?.cast_to(&DataType::Boolean) {
            Ok(ScalarValue::Boolean(value)) => value,
            _ => None,
        }
    }

    /// True of an argument that is text.
    pub(crate) fn is_text(&self, number: usize) -> bool {
        self.values.get(number).is_some_and(|value| value.data_type().is_string())
    }

    /// The argument itself.
    pub(crate) fn value(&self, number: usize) -> Option<&ScalarValue> {
        self.values.get(number)
    }
}

type Compute = fn(&Surroundings, &Arguments<'_>) -> Result<ScalarValue>;

/// What a function is.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    /// How many arguments it takes, at least and at most.
    pub(crate) arguments: (usize, usize),
    /// The type of its values, by those of its arguments.
    pub(crate) returns: fn(&[DataType]) -> DataType,
    pub(crate) volatility: Volatility,
    pub(crate) compute: Compute,
}

/// A function whose values are of one type.
pub(crate) fn define(
    name: &'static str,
    arguments: (usize, usize),
    returns: fn(&[DataType]) -> DataType,
    compute: Compute,
) -> Definition {
    Definition { name, arguments, returns, volatility: Volatility::Stable, compute }
}

pub(crate) fn text_type(_: &[DataType]) -> DataType {
    DataType::Utf8View
}

pub(crate) fn number_type(_: &[DataType]) -> DataType {
    DataType::Int64
}

pub(crate) fn truth_type(_: &[DataType]) -> DataType {
    DataType::Boolean
}

pub(crate) fn texts_type(_: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8View, true)))
}

pub(crate) fn text(value: Option<impl Into<String>>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8View(value.map(Into::into)))
}

pub(crate) fn number(value: Option<i64>) -> Result<ScalarValue> {
    Ok(ScalarValue::Int64(value))
}

pub(crate) fn truth(value: Option<bool>) -> Result<ScalarValue> {
    Ok(ScalarValue::Boolean(value))
}

/// All of them.
pub(crate) fn postgres_functions() -> Vec<Arc<ScalarUDF>> {
    let all = [
        names::functions(),
        objects::functions(),
        plain::functions(),
        privileges::functions(),
        connection::functions(),
        sequences::functions(),
    ];
    all.into_iter().flatten().map(|definition| Arc::new(Function::new(definition).into())).collect()
}

/// A function as DataFusion sees it.
struct Function {
    definition: Definition,
    signature: Signature,
}

impl Function {
    fn new(definition: Definition) -> Function {
        let (least, most) = definition.arguments;
        let counts = (least..=most).map(|count| match count {
            0 => TypeSignature::Nullary,
            count => TypeSignature::Any(count),
        });
        let signature = TypeSignature::OneOf(counts.collect());
        let signature = Signature::new(signature, definition.volatility);
        Function { definition, signature }
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.definition.name)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Function) -> bool {
        self.definition.name == other.definition.name
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.definition.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        Ok((self.definition.returns)(types))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let told = args.config_options.extensions.get::<StatementOption<Surroundings>>();
        let Some(StatementOption(surroundings)) = told else {
            return internal_err!("{} is called outside of a statement", self.definition.name);
        };
        let is_scalar = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let is_stable = self.definition.volatility != Volatility::Volatile;
        // A function that does something does it for each row.
        let count = if is_scalar && is_stable { 1 } else { args.number_rows };
        let mut values = Vec::with_capacity(count);
        for row in 0..count {
            let of_row = |value: &ColumnarValue| match value {
                ColumnarValue::Scalar(value) => Ok(value.clone()),
                ColumnarValue::Array(values) => ScalarValue::try_from_array(values, row),
            };
            let of_row: Vec<ScalarValue> = args.args.iter().map(of_row).collect::<DfResult<_>>()?;
            let arguments = Arguments { values: &of_row };
            let value = (self.definition.compute)(surroundings, &arguments)
                .map_err(DataFusionError::from)?;
            values.push(value.cast_to(args.return_type())?);
        }
        if is_scalar && is_stable {
            return match values.pop() {
                Some(value) => Ok(ColumnarValue::Scalar(value)),
                None => internal_err!("{} had no value", self.definition.name),
            };
        }
        let array: ArrayRef = match values.is_empty() {
            true => arrow::array::new_empty_array(args.return_type()),
            false => ScalarValue::iter_to_array(values)?,
        };
        Ok(ColumnarValue::Array(array))
    }
}
