//! `string_agg` that puts texts in their order itself: DataFusion's wants its rows in the order already, so that two of them with
//! different ones do not go together.
//!
//! What has an order, or only different texts, is the text of an `array_agg`. The rest is DataFusion's.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::functions_aggregate::string_agg::string_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};
use datafusion::physical_expr::expressions::Literal;

use crate::ordered_lists::ordered_lists;

/// The function.
pub(crate) fn ordered_texts() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Texts::new(ordered_lists())))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Texts {
    unordered: Arc<AggregateUDF>,
    ordered: Arc<AggregateUDF>,
}

impl Texts {
    fn new(ordered: Arc<AggregateUDF>) -> Texts {
        Texts { unordered: string_agg_udaf(), ordered }
    }
}

impl AggregateUDFImpl for Texts {
    fn name(&self) -> &str {
        self.unordered.name()
    }

    fn signature(&self) -> &Signature {
        self.unordered.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.unordered.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.unordered.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        if !args.is_distinct && args.order_bys.is_empty() {
            return self.unordered.accumulator(args);
        }
        // Says what is wrong with the separator.
        let separator = args.exprs[1].downcast_ref::<Literal>().map(Literal::value);
        let separator = match separator.map(|value| value.cast_to(&DataType::Utf8)) {
            Some(Ok(ScalarValue::Utf8(separator))) => separator.unwrap_or_default(),
            _ => return self.unordered.accumulator(args),
        };
        let list = DataType::new_list(args.expr_fields[0].data_type().clone(), true);
        let inner = self.ordered.accumulator(AccumulatorArgs {
            return_field: Arc::new(Field::new(args.return_field.name(), list, true)),
            exprs: &args.exprs[..1],
            expr_fields: &args.expr_fields[..1],
            ..args
        })?;
        Ok(Box::new(Joined { inner, separator }))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.unordered.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.unordered.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.ordered.order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> DfResult<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = self.ordered.as_ref().clone().with_beneficial_ordering(is_ordered)?;
        Ok(ordered.map(|ordered| Arc::new(Texts::new(Arc::new(ordered))) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(self.clone())))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.unordered.documentation()
    }
}

/// A list of texts that become one.
#[derive(Debug)]
struct Joined {
    inner: Box<dyn Accumulator>,
    separator: String,
}

impl Accumulator for Joined {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        // Without the separator; behind it there is what rows are ordered by.
        let inputs: Vec<ArrayRef> = values[..1].iter().chain(&values[2..]).cloned().collect();
        self.inner.update_batch(&inputs)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let ScalarValue::List(list) = self.inner.evaluate()? else {
            return internal_err!("array_agg gives a list");
        };
        let texts = cast(&list.value(0), &DataType::LargeUtf8)?;
        let texts: Vec<&str> = texts.as_string::<i64>().iter().flatten().collect();
        let is_any = !texts.is_empty();
        Ok(ScalarValue::LargeUtf8(is_any.then(|| texts.join(&self.separator))))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size() + self.separator.capacity()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.inner.merge_batch(states)
    }
}
