//! Drives an aggregation by hand: sinks of all workers, then the groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_exec::aggregate::{Aggregation, Output};
use weft_exec::program::{Program, Register};
use weft_exec::query::Context;
use weft_exec::registers::Registers;
use weft_exec::{Lane, Result};
use weft_rt::memory::Ledger;
use weft_rt::{Runtime, RuntimeOptions};

use crate::rows::{Cell, Scalar, Shared, cell};

/// A context of so many workers and bytes.
pub fn context(workers: usize, bytes: u64) -> Context {
    let options = RuntimeOptions { workers, ..RuntimeOptions::default() };
    let runtime = Runtime::new(&options).expect("workers");
    Context::new(Arc::new(runtime), Ledger::new(bytes))
}

/// Aggregates a table whose columns are the first registers of `program`. If `selection` is given, the truth values of that
/// column say which rows count. Gives a row for each group.
pub fn run(
    context: &Context,
    program: &Program,
    aggregation: &Arc<Aggregation>,
    table: &Shared,
    selection: Option<usize>,
    outputs: &[(Output, Lane)],
) -> Result<Vec<Vec<Cell>>> {
    let sink: Arc<dyn weft_exec::pipeline::Sink> = Arc::from(aggregation.sink());
    let next = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..context.runtime.workers())
        .map(|worker| {
            let (sink, next, table) = (sink.clone(), next.clone(), table.clone());
            let (context, lanes) = (context.clone(), program.registers.clone());
            let spawner = context.runtime.clone();
            spawner.spawn_on(worker, move || async move {
                let mut local = sink.local(&context, worker)?;
                let mut registers = Registers::of(&lanes);
                let rows = context.vector_rows;
                loop {
                    let start = next.fetch_add(rows, Ordering::Relaxed);
                    if start >= table.rows.len() {
                        break;
                    }
                    let end = table.rows.len().min(start + rows);
                    let rows = &table.rows[start..end];
                    registers.begin(rows.len());
                    for column in 0..table.lanes.len() {
                        table.fill(&mut registers, column, start..end);
                    }
                    if let Some(column) = selection {
                        registers
                            .selection
                            .retain(|row| rows[row][column] == Some(Scalar::Bool(true)));
                    }
                    local.push(&mut registers).await?;
                    // Others shall have their turn.
                    weft_rt::yield_now().await;
                }
                local.end().await
            })
        })
        .collect();
    let mut results = Vec::new();
    for handle in handles {
        results.push(handle.wait().expect("no panic"));
    }
    results.into_iter().collect::<Result<Vec<()>>>()?;
    groups(context, sink, aggregation, outputs)
}

fn groups(
    context: &Context,
    sink: Arc<dyn weft_exec::pipeline::Sink>,
    aggregation: &Arc<Aggregation>,
    outputs: &[(Output, Lane)],
) -> Result<Vec<Vec<Cell>>> {
    let source: Arc<dyn weft_exec::pipeline::Source> =
        Arc::from(aggregation.source(outputs.iter().map(|(output, _)| *output).collect()));
    let lanes: Vec<Lane> = outputs.iter().map(|(_, lane)| *lane).collect();
    let (between, shared) = (context.clone(), source.clone());
    context
        .runtime
        .block_on(move || async move {
            sink.finish(&between).await?;
            shared.open(&between).await
        })
        .expect("no panic")?;
    let handles: Vec<_> = (0..context.runtime.workers())
        .map(|worker| {
            let (source, lanes, context) = (source.clone(), lanes.clone(), context.clone());
            let spawner = context.runtime.clone();
            spawner.spawn_on(worker, move || async move {
                let inputs: Vec<Register> = (0..lanes.len() as u16).map(Register).collect();
                let mut registers = Registers::of(&lanes);
                let mut groups: Vec<Vec<Cell>> = Vec::new();
                while let Some(mut morsel) = source.morsel(worker) {
                    while let Some(tuples) = morsel.next().await? {
                        for start in (0..tuples.rows()).step_by(context.vector_rows) {
                            let rows = context.vector_rows.min(tuples.rows() - start);
                            registers.begin(rows);
                            tuples.load(start, rows, &inputs, &mut registers)?;
                            for row in 0..rows {
                                let cells =
                                    inputs.iter().map(|input| cell(registers.vector(*input), row));
                                groups.push(cells.collect());
                            }
                        }
                    }
                }
                Ok(groups)
            })
        })
        .collect();
    let mut groups = Vec::new();
    let mut error = None;
    for handle in handles {
        match handle.wait().expect("no panic") {
            Ok(some) => groups.extend(some),
            Err(news) => error = Some(news),
        }
    }
    error.map_or(Ok(groups), Err)
}
