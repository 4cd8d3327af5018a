//! TPC-H as the asynchronous-I/O paper runs it (seed 000, section 3): pages of fixed column arrays
//! in files that are generated once, and hand-written kernels for queries 1 and 14.
//!
//! Everything here is synchronous. [`generate()`] writes the page files, [`PageTable`] opens them and
//! names their pages, [`Q1State`] and the parts of [`q14`] compute, and [`Answers`] knows what must
//! come out. Who reads the pages, and how the reads overlap, is the business of the drivers.

pub mod answers;
mod error;
mod generate;
pub mod layout;
pub mod lineitem_page;
mod page_file;
mod page_header_block;
mod part_index;
pub mod part_page;
mod part_pages;
pub mod q1;
pub mod q14;
mod q14_filter;
#[cfg(target_arch = "x86_64")]
mod q1_avx2;
#[cfg(target_arch = "x86_64")]
mod q1_avx512;
mod q1_lanes;
mod stripe_writer;

pub use answers::Answers;
pub use error::TpchError;
pub use generate::{GenerateOptions, Progress, generate};
pub use layout::{LayoutError, Table};
pub use lineitem_page::{Q1Page, Q14Page};
pub use page_file::{PageTable, TableSpec};
pub use part_index::{PartEntry, PartIndex};
pub use part_page::PartPage;
pub use q1::{Q1Kernel, Q1Row, Q1State};
pub use q14::{LineitemColumns, Q14Sum, part_page_accesses};
pub use q14_filter::{FilterKernel, ship_month_rows};

/// The day number (days since 1970-01-01) of a date of the Gregorian calendar.
pub(crate) const fn day_number(year: i32, month: i32, day: i32) -> i32 {
    // Years start in March here, so that the leap day comes last.
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::day_number;

    #[test]
    fn day_numbers() {
        assert_eq!(day_number(1970, 1, 1), 0);
        assert_eq!(day_number(1992, 1, 1), 8035);
        assert_eq!(day_number(2000, 2, 29), 11016);
        assert_eq!(day_number(1998, 12, 1) - 90, day_number(1998, 9, 2));
        assert_eq!(day_number(1995, 10, 1) - day_number(1995, 9, 1), 30);
    }
}
