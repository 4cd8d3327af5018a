//! TPC-DS as CSV files, one per table, as the crate `tpcdsgen` makes it: a header line, and NULL as an empty field.
//!
//! A table is made by one thread; as many are made at once as there are threads, the largest first.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tpcdsgen::config::{Scaling, Session, SessionBuilder, Table};
use tpcdsgen::csv::{self, CsvRow};
use tpcdsgen::row;

use super::WorkloadError;
use super::suite::{Generated, TableSize};

/// Rows between two reports of how far a table is.
const ROWS_PER_REPORT: u64 = 1 << 16;

/// Rows of an order, on average, in stores and on the web.
const ITEMS_PER_ORDER: u64 = 12;

/// Rows of an order from the catalog, on average.
const ITEMS_PER_CATALOG_ORDER: u64 = 9;

/// One row of so many sold is returned.
const SALES_PER_RETURN: u64 = 10;

/// A table, and what writes it.
struct Source {
    name: &'static str,
    table: Table,
    write: WriteRows,
}

/// Writes the rows of a table, and says now and then how many it has written since.
type WriteRows =
    fn(&Session, &mut dyn Write, &mut dyn FnMut(u64) -> io::Result<()>) -> io::Result<()>;

/// The tables: the name of each, what it is there, its generator and its formatter.
macro_rules! sources {
    ($($name:literal: $table:ident, $generator:ident, $csv:ident;)*) => {
        [$(Source {
            name: $name,
            table: Table::$table,
            write: |session, out, report| {
                let orders = session.get_scaling().get_row_count(Table::$table);
                writeln!(out, "{}", csv::$csv::header())?;
                let mut rows = 0;
                for row in row::$generator::new(session.clone(), orders) {
                    writeln!(out, "{}", csv::$csv::new(&row))?;
                    rows += 1;
                    if rows % ROWS_PER_REPORT == 0 {
                        report(ROWS_PER_REPORT)?;
                    }
                }
                report(rows % ROWS_PER_REPORT)
            },
        }),*]
    };
}

static SOURCES: [Source; 24] = sources! {
    "call_center": CallCenter, CallCenterRowGenerator, CallCenterCsv;
    "catalog_page": CatalogPage, CatalogPageRowGenerator, CatalogPageCsv;
    "catalog_returns": CatalogReturns, CatalogReturnsRowGenerator, CatalogReturnsCsv;
    "catalog_sales": CatalogSales, CatalogSalesRowGenerator, CatalogSalesCsv;
    "customer": Customer, CustomerRowGenerator, CustomerCsv;
    "customer_address": CustomerAddress, CustomerAddressRowGenerator, CustomerAddressCsv;
    "customer_demographics": CustomerDemographics, CustomerDemographicsRowGenerator, CustomerDemographicsCsv;
    "date_dim": DateDim, DateDimRowGenerator, DateDimCsv;
    "household_demographics": HouseholdDemographics, HouseholdDemographicsRowGenerator, HouseholdDemographicsCsv;
    "income_band": IncomeBand, IncomeBandRowGenerator, IncomeBandCsv;
    "inventory": Inventory, InventoryRowGenerator, InventoryCsv;
    "item": Item, ItemRowGenerator, ItemCsv;
    "promotion": Promotion, PromotionRowGenerator, PromotionCsv;
    "reason": Reason, ReasonRowGenerator, ReasonCsv;
    "ship_mode": ShipMode, ShipModeRowGenerator, ShipModeCsv;
    "store": Store, StoreRowGenerator, StoreCsv;
    "store_returns": StoreReturns, StoreReturnsRowGenerator, StoreReturnsCsv;
    "store_sales": StoreSales, StoreSalesRowGenerator, StoreSalesCsv;
    "time_dim": TimeDim, TimeDimRowGenerator, TimeDimCsv;
    "warehouse": Warehouse, WarehouseRowGenerator, WarehouseCsv;
    "web_page": WebPage, WebPageRowGenerator, WebPageCsv;
    "web_returns": WebReturns, WebReturnsRowGenerator, WebReturnsCsv;
    "web_sales": WebSales, WebSalesRowGenerator, WebSalesCsv;
    "web_site": WebSite, WebSiteRowGenerator, WebSiteCsv;
};

impl Source {
    fn size(&self, scaling: &Scaling) -> TableSize {
        // Of what is sold and returned, the crate counts orders.
        let orders = scaling.get_row_count(self.table);
        let average = match self.table {
            Table::StoreSales | Table::WebSales => Some(orders * ITEMS_PER_ORDER),
            Table::CatalogSales => Some(orders * ITEMS_PER_CATALOG_ORDER),
            Table::StoreReturns | Table::WebReturns => {
                Some(orders * ITEMS_PER_ORDER / SALES_PER_RETURN)
            }
            Table::CatalogReturns => Some(orders * ITEMS_PER_CATALOG_ORDER / SALES_PER_RETURN),
            _ => None,
        };
        let (rows, is_exact) = (average.unwrap_or(orders), average.is_none());
        TableSize { name: self.name, rows, is_exact }
    }
}

/// The path of a table's file.
pub fn path_of(directory: &Path, table: &str) -> PathBuf {
    directory.join(format!("{table}.csv"))
}

/// The tables at a scale factor.
pub fn tables(scale: f64) -> Vec<TableSize> {
    let scaling = Scaling::new(scale);
    SOURCES.iter().map(|source| source.size(&scaling)).collect()
}

/// Writes the files that are not there yet. Each appears when it is complete and durable.
///
/// # Errors
/// [`WorkloadError`] if a file cannot be written, or the scale factor is none of TPC-DS.
pub fn generate(
    directory: &Path,
    scale: f64,
    threads: usize,
    progress: &mut dyn FnMut(Generated),
) -> Result<(), WorkloadError> {
    let fail =
        |source| WorkloadError::File { action: "create", path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(fail)?;
    let session = SessionBuilder::new().with_scale_factor(scale).build();
    let session = session.map_err(|error| fail(io::Error::other(error)))?;
    let rows_of = |source: &Source| source.size(session.get_scaling()).rows;
    let missing = |source: &&Source| !path_of(directory, source.name).exists();
    let mut missing: Vec<&Source> = SOURCES.iter().filter(missing).collect();
    missing.sort_by_key(|source| std::cmp::Reverse(rows_of(source)));
    let rows_expected = missing.iter().map(|source| rows_of(source)).sum();
    let next = AtomicUsize::new(0);
    let (sender, made) = channel();
    thread::scope(|scope| {
        for _ in 0..threads.min(missing.len()) {
            let (session, missing, next, sender) = (&session, &missing, &next, sender.clone());
            scope.spawn(move || {
                while let Some(source) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let written = source.write_file(session, directory, &sender);
                    // One who has heard of an error does not listen to the next.
                    if let Err(error) = written {
                        sender.send(Err(error)).ok();
                    }
                }
            });
        }
        drop(sender);
        let mut rows_done = 0;
        for step in made {
            let (table, rows) = step?;
            rows_done += rows;
            progress(Generated { table, rows_done, rows_expected });
        }
        Ok(())
    })
}

/// A table and rows written of it, or why it was not written.
type Step = Result<(&'static str, u64), WorkloadError>;

impl Source {
    /// Writes the table under a name of its own, and renames it.
    fn write_file(
        &self,
        session: &Session,
        directory: &Path,
        sender: &Sender<Step>,
    ) -> Result<(), WorkloadError> {
        let path = path_of(directory, self.name);
        let partial = directory.join(format!(".{}.{}.partial", self.name, std::process::id()));
        // Who does not listen any more has heard of an error in another table.
        let mut report =
            |rows| sender.send(Ok((self.name, rows))).map_err(|_| ErrorKind::Interrupted.into());
        let mut write = || {
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
            (self.write)(session, &mut out, &mut report)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(&partial, &path)
        };
        let written: io::Result<()> = write();
        written.map_err(|source| {
            // The error that matters is the first one.
            fs::remove_file(&partial).ok();
            WorkloadError::File { action: "write", path: path.clone(), source }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a file, without its header.
    fn rows(directory: &Path, table: &str) -> u64 {
        let text = fs::read_to_string(path_of(directory, table)).unwrap();
        text.lines().count() as u64 - 1
    }

    #[test]
    fn tables_have_as_many_rows_as_they_are_said_to_have() {
        let directory = tempfile::tempdir().unwrap();
        let mut last = None;
        generate(directory.path(), 0.01, 2, &mut |progress| last = Some(progress)).unwrap();
        let found = |table: &TableSize| rows(directory.path(), table.name);
        for table in tables(0.01) {
            assert!(table.fits(found(&table)), "{table:?}: {}", found(&table));
        }
        let all: u64 = tables(0.01).iter().map(found).sum();
        assert_eq!(last.unwrap().rows_done, all);
        let mut calls = 0;
        generate(directory.path(), 0.01, 2, &mut |_| calls += 1).unwrap();
        assert_eq!(calls, 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), SOURCES.len());
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let taken = directory.path().join("taken");
        fs::write(&taken, "x").unwrap();
        let error = generate(&taken, 0.01, 1, &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
    }
}
