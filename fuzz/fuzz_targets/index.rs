//! Any bytes as a node of an index, and as a page of its directory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_index::fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::page(bytes));
