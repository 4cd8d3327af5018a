//! Functions as the catalog has them: macros, with their parameters and texts, and those of Weft itself, by their names.

use std::collections::BTreeMap;

use weft_store::Snapshot;

use crate::catalog::StatementCatalog;
use crate::definitions::{self, Kind};
use crate::macros::{Described, described};
use crate::postgres::PG_CATALOG;
use crate::postgres::numbers::macro_oids;
use crate::schemas::parts;
use crate::{file_functions, functions};

/// The number of the first function of Weft itself: numbers of functions are a row of their own.
const SYSTEM_FROM: i64 = 100;

/// The end of the numbers of functions of Weft itself.
const SYSTEM_TO: i64 = 10_000;

/// What a function gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcedureKind {
    /// A value for each row.
    Scalar,
    /// A value for each group.
    Aggregate,
    /// A value for each row, of those around it.
    Window,
    /// Rows.
    Table,
}

impl ProcedureKind {
    /// The letter in `pg_proc`.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            ProcedureKind::Scalar | ProcedureKind::Table => "f",
            ProcedureKind::Aggregate => "a",
            ProcedureKind::Window => "w",
        }
    }
}

/// A function.
#[derive(Clone, Debug)]
pub(crate) struct Procedure {
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) kind: ProcedureKind,
    /// What a macro is made by.
    pub(crate) text: Option<String>,
    /// The parameters of a macro, with their defaults.
    pub(crate) parameters: Vec<(String, Option<String>)>,
}

impl Procedure {
    /// Its parameters as they are declared; those of Weft's own functions may be any.
    pub(crate) fn arguments(&self, has_defaults: bool) -> String {
        if self.text.is_none() {
            return "VARIADIC \"any\"".to_owned();
        }
        let written = |(name, default): &(String, Option<String>)| match default {
            Some(default) if has_defaults => format!("{name} DEFAULT {default}"),
            _ => name.clone(),
        };
        self.parameters.iter().map(written).collect::<Vec<_>>().join(", ")
    }

    /// A function of Weft itself, of which only the number is known; `None` for numbers that these do not have.
    pub(crate) fn of_system(oid: i64) -> Option<Procedure> {
        (SYSTEM_FROM..SYSTEM_TO).contains(&oid).then(|| Procedure {
            oid,
            schema: PG_CATALOG.to_owned(),
            name: String::new(),
            kind: ProcedureKind::Scalar,
            text: None,
            parameters: Vec::new(),
        })
    }

    /// The type of what it gives, which depends on the values that it is called with.
    pub(crate) fn result(&self) -> &'static str {
        match self.kind {
            ProcedureKind::Table => "SETOF record",
            _ => "\"any\"",
        }
    }
}

/// The macros of a snapshot.
pub(crate) fn macros(snapshot: &Snapshot) -> Vec<Procedure> {
    let names: Vec<&str> = definitions::names(snapshot, Kind::Macro).collect();
    let numbered = names.iter().zip(macro_oids(names.iter().copied()));
    let found = numbered.map(|(stored, oid)| {
        let (schema, name) = parts(snapshot, stored);
        // One whose text does not parse any more is there all the same.
        let Described { is_table, parameters } =
            described(snapshot, stored).ok().flatten().unwrap_or_default();
        Procedure {
            oid,
            schema: schema.to_owned(),
            name: name.to_owned(),
            kind: if is_table { ProcedureKind::Table } else { ProcedureKind::Scalar },
            text: definitions::text(snapshot, Kind::Macro, stored).map(str::to_owned),
            parameters,
        }
    });
    found.collect()
}

/// Macros, and all functions of Weft.
pub(crate) fn procedures(catalog: &StatementCatalog) -> Vec<Procedure> {
    let state = catalog.planning_state();
    let mut kinds = BTreeMap::new();
    let of_kind = |names: Vec<String>, kind| names.into_iter().map(move |name| (name, kind));
    kinds.extend(of_kind(functions::names().collect(), ProcedureKind::Scalar));
    kinds.extend(of_kind(file_functions::names().collect(), ProcedureKind::Table));
    let tables = catalog.table_functions().into_keys().collect();
    kinds.extend(of_kind(tables, ProcedureKind::Table));
    let windows = state.window_functions().keys().cloned().collect();
    kinds.extend(of_kind(windows, ProcedureKind::Window));
    let aggregates = state.aggregate_functions().keys().cloned().collect();
    kinds.extend(of_kind(aggregates, ProcedureKind::Aggregate));
    let scalars = state.scalar_functions().keys().cloned().collect();
    kinds.extend(of_kind(scalars, ProcedureKind::Scalar));
    let own = (SYSTEM_FROM..SYSTEM_TO).zip(kinds).map(|(oid, (name, kind))| Procedure {
        oid,
        schema: PG_CATALOG.to_owned(),
        name,
        kind,
        text: None,
        parameters: Vec::new(),
    });
    let mut found = macros(catalog.snapshot());
    found.extend(own);
    found
}
