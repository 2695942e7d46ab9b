//! Files of an application, in a folder or in an object store that is compatible with S3.
//!
//! ```
//! use apus_handler::{OrNotFound, Path, Result, State};
//! use apus_http::Request;
//! use apus_storage::{Storage, StoredObject};
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
//! # apus_testkit::block_on(async {
//! # let folder = std::env::temp_dir().join(format!("storage-doc-{}", std::process::id()));
//! let files = Storage::folder(&folder)?;
//! let note = "notes/1.txt".parse()?;
//! files.put(&note, "a note").await?;
//! assert_eq!(files.info(&note).await?.map(|note| note.bytes), Some(6));
//! assert!(files.get(&"none".parse()?).await?.is_none());
//! assert!(".htaccess".parse::<apus_storage::StorageKey>().is_err());
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! The package `apus` exports this crate as `apus::storage`.
//!
//! The media type of an object follows from the extension of its key.
//!
//! # Modules
//!
//! `storage`, `key`, `object`: files by keys, whichever store there is. `folder` and `s3` are the stores; signatures of
//! S3 are in `s3::sign`.
//!
//! # Tests
//!
//! `tests/it`: `objects` in a folder and against s3rver, `folder`, `object_store` and `busy_store`.

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
