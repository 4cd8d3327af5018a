//! TPC-DS as CSV files, one per table, as the crate `tpcdsgen` makes it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use tpcdsgen::config::{Session, SessionBuilder, Table};
use tpcdsgen::csv::{self, CsvRow};
use tpcdsgen::row;

/// Writes one table: its name, its number of rows, its generator and its formatter.
macro_rules! write_tables {
    ($session:expr, $directory:expr, { $($name:literal: $table:ident, $generator:ident, $csv:ident;)* }) => {
        $({
            let rows = $session.get_scaling().get_row_count(Table::$table);
            let file = File::create($directory.join(concat!($name, ".csv")))?;
            let mut out = BufWriter::new(file);
            writeln!(out, "{}", csv::$csv::header())?;
            for row in row::$generator::new($session.clone(), rows) {
                writeln!(out, "{}", csv::$csv::new(&row))?;
            }
            out.flush()?;
        })*
    };
}

/// Writes all tables, each to TABLE.csv with a header line. NULL is an empty field.
///
/// # Errors
/// [`io::Error`] if the directory is not writable or the scale factor is not one.
pub fn write_all(directory: &Path, scale: f64) -> io::Result<()> {
    let session: Session =
        SessionBuilder::new().with_scale_factor(scale).build().map_err(io::Error::other)?;
    write_tables!(session, directory, {
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
    });
    Ok(())
}
