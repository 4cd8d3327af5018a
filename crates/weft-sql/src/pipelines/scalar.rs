//! Subqueries that stand for a value: each ends in a sink that keeps its one value, and everything else comes after it.
//! The expressions that use the value ask for it where it was kept.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::physical_planning_context::{ScalarSubqueryResults, SubqueryIndex};
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use weft_exec::arrow::ColumnBuilder;
use weft_exec::pipeline::{Flow, LocalSink, Sink};
use weft_exec::program::Register;
use weft_exec::query::Context;
use weft_exec::registers::Registers;
use weft_exec::{ExecError, Lane};

use super::asks::Asks;
use super::open::Open;
use super::term::in_register;
use super::translate::Translator;
use crate::error::{ErrorKind, SqlError};
use crate::plan_node::Plan;

/// Translates the subqueries of a node, which come before all that is translated from now on; then its input.
///
/// # Errors
/// Those of its inputs.
pub(super) fn scalar(
    translator: &mut Translator,
    node: &ScalarSubqueryExec,
    asks: Asks,
) -> DfResult<Open> {
    for ScalarSubqueryLink { plan, index } in node.subqueries() {
        let mut open = translator.node(plan)?;
        let schema = plan.schema();
        let ([field], [term]) = (&schema.fields()[..], &open.columns[..]) else {
            return internal_err!("a subquery that stands for a value has one column");
        };
        let (data_type, lane) = (field.data_type().clone(), term.lane);
        let term = term.clone();
        open.begin_sink();
        let register = in_register(&mut open.program, &term);
        let results = node.results().clone();
        let kept = Arc::default();
        let sink = Keep { register, lane, data_type, results, index: *index, kept };
        let ended = open.close(Box::new(sink), "value", &mut translator.closed);
        translator.closed.first.extend(ended);
    }
    translator.asked(node.input(), asks)
}

/// Forgets the values of an earlier execution.
pub(super) fn forget(plan: &Plan) {
    if let Some(node) = plan.downcast_ref::<ScalarSubqueryExec>() {
        node.results().clear();
    }
    plan.children().into_iter().for_each(forget);
}

/// Keeps the one value that comes, or null.
#[derive(Clone, Debug)]
struct Keep {
    register: Register,
    lane: Lane,
    data_type: DataType,
    results: ScalarSubqueryResults,
    index: SubqueryIndex,
    kept: Arc<Mutex<Option<ScalarValue>>>,
}

impl Keep {
    fn keep(&self, registers: &Registers) -> Result<(), ExecError> {
        let rows = registers.selected();
        if rows.count() == 0 {
            return Ok(());
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.count() > 1 || kept.is_some() {
            let error = SqlError::new(
                ErrorKind::Data,
                "a subquery that stands for a value returns more than one row",
            );
            let error = error.with_hint("add LIMIT 1, or take its min or max");
            return Err(ExecError::Function(Box::new(error)));
        }
        let mut builder = ColumnBuilder::new(&self.data_type, self.lane);
        builder.append(registers.vector(self.register), rows);
        let value = ScalarValue::try_from_array(&builder.finish()?, 0);
        *kept = Some(value.map_err(|error| ExecError::Function(Box::new(error)))?);
        Ok(())
    }
}

impl Sink for Keep {
    fn local(&self, _: &Context, _: usize) -> weft_exec::Result<Box<dyn LocalSink>> {
        Ok(Box::new(self.clone()))
    }

    fn finish<'a>(&'a self, _: &'a Context) -> BoxFuture<'a, weft_exec::Result<()>> {
        async {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
            let value = match kept {
                Some(value) => Ok(value),
                None => ScalarValue::try_from(&self.data_type),
            };
            let set = value.and_then(|value| self.results.set(self.index, value));
            set.map_err(|error| ExecError::Function(Box::new(error)))
        }
        .boxed()
    }
}

impl LocalSink for Keep {
    fn push<'a>(
        &'a mut self,
        registers: &'a mut Registers,
    ) -> LocalBoxFuture<'a, weft_exec::Result<Flow>> {
        let kept = self.keep(registers);
        async { kept.map(|()| Flow::More) }.boxed_local()
    }

    fn end(self: Box<Self>) -> LocalBoxFuture<'static, weft_exec::Result<()>> {
        async { Ok(()) }.boxed_local()
    }
}
