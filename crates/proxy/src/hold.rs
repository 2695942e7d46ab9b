//! A request body that is taken in before it is passed on: into memory up to a size, into a file beyond.

use std::path::PathBuf;

use apus_http::{Body, BodyError, Frame};

use super::frames::Frames;
use super::spool::Spool;

/// How much of a body is taken in, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Bytes in memory; what is more goes into a file.
    pub memory: u64,
    /// Bytes in a file; 0 is none, and then no more is taken in than memory holds.
    pub disk: u64,
    /// The folder of the file.
    pub folder: PathBuf,
}

impl Hold {
    /// Takes in the whole of `body` before it is passed on. A body that is larger than allowed is
    /// passed on as what there is and then what still comes.
    ///
    /// # Errors
    /// The body broke off. A file that cannot be written ends the taking in, and is no error.
    pub(super) async fn take_in(&self, mut body: Body) -> Result<Body, BodyError> {
        if !matches!(body, Body::Stream(_)) {
            return Ok(body);
        }
        let mut frames = Frames::default();
        let mut spool = Spool::of_request(self);
        while let Some(frame) = body.frame().await {
            let bytes = match frame? {
                Frame::Data(bytes) => bytes,
                trailers @ Frame::Trailers(_) => {
                    frames.push(trailers);
                    return Ok(Body::Empty.preceded_by(frames.into_waiting()));
                }
                file @ Frame::File(_) => {
                    frames.push(file);
                    continue;
                }
            };
            let in_memory = (frames.held() as u64).saturating_add(bytes.len() as u64);
            if in_memory <= self.memory && !frames.has_file() {
                frames.push(Frame::Data(bytes));
                continue;
            }
            if spool.room() == 0 {
                frames.push(Frame::Data(bytes));
                return Ok(body.preceded_by(frames.into_waiting()));
            }
            match spool.write(vec![bytes]).await {
                Ok(range) => frames.push(Frame::File(range)),
                Err(pieces) => {
                    let pieces = pieces.into_iter().map(Frame::Data);
                    return Ok(body.preceded_by(frames.into_waiting().into_iter().chain(pieces)));
                }
            }
        }
        Ok(whole(frames))
    }
}

/// The body that these frames are, in the form that is passed on best.
fn whole(frames: Frames) -> Body {
    let mut frames = frames.into_waiting();
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
