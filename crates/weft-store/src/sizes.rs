//! Sizes in bytes, as people read them.

const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// `1536` as `1.5 KiB`.
pub fn human_bytes(bytes: u64) -> String {
    for (unit, size) in UNITS {
        if bytes >= size && size > 1 {
            let value = bytes as f64 / size as f64;
            let digits = usize::from(value < 10.0 && !bytes.is_multiple_of(size));
            return format!("{value:.digits$} {unit}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_people_read() {
        assert_eq!(human_bytes(17), "17 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(4 << 30), "4 GiB");
        assert_eq!(human_bytes(100 << 20), "100 MiB");
    }
}
