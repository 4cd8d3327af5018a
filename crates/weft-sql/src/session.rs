//! A session: its settings, its prepared statements, and the statements that it starts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::{ConfigField, ConfigNonZeroUsize};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};
use datafusion::functions_aggregate::median::median_udaf;
use datafusion::optimizer::Analyzer;
use datafusion::prelude::SessionConfig;
use tokio::sync::{mpsc, oneshot};
use weft_store::Snapshot;

use crate::access::Access;
use crate::catalog::{CATALOG, SCHEMA, StatementCatalog};
use crate::checked_sum::checked_sum;
use crate::collected::collected;
use crate::compared_types::ComparedTypes;
use crate::constant_unions::ConstantUnions;
use crate::control::{CancelHandle, Control};
use crate::date_times::DateTimes;
use crate::decimal_digits::CheckedDecimals;
use crate::definitions;
use crate::distinct_groups::{DistinctGroups, DistinctOptions};
use crate::duplicates::CountedDuplicates;
use crate::economy::Economy;
use crate::engine::Engine;
use crate::enums::{EnumCasts, enum_functions};
use crate::error::{ErrorKind, Result, SqlError, internal};
use crate::exact_quantiles::exact_quantiles;
use crate::exclusions;
use crate::file_functions;
use crate::file_readers::FileReaders;
use crate::filters;
use crate::float_extremes::float_extremes;
use crate::floats::CanonicalFloats;
use crate::foreign_aggregate::into_udaf;
use crate::foreign_function::SessionFunction;
use crate::forms;
use crate::functions;
use crate::functions::attempts::attempt;
use crate::functions::lambdas::lambda_functions;
use crate::functions::list_aggregates::list_aggregates;
use crate::grouping_sets::GroupingSets;
use crate::hex::hex_functions;
use crate::index_orders::INDEX_ORDERS;
use crate::interval_products::IntervalProducts;
use crate::intervals::{IntervalWindows, Intervals};
use crate::join_order::JoinOrder;
use crate::json::{JsonCasts, JsonOperators, each_functions, json_aggregates, json_functions};
use crate::long_sums::{LongSums, in_turn};
use crate::memory::{Exchanges, HELD_ROWS, OWNED_ROWS};
use crate::mended::Mended;
use crate::mixed_numbers::MixedNumbers;
use crate::narrowing_casts::NarrowingCasts;
use crate::no_rows::with_rows;
use crate::null_arguments::NullArguments;
use crate::nullif::Nullif;
use crate::ordered_lists::ordered_lists;
use crate::ordered_texts::ordered_texts;
use crate::overflow::CheckedIntegers;
use crate::own_functions::own_functions;
use crate::parameters::{Bindings, Parameters};
use crate::patterns::pattern_functions;
use crate::pipelines::{ByPipelines, Pipelines};
use crate::point::{KeptPlans, KeptText, PointStart};
use crate::postgres::{Client, Connected, Surroundings, postgres_functions};
use crate::query_comparisons::any_row;
use crate::random::{Seed, random_function};
use crate::range_frames::RangeFrames;
use crate::relation::Relation;
use crate::rounded_averages::rounded_averages;
use crate::rounding::{RoundedDigits, RoundingCasts};
use crate::run::{self, Run};
use crate::running::{MESSAGES_MAX, Running};
use crate::sequences::CurrentValues;
use crate::settings::{self, ExecutedBy, SessionSettings, Setting};
use crate::signed_ranks::signed_ranks;
use crate::sliding_floats::sliding;
use crate::spill_files::StatementEnvironment;
use crate::statement::{self, Parsed};
use crate::statement_option::StatementOption;
use crate::subqueries::{NoValue, OuterAggregates, Subqueries};
use crate::table::ScanContext;
use crate::temporary::{self, TemporaryNames, creates_temporary};
use crate::text_casts::TextCasts;
use crate::time_quantiles::of_times;
use crate::timestamp_casts::TimestampCasts;
use crate::transaction_statement::{Level, Modes};
use crate::transactions::{SessionTransaction, TransactionStatus};
use crate::types::WeftTypes;
use crate::union_constants::UNION_CONSTANTS;
use crate::uuids::{UuidCasts, uuid_functions};
use crate::value::Value;
use crate::variables::{Variables, variable_function};
use crate::whole_orders::WHOLE_ORDERS;
use crate::window_arguments::WindowArguments;
use crate::window_filters::WindowFilters;
use crate::yielding::YIELDING_JOINS;
use crate::zoned_times::ZonedTimes;
use crate::{join_promises, kept_projections, known_aggregates, limited_orders, pushed_filters};

/// The settings of the database that RESET ALL sets back.
const OF_DATABASE: [&str; 7] = [
    "memory_limit",
    "max_temp_size",
    "partition",
    "spill_compression",
    "spill_mode",
    "io_bandwidth_limit",
    "threads",
];

/// Longest description of a setting, in characters.
const DESCRIPTION_MAX: usize = 100;

/// One user's conversation with a database. Any number of sessions work at the same time; a session
/// itself may be used from several threads.
pub struct Session {
    engine: Arc<Engine>,
    inner: Mutex<Inner>,
    /// The statement that was started last.
    current: Mutex<Option<CancelHandle>>,
    /// Who the session is for.
    connected: Connected,
    transaction: Mutex<Option<Arc<SessionTransaction>>>,
    /// Its statements wait for rows that other transactions have changed.
    waits_for_rows: AtomicBool,
    /// What its transactions are unless they say so.
    transaction_modes: Mutex<Modes>,
    /// Counts changes of `inner` that plans depend on: of settings, functions and relations.
    version: AtomicU64,
    /// Plans of statements with parameters.
    kept_plans: KeptPlans,
    /// Values that sequences have given it.
    current_values: Arc<CurrentValues>,
    /// What its random numbers follow from.
    seed: Arc<Seed>,
    /// The schema of its temporary tables, once it has made one.
    temporary: OnceLock<String>,
    roles: Mutex<SessionRoles>,
}

/// Whom a session acts for; `None` where there are no roles.
#[derive(Clone, Default)]
struct SessionRoles {
    /// The role that has logged in.
    login: Option<String>,
    /// The role of SET ROLE.
    set: Option<String>,
}

struct Inner {
    settings: SessionSettings,
    /// DataFusion's state, with its settings and without a catalog: that of all sessions until this one changes it.
    state: Arc<SessionState>,
    /// Texts of prepared statements by their names.
    prepared: HashMap<String, String>,
    /// Relations that the program has handed over, by their names.
    relations: Arc<HashMap<String, Relation>>,
    /// Functions that the program has added, by their names.
    functions: HashMap<String, SessionFunction>,
    variables: Variables,
}

impl Session {
    /// A session with the settings that the database was opened with.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] if one of DataFusion's settings among them is bad.
    pub fn new(engine: &Arc<Engine>) -> Result<Session> {
        let inner = Inner {
            settings: engine.session_defaults.clone(),
            state: engine.first_state(Session::first_state)?,
            prepared: HashMap::new(),
            relations: Arc::default(),
            functions: HashMap::new(),
            variables: Variables::new(),
        };
        Ok(Session {
            engine: Arc::clone(engine),
            inner: Mutex::new(inner),
            current: Mutex::default(),
            connected: Connected::default(),
            transaction: Mutex::default(),
            waits_for_rows: AtomicBool::new(false),
            transaction_modes: Mutex::default(),
            version: AtomicU64::new(0),
            kept_plans: KeptPlans::default(),
            current_values: Arc::default(),
            seed: Arc::default(),
            temporary: OnceLock::new(),
            roles: Mutex::default(),
        })
    }

    /// DataFusion's state as each session of a database has it at first.
    fn first_state(engine: &Engine) -> Result<SessionState> {
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false);
        config.options_mut().sql_parser.collect_spans = true;
        config.options_mut().sql_parser.parse_float_as_decimal = true;
        // Plans and operators differ in whether `x IS TRUE` may be NULL; it never is.
        config.options_mut().execution.skip_physical_aggregate_schema_check = true;
        // It does not find a group again whose key is NaN.
        config.options_mut().optimizer.enable_topk_aggregation = false;
        for (name, value) in &engine.datafusion_defaults {
            set_datafusion(&mut config, name, value)?;
        }
        let mut analyzer_rules = Analyzer::new().rules;
        analyzer_rules.insert(0, Arc::new(CountedDuplicates));
        analyzer_rules.insert(1, Arc::new(DateTimes));
        analyzer_rules.insert(2, Arc::new(Nullif));
        analyzer_rules.insert(3, Arc::new(UuidCasts));
        analyzer_rules.insert(4, Arc::new(EnumCasts));
        analyzer_rules.insert(5, Arc::new(JsonCasts::new()));
        analyzer_rules.insert(6, Arc::new(MixedNumbers));
        analyzer_rules.insert(7, Arc::new(RangeFrames));
        analyzer_rules.insert(8, Arc::new(IntervalWindows::new()));
        analyzer_rules.insert(9, Arc::new(WindowFilters));
        analyzer_rules.insert(10, Arc::new(WindowArguments));
        analyzer_rules.insert(11, Arc::new(NullArguments));
        analyzer_rules.insert(12, Arc::new(Mended));
        // After grouping() was resolved, which looks for the keys as they were written.
        analyzer_rules.insert(14, Arc::new(DistinctGroups));
        analyzer_rules.insert(15, Arc::new(GroupingSets::new()));
        analyzer_rules.insert(16, Arc::new(RoundedDigits::new()));
        analyzer_rules.insert(0, Arc::new(LongSums));
        analyzer_rules.push(Arc::new(Intervals::new()));
        analyzer_rules.push(Arc::new(RoundingCasts::new()));
        analyzer_rules.push(Arc::new(NarrowingCasts::new()));
        analyzer_rules.push(Arc::new(ZonedTimes));
        analyzer_rules.push(Arc::new(TimestampCasts::new()));
        analyzer_rules.push(Arc::new(TextCasts::new()));
        analyzer_rules.push(Arc::new(CheckedIntegers::new()));
        analyzer_rules.push(Arc::new(CheckedDecimals::new()));
        analyzer_rules.push(Arc::new(CanonicalFloats::new()));
        analyzer_rules.push(Arc::new(OuterAggregates::default()));
        analyzer_rules.push(Arc::new(NoValue::new()));
        analyzer_rules.push(Arc::new(Subqueries::default()));
        analyzer_rules.push(Arc::new(ConstantUnions));
        let mut optimizer_rules = filters::optimizer_rules();
        optimizer_rules.push(Arc::new(JoinOrder));
        let physical_rules = known_aggregates::replaced(pushed_filters::physical_rules());
        let physical_rules = kept_projections::kept_whole(physical_rules);
        let physical_rules = limited_orders::kept_below_sorts(physical_rules);
        let mut physical_rules = join_promises::believed(physical_rules);
        physical_rules.insert(0, Arc::new(UNION_CONSTANTS));
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(&engine.environment))
            .with_type_planner(Arc::new(WeftTypes::default()))
            .with_expr_planners(vec![
                Arc::new(IntervalProducts::new()),
                Arc::new(ComparedTypes),
                Arc::new(JsonOperators::new()),
                Arc::new(forms::text_slices::TextSlices),
            ])
            .with_default_features()
            .with_analyzer_rules(analyzer_rules)
            .with_optimizer_rules(optimizer_rules)
            .with_physical_optimizer_rules(physical_rules)
            .with_physical_optimizer_rule(Arc::new(INDEX_ORDERS))
            .with_physical_optimizer_rule(Arc::new(WHOLE_ORDERS))
            .with_physical_optimizer_rule(Arc::new(YIELDING_JOINS))
            .with_physical_optimizer_rule(Arc::new(HELD_ROWS))
            .with_physical_optimizer_rule(Arc::new(OWNED_ROWS))
            .with_physical_optimizer_rule(Arc::new(Pipelines::new(
                Arc::clone(&engine.runtime),
                engine.ledger.clone(),
                Arc::clone(&engine.spilling),
            )))
            .with_physical_optimizer_rule(Arc::new(FileReaders::new(engine.ledger.clone())))
            .with_physical_optimizer_rule(Arc::new(Exchanges))
            .build();
        state.register_udaf(checked_sum())?;
        let quantiles = [exact_quantiles(), median_udaf()].map(of_times);
        let replaced =
            quantiles.into_iter().chain([ordered_lists(), ordered_texts(), rounded_averages()]);
        for function in float_extremes().into_iter().chain(collected()).chain(replaced) {
            state.register_udaf(function)?;
        }
        for function in state.aggregate_functions().values().cloned().collect::<Vec<_>>() {
            state.register_udaf(sliding(function))?;
        }
        for function in json_aggregates() {
            state.register_udaf(function)?;
        }
        for function in signed_ranks() {
            state.register_udwf(function)?;
        }
        for function in own_functions()
            .into_iter()
            .chain(hex_functions())
            .chain(json_functions())
            .chain(uuid_functions())
            .chain(enum_functions())
            .chain(each_functions())
            .chain(pattern_functions())
            .chain(with_rows())
            .chain([any_row(), in_turn()])
            .chain(exclusions::marks())
            .chain(functions::scalar_functions())
            .chain(forms::joins::marks())
            .chain(forms::samples::functions())
        {
            state.register_udf(function)?;
        }
        let aggregates = state.aggregate_functions().clone();
        for function in list_aggregates(|name| aggregates.get(name).cloned()) {
            state.register_udf(function)?;
        }
        for function in postgres_functions() {
            state.register_udf(function)?;
        }
        state.register_udf(random_function())?;
        state.register_udf(variable_function(&Variables::new()))?;
        for function in lambda_functions().chain([attempt()]) {
            state.register_higher_order_function(function)?;
        }
        Ok(state)
    }

    /// Tells the session who it is for: what functions and tables of PostgreSQL's catalog say of the connection.
    pub fn set_client(&self, client: Arc<dyn Client>) {
        self.connected.set(client);
    }

    /// Has the session's transactions be as PostgreSQL's are: read committed unless they say otherwise, and a statement that is to change a row
    /// which another transaction has changed waits for the end of that. Without that, transactions have one snapshot, and the first
    /// one to commit wins.
    pub fn wait_for_rows(&self) {
        self.waits_for_rows.store(true, Ordering::Release);
        self.set_transaction_modes(Modes { level: Some(Level::ReadCommitted), is_read_only: None });
    }

    /// True if the session's statements wait for rows that other transactions have changed.
    pub(crate) fn waits_for_rows(&self) -> bool {
        self.waits_for_rows.load(Ordering::Acquire)
    }

    /// How long the session's statements wait for rows at a time; `None` for ever.
    pub(crate) fn lock_timeout(&self) -> Option<Duration> {
        self.connected.get().lock_timeout()
    }

    /// The number of the session's connection.
    pub(crate) fn pid(&self) -> i32 {
        self.connected.get().pid()
    }

    /// Has the session act for a role that has logged in: its statements may do what the role may. Without a role they may do
    /// everything.
    pub fn log_in(&self, role: &str) {
        *self.lock_roles() = SessionRoles { login: Some(role.to_owned()), set: None };
        self.note_changed();
    }

    /// The role that has logged in.
    pub(crate) fn login(&self) -> Option<String> {
        self.lock_roles().login.clone()
    }

    /// Has the session act for another role; for its own without one.
    pub fn act_for(&self, role: Option<String>) {
        self.lock_roles().set = role;
        self.note_changed();
    }

    /// The role that the session acts for.
    pub(crate) fn acting(&self) -> Option<String> {
        let roles = self.lock_roles();
        roles.set.as_ref().or(roles.login.as_ref()).cloned()
    }

    /// What the session's role may do in a snapshot.
    pub(crate) fn access(&self, snapshot: &Snapshot) -> Access {
        let of = |role: String| Access::of(snapshot, &role).with_temporary(self.temporary_schema());
        self.acting().map(of).unwrap_or_default()
    }

    fn lock_roles(&self) -> MutexGuard<'_, SessionRoles> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one statement with these parameters. Its result comes from what is returned.
    pub fn start(self: &Arc<Session>, sql: &str, parameters: Vec<Value>) -> Running {
        self.start_on(sql, &Parameters::Positional(parameters), HashMap::new())
    }

    /// Starts one statement with these parameters, which sees relations of its own beside those of the session.
    pub fn start_on(
        self: &Arc<Session>,
        sql: &str,
        parameters: &Parameters,
        relations: HashMap<String, Relation>,
    ) -> Running {
        let start = match parameters {
            Parameters::Positional(values) if relations.is_empty() => match values.as_slice() {
                [] => match self.start_transaction_at_once(sql) {
                    Some(running) => PointStart::Started(running),
                    None => self.start_plain(sql),
                },
                values => self.start_point(sql, values, &[], || parameters.into()),
            },
            _ => PointStart::Usual(None),
        };
        let kept = match start {
            PointStart::Started(running) => return self.as_current(running),
            PointStart::Usual(kept) => kept,
        };
        self.as_current(self.start_with(sql, parameters.into(), relations, (true, kept)))
    }

    /// Has a statement that is prepared keep its plan from its first execution on, if it is one whose plan is kept.
    pub fn note_prepared(&self, sql: &str) {
        self.kept_plans.note(sql);
    }

    /// How many statements there are whose plans are kept.
    pub fn kept_statements(&self) -> usize {
        self.kept_plans.planned()
    }

    /// Plans of statements with parameters.
    pub(crate) fn kept_plans(&self) -> &KeptPlans {
        &self.kept_plans
    }

    /// The number of changes of settings, functions and relations so far.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes a change of settings, functions or relations, which was just made: plans are made anew.
    fn note_changed(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Starts one statement with these parameters, each of the type that is named for it, if one is.
    pub fn start_cast(
        self: &Arc<Session>,
        sql: &str,
        values: &[Value],
        types: &[Option<String>],
    ) -> Running {
        let cast = |(value, kind): (&Value, &Option<String>)| match kind {
            Some(kind) => format!("CAST({} AS {kind})", value.sql()),
            None => value.sql(),
        };
        let bound = || Bindings::Positional(values.iter().zip(types).map(cast).collect());
        let kept = match self.start_point(sql, values, types, bound) {
            PointStart::Started(running) => return self.as_current(running),
            PointStart::Usual(kept) => kept,
        };
        self.as_current(self.start_with(sql, bound(), HashMap::new(), (true, kept)))
    }

    /// Makes a statement the session's current one.
    fn as_current(&self, running: Running) -> Running {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(running.cancel_handle());
        running
    }

    /// Starts a statement of the system's own: it is not the session's current one.
    fn start_apart(self: &Arc<Session>, sql: &str) -> Running {
        self.start_with(sql, Bindings::Positional(Vec::new()), HashMap::new(), (false, None))
    }

    /// Starts a statement whose parameters are expressions of SQL. It is not the session's current one.
    pub(crate) fn start_bound(self: &Arc<Session>, sql: &str, parameters: Vec<String>) -> Running {
        self.start_with(sql, Bindings::Positional(parameters), HashMap::new(), (false, None))
    }

    fn start_with(
        self: &Arc<Session>,
        sql: &str,
        parameters: Bindings,
        relations: HashMap<String, Relation>,
        (is_of_transaction, kept): (bool, Option<KeptText>),
    ) -> Running {
        let transaction = self.transaction().filter(|_| is_of_transaction);
        let control = Arc::new(Control::of(&self.engine).within(transaction.as_ref()));
        let (header, header_receiver) = oneshot::channel();
        let (messages, message_receiver) = mpsc::channel(MESSAGES_MAX);
        let run = Run {
            session: Arc::clone(self),
            control: Arc::clone(&control),
            sql: sql.into(),
            parameters,
            relations: Arc::new(relations),
            economy: Economy::InMemory,
            kept,
            transaction,
        };
        let executor = self.engine.executor();
        executor.spawn(run::drive(run, header, messages));
        Running::new(control, header_receiver, message_receiver, executor)
    }

    /// Cancels the statement that was started last, if it still runs.
    pub fn cancel(&self) {
        if let Some(handle) = self.current() {
            handle.cancel();
        }
    }

    /// The statement that was started last.
    pub fn current(&self) -> Option<CancelHandle> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Weft's settings with this session's values, then DataFusion's.
    pub fn settings(&self) -> Vec<Setting> {
        let inner = self.lock();
        let mut settings = self.engine.list_settings(&inner.settings);
        let mut others = inner.state.config_options().entries();
        others.sort_by(|left, right| left.key.cmp(&right.key));
        settings.extend(others.into_iter().map(|entry| Setting {
            name: entry.key,
            value: entry.value.unwrap_or_default(),
            description: first_sentence(entry.description),
        }));
        settings
    }

    /// The names of all functions, in order.
    pub fn functions(&self) -> Vec<String> {
        let inner = self.lock();
        let state = &inner.state;
        let mut names: Vec<String> = state
            .scalar_functions()
            .keys()
            .chain(state.aggregate_functions().keys())
            .chain(state.window_functions().keys())
            .chain(state.table_functions().keys())
            .cloned()
            .chain(functions::names())
            .chain(file_functions::names())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// True if there is a table or view of this name.
    pub fn has_relation(&self, name: &str) -> bool {
        let snapshot = self.snapshot();
        snapshot.table(name).is_some() || snapshot.view(name).is_some()
    }

    /// The names of the tables and views with those of their columns, in order.
    pub fn relations(self: &Arc<Session>) -> Vec<(String, Vec<String>)> {
        let snapshot = self.snapshot();
        let mut found: Vec<(String, Vec<String>)> = definitions::lasting_tables(&snapshot)
            .filter_map(|name| snapshot.table(name))
            .map(|table| {
                let schema = table.schema();
                let columns = schema.columns.iter().map(|column| column.name.clone()).collect();
                (schema.name.clone(), columns)
            })
            .collect();
        for (name, _) in definitions::lasting_views(&snapshot) {
            // Planned, to know its columns; a view that does not work any more has none.
            let query = format!("SELECT * FROM \"{}\"", name.replace('"', "\"\""));
            let mut running = self.start_apart(&query);
            let columns = match weft_rt::sync::block_on(running.ready()) {
                Ok(()) => {
                    running.schema().fields().iter().map(|field| field.name().clone()).collect()
                }
                Err(_) => Vec::new(),
            };
            found.push((name.to_owned(), columns));
        }
        found.sort_unstable();
        found
    }

    /// Has statements that start from now on find a relation by this name, in place of one that had it. It hides
    /// tables and views of the name, but not from views.
    pub fn register(&self, name: &str, relation: Relation) {
        Arc::make_mut(&mut self.lock().relations).insert(name.to_owned(), relation);
        self.note_changed();
    }

    /// Has statements that start from now on find the relation no more; false if there was none of the name.
    pub fn unregister(&self, name: &str) -> bool {
        let was_there = Arc::make_mut(&mut self.lock().relations).remove(name).is_some();
        self.note_changed();
        was_there
    }

    /// The relations that the program has handed over, with their columns.
    pub fn registered(&self) -> Vec<(String, SchemaRef)> {
        let inner = self.lock();
        inner.relations.iter().map(|(name, relation)| (name.clone(), relation.schema())).collect()
    }

    /// Adds a function for statements that start from now on, in place of one that has its name and was added so.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] if it has the name of a function of Weft.
    pub fn add_function(&self, function: SessionFunction) -> Result<()> {
        let name = function.name.clone();
        let is_known = self.functions().contains(&name);
        let mut inner = self.lock();
        if is_known && !inner.functions.contains_key(&name) {
            let message = format!("there is a function {name} already");
            return Err(SqlError::new(ErrorKind::AlreadyExists, message)
                .with_hint("give yours another name"));
        }
        let state = Arc::make_mut(&mut inner.state);
        remove_from(state, &name)?;
        add_to(state, function.clone())?;
        inner.functions.insert(name, function);
        drop(inner);
        self.note_changed();
        Ok(())
    }

    /// Removes a function that was added; false if there was none of the name.
    ///
    /// # Errors
    /// None that are known.
    pub fn remove_function(&self, name: &str) -> Result<bool> {
        let mut inner = self.lock();
        let is_known = inner.functions.remove(name).is_some();
        if is_known {
            remove_from(Arc::make_mut(&mut inner.state), name)?;
        }
        drop(inner);
        self.note_changed();
        Ok(is_known)
    }

    /// The type that a name of SQL stands for.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] and [`ErrorKind::NotSupported`] if there is none.
    pub fn data_type(self: &Arc<Session>, name: &str) -> Result<DataType> {
        let mut running = self.start_apart(&format!("SELECT CAST(NULL AS {name})"));
        weft_rt::sync::block_on(running.ready())?;
        match running.schema().fields().first() {
            Some(field) => Ok(field.data_type().clone()),
            None => Err(internal("a cast has no column")),
        }
    }

    /// Whether the session has a transaction.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.transaction().map_or(TransactionStatus::Idle, |transaction| transaction.status())
    }

    /// Rolls the session's transaction back, if it has one, whatever its state.
    pub fn roll_back(&self) {
        let ended = self.transaction.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(transaction) = ended {
            transaction.roll_back();
        }
    }

    /// The database as a statement that starts now sees it.
    fn snapshot(&self) -> Arc<Snapshot> {
        let within = self.transaction().and_then(|transaction| transaction.snapshot().ok());
        within.unwrap_or_else(|| self.engine.store().snapshot())
    }

    /// The schema of the session's temporary tables, if it has made one.
    pub(crate) fn temporary_schema(&self) -> Option<&str> {
        self.temporary.get().map(String::as_str)
    }

    /// Parses a statement whose names lead to the session's temporary tables first.
    ///
    /// # Errors
    /// Those of parsing, and of temporary tables that there cannot be.
    pub(crate) fn parse(&self, sql: &str, values: &Bindings) -> Result<Parsed> {
        let is_made = || creates_temporary(sql);
        if self.temporary.get().is_none() && !is_made() {
            return statement::parse_with(sql, values, None);
        }
        let schema = self.temporary.get_or_init(|| self.engine.next_temporary_schema());
        let snapshot = self.snapshot();
        let scope = TemporaryNames { snapshot: &snapshot, schema };
        statement::parse_with(sql, values, Some(&scope))
    }

    /// The session's transaction.
    pub(crate) fn transaction(&self) -> Option<Arc<SessionTransaction>> {
        self.transaction.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`ErrorKind::ActiveTransaction`] if there is one already.
    pub(crate) fn begin_transaction(&self, modes: Modes) -> Result<()> {
        let defaults = *self.transaction_modes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = self.transaction.lock().unwrap_or_else(PoisonError::into_inner);
        if current.is_some() {
            let message = "another thread has begun a transaction of the session";
            return Err(SqlError::new(ErrorKind::ActiveTransaction, message));
        }
        *current = Some(Arc::new(SessionTransaction::begin(self, modes.or(defaults))));
        Ok(())
    }

    /// The session has this transaction no more.
    pub(crate) fn end_transaction(&self, ended: &Arc<SessionTransaction>) {
        let mut current = self.transaction.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, ended));
    }

    /// Sets what transactions of the session are unless they say so.
    pub(crate) fn set_transaction_modes(&self, modes: Modes) {
        let mut defaults = self.transaction_modes.lock().unwrap_or_else(PoisonError::into_inner);
        *defaults = modes.or(*defaults);
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one statement sees.
    pub(crate) fn statement_catalog(
        &self,
        control: &Arc<Control>,
        economy: Economy,
    ) -> Result<StatementCatalog> {
        let inner = self.lock();
        let mut state = (*inner.state).clone();
        let threads = self.engine.settings().threads;
        let config = state.config_mut().options_mut();
        config.execution.target_partitions = threads;
        config.execution.batch_size = ConfigNonZeroUsize::try_new(inner.settings.batch_rows)?;
        config.execution.time_zone = inner.settings.timezone.clone();
        let io_depth = inner.settings.io_depth;
        let context = ScanContext {
            control: Arc::clone(control),
            io_depth,
            threads,
            turn: Arc::default(),
            index_use: inner.settings.index_use,
            index_join: inner.settings.index_join,
            index_join_tuples: inner.settings.index_join_tuples,
            compiling: self.engine.compiling(inner.settings.compile),
            remote: self.engine.remote.files(&control.token),
        };
        let environment = StatementEnvironment(self.engine.environment(control)?);
        config.extensions.insert(StatementOption(environment));
        let transaction = control.transaction().or_else(|| self.transaction());
        let snapshot = match &transaction {
            Some(transaction) => transaction.snapshot()?,
            None => self.engine.store().snapshot(),
        };
        let settings = inner.settings.clone();
        let surroundings = self.surroundings(control, transaction.as_ref(), settings);
        config.extensions.insert(StatementOption(surroundings));
        // Not all pipelines spill: what runs out of memory is left to DataFusion.
        let by_groups = economy != Economy::InMemory;
        let distinct = DistinctOptions { control: Arc::clone(control), by_groups };
        config.extensions.insert(StatementOption(distinct));
        if economy.has_pipelines() && inner.settings.engine != ExecutedBy::DataFusion {
            let wholly = inner.settings.engine == ExecutedBy::Auto && economy != Economy::Carved;
            if !wholly {
                config.execution.target_partitions = 1;
            }
            let by_pipelines = ByPipelines { context: context.clone(), wholly };
            config.extensions.insert(StatementOption(by_pipelines));
        }
        economy.configure(config, self.engine.ledger.limit())?;
        let relations = Arc::clone(&inner.relations);
        drop(inner);
        state.mark_start_execution();
        let access = self.access(&snapshot);
        Ok(StatementCatalog::new(state, snapshot, context)
            .with_access(access)
            .with_relations(&relations)
            .with_client(self.connected.clone())
            .with_secrets(&self.engine.remote)
            .with_attached(self.engine.attached.databases()))
    }

    /// What functions of the session know of a statement with these settings.
    pub(crate) fn surroundings(
        &self,
        control: &Control,
        transaction: Option<&Arc<SessionTransaction>>,
        settings: SessionSettings,
    ) -> Surroundings {
        Surroundings {
            sequences: Arc::clone(&control.sequences),
            current: Arc::clone(&self.current_values),
            seed: Arc::clone(&self.seed),
            acting: self.acting(),
            settings,
            ..Surroundings::new(&self.engine, &self.connected, transaction)
        }
    }

    /// Checks that the session's role may change settings of the database.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`].
    fn check_settings(&self) -> Result<()> {
        self.access(&self.snapshot()).check_all("change settings of the whole database")
    }

    /// SET.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names and bad values; [`ErrorKind::Forbidden`].
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<()> {
        let set = match scope(name)? {
            Scope::Database => {
                self.check_settings()?;
                self.engine.set(name, Some(value))
            }
            Scope::Session => self.lock().settings.set(name, value),
            Scope::DataFusion => {
                set_datafusion(Arc::make_mut(&mut self.lock().state).config_mut(), name, value)
            }
        };
        self.note_changed();
        set
    }

    /// RESET; of everything without a name.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names, and for settings that cannot change; [`ErrorKind::Forbidden`].
    pub(crate) fn reset(&self, name: Option<&str>) -> Result<()> {
        let reset = self.set_back(name);
        self.note_changed();
        reset
    }

    fn set_back(&self, name: Option<&str>) -> Result<()> {
        let defaults = self.engine.session_defaults.clone();
        let Some(name) = name else {
            // Those of the database stay for a role that may not change them.
            let of_database: &[&str] = match self.check_settings() {
                Ok(()) => &OF_DATABASE,
                Err(_) => &[],
            };
            for name in of_database {
                self.engine.set(name, None)?;
            }
            let mut state = self.engine.first_state(Session::first_state)?;
            let mut inner = self.lock();
            inner.settings = defaults;
            for function in inner.functions.values() {
                add_to(Arc::make_mut(&mut state), function.clone())?;
            }
            Arc::make_mut(&mut state).register_udf(variable_function(&inner.variables))?;
            inner.state = state;
            return Ok(());
        };
        match scope(name)? {
            Scope::Database => {
                self.check_settings()?;
                self.engine.set(name, None)
            }
            Scope::Session => self.lock().settings.reset(name, &defaults),
            Scope::DataFusion => {
                let mut inner = self.lock();
                let options = Arc::make_mut(&mut inner.state).config_mut().options_mut();
                options.reset(name).map_err(|_| settings::unknown_setting(name))
            }
        }
    }

    /// SHOW one setting.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`] for unknown names.
    pub(crate) fn show(&self, name: &str) -> Result<String> {
        let inner = self.lock();
        if let Some(value) = self.engine.show(name, &inner.settings) {
            return Ok(value);
        }
        let entries = inner.state.config_options().entries();
        match entries.into_iter().find(|entry| entry.key == name) {
            Some(entry) => Ok(entry.value.unwrap_or_default()),
            None => Err(settings::unknown_setting(name)),
        }
    }

    /// Gives a variable a value, or has it no more.
    ///
    /// # Errors
    /// None that are known.
    pub(crate) fn set_variable(&self, name: String, value: Option<ScalarValue>) -> Result<()> {
        let mut inner = self.lock();
        match value {
            Some(value) => inner.variables.insert(name, value),
            None => inner.variables.remove(&name),
        };
        let function = variable_function(&inner.variables);
        Arc::make_mut(&mut inner.state).register_udf(function)?;
        Ok(())
    }

    pub(crate) fn keep_prepared(&self, name: String, text: String) {
        self.note_prepared(&text);
        self.lock().prepared.insert(name, text);
    }

    pub(crate) fn prepared(&self, name: &str) -> Result<String> {
        self.lock().prepared.get(name).cloned().ok_or_else(|| unknown_prepared(name))
    }

    pub(crate) fn forget_prepared(&self, name: &str) -> Result<()> {
        self.lock().prepared.remove(name).map(drop).ok_or_else(|| unknown_prepared(name))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(schema) = self.temporary.get() else { return };
        self.roll_back();
        let store = self.engine.store();
        let changes = temporary::drop_all(&store.snapshot(), |of| of == schema);
        if changes.is_empty() {
            return;
        }
        if let Err(error) = store.commit_blocking(changes) {
            // They are dropped when the database is opened the next time.
            log::warn!("temporary tables of a session are left: {error}");
        }
    }
}

/// Has statements find a function that was added.
fn add_to(state: &mut SessionState, function: SessionFunction) -> Result<()> {
    match function.is_aggregate {
        true => drop(state.register_udaf(Arc::new(into_udaf(function)))?),
        false => drop(state.register_udf(Arc::new(function.into_udf()))?),
    }
    Ok(())
}

/// Has statements find a function that was added no more.
fn remove_from(state: &mut SessionState, name: &str) -> Result<()> {
    if state.scalar_functions().contains_key(name) {
        state.deregister_udf(name)?;
    }
    if state.aggregate_functions().contains_key(name) {
        state.deregister_udaf(name)?;
    }
    Ok(())
}

fn unknown_prepared(name: &str) -> SqlError {
    SqlError::new(ErrorKind::Semantic, format!("prepared statement {name} does not exist"))
        .with_hint("prepare it with: PREPARE name AS statement")
}

/// The first sentence of a description, or as much of it as fits a line.
fn first_sentence(text: &str) -> String {
    let sentence = text.split(". ").next().unwrap_or(text).trim().trim_end_matches('.');
    match sentence.char_indices().nth(DESCRIPTION_MAX) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

enum Scope {
    Database,
    Session,
    DataFusion,
}

fn scope(name: &str) -> Result<Scope> {
    Ok(match name {
        "memory_limit" | "threads" | "max_temp_size" | "partition" | "spill_compression"
        | "spill_mode" | "io_bandwidth_limit" | "io_driver" | "temp_directory" | "http_retries"
        | "http_timeout" | "cache_directory" | "cache_size" => Scope::Database,
        "batch_size" | "compile" | "engine" | "index_join" | "index_join_tuples" | "index_scan"
        | "io_depth" | "timezone" => Scope::Session,
        "datafusion.execution.target_partitions" => return Err(renamed(name, "threads")),
        "datafusion.execution.batch_size" => return Err(renamed(name, "batch_size")),
        "datafusion.execution.time_zone" => return Err(renamed(name, "timezone")),
        other if other.starts_with("datafusion.") => Scope::DataFusion,
        other => return Err(settings::unknown_setting(other)),
    })
}

fn renamed(name: &str, weft: &str) -> SqlError {
    SqlError::new(ErrorKind::Setting, format!("{name} follows the setting {weft}"))
        .with_hint(format!("SET {weft} = …"))
}

fn set_datafusion(config: &mut SessionConfig, name: &str, value: &str) -> Result<()> {
    if name.starts_with("datafusion.catalog.") && name != "datafusion.catalog.has_header" {
        return Err(SqlError::new(ErrorKind::Setting, format!("{name} cannot change")));
    }
    config.options_mut().set(name, value).map_err(|error| {
        let error = SqlError::from(error);
        match error.message().contains("not found") {
            true => settings::unknown_setting(name),
            false => SqlError::new(
                ErrorKind::Setting,
                format!("{name} cannot be '{value}': {}", error.message()),
            ),
        }
    })
}
