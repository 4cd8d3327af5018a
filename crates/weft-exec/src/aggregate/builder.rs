//! Makes the states of aggregates: which fields a group's tuple needs, and then, when the fields have places, the states.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::approximate::{Approximate, ApproximateOutcome};
use super::collected::{ContinuousQuantile, DiscreteQuantile, JoinedTexts};
use super::count::{Count, CountOutcome};
use super::distinct::{Distinct, DistinctOutcome, INNER_ARGUMENT, INNER_ORDER};
use super::external::ExternalOutcome;
use super::first::First;
use super::fold::{And, Combine, Fold, Greatest, Least, Or, ValueOutcome, Xor};
use super::functions::{Aggregate, Function, Moment};
use super::kept::{Keep, Kept};
use super::list::{Chain, List};
use super::moments::{MomentOutcome, Moments, Places};
use super::product::{self, ProductOutcome, Products};
use super::shape::{self, Shape, ShapeOutcome, Shapes};
use super::state::{Fed, Outcome, Place, State};
use super::states::States;
use super::sum::{AverageOutcome, Sum, SumOutcome, Summand};
use crate::for_lane;
use crate::lane::{Bool, Lane, Value, for_integer, for_number};
use crate::program::Register;
use crate::text::Str;
use crate::tuple::Layout;
use crate::tuple::behind::Behind;

/// Makes something when places are known.
pub(super) type Make<T> = Box<dyn FnOnce(&Layout) -> T>;

/// Fields, and what is to be made of them.
pub(super) struct Builder<'a> {
    lanes: &'a [Lane],
    pub(super) fields: Vec<(Lane, bool)>,
    pub(super) states: Vec<Make<Fed>>,
    /// One for each aggregate.
    pub(super) outcomes: Vec<Make<Box<dyn Outcome>>>,
    /// Strings that states keep behind addresses: the fields of the string and of its room.
    pub(super) kept: Vec<(usize, usize)>,
    /// Lists and sets that they keep.
    pub(super) behind: Vec<Make<Arc<dyn Behind>>>,
    /// True if lists are among them, which merging does not make smaller.
    pub(super) has_lists: bool,
    /// The first field of states that may be shared.
    shared: HashMap<(Shared, Vec<Register>, Option<Register>), usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shared {
    Count,
    Sum,
    Moments,
    Shape,
}

impl<'a> Builder<'a> {
    /// Keys of these lanes, which may be null or not, and no states yet, over registers of `lanes`.
    pub(super) fn new(lanes: &'a [Lane], keys: &[(Lane, bool)]) -> Builder<'a> {
        Builder {
            lanes,
            fields: keys.to_vec(),
            states: Vec::new(),
            outcomes: Vec::new(),
            kept: Vec::new(),
            behind: Vec::new(),
            has_lists: false,
            shared: HashMap::new(),
        }
    }

    fn lane(&self, register: Register) -> Lane {
        self.lanes[register.index()]
    }

    fn field(&mut self, lane: Lane, is_nullable: bool) -> usize {
        self.fields.push((lane, is_nullable));
        self.fields.len() - 1
    }

    /// Adds a state, and what tells it its rows.
    fn state(
        &mut self,
        aggregate: &Aggregate,
        not_null: Vec<Register>,
        make: impl FnOnce(&Layout) -> Box<dyn State> + 'static,
    ) {
        let filter = aggregate.filter;
        self.states.push(Box::new(move |layout| Fed { state: make(layout), filter, not_null }));
    }

    fn outcome(&mut self, make: impl FnOnce(&Layout) -> Box<dyn Outcome> + 'static) {
        self.outcomes.push(Box::new(make));
    }

    /// True the first time; the number of the first field.
    fn share(&mut self, state: Shared, aggregate: &Aggregate) -> (bool, usize) {
        let is_count_of_all = matches!(state, Shared::Count) && !aggregate.is_nullable;
        let arguments = if is_count_of_all { Vec::new() } else { aggregate.arguments.clone() };
        let next = self.fields.len();
        let first = *self.shared.entry((state, arguments, aggregate.filter)).or_insert(next);
        (first == next, first)
    }

    /// Adds the states of an aggregate, and its result.
    ///
    /// # Panics
    /// If its arguments or its result are not of lanes that it has.
    pub(super) fn add(&mut self, aggregate: &Aggregate) {
        let makes_no_difference = matches!(
            aggregate.function,
            Function::Min
                | Function::Max
                | Function::And
                | Function::Or
                | Function::ApproximateDistinct
        );
        if aggregate.is_distinct && !makes_no_difference {
            let argument = self.lane(aggregate.arguments[0]);
            return for_lane!(argument, T => self.distinct::<T>(aggregate));
        }
        match &aggregate.function {
            Function::Count => {
                let rows = self.count(aggregate);
                for_number!(aggregate.result, O => self.outcome(move |layout| {
                    Box::new(CountOutcome::<O> { rows: Place::of(layout, rows), out: PhantomData })
                }));
            }
            Function::Sum => {
                let argument = self.lane(aggregate.arguments[0]);
                for_number!(argument, T => self.sum_outcome::<T>(aggregate));
            }
            Function::Average { digits } => {
                let argument = self.lane(aggregate.arguments[0]);
                for_number!(argument, T => self.average::<T>(aggregate, *digits));
            }
            Function::Min => {
                for_lane!(self.lane(aggregate.arguments[0]), T => self.fold::<T, Least>(aggregate));
            }
            Function::Max => {
                for_lane!(self.lane(aggregate.arguments[0]), T => self.fold::<T, Greatest>(aggregate));
            }
            Function::And => match self.lane(aggregate.arguments[0]) {
                Lane::Bool => self.fold::<Bool, And>(aggregate),
                lane => for_integer!(lane, T => self.fold::<T, And>(aggregate)),
            },
            Function::Or => match self.lane(aggregate.arguments[0]) {
                Lane::Bool => self.fold::<Bool, Or>(aggregate),
                lane => for_integer!(lane, T => self.fold::<T, Or>(aggregate)),
            },
            Function::Xor => {
                let lane = self.lane(aggregate.arguments[0]);
                for_integer!(lane, T => self.fold::<T, Xor>(aggregate));
            }
            Function::Product => self.product(aggregate),
            Function::Moment(moment) => match ShapeOutcome::of(*moment) {
                Some(of) => self.shape(aggregate, of),
                None => self.moment(aggregate, *moment),
            },
            Function::First { ignores_nulls } | Function::Last { ignores_nulls } => {
                let argument = self.lane(aggregate.arguments[0]);
                for_lane!(argument, T => self.first::<T>(aggregate, *ignores_nulls));
            }
            Function::ApproximateDistinct => self.approximate(aggregate),
            Function::DiscreteQuantile(quantile) => {
                let quantile = *quantile;
                for_lane!(self.lane(aggregate.arguments[0]), T => {
                    self.collect::<T>(aggregate, true, move |chain| {
                        Box::new(DiscreteQuantile { chain, quantile })
                    });
                });
            }
            Function::ContinuousQuantile(quantile) => {
                let quantile = *quantile;
                for_number!(self.lane(aggregate.arguments[0]), T => {
                    for_number!(aggregate.result, O => {
                        self.collect::<T>(aggregate, true, move |chain| {
                            let out = PhantomData::<O>;
                            Box::new(ContinuousQuantile { chain, quantile, out })
                        });
                    });
                });
            }
            Function::Texts { separator } => {
                let separator = separator.clone();
                self.collect::<Str>(aggregate, true, move |chain| {
                    Box::new(JoinedTexts { chain, separator })
                });
            }
            Function::External(function) => {
                let (function, lane) = (function.clone(), aggregate.result);
                for_lane!(self.lane(aggregate.arguments[0]), T => {
                    self.collect::<T>(aggregate, false, move |chain| {
                        Box::new(ExternalOutcome { chain, function, lane })
                    });
                });
            }
        }
    }

    fn count(&mut self, aggregate: &Aggregate) -> usize {
        let (is_new, rows) = self.share(Shared::Count, aggregate);
        if is_new {
            self.field(Lane::U64, false);
            let counted =
                if aggregate.is_nullable { aggregate.arguments.clone() } else { Vec::new() };
            self.state(aggregate, counted, move |layout| {
                Box::new(Count { rows: Place::of(layout, rows) })
            });
        }
        rows
    }

    fn sum<T: Summand>(&mut self, aggregate: &Aggregate) -> usize {
        let (is_new, sum) = self.share(Shared::Sum, aggregate);
        if is_new {
            self.field(<T::Sum as Value>::LANE, aggregate.is_nullable);
            let argument = aggregate.arguments[0];
            self.state(aggregate, vec![argument], move |layout| {
                Box::new(Sum::<T> { argument, sum: Place::of(layout, sum) })
            });
        }
        sum
    }

    fn sum_outcome<T: Summand>(&mut self, aggregate: &Aggregate) {
        let sum = self.sum::<T>(aggregate);
        for_number!(aggregate.result, O => self.outcome(move |layout| {
            let sum: Place<T::Sum> = Place::of(layout, sum);
            Box::new(SumOutcome::<T::Sum, O> { sum, out: PhantomData })
        }));
    }

    fn average<T: Summand>(&mut self, aggregate: &Aggregate, digits: i8) {
        let (sum, rows) = (self.sum::<T>(aggregate), self.count(aggregate));
        for_number!(aggregate.result, O => self.outcome(move |layout| {
            let (sum, rows): (Place<T::Sum>, _) = (Place::of(layout, sum), Place::of(layout, rows));
            Box::new(AverageOutcome::<T::Sum, O> { sum, rows, digits, out: PhantomData })
        }));
    }

    fn fold<T: Keep, C: Combine<T>>(&mut self, aggregate: &Aggregate) {
        assert_eq!(T::LANE, aggregate.result, "the result has the lane of the argument");
        let argument = aggregate.arguments[0];
        let value = self.kept::<T>();
        self.state(aggregate, vec![argument], move |layout| {
            Box::new(Fold::<T, C> { argument, kept: value.of(layout), combine: PhantomData })
        });
        self.outcome(move |layout| Box::new(ValueOutcome { value: value.of::<T>(layout).value }));
    }

    /// Fields for a value that is kept, or null.
    fn kept<T: Keep>(&mut self) -> KeptFields {
        let value = self.field(T::LANE, true);
        let room = T::IS_STRING.then(|| self.field(Lane::U64, false));
        self.kept.extend(room.map(|room| (value, room)));
        KeptFields { value, room }
    }

    fn moment(&mut self, aggregate: &Aggregate, moment: Moment) {
        let (is_new, first) = self.share(Shared::Moments, aggregate);
        let (y, x) = (aggregate.arguments[0], aggregate.arguments[aggregate.arguments.len() - 1]);
        let places = move |layout: &Layout| {
            let place = |number| Place::of(layout, first + number);
            Places {
                count: place(0),
                mean_x: place(1),
                mean_y: place(if x == y { 1 } else { 3 }),
                square_x: place(2),
                square_y: place(if x == y { 2 } else { 4 }),
                product: place(if x == y { 2 } else { 5 }),
            }
        };
        if is_new {
            for _ in 0..if x == y { 3 } else { 6 } {
                self.field(Lane::F64, false);
            }
            self.state(aggregate, aggregate.arguments.clone(), move |layout| {
                Box::new(Moments { x, y, places: places(layout) })
            });
        }
        self.outcome(move |layout| Box::new(MomentOutcome { places: places(layout), moment }));
    }

    fn product(&mut self, aggregate: &Aggregate) {
        let argument = aggregate.arguments[0];
        let fields: [usize; 3] = std::array::from_fn(|_| self.field(Lane::F64, false));
        let places = move |layout: &Layout| {
            let [count, scaled, exponent] = fields.map(|field| Place::of(layout, field));
            product::Places { count, scaled, exponent }
        };
        self.state(aggregate, vec![argument], move |layout| {
            Box::new(Products { argument, places: places(layout) })
        });
        self.outcome(move |layout| Box::new(ProductOutcome { places: places(layout) }));
    }

    fn shape(&mut self, aggregate: &Aggregate, of: fn(&Shape) -> Option<f64>) {
        let (is_new, first) = self.share(Shared::Shape, aggregate);
        let places = move |layout: &Layout| {
            let place = |number| Place::of(layout, first + number);
            shape::Places { count: place(0), mean: place(1), sums: [2, 3, 4].map(place) }
        };
        if is_new {
            for _ in 0..5 {
                self.field(Lane::F64, false);
            }
            let argument = aggregate.arguments[0];
            self.state(aggregate, vec![argument], move |layout| {
                Box::new(Shapes { argument, places: places(layout) })
            });
        }
        self.outcome(move |layout| Box::new(ShapeOutcome { places: places(layout), of }));
    }

    fn first<T: Keep>(&mut self, aggregate: &Aggregate, ignores_nulls: bool) {
        let (argument, order) = (aggregate.arguments[0], aggregate.order);
        let is_last = matches!(aggregate.function, Function::Last { .. });
        let value = self.kept::<T>();
        let has_row = self.field(Lane::Bool, false);
        let key = order.map(|_| self.kept::<Str>());
        let counted = if ignores_nulls { vec![argument] } else { Vec::new() };
        self.state(aggregate, counted, move |layout| {
            Box::new(First::<T> {
                argument,
                order,
                is_last,
                kept: value.of(layout),
                has_row: Place::of(layout, has_row),
                key: key.map(|key| key.of(layout)),
            })
        });
        self.outcome(move |layout| Box::new(ValueOutcome { value: value.of::<T>(layout).value }));
    }

    fn approximate(&mut self, aggregate: &Aggregate) {
        let hash = aggregate.hash.expect("a hash of the values");
        let lane = aggregate.result;
        assert!(matches!(lane, Lane::I64 | Lane::U64), "an estimate is no {lane}");
        let (count, place) = (self.field(Lane::U64, false), self.field(Lane::U64, false));
        let state = move |layout: &Layout| Approximate {
            hash,
            count: Place::of(layout, count),
            place: Place::of(layout, place),
        };
        self.state(aggregate, aggregate.arguments.clone(), move |layout| Box::new(state(layout)));
        self.behind.push(Box::new(move |layout| Arc::new(state(layout))));
        self.outcome(move |layout| Box::new(ApproximateOutcome { state: state(layout), lane }));
    }

    /// A list of all values, and what is made of it.
    fn collect<T: Keep>(
        &mut self,
        aggregate: &Aggregate,
        ignores_nulls: bool,
        outcome: impl FnOnce(Chain<T>) -> Box<dyn Outcome> + 'static,
    ) {
        self.has_lists = true;
        let (argument, order) = (aggregate.arguments[0], aggregate.order);
        let first = self.field(Lane::U64, false);
        let last = self.field(Lane::U64, false);
        let count = self.field(Lane::U64, false);
        let chain = move |layout: &Layout| Chain {
            first: Place::of(layout, first),
            last: Place::of(layout, last),
            count: Place::of(layout, count),
            is_ordered: order.is_some(),
            value: PhantomData,
        };
        let counted = if ignores_nulls { vec![argument] } else { Vec::new() };
        self.state(aggregate, counted, move |layout| {
            Box::new(List::<T> { argument, order, chain: chain(layout) })
        });
        self.behind.push(Box::new(move |layout| Arc::new(chain(layout))));
        self.outcome(move |layout| outcome(chain(layout)));
    }

    /// A set of the values, and the aggregate of them.
    fn distinct<T: Keep + super::fold::Ordered>(&mut self, aggregate: &Aggregate) {
        let (argument, order) = (aggregate.arguments[0], aggregate.order);
        let hash = aggregate.hash.expect("a hash of the values");
        let table = self.field(Lane::U64, false);
        let set = move |layout: &Layout| Distinct::<T> {
            argument,
            hash,
            order,
            table: Place::of(layout, table),
            value: PhantomData,
        };
        let counts_nulls = matches!(
            aggregate.function,
            Function::External(_)
                | Function::First { ignores_nulls: false }
                | Function::Last { ignores_nulls: false }
        );
        let counted = if counts_nulls { Vec::new() } else { vec![argument] };
        self.state(aggregate, counted, move |layout| Box::new(set(layout)));
        self.behind.push(Box::new(move |layout| Arc::new(set(layout))));
        let inner = Aggregate {
            arguments: vec![INNER_ARGUMENT; aggregate.arguments.len()],
            filter: None,
            is_distinct: false,
            hash: None,
            order: order.map(|_| INNER_ORDER),
            is_nullable: true,
            ..aggregate.clone()
        };
        let inner = States::new(&[T::LANE, Lane::Str], &[], &[inner]);
        self.outcome(move |layout| Box::new(DistinctOutcome { set: set(layout), inner }));
    }
}

/// The fields of a [`Kept`].
#[derive(Clone, Copy)]
struct KeptFields {
    value: usize,
    room: Option<usize>,
}

impl KeptFields {
    fn of<T: Value>(&self, layout: &Layout) -> Kept<T> {
        Kept {
            value: Place::of(layout, self.value),
            room: self.room.map(|room| Place::of(layout, room)),
        }
    }
}
