//! Aggregate functions, as whoever makes a plan asks for them.

use std::fmt;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::quantile::Quantile;
use crate::error::Result;
use crate::lane::Lane;
use crate::program::Register;

/// An aggregate of a query. Rows whose arguments are null do not count, unless the function says otherwise.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// What is computed.
    pub function: Function,
    /// Of what.
    pub arguments: Vec<Register>,
    /// Only of rows for which this is true (FILTER); of [`Lane::Bool`].
    pub filter: Option<Register>,
    /// Only of different values (DISTINCT) of the one argument. min and max are the same without.
    pub is_distinct: bool,
    /// Hashes of the first argument ([`Step::Hash`](crate::program::Step::Hash)): for DISTINCT and
    /// [`Function::ApproximateDistinct`].
    pub hash: Option<Register>,
    /// What rows are ordered by, for functions to which that matters: bytes that compare as rows do
    /// ([`Lane::Str`], as Arrow's row format has them), never null.
    pub order: Option<Register>,
    /// False if every group has a row that counts: there are keys, no filter, and arguments are never null.
    pub is_nullable: bool,
    /// The lane of the result.
    pub result: Lane,
}

impl Aggregate {
    /// All rows without null, in their order.
    pub fn new(function: Function, arguments: Vec<Register>, result: Lane) -> Aggregate {
        Aggregate {
            function,
            arguments,
            filter: None,
            is_distinct: false,
            hash: None,
            order: None,
            is_nullable: true,
            result,
        }
    }
}

/// An aggregate function.
#[derive(Clone, Debug)]
pub enum Function {
    /// Number of rows, or of those whose arguments are not null; 0 for none. The result is an integer.
    Count,
    /// Of numbers. Exact for integers, in any lane that the sum fits into, or an error; of floats in 64 bits.
    Sum,
    /// Sum by count. If the result is an integer, `digits` is how many more digits it has behind the point than the argument;
    /// if it is a float, how many the argument has.
    Average {
        /// See above.
        digits: i8,
    },
    /// The least value; NaN is larger than any number. The result has the argument's lane.
    Min,
    /// The greatest value.
    Max,
    /// Of one argument, or of two (y, x), all of [`Lane::F64`], as the result.
    Moment(Moment),
    /// All numbers multiplied, of [`Lane::F64`], as the result.
    Product,
    /// bool_and, bit_and
    And,
    /// bool_or, bit_or
    Or,
    /// bit_xor
    Xor,
    /// The value of the first row in the order of the aggregate, else of some row; any_value, min_by.
    First {
        /// Of the first row whose value is not null; else it may be null.
        ignores_nulls: bool,
    },
    /// As `First`, of the last row; max_by.
    Last {
        /// As above.
        ignores_nulls: bool,
    },
    /// Between two values if need be; median, percentile_cont. The result is a number.
    ContinuousQuantile(Quantile),
    /// One of the values; percentile_disc. The result has the argument's lane.
    DiscreteQuantile(Quantile),
    /// string_agg: texts in the order of the aggregate.
    Texts {
        /// What stands between them.
        separator: Arc<[u8]>,
    },
    /// About how many different values; the standard error is 1.6 %. 0 for none. The result is [`Lane::I64`] or
    /// [`Lane::U64`].
    ApproximateDistinct,
    /// Anything else, of one argument, nulls included; array_agg.
    External(Arc<dyn External>),
}

/// A question about variances; about those of higher degree, of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// var_samp
    VarianceSample,
    /// var_pop
    VariancePopulation,
    /// stddev_samp
    DeviationSample,
    /// stddev_pop
    DeviationPopulation,
    /// covar_samp
    CovarianceSample,
    /// covar_pop
    CovariancePopulation,
    /// corr
    Correlation,
    /// skewness
    Skewness,
    /// kurtosis
    KurtosisSample,
    /// kurtosis_pop
    KurtosisPopulation,
}

/// An aggregate function over Arrow arrays, for whatever has no state here. It gets all values of a group, some at a time.
/// Several arguments come as one struct.
pub trait External: fmt::Debug + Send + Sync {
    /// What EXPLAIN calls it.
    fn name(&self) -> &str;

    /// The type of the array that it wants.
    fn input_type(&self) -> &DataType;

    /// Begins with a group.
    ///
    /// # Errors
    /// [`crate::ExecError::Function`]
    fn begin(&self) -> Result<Box<dyn Group>>;
}

/// A group on its way to its value.
pub trait Group: Send {
    /// More of its values, in the order of the aggregate.
    ///
    /// # Errors
    /// What is wrong with them; [`crate::ExecError::Function`] for whatever is not this crate's.
    fn add(&mut self, values: &ArrayRef) -> Result<()>;

    /// Its value: an array of one row. Asked for once, after all values, on any thread.
    ///
    /// # Errors
    /// As [`Group::add`].
    fn value(&mut self) -> Result<ArrayRef>;
}
