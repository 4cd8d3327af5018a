//! Functions about the connection, its settings, and the other connections of the server.

use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;

use crate::error::{ErrorKind, Result, SqlError};
use crate::held_locks;
use crate::postgres::Connected;
use crate::postgres::functions::{
    Arguments, Definition, POSTGRES_VERSION, Surroundings, define, number, text, text_type, truth,
    truth_type,
};
use crate::types::ZONE;

/// When the process began to serve, in microseconds since 1970.
static STARTED_US: LazyLock<i64> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
});

pub(crate) fn functions() -> Vec<Definition> {
    LazyLock::force(&STARTED_US);
    let users = ["current_user", "current_role"].map(|name| {
        define(name, (0, 0), text_type, |around, _| {
            text(Some(around.acting.clone().unwrap_or_else(|| around.connected.get().user())))
        })
    });
    let databases = ["current_database", "current_catalog"];
    let databases = databases
        .map(|name| define(name, (0, 0), text_type, |_, _| text(Some(Connected::database()))));
    let addresses = ["inet_server_addr", "inet_client_addr"];
    let addresses =
        addresses.map(|name| define(name, (0, 0), text_type, |_, _| text(None::<String>)));
    let own = vec![
        define("session_user", (0, 0), text_type, |around, _| {
            text(Some(around.connected.get().user()))
        }),
        define("version", (0, 0), text_type, |_, _| text(Some(version()))),
        define(
            "pg_backend_pid",
            (0, 0),
            |_| DataType::Int32,
            |around, _| number(Some(around.connected.get().pid().into())),
        ),
        // There are no such locks.
        define("pg_advisory_unlock_all", (0, 0), text_type, |_, _| text(Some(""))),
        define("pg_is_in_recovery", (0, 0), truth_type, |_, _| truth(Some(false))),
        define("pg_postmaster_start_time", (0, 0), start_type, |_, _| {
            Ok(ScalarValue::TimestampMicrosecond(Some(*STARTED_US), Some(ZONE.into())))
        }),
        define("current_setting", (1, 2), text_type, current_setting),
        volatile(define("setseed", (1, 1), text_type, |around, arguments| {
            if let Some(seed) = arguments.float(0) {
                around.seed.set(seed)?;
            }
            text(None::<String>)
        })),
        volatile(define("set_config", (3, 3), text_type, |around, arguments| {
            let (Some(name), value) = (arguments.text(0), arguments.text(1).unwrap_or_default())
            else {
                return text(None::<String>);
            };
            let is_local = arguments.is_true(2).unwrap_or(false);
            let name = name.to_ascii_lowercase();
            text(Some(around.connected.get().set(&name, &value, is_local)?))
        })),
        volatile(define("pg_cancel_backend", (1, 1), truth_type, |around, arguments| {
            let pid = arguments.number(0).and_then(|pid| i32::try_from(pid).ok());
            truth(pid.map(|pid| around.connected.get().cancel(pid)))
        })),
        volatile(define("pg_blocking_pids", (1, 1), pids_type, |around, arguments| {
            let pid = arguments.number(0).and_then(|pid| i32::try_from(pid).ok());
            let Some(pid) = pid else { return Ok(ScalarValue::try_from(&pids_type(&[]))?) };
            let pids = held_locks::blocking(&around.engine()?.store().locks(), pid);
            let pids: Vec<ScalarValue> = pids.into_iter().map(ScalarValue::from).collect();
            Ok(ScalarValue::List(ScalarValue::new_list_nullable(&pids, &DataType::Int32)))
        })),
        volatile(define("pg_terminate_backend", (1, 2), truth_type, |around, arguments| {
            let pid = arguments.number(0).and_then(|pid| i32::try_from(pid).ok());
            truth(pid.map(|pid| around.connected.get().terminate(pid)))
        })),
    ];
    own.into_iter().chain(users).chain(databases).chain(addresses).collect()
}

fn volatile(definition: Definition) -> Definition {
    Definition { volatility: Volatility::Volatile, ..definition }
}

fn pids_type(_: &[DataType]) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Int32, true)))
}

fn start_type(_: &[DataType]) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(ZONE.into()))
}

/// The version in the form that clients of PostgreSQL read.
fn version() -> String {
    let (weft, machine) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    format!("PostgreSQL {POSTGRES_VERSION} (Weft {weft}) on {machine}, 64-bit")
}

/// The value of a setting: PostgreSQL's of the connection, else one of Weft's of the database.
fn current_setting(around: &Surroundings, arguments: &Arguments<'_>) -> Result<ScalarValue> {
    let Some(name) = arguments.text(0) else { return text(None::<String>) };
    let name = name.to_ascii_lowercase();
    let of_client = around.connected.get().settings().into_iter().find(|known| known.name == name);
    let value = match of_client {
        Some(setting) => Some(setting.value),
        None => around.engine()?.show(&name, &around.settings),
    };
    match value {
        Some(value) => text(Some(value)),
        None if arguments.is_true(1) == Some(true) => text(None::<String>),
        None => Err(SqlError::new(ErrorKind::Setting, format!("there is no setting {name}"))),
    }
}
