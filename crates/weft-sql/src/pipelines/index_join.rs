//! Index-nested-loop joins: the outer input's rows are stored, with the keys that they are looked up by, and the source of the
//! next pipeline looks them up in the index of the inner one, which is not scanned.
//!
//! Conditions of the inner input and of the join, and keys that the index does not begin with, are put to the pairs before they
//! count as matches.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, JoinSide, Result as DfResult, internal_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, TryCastExpr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use weft_exec::Lane;
use weft_exec::program::{Program, Register, Step};
use weft_exec::sink::Store;
use weft_exec::source::{IndexJoin, IndexJoinKind, OuterKeys};
use weft_exec::tuple::Layout;
use weft_store::KeyLookupOptions;

use super::asks::Asks;
use super::description::{shortened, sql};
use super::expressions::{Expr, Expressions};
use super::index_choice::{IndexChoice, KeyPart};
use super::join::{JoinColumn, Joining};
use super::join_build::hash;
use super::join_probe::marked;
use super::logic;
use super::open::Open;
use super::stored::{Stored, StoredTerm};
use super::term::{Term, in_register};
use super::translate::{Translator, check_size};
use crate::error::from_store;
use crate::plan_node::Plan;

/// The rows of a join that looks up in an index, but for those that `asks` drop, if they are left out by its outer input.
///
/// # Errors
/// Those of its expressions; if the index is gone.
pub(super) fn join(
    translator: &mut Translator,
    joining: &Joining<'_>,
    choice: &IndexChoice<'_>,
    asks: &Asks,
) -> DfResult<Open> {
    let outer_side = choice.outer_side();
    let outer_asks = joining.below(asks, outer_side);
    let here = asks.rest(&[&outer_asks]);
    let outer_plan = choice.outer(joining);
    let open = translator.asked(outer_plan, outer_asks)?;
    let mut outer = translator.unwindowed(open)?;
    outer.begin_sink();
    let keys = outer_keys(&mut outer, outer_plan, joining, choice)?;
    let mut stored = Stored::default();
    let mut key_fields = Vec::with_capacity(keys.len());
    for key in &keys {
        let field = key.as_ref().map(|term| {
            let field = stored.add_key(&mut outer.program, term);
            (field, term.lane)
        });
        key_fields.push(field);
    }
    let mut kept: Vec<Option<StoredTerm>> = vec![None; outer.columns.len()];
    for column in choice.outer_columns(joining)? {
        if kept[column].is_none() {
            kept[column] = Some(stored.add(&outer.columns[column]));
        }
    }
    let hash = hash(&mut outer.program, Vec::new());
    let (layout, fields) = stored.finish();
    let sink = Store::new(layout.clone(), fields, hash);
    let rows = sink.stored();
    let after = outer.close(Box::new(sink), "outer rows", &mut translator.closed);
    let scan = choice.inner.scan;
    let table = scan.table();
    let options = KeyLookupOptions {
        index: choice.index.clone(),
        projection: choice.fetched.iter().map(|column| scan.projection()[*column]).collect(),
        conditions: choice.conditions(),
        depth: scan.context().io_depth,
    };
    let lookup = table.key_lookup(options).map_err(|error| from_store(&error))?;
    let schema = scan.schema();
    let of_column = |column: &usize| {
        let data_type = schema.field(*column).data_type();
        (data_type.clone(), Lane::of(data_type))
    };
    let inner: Vec<(DataType, Lane)> = choice.fetched.iter().map(of_column).collect();
    let is_index_only = lookup.is_index_only();
    let sides =
        Sides { joining, choice, kept: &kept, layout: &layout, inner: &inner, is_index_only };
    let residual = sides.residual()?;
    let source = IndexJoin::new(
        rows,
        key_program(choice, &key_fields, &layout)?,
        choice.kind,
        lookup,
        inner.clone(),
        residual,
        scan.context().index_join_tuples,
    );
    let mut open = sides.open(source)?.after(&after);
    here.ask(&mut open);
    Ok(open)
}

/// The keys of the outer rows, for each part of the index's key that is one; integers in the index's type, where those that
/// it does not have are null.
fn outer_keys(
    outer: &mut Open,
    plan: &Plan,
    joining: &Joining<'_>,
    choice: &IndexChoice<'_>,
) -> DfResult<Vec<Option<Term>>> {
    let schema = plan.schema();
    let mut code = Expressions::new(&mut outer.program, &outer.columns, &schema);
    let key = |(part, data_type): &(KeyPart, DataType)| {
        let KeyPart::Key(number) = part else { return Ok(None) };
        let expr = choice.outer_key(joining, *number);
        let is_cast = data_type.is_integer() && expr.data_type(&schema)? != *data_type;
        let expr = match is_cast {
            true => Arc::new(TryCastExpr::new(Arc::clone(expr), data_type.clone())) as Expr,
            false => Arc::clone(expr),
        };
        code.term(&expr).map(Some)
    };
    choice.parts.iter().map(key).collect()
}

/// What makes the keys of stored rows, of the fields and lanes of those that are no constants.
fn key_program(
    choice: &IndexChoice<'_>,
    fields: &[Option<(usize, Lane)>],
    layout: &Arc<Layout>,
) -> DfResult<OuterKeys> {
    let mut program = Program::default();
    let tuples = program.register(Lane::U64);
    program.inputs = vec![tuples];
    let mut columns = Vec::with_capacity(fields.len());
    for ((part, data_type), field) in choice.parts.iter().zip(fields) {
        let register = match (part, field) {
            (_, Some((field, lane))) => {
                let (field, out) = (*field, program.register(*lane));
                program.steps.push(Step::Load { tuples, layout: Arc::clone(layout), field, out });
                out
            }
            (KeyPart::Constant(value), None) => {
                let Some(term) = Term::literal(value) else {
                    return internal_err!("{value} is no constant of a program");
                };
                in_register(&mut program, &term)
            }
            (KeyPart::Key(_), None) => return internal_err!("a key that is not stored"),
        };
        columns.push((register, data_type.clone()));
    }
    Ok(OuterKeys { program: Arc::new(program), columns })
}

impl IndexChoice<'_> {
    fn outer_side(&self) -> JoinSide {
        match self.inner_side {
            JoinSide::Left => JoinSide::Right,
            _ => JoinSide::Left,
        }
    }

    /// The input whose rows are looked up.
    fn outer<'a>(&self, joining: &Joining<'a>) -> &'a Plan {
        match self.inner_side {
            JoinSide::Left => joining.right,
            _ => joining.left,
        }
    }

    /// The input that they are looked up in.
    fn inner_plan<'a>(&self, joining: &Joining<'a>) -> &'a Plan {
        match self.inner_side {
            JoinSide::Left => joining.left,
            _ => joining.right,
        }
    }

    /// A key of the join as an expression over the outer input.
    fn outer_key<'a>(&self, joining: &Joining<'a>, key: usize) -> &'a Expr {
        let (left, right) = &joining.keys[key];
        if self.inner_side == JoinSide::Left { right } else { left }
    }

    /// The same over the inner input.
    fn inner_key<'a>(&self, joining: &Joining<'a>, key: usize) -> &'a Expr {
        let (left, right) = &joining.keys[key];
        if self.inner_side == JoinSide::Left { left } else { right }
    }

    /// The number of a column of one of the inputs, and whether it is the inner one.
    fn side_of(&self, column: JoinColumn) -> DfResult<(usize, bool)> {
        match column {
            JoinColumn::Left(column) => Ok((column, self.inner_side == JoinSide::Left)),
            JoinColumn::Right(column) => Ok((column, self.inner_side == JoinSide::Right)),
            JoinColumn::Mark => internal_err!("a lookup in an index has no mark"),
        }
    }

    /// The columns of the outer input that are wanted of its stored rows.
    fn outer_columns(&self, joining: &Joining<'_>) -> DfResult<Vec<usize>> {
        let mut wanted = Vec::new();
        let columns = joining.columns().into_iter().chain(joining.filter_columns()?);
        for column in columns.filter(|column| *column != JoinColumn::Mark) {
            let (column, is_inner) = self.side_of(column)?;
            if !is_inner {
                wanted.push(column);
            }
        }
        for key in &self.rest {
            let columns = collect_columns(self.outer_key(joining, *key));
            wanted.extend(columns.iter().map(Column::index));
        }
        Ok(wanted)
    }
}

/// What the programs over pairs are made of.
struct Sides<'a> {
    joining: &'a Joining<'a>,
    choice: &'a IndexChoice<'a>,
    /// The columns of the outer input that are stored.
    kept: &'a [Option<StoredTerm>],
    layout: &'a Arc<Layout>,
    /// Types and lanes of the columns that are fetched.
    inner: &'a [(DataType, Lane)],
    /// Whether what is fetched comes from the index, and not from rows.
    is_index_only: bool,
}

impl Sides<'_> {
    /// The columns of the outer input, loaded from stored rows; those that are not stored are null.
    fn outer_terms(&self, program: &mut Program, tuples: Register) -> Vec<Term> {
        let schema = self.choice.outer(self.joining).schema();
        let fields = schema.fields().iter().zip(self.kept);
        let term = |(field, kept): (&Arc<_>, &Option<StoredTerm>)| {
            let field: &datafusion::arrow::datatypes::Field = field;
            match kept {
                Some(kept) => kept.load(program, tuples, self.layout),
                None => Term::null(field.data_type()),
            }
        };
        fields.map(term).collect()
    }

    /// The columns of the scan in these registers; those that are not fetched are null.
    fn scan_terms(&self, registers: &[Register], is_optional: bool) -> Vec<Term> {
        let schema = self.choice.inner.scan.schema();
        let term = |(number, field): (usize, &Arc<_>)| {
            let field: &datafusion::arrow::datatypes::Field = field;
            let place = self.choice.fetched.iter().position(|column| *column == number);
            match place.and_then(|place| Some((registers.get(place)?, self.inner[place].1))) {
                Some((register, lane)) => {
                    let is_nullable = field.is_nullable() || is_optional;
                    Term::new(*register, lane, field.data_type(), is_nullable)
                }
                None => Term::null(field.data_type()),
            }
        };
        schema.fields().iter().enumerate().map(term).collect()
    }

    /// The columns of the inner input, of those of the scan.
    fn inner_terms(&self, scan: &[Term]) -> Vec<Term> {
        self.choice.inner.columns.iter().map(|column| scan[*column].clone()).collect()
    }

    /// What is put to pairs; `None` if there is nothing.
    fn residual(&self) -> DfResult<Option<Arc<Program>>> {
        let Sides { joining, choice, .. } = self;
        let has_none =
            joining.filter.is_none() && choice.inner.filters.is_empty() && choice.rest.is_empty();
        if has_none {
            return Ok(None);
        }
        let mut program = Program::default();
        let tuples = program.register(Lane::U64);
        let registers: Vec<Register> =
            self.inner.iter().map(|(_, lane)| program.register(*lane)).collect();
        program.inputs = std::iter::once(tuples).chain(registers.iter().copied()).collect();
        let scan = self.scan_terms(&registers, false);
        let scan_schema = choice.inner.scan.schema();
        for filter in &choice.inner.filters {
            logic::filter(&mut Expressions::new(&mut program, &scan, &scan_schema), filter)?;
        }
        let inner = self.inner_terms(&scan);
        if joining.filter.is_some() || !choice.rest.is_empty() {
            let outer = self.outer_terms(&mut program, tuples);
            self.equal_rest(&mut program, &outer, &inner)?;
            if let Some(filter) = joining.filter {
                let mut columns = Vec::new();
                for column in joining.filter_columns()? {
                    let (column, is_inner) = choice.side_of(column)?;
                    columns.push(if is_inner { &inner[column] } else { &outer[column] }.clone());
                }
                let mut code = Expressions::new(&mut program, &columns, filter.schema());
                logic::filter(&mut code, filter.expression())?;
            }
        }
        check_size(&program)?;
        Ok(Some(Arc::new(program)))
    }

    /// Keeps pairs whose keys are equal that are not looked up.
    fn equal_rest(&self, program: &mut Program, outer: &[Term], inner: &[Term]) -> DfResult<()> {
        let Sides { joining, choice, .. } = self;
        let (outer_schema, inner_schema) =
            (choice.outer(joining).schema(), choice.inner_plan(joining).schema());
        let fields = outer_schema.fields().iter().chain(inner_schema.fields());
        let schema = Schema::new(fields.cloned().collect::<Vec<_>>());
        let columns: Vec<Term> = outer.iter().chain(inner).cloned().collect();
        for key in &choice.rest {
            let left = Arc::clone(choice.outer_key(joining, *key));
            let right = shifted(choice.inner_key(joining, *key), outer.len())?;
            let equal = Arc::new(BinaryExpr::new(left, Operator::Eq, right)) as Expr;
            logic::filter(&mut Expressions::new(program, &columns, &schema), &equal)?;
        }
        Ok(())
    }

    /// The pipeline that looks up.
    fn open(&self, source: IndexJoin) -> DfResult<Open> {
        let Sides { joining, choice, .. } = self;
        let has_pairs = matches!(choice.kind, IndexJoinKind::Inner | IndexJoinKind::Left);
        let of_inner = self.inner.iter().map(|(_, lane)| *lane).filter(|_| has_pairs);
        let mark = (choice.kind == IndexJoinKind::Mark).then_some(Lane::Bool);
        let lanes: Vec<Lane> = std::iter::once(Lane::U64).chain(of_inner).chain(mark).collect();
        let mut registers = Vec::new();
        let mut open = Open::new(Box::new(source), self.label(), &lanes, |inputs| {
            registers = inputs.to_vec();
            Vec::new()
        });
        let of_scan = if has_pairs { &registers[1..] } else { &[] };
        let scan = self.scan_terms(of_scan, choice.kind == IndexJoinKind::Left);
        let inner = self.inner_terms(&scan);
        let mut loaded: Vec<Option<Term>> = vec![None; self.kept.len()];
        for column in joining.columns() {
            if column == JoinColumn::Mark {
                open.columns.push(marked(registers[1], false));
                continue;
            }
            let (column, is_inner) = choice.side_of(column)?;
            open.columns.push(match (is_inner, self.kept.get(column)) {
                (true, _) => inner[column].clone(),
                (false, Some(Some(kept))) => {
                    let load = || kept.load(&mut open.program, registers[0], self.layout);
                    loaded[column].get_or_insert_with(load).clone()
                }
                (false, _) => return internal_err!("a column of a join that is not stored"),
            });
        }
        Ok(open)
    }

    /// The join in words.
    fn label(&self) -> String {
        let Sides { joining, choice, .. } = self;
        let kind = match choice.kind {
            IndexJoinKind::Inner => "inner",
            IndexJoinKind::Left => "left",
            IndexJoinKind::Semi => "semi",
            IndexJoinKind::Anti => "anti",
            IndexJoinKind::NotIn => "null-aware anti",
            IndexJoinKind::Mark => "mark",
        };
        let definition = choice.inner.scan.table().schema();
        let names = choice.inner.scan.table();
        let columns = names.indexes().find(|index| index.name == choice.index);
        let columns = columns.map_or(&[][..], |index| &index.columns);
        let equal = choice.parts.iter().zip(columns).map(|((part, _), of)| {
            let value = match part {
                KeyPart::Key(key) => sql(choice.outer_key(joining, *key)),
                KeyPart::Constant(value) => value.to_string(),
            };
            format!("{} = {value}", definition.columns[of.column].name)
        });
        let equal: Vec<String> = equal.collect();
        format!(
            "{kind} join by index {} of {} on {}{}",
            choice.index,
            definition.name,
            shortened(&equal.join(", ")),
            if self.is_index_only { ", index only" } else { "" }
        )
    }
}

/// An expression over columns that so many others come before.
fn shifted(expr: &Expr, others: usize) -> Result<Expr, DataFusionError> {
    let moved = Arc::clone(expr).transform_up(|expr: Expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        let moved = Column::new(column.name(), column.index() + others);
        Ok(Transformed::yes(Arc::new(moved) as Expr))
    });
    Ok(moved?.data)
}
