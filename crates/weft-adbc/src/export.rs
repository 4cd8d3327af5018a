//! The entry points that managers of drivers call by name.

adbc_ffi::export_driver!(AdbcDriverWeftInit, crate::WeftDriver);
