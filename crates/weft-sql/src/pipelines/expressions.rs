//! Expressions become steps: each node of an expression by the step that it has, whatever has none as a call of
//! DataFusion's own evaluation over the vector.
//!
//! What an expression has in common with an earlier one of the same operator is computed once. Steps that can fail are
//! only run for tuples for which SQL evaluates them: branches of CASE and second halves of AND and OR stand in scopes.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result as DfResult, ScalarValue, internal_err};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::PhysicalExpr;
use weft_exec::Lane;
use weft_exec::program::{Operand, Overflow, Program, Register, Step};

use super::term::{Place, Term, in_register, operand};
use super::{arithmetic, call, cast, compare, functions, logic};

/// An expression.
pub(super) type Expr = Arc<dyn PhysicalExpr>;

/// Adds the steps of expressions to a program.
pub(super) struct Expressions<'a> {
    pub(super) program: &'a mut Program,
    /// The columns that expressions refer to.
    pub(super) columns: &'a [Term],
    pub(super) schema: &'a Schema,
    /// What was computed, in the scopes that are open.
    known: HashMap<Expr, Term>,
    /// What was computed first in each of them.
    scopes: Vec<Vec<Expr>>,
    /// What expressions have given whose steps were thrown away.
    outlooks: HashMap<Expr, Term>,
}

impl<'a> Expressions<'a> {
    /// For expressions over columns of a schema.
    pub(super) fn new(
        program: &'a mut Program,
        columns: &'a [Term],
        schema: &'a Schema,
    ) -> Expressions<'a> {
        debug_assert_eq!(columns.len(), schema.fields().len());
        let (known, outlooks) = (HashMap::new(), HashMap::new());
        Expressions { program, columns, schema, known, scopes: Vec::new(), outlooks }
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// If the expression is not one over these columns.
    pub(super) fn term(&mut self, expr: &Expr) -> DfResult<Term> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            return match self.columns.get(column.index()) {
                Some(term) => Ok(term.clone()),
                None => internal_err!("there is no column {column}"),
            };
        }
        if let Some(term) = self.known.get(expr) {
            return Ok(term.clone());
        }
        let term = match self.stepwise(expr)? {
            Some(term) => term,
            None => call::call(self, expr)?,
        };
        if !is_volatile(expr) {
            self.known.insert(expr.clone(), term.clone());
            if let Some(innermost) = self.scopes.last_mut() {
                innermost.push(expr.clone());
            }
        }
        Ok(term)
    }

    /// The value of an expression by steps; `None`, and no step, if it has none.
    fn stepwise(&mut self, expr: &Expr) -> DfResult<Option<Term>> {
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return Ok(Term::literal(literal.value()));
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(binary, expr);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return logic::not(self, not.arg()).map(Some);
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return self.is_null(is_null.arg(), false).map(Some);
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return self.is_null(is_not_null.arg(), true).map(Some);
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return logic::case(self, case, &expr.data_type(self.schema)?);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let is_try = cast.cast_options().safe;
            return cast::cast(self, cast.expr(), cast.cast_type(), is_try);
        }
        if let Some(cast) = expr.downcast_ref::<TryCastExpr>() {
            return cast::cast(self, cast.expr(), cast.cast_type(), true);
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return compare::in_list(self, list);
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            return compare::like(self, like);
        }
        if let Some(negative) = expr.downcast_ref::<NegativeExpr>() {
            return self.negative(negative.arg());
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            return functions::function(self, function);
        }
        Ok(None)
    }

    fn binary(&mut self, binary: &BinaryExpr, expr: &Expr) -> DfResult<Option<Term>> {
        let (left, right, op) = (binary.left(), binary.right(), *binary.op());
        match op {
            Operator::And => logic::and(self, left, right).map(Some),
            Operator::Or => logic::or(self, left, right).map(Some),
            _ => match compare::comparison(op) {
                Some(comparison) => compare::compare(self, comparison, left, right),
                None => {
                    arithmetic::arithmetic(self, op, left, right, &expr.data_type(self.schema)?)
                }
            },
        }
    }

    fn is_null(&mut self, arg: &Expr, negated: bool) -> DfResult<Term> {
        let term = self.term(arg)?;
        Ok(match term.place {
            Place::Null => Term::truth(!negated),
            Place::Constant(_) => Term::truth(negated),
            Place::Register(_) if !term.is_nullable => Term::truth(negated),
            Place::Register(a) => {
                let out = self.program.register(Lane::Bool);
                self.program.steps.push(Step::IsNull { a, negated, out });
                Term::new(out, Lane::Bool, &DataType::Boolean, false)
            }
        })
    }

    fn negative(&mut self, arg: &Expr) -> DfResult<Option<Term>> {
        let data_type = arg.data_type(self.schema)?;
        let is_float = matches!(data_type, DataType::Float32 | DataType::Float64);
        if !is_float && !matches!(data_type, DataType::Decimal128(..)) {
            return Ok(None);
        }
        let term = self.term(arg)?;
        let Place::Register(a) = term.place else { return Ok(None) };
        let bounds = term.bounds.and_then(|bounds| super::bounds::Bounds::of(0).subtract(bounds));
        let is_safe = is_float || bounds.is_some_and(|bounds| bounds.fit(term.lane));
        let overflow = if is_safe { Overflow::Impossible } else { Overflow::Error };
        let out = self.program.register(term.lane);
        self.program.steps.push(Step::Negate { a, out, overflow });
        Ok(Some(Term { bounds, ..term.moved(out) }))
    }

    /// A register of a lane.
    pub(super) fn register(&mut self, lane: Lane) -> Register {
        self.program.register(lane)
    }

    /// Adds a step.
    pub(super) fn push(&mut self, step: Step) {
        self.program.steps.push(step);
    }

    /// The register that has a term.
    pub(super) fn in_register(&mut self, term: &Term) -> Register {
        in_register(self.program, term)
    }

    /// A term as what a step reads.
    pub(super) fn operand(&mut self, term: &Term) -> Operand {
        operand(self.program, term)
    }

    /// Begins a scope: what is computed in it is known in it only.
    pub(super) fn begin(&mut self, condition: Register, when: bool) {
        self.push(Step::Begin { condition, when });
        self.scopes.push(Vec::new());
    }

    /// Goes on with the other tuples.
    pub(super) fn otherwise(&mut self) {
        self.push(Step::Else);
        self.forget_scope();
        self.scopes.push(Vec::new());
    }

    /// Ends a scope.
    pub(super) fn end(&mut self) {
        self.push(Step::End);
        self.forget_scope();
    }

    /// What is computed in the innermost scope is not known any more.
    fn forget_scope(&mut self) {
        for expr in self.scopes.pop().into_iter().flatten() {
            self.known.remove(&expr);
        }
    }

    /// What the value of an expression will be, but for the register that it will be in. Found out once for each
    /// expression: nested ones look at what is within them, and would do so again and again.
    ///
    /// # Errors
    /// As [`Expressions::term`].
    pub(super) fn outlook(&mut self, expr: &Expr) -> DfResult<Term> {
        if let Some(term) = self.outlooks.get(expr) {
            return Ok(term.clone());
        }
        let (steps, registers) = (self.program.steps.len(), self.program.registers.len());
        self.scopes.push(Vec::new());
        let term = self.term(expr);
        self.forget_scope();
        self.program.steps.truncate(steps);
        self.program.registers.truncate(registers);
        let term = term?;
        self.outlooks.insert(expr.clone(), term.clone());
        Ok(term)
    }
}

/// The literal that an expression is.
pub(super) fn literal(expr: &Expr) -> Option<&ScalarValue> {
    expr.downcast_ref::<Literal>().map(Literal::value)
}

/// True if evaluating the expression may fail for a tuple, or takes long: it is not evaluated for tuples for which it
/// need not be.
pub(super) fn is_costly(expr: &Expr, schema: &Schema) -> bool {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        let is_float = || {
            expr.data_type(schema).is_ok_and(|data_type| data_type.is_floating())
                || compare::comparison(*binary.op()).is_some()
        };
        let is_logic = matches!(binary.op(), Operator::And | Operator::Or);
        return !(is_logic || is_float())
            || is_costly(binary.left(), schema)
            || is_costly(binary.right(), schema);
    }
    let is_simple = expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<NotExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<InListExpr>();
    !is_simple || expr.children().into_iter().any(|child| is_costly(child, schema))
}
