//! The XML of S3: lists, the identity of an upload, errors.

use std::time::SystemTime;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::StorageError;
use crate::object::ObjectInfo;

/// The response of `ListObjectsV2`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ListBucketResult {
    #[serde(default)]
    contents: Vec<ListedObject>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedObject {
    key: String,
    size: u64,
    last_modified: String,
    #[serde(rename = "ETag", default)]
    tag: String,
}

/// The response of `CreateMultipartUpload`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InitiateMultipartUploadResult {
    pub(crate) upload_id: String,
}

/// An error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct S3Error {
    pub(crate) code: String,
    pub(crate) message: String,
}

impl ListBucketResult {
    /// The objects whose names are keys.
    pub(crate) fn objects(self) -> impl Iterator<Item = ObjectInfo> {
        self.contents.into_iter().filter_map(|object| {
            let modified = OffsetDateTime::parse(&object.last_modified, &Rfc3339);
            Some(ObjectInfo {
                key: object.key.parse().ok()?,
                bytes: object.size,
                modified: modified.map_or(SystemTime::UNIX_EPOCH, SystemTime::from),
                tag: object.tag.trim_matches('"').to_owned(),
            })
        })
    }
}

/// Reads a response.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, StorageError> {
    let text = str::from_utf8(body).map_err(|error| StorageError::Response(error.to_string()))?;
    quick_xml::de::from_str(text).map_err(|error| StorageError::Response(error.to_string()))
}

/// The code and message of an error, if the body is one.
pub(crate) fn error_message(body: &[u8]) -> Option<String> {
    let text = str::from_utf8(body).ok()?;
    if !text.contains("<Error>") {
        return None;
    }
    let error: S3Error = quick_xml::de::from_str(text).ok()?;
    Some(format!("{}: {}", error.code, error.message))
}

/// The body of `CompleteMultipartUpload`, of the tags of the parts.
pub(crate) fn completion(tags: &[String]) -> String {
    let mut text = String::from("<CompleteMultipartUpload>");
    for (index, tag) in tags.iter().enumerate() {
        let number = index.saturating_add(1);
        let tag = quick_xml::escape::escape(tag.as_str());
        text.push_str(&format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
        ));
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_list() {
        let list = br#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
              <Name>bucket</Name><Prefix/><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>
              <IsTruncated>false</IsTruncated>
              <Contents><Key>a &amp; b.txt</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>
                <ETag>&quot;70ee1738&quot;</ETag><Size>11</Size><StorageClass>STANDARD</StorageClass></Contents>
              <Contents><Key>folder/</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>
                <ETag>"1"</ETag><Size>0</Size></Contents>
            </ListBucketResult>"#;
        let list: ListBucketResult = read(list).unwrap();
        let objects: Vec<ObjectInfo> = list.objects().collect();
        assert_eq!(objects.len(), 1, "a folder is no object");
        assert_eq!(objects[0].key.as_str(), "a & b.txt");
        assert_eq!((objects[0].bytes, &*objects[0].tag), (11, "70ee1738"));
        assert!(objects[0].modified > SystemTime::UNIX_EPOCH);
        let empty: ListBucketResult = read(b"<ListBucketResult></ListBucketResult>").unwrap();
        assert_eq!(empty.objects().count(), 0);
        assert!(read::<ListBucketResult>(b"<html>").is_err());
    }

    #[test]
    fn reads_an_error() {
        let error = b"<Error><Code>NoSuchKey</Code><Message>None.</Message><Key>a</Key></Error>";
        assert_eq!(error_message(error).unwrap(), "NoSuchKey: None.");
        assert_eq!(error_message(b"<html>"), None);
    }

    #[test]
    fn numbers_parts_from_one() {
        let tags = ["\"a\"".to_owned(), "b".to_owned()];
        assert_eq!(
            completion(&tags),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>"
        );
    }
}
