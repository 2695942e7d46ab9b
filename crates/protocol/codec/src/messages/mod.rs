//! Messages as field sections, which HTTP/2 (RFC 9113 section 8) and HTTP/3 (RFC 9114 section 4) translate by the
//! same rules.

mod fault;
mod request;
mod response;
mod section;

pub use self::fault::{HeadRefusal, MessageFault, SectionError};
pub use self::request::OutgoingRequest;
pub use self::response::{ExpectedBody, ResponsePlan};
pub use self::section::{
    FieldReader, IncomingRequest, RequestSection, ResponseSection, SectionBuffers, SectionKind,
    SectionLimits,
};
pub use crate::request_kind::RequestKind;
