//! Turns field sections into events (RFC 9114 sections 4.1 to 4.4).

use apus_codec::flood::Flood;
use apus_codec::messages::{
    FieldReader, MessageFault, RequestKind, RequestSection, ResponseSection, SectionError,
    SectionKind,
};
use apus_http::{Headers, Version};
use http::StatusCode;

use super::stream::{FrameProgress, Incoming};
use super::{H3Connection, H3Event, H3Role, StreamKey};
use crate::error::{H3Error, H3Fault};
use crate::qpack::SectionProgress;

/// How many inserts of QPACK a message pays for.
const INSERTS_PER_MESSAGE: u32 = 16;

impl H3Connection {
    /// Handles a complete field section, which is the last of its stream if `end`.
    pub(super) fn read_section(
        &mut self,
        key: StreamKey,
        section: &[u8],
        end: bool,
    ) -> Result<H3Event, H3Error> {
        let Some(stream) = self.streams.get(key) else {
            return Ok(H3Event::Incomplete);
        };
        let kind = match (stream.incoming, self.role) {
            (Incoming::Head, H3Role::Server) => SectionKind::Request,
            (Incoming::Head, H3Role::Client) => SectionKind::Response,
            _ => SectionKind::Trailers,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let limits = self.config.section_limits();
        let mut reader = FieldReader::new(kind, limits, &mut scratch, section.len());
        let progress = self
            .decoder
            .decode(key.id(), section, |field| reader.add(field))
            .map_err(|_| H3Fault::Decompression)?;
        if let SectionProgress::Blocked(inserts) = progress {
            self.scratch = scratch;
            return self.block(key, section, inserts);
        }
        if reader.is_bomb() {
            return Err(Flood::FieldBlock.into());
        }
        let event = match kind {
            SectionKind::Request => {
                let request = reader.into_request(Version::HTTP_3);
                self.handle_request(key, request, end)
            }
            SectionKind::Response => {
                let response = reader.into_response();
                self.handle_response(key, response, end)
            }
            SectionKind::Trailers => {
                let trailers = reader.into_trailers();
                self.handle_trailers(key, trailers, end)
            }
        };
        self.scratch = scratch;
        event
    }

    /// Keeps a field section until its inserts were received.
    fn block(&mut self, key: StreamKey, section: &[u8], inserts: u64) -> Result<H3Event, H3Error> {
        if self.blocked.len() >= self.config.blocked_streams {
            // The settings say how many there may be (RFC 9204 section 2.1.2).
            return Err(H3Fault::BlockedStreams.into());
        }
        self.reserve_section(section.len())?;
        self.blocked.push((key.id(), inserts));
        if let Some(stream) = self.streams.get_mut(key) {
            stream.buffer = section.to_vec();
            stream.frame = FrameProgress::Blocked(inserts);
        }
        Ok(H3Event::Blocked)
    }

    fn handle_request(
        &mut self,
        key: StreamKey,
        request: Result<RequestSection, SectionError>,
        end: bool,
    ) -> Result<H3Event, H3Error> {
        self.budgets.overhead.earn(4);
        self.budgets.acks.earn(INSERTS_PER_MESSAGE);
        // Taken also for a request that is refused below, so that none stays for a stream that is gone.
        let early_priority = self.take_early_priority(key.id());
        let request = match request {
            Ok(request) => request,
            Err(SectionError::Malformed(fault)) => return self.fail_stream(key, fault.into()),
            Err(SectionError::Refused(why)) => {
                if end {
                    self.end_receiving(key)
                } else {
                    self.abandon(key)
                }
                return Ok(H3Event::Refused { stream: key, why });
            }
        };
        // Section 4.1.2: a body of another length makes the message malformed.
        if end && request.content_length.is_some_and(|length| length > 0) {
            return self.fail_stream(key, MessageFault::ContentLength.into());
        }
        if let Some(stream) = self.streams.get_mut(key) {
            stream.incoming = Incoming::Body;
            stream.body_left = request.content_length;
            // PRIORITY_UPDATE takes precedence over the field (RFC 9218 section 7).
            stream.priority = early_priority.unwrap_or(request.priority);
            stream.request = request.kind;
            stream.is_tunnel = request.kind.is_connect();
        }
        if end {
            self.end_receiving(key);
        }
        Ok(H3Event::Request(request.into_request(key, end)))
    }

    fn handle_response(
        &mut self,
        key: StreamKey,
        response: Result<ResponseSection, SectionError>,
        end: bool,
    ) -> Result<H3Event, H3Error> {
        let response = match response {
            Ok(response) => response,
            Err(SectionError::Malformed(fault)) => return self.fail_stream(key, fault.into()),
            // The head of the response exceeds a limit.
            Err(SectionError::Refused(_)) => return self.fail_stream(key, H3Fault::HeadTooLarge),
        };
        let headers = Box::new(response.headers);
        let status = response.status;
        if status.is_informational() {
            if end {
                return self.fail_stream(key, H3Fault::ResponseIncomplete);
            }
            // Any number of interim responses may come before the final one (RFC 9110 section 15.2).
            self.budgets.overhead.spend()?;
            return Ok(H3Event::Informational {
                stream: key,
                status,
                headers,
            });
        }
        // A response earns a client as much as a request earns a server.
        self.budgets.overhead.earn(4);
        self.budgets.acks.earn(INSERTS_PER_MESSAGE);
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(H3Event::Incomplete);
        };
        stream.incoming = Incoming::Body;
        stream.is_tunnel = stream.request.begins_tunnel_over_stream(status);
        // `Content-Length` says here what another response would have (RFC 9110 section 8.6).
        let has_no_content = stream.request == RequestKind::Head
            || status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED;
        stream.body_left = if has_no_content {
            Some(0)
        } else {
            // Content-Length has no meaning for a tunnel (RFC 9110 section 9.3.6).
            response.content_length.filter(|_| !stream.is_tunnel)
        };
        if end {
            if stream.body_left.is_some_and(|left| left > 0) {
                return self.fail_stream(key, MessageFault::ContentLength.into());
            }
            self.end_receiving(key);
        }
        Ok(H3Event::Response {
            stream: key,
            status,
            headers,
            end,
        })
    }

    fn handle_trailers(
        &mut self,
        key: StreamKey,
        trailers: Result<Headers, SectionError>,
        end: bool,
    ) -> Result<H3Event, H3Error> {
        let Some(stream) = self.streams.get_mut(key) else {
            return Ok(H3Event::Incomplete);
        };
        if stream.body_left.is_some_and(|left| left > 0) {
            return self.fail_stream(key, MessageFault::ContentLength.into());
        }
        let trailers = match trailers {
            Ok(trailers) => Box::new(trailers),
            Err(SectionError::Malformed(fault)) => return self.fail_stream(key, fault.into()),
            Err(SectionError::Refused(_)) => return self.fail_stream(key, H3Fault::HeadTooLarge),
        };
        stream.incoming = Incoming::Complete;
        if end {
            self.end_receiving(key);
        }
        Ok(H3Event::Trailers {
            stream: key,
            trailers,
        })
    }
}
