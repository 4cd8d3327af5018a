//! Files of object stores and web servers: `s3://`, `gs://`, `az://`, `https://` and `http://`.
//!
//! - [`Remote`] is what a database knows of them: its secrets, its connections, and the threads that carry out requests, which
//!   exist once a first request was made.
//! - [`RemoteFiles`] finds the files that one statement names. A [`RemoteFile`] is one of them, as it was when it was found: its
//!   size, its time and its tag. A file that has changed since is an error, never a mixture.
//! - [`RemoteFile::read`] gives a range of bytes to any executor: requests run on threads of the crate, which wake the futures that await them.
//!   [`RemoteReader`] is the same for threads that block, with requests ahead of the reader.
//! - [`Place`] is a file here or elsewhere, for code that reads both.
//! - Blocks of files may be kept on a disk of this machine, for all statements ([`CacheOptions`]).
//! - [`Uploads`] write objects, which appear when all of them are whole, or not at all.
//!
//! **API boundary:** the crate knows bytes, and neither formats of files nor SQL. No text that it makes has a secret in it: errors,
//! names and `Debug` show URLs without their queries and user names.

#![forbid(unsafe_code)]

mod cache;
mod error;
mod file;
mod file_cache;
mod list;
mod place;
mod profile;
mod reader;
mod remote;
mod requests;
mod secrets;
mod store;
mod stores;
mod upload;
mod url;
mod web;

pub use cache::{CacheOptions, CacheStats};
pub use error::{Failure, RemoteError, Result};
pub use file::RemoteFile;
pub use list::{Found, RemoteFiles};
pub use place::{Place, PlaceReader};
pub use reader::RemoteReader;
pub use remote::Remote;
pub use requests::RequestOptions;
pub use secrets::{Secret, SecretKind, Secrets};
pub use store::{STORE_URL, name_of_location};
pub use upload::{Naming, Uploads};
pub use url::{RemoteUrl, is_remote};
