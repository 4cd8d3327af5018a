//! `array_agg` whose DISTINCT lists are in the order that was asked for: DataFusion turns the order of an aggregate around where
//! another one then needs no order of its own, and has the aggregate turn its list back, which its DISTINCT one forgets.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DfResult;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    Signature,
};

/// The function.
pub(crate) fn ordered_lists() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(Lists { inner: array_agg_udaf() }))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lists {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Lists {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        if !(args.is_distinct && args.is_reversed) {
            return self.inner.accumulator(args);
        }
        // It sorts its values in the end, whatever their order was.
        let mut order_bys = args.order_bys.to_vec();
        order_bys.iter_mut().for_each(|key| key.options = !key.options);
        self.inner.accumulator(AccumulatorArgs {
            order_bys: &order_bys,
            is_reversed: false,
            ..args
        })
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        is_ordered: bool,
    ) -> DfResult<Option<Arc<dyn AggregateUDFImpl>>> {
        let inner = self.inner.as_ref().clone().with_beneficial_ordering(is_ordered)?;
        Ok(inner.map(|inner| Arc::new(Lists { inner: Arc::new(inner) }) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(self.clone())))
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
