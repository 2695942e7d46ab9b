//! Buffering of a request body before the request is sent, in memory up to a size and then in a file.

use std::path::PathBuf;

use apus_http::{Body, BodyError, Frame};

use super::frame_queue::FrameQueue;
use super::spool::Spool;

/// How much of a body is buffered, and where. A file has no name, so it is gone when it is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// The most bytes in memory; the rest goes to a file.
    pub memory: u64,
    /// The most bytes in a file; 0: there is no file.
    pub disk: u64,
    /// The directory of the file.
    pub folder: PathBuf,
}

impl HoldSettings {
    /// Buffers the whole body. If it is larger than allowed, the returned body has the buffered part and streams
    /// the rest.
    ///
    /// # Errors
    /// The body broke off. A file that cannot be written ends the buffering and is no error.
    pub(super) async fn buffer(&self, mut body: Body) -> Result<Body, BodyError> {
        if !matches!(body, Body::Stream(_)) {
            return Ok(body);
        }
        let mut frames = FrameQueue::default();
        let mut spool = Spool::of_request(self.folder.clone(), self.disk);
        while let Some(frame) = body.frame().await {
            let bytes = match frame? {
                Frame::Data(bytes) => bytes,
                trailers @ Frame::Trailers(_) => {
                    frames.push(trailers);
                    return Ok(Body::Empty.preceded_by(frames.into_frames()));
                }
                file @ Frame::File(_) => {
                    frames.push(file);
                    continue;
                }
            };
            let in_memory = (frames.in_memory() as u64).saturating_add(bytes.len() as u64);
            if in_memory <= self.memory && !frames.has_file() {
                frames.push(Frame::Data(bytes));
                continue;
            }
            if spool.room() == 0 {
                frames.push(Frame::Data(bytes));
                return Ok(body.preceded_by(frames.into_frames()));
            }
            match spool.write(vec![bytes]).await {
                Ok(range) => frames.push(Frame::File(range)),
                Err(pieces) => {
                    let pieces = pieces.into_iter().map(Frame::Data);
                    return Ok(body.preceded_by(frames.into_frames().into_iter().chain(pieces)));
                }
            }
        }
        Ok(whole_body(frames))
    }
}

/// Returns the body of these frames, in the form that is cheapest to send.
fn whole_body(frames: FrameQueue) -> Body {
    let mut frames = frames.into_frames();
    if frames.len() <= 1 {
        return match frames.pop_front() {
            Some(Frame::Data(bytes)) => bytes.into(),
            Some(Frame::File(range)) => Body::File(range),
            Some(Frame::Trailers(_)) | None => Body::Empty,
        };
    }
    if frames.iter().all(|frame| matches!(frame, Frame::Data(_))) {
        let mut joined = Vec::new();
        for frame in &frames {
            if let Frame::Data(bytes) = frame {
                joined.extend_from_slice(bytes);
            }
        }
        return joined.into();
    }
    Body::Empty.preceded_by(frames)
}
