//! `Storage`: where the files of an application are.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apus_files::Files;
use apus_http::{Body, header};
use apus_layers::auth::SignedUrls;

use crate::body::BodyPieces;
use crate::error::StorageError;
use crate::folder::StorageFolder;
use crate::key::StorageKey;
use crate::object::{NO_SNIFFING, ObjectInfo, POLICY, StoredObject};
#[cfg(feature = "s3")]
use crate::s3::{S3Bucket, S3Settings};

/// The default of [`Storage::max_bytes`].
const MAX_BYTES: u64 = 1 << 30;

/// The files of an application; see [the module](crate). It is cheap to clone, and handlers get it as
/// [`State`](https://docs.rs/apus/latest/apus/struct.State.html).
#[derive(Clone)]
pub struct Storage {
    place: Arc<StoragePlace>,
    max_bytes: u64,
    urls: Option<Arc<(Box<str>, SignedUrls)>>,
}

enum StoragePlace {
    Folder(StorageFolder),
    #[cfg(feature = "s3")]
    S3(Box<S3Bucket>),
}

impl Storage {
    /// A folder, which is created if it is missing.
    ///
    /// # Errors
    /// It cannot be created or read.
    pub fn folder(root: impl AsRef<Path>) -> Result<Self, StorageError> {
        let folder = StorageFolder::open(root.as_ref()).map_err(StorageError::Folder)?;
        Ok(Self::of(StoragePlace::Folder(folder)))
    }

    /// A bucket of an object store that is compatible with S3.
    ///
    /// # Errors
    /// The settings are not valid.
    #[cfg(feature = "s3")]
    pub fn s3(settings: S3Settings) -> Result<Self, StorageError> {
        let bucket = S3Bucket::new(settings)?;
        Ok(Self::of(StoragePlace::S3(Box::new(bucket))))
    }

    fn of(place: StoragePlace) -> Self {
        Self {
            place: Arc::new(place),
            max_bytes: MAX_BYTES,
            urls: None,
        }
    }

    /// The most bytes of an object. Default: 1 GiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The path at which a folder is served, and the signatures of URLs there, for [`signed_url`](Self::signed_url). An object
    /// store serves its objects itself.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use apus_handler::Layered;
    /// use apus_layers::auth::{Key, SignedUrls};
    /// use apus_storage::Storage;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("storage-urls-{}", std::process::id()));
    /// let urls = SignedUrls::new(&Key::random()?);
    /// let storage = Storage::folder(&folder)?.served_at("/files", &urls);
    /// // An application mounts it at `/files`.
    /// let files = Layered::new(storage.files().unwrap()).layer(urls);
    ///
    /// # let worker = apus_testkit::LocalClient::of(&files);
    /// let key = "a note.txt".parse()?;
    /// # worker.run(async {
    /// storage.put(&key, "content").await?;
    /// # Ok::<_, apus_storage::StorageError>(())
    /// # })?;
    /// let url = storage.signed_url(&key, Duration::from_secs(60))?;
    /// assert!(url.starts_with("/files/a%20note.txt?"));
    /// # assert_eq!(worker.send(apus_testkit::get("/files/a%20note.txt")).status, 403);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn served_at(mut self, path: &str, urls: &SignedUrls) -> Self {
        let path = path.trim_end_matches('/');
        self.urls = Some(Arc::new((path.into(), urls.clone())));
        self
    }

    /// The files of a folder as a service, with ranges and validators. Browsers neither guess another media type, nor run scripts
    /// in them with the rights of the application. `None` for an object store.
    pub fn files(&self) -> Option<Files> {
        match &*self.place {
            StoragePlace::Folder(folder) => Some(
                Files::new(folder.root())
                    .index(Vec::<String>::new())
                    .precompressed(false)
                    .source_extensions(Vec::<String>::new())
                    .field(&header::X_CONTENT_TYPE_OPTIONS, &NO_SNIFFING)
                    .field(&header::CONTENT_SECURITY_POLICY, &POLICY),
            ),
            #[cfg(feature = "s3")]
            StoragePlace::S3(_) => None,
        }
    }

    /// Stores an object: text, bytes, the body of a request, or the body of an upload (`upload.into_body()`). An object with
    /// the same key is replaced as a whole. If this fails or is dropped, nothing is stored.
    ///
    /// # Errors
    /// The object is too large, its body broke off, or the place cannot be reached or written.
    pub async fn put(
        &self,
        key: &StorageKey,
        body: impl Into<Body>,
    ) -> Result<ObjectInfo, StorageError> {
        let body = body.into();
        if body.len().is_some_and(|length| length > self.max_bytes) {
            return Err(StorageError::TooLarge {
                max: self.max_bytes,
            });
        }
        let body = BodyPieces::new(body, self.max_bytes);
        match &*self.place {
            StoragePlace::Folder(folder) => folder.put(key, body).await,
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.put(key, body).await,
        }
    }

    /// An object, whose body is read as it is used; `None` if there is none.
    ///
    /// # Errors
    /// The place cannot be reached or read.
    pub async fn get(&self, key: &StorageKey) -> Result<Option<StoredObject>, StorageError> {
        match &*self.place {
            StoragePlace::Folder(folder) => folder.get(key).await,
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.get(key).await,
        }
    }

    /// What is known of an object; `None` if there is none.
    ///
    /// # Errors
    /// The place cannot be reached or read.
    pub async fn info(&self, key: &StorageKey) -> Result<Option<ObjectInfo>, StorageError> {
        match &*self.place {
            StoragePlace::Folder(folder) => folder.info(key).await,
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.info(key).await,
        }
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// The place cannot be reached or written.
    pub async fn delete(&self, key: &StorageKey) -> Result<(), StorageError> {
        match &*self.place {
            StoragePlace::Folder(folder) => folder.delete(key).await,
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.delete(key).await,
        }
    }

    /// The objects whose keys begin with a prefix, in the order of their keys, at most 1000; with `after`, those after that
    /// key.
    ///
    /// # Errors
    /// The place cannot be reached or read.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&StorageKey>,
    ) -> Result<Vec<ObjectInfo>, StorageError> {
        let after = after.map_or("", StorageKey::as_str);
        match &*self.place {
            StoragePlace::Folder(folder) => folder.list(prefix, after, MAX_LISTED).await,
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.list(prefix, after, MAX_LISTED).await,
        }
    }

    /// A URL at which everyone who has it can read an object for this time: a path for a folder, and a URL of the object
    /// store for others, where it can be a week at most.
    ///
    /// # Errors
    /// The folder is not [served](Self::served_at), or the time is longer than an object store allows.
    pub fn signed_url(&self, key: &StorageKey, lifetime: Duration) -> Result<String, StorageError> {
        match &*self.place {
            StoragePlace::Folder(_) => {
                let (path, urls) = self.urls.as_deref().ok_or(StorageError::NoUrl)?;
                let key = apus_http::path::encode(key.as_str().as_bytes());
                Ok(urls.sign_for(&format!("{path}/{key}"), lifetime))
            }
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => bucket.signed_url(key, lifetime),
        }
    }

    /// Checks that the place can be reached, for a check of the readiness.
    ///
    /// # Errors
    /// It cannot.
    pub async fn ping(&self) -> Result<(), StorageError> {
        match &*self.place {
            StoragePlace::Folder(folder) => folder.ping().await,
            #[cfg(feature = "s3")]
            // A list that is mostly empty: the bucket may be large.
            StoragePlace::S3(bucket) => bucket.list("readiness/", "", 1).await.map(|_| ()),
        }
    }
}

/// The most objects of a list, as of an object store.
const MAX_LISTED: usize = 1000;

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.place {
            StoragePlace::Folder(folder) => f.debug_tuple("Storage").field(&folder.root()).finish(),
            #[cfg(feature = "s3")]
            StoragePlace::S3(bucket) => f.debug_tuple("Storage").field(bucket).finish(),
        }
    }
}
