//! Options that cannot be are refused before anything is made or measured.

use super::run;

#[test]
fn every_value_of_a_list_is_looked_at_first() {
    let nowhere = tempfile::tempdir().unwrap();
    let data = nowhere.path().join("data");
    let data = data.to_str().unwrap();
    for (words, named) in [
        ("agg --memory-limit 1GB,much", "--memory-limit: memory_limit cannot be 'much'"),
        ("join --memory-limit 1GB,1MB", "--memory-limit: "),
        ("sort --partition adaptive,sometimes", "--partition: "),
        ("tpch --spill-mode hybrid,none", "--spill-mode: "),
        ("compression --spill-compression auto,gzip", "--spill-compression: "),
        ("tpch --io-bandwidth-limit 1GB,fast", "--io-bandwidth-limit: "),
        ("agg --neighbour 1s..2s:fast", "--neighbour: "),
    ] {
        let words: Vec<&str> = words.split(' ').chain(["--data", data]).collect();
        let error = run(&words).unwrap_err().to_string();
        assert!(error.starts_with(named), "{words:?}: {error}");
    }
    let error = run(&["sort", "--spill-compression", "auto,gzip"]).unwrap_err().to_string();
    assert!(error.contains("gzip") && error.contains("zstd:"), "{error}");
    assert!(!nowhere.path().join("data").exists());
}
