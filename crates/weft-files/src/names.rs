//! Names of columns that differ from each other.

use std::collections::HashSet;

/// Gives names that occur again a number.
pub fn distinct(names: &mut [String]) {
    let mut seen = HashSet::new();
    let wanted: HashSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    for name in names {
        if seen.insert(name.to_lowercase()) {
            continue;
        }
        let numbered = |number: u64| format!("{name}_{number}");
        let is_free = |name: &String| {
            !wanted.contains(&name.to_lowercase()) && !seen.contains(&name.to_lowercase())
        };
        if let Some(free) = (1..).map(numbered).find(is_free) {
            seen.insert(free.to_lowercase());
            *name = free;
        }
    }
}
