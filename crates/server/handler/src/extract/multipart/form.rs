//! `MultipartForm`: a form with files that is read before the handler runs.

use apus_http::{Request, StatusCode};
use serde::de::DeserializeOwned;

use super::super::values::FormFields;
use super::super::{FromRequest, Rejection};
use super::{Multipart, Upload};

/// A form with files: its fields as a struct or a map, like [`crate::Form`], and its files.
///
/// ```
/// # use apus_handler::Result;
/// # use apus_handler::extract::MultipartForm;
/// #[derive(serde::Deserialize)]
/// struct Picture {
///     title: String,
/// }
///
/// async fn add(form: MultipartForm<Picture>) -> Result<String> {
///     let Some(file) = form.files.get("picture") else {
///         return Ok("no picture".into());
///     };
///     Ok(format!("{}: {} bytes", form.fields.title, file.len()))
/// }
/// ```
///
/// [`super::UploadLimits`] limit the form, and the body limit of the application limits its fields together.
#[derive(Debug)]
pub struct MultipartForm<T> {
    /// The parts without a file name.
    pub fields: T,
    /// The files, without the empty ones that browsers send for inputs without a file.
    pub files: Uploads,
}

impl<T: DeserializeOwned + 'static> FromRequest for MultipartForm<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, Rejection> {
        let mut form = Multipart::from_request(request, body_limit).await?;
        let mut texts = Vec::new();
        let mut files = Vec::new();
        while let Some(part) = form.next().await? {
            match part.file_name() {
                Some(_) => files.push(part.store().await?),
                None => texts.push((part.name().to_owned().into(), part.text().await?.into())),
            }
        }
        files.retain(|file| !(file.file_name().is_empty() && file.is_empty()));
        let fields = T::deserialize(FormFields::from_texts(texts));
        let misfit = |error| Rejection::misfit(StatusCode::UNPROCESSABLE_ENTITY, "form", error);
        Ok(Self {
            fields: fields.map_err(misfit)?,
            files: Uploads(files),
        })
    }
}

/// The files of a form, in order.
#[derive(Debug, Default)]
pub struct Uploads(Vec<Upload>);

impl Uploads {
    /// The first file of a field.
    pub fn get(&self, name: &str) -> Option<&Upload> {
        self.iter().find(|file| file.name() == name)
    }

    /// All files of a field.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Upload> {
        self.iter().filter(move |file| file.name() == name)
    }

    /// Removes and returns the first file of a field.
    pub fn take(&mut self, name: &str) -> Option<Upload> {
        let index = self.iter().position(|file| file.name() == name)?;
        Some(self.0.remove(index))
    }

    /// All files.
    pub fn iter(&self) -> std::slice::Iter<'_, Upload> {
        self.0.iter()
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Uploads {
    type Item = Upload;
    type IntoIter = std::vec::IntoIter<Upload>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Uploads {
    type Item = &'a Upload;
    type IntoIter = std::slice::Iter<'a, Upload>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
