//! Any bytes as scalars and zones: what can be read is written as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_codec::{Scalar, Zone};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(scalar) = Scalar::read(&mut rest) {
        let mut written = Vec::new();
        scalar.write(&mut written);
        let read = Scalar::read(&mut &written[..]).expect("a scalar that was just written");
        assert_eq!(format!("{read:?}"), format!("{scalar:?}"));
        assert!(scalar.compare(&read).is_none_or(|order| order.is_eq()));
    }
    let mut rest = bytes;
    if let Ok(mut zone) = Zone::read(&mut rest) {
        for predicate in weft_fuzz::predicates() {
            // Bounds that no rows have may contradict each other: only that it answers matters.
            std::hint::black_box(predicate.may_match(&zone, 10));
            std::hint::black_box(predicate.must_match(&zone, 10));
        }
        if let Ok(other) = Zone::read(&mut rest)
            && zone.null_count.checked_add(other.null_count).is_some()
        {
            zone.merge(10, &other, 10);
        }
    }
});
