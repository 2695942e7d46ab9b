//! Files of an application, in a folder or in an object store that is compatible with S3.
//!
//! ```
//! use apus::storage::{Storage, StorageKey, StoredObject};
//! use apus::testing::TestClient;
//! use apus::{App, OrNotFound, Path, Request, Result, State};
//!
//! async fn put(State(files): State<Storage>, Path(key): Path<String>, mut request: Request) -> Result<()> {
//!     files.put(&key.parse()?, request.take_body()).await?;
//!     Ok(())
//! }
//!
//! async fn get(State(files): State<Storage>, Path(key): Path<String>) -> Result<StoredObject> {
//!     files.get(&key.parse()?).await?.or_404()
//! }
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("storage-doc-{}", std::process::id()));
//! let app = App::new()
//!     .state(Storage::folder(&folder)?)
//!     .put("/files/{*key}", put)
//!     .get("/files/{*key}", get);
//! let client = TestClient::new(app);
//! client.put("/files/notes/1.txt").body("a note").send().assert_status(204);
//! client.get("/files/notes/1.txt").send().assert_text("a note");
//! client.get("/files/none").send().assert_status(404);
//! client.put("/files/.htaccess").body("no").send().assert_status(400);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! The media type of an object is that of the extension of its key.
//!
//! # Modules
//!
//! `storage`, `key`, `object`: files by keys, whichever store there is. `folder` and `s3` are the stores; signatures of
//! S3 are in `s3::sign`.
//!
//! # Tests
//!
//! `crates/framework/web/tests/it/storage.rs`, in a folder and against s3rver.

#![forbid(unsafe_code)]

mod body;
mod error;
mod folder;
mod key;
mod object;
#[cfg(feature = "s3")]
mod s3;
mod storage;

pub use error::StorageError;
pub use key::{InvalidKey, StorageKey};
pub use object::{ObjectInfo, StoredObject};
#[cfg(feature = "s3")]
pub use s3::S3Settings;
pub use storage::Storage;
