//! Responses, and changes of fields, of sites, locations and rules.

use crate::keys::keys;
use crate::string_type::{self, FieldName, FieldValue, MediaType, StatusNumber, UriTemplate};
use crate::value::{Map, OneOrMore};

keys! {
    /// Changes of fields. Values may hold variables as `$host`.
    pub(crate) struct FieldChanges {
        /// Fields to set; existing lines of the name are replaced.
        set: Map<FieldName, FieldValue> = Map::default(),
        /// Fields to add; existing lines of the name stay.
        add: Map<FieldName, FieldValue> = Map::default(),
        /// Names of fields to remove.
        remove: OneOrMore<FieldName> = OneOrMore::default(),
    }
}

keys! {
    /// A status, a redirect or a text as the response.
    pub(crate) struct Return {
        /// The status.
        status [required]: StatusNumber,
        /// The target of a redirect (301, 302, 303, 307, 308); may hold variables as
        /// `$request_uri`.
        location: UriTemplate,
        /// The body; may hold variables.
        text: string_type::BodyText,
        /// The media type of `text`.
        content_type: MediaType = MediaType("text/plain; charset=utf-8".to_owned()),
    }
}
