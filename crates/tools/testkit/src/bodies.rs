//! Bodies that tests make and read.

use std::task::{Context, Poll};

use apus_http::{Body, BodyError, BodyStream, Frame};

/// A body of the frames that a function returns.
pub fn frames<F>(length: Option<u64>, next: F) -> Body
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> + 'static,
{
    Body::stream(Frames { next, length })
}

/// A body of these frames, which are all ready.
pub fn ready_frames(length: Option<u64>, all: Vec<Result<Frame, BodyError>>) -> Body {
    let mut all = all.into_iter();
    frames(length, move |_| Poll::Ready(all.next()))
}

struct Frames<F> {
    next: F,
    length: Option<u64>,
}

impl<F> BodyStream for Frames<F>
where
    F: FnMut(&mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = (self.next)(cx);
        if let (Some(left), Poll::Ready(Some(Ok(Frame::Data(bytes))))) = (&mut self.length, &polled)
        {
            *left = left.saturating_sub(bytes.len() as u64);
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.length
    }
}

/// A body in which every part differs from every other.
pub fn body_bytes(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut number: u64 = 0;
    while bytes.len() < len {
        number += 1;
        bytes.extend(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// All data of a body, with the fields of its trailer section in brackets.
///
/// # Errors
/// The body broke off.
pub async fn collect(body: &mut Body) -> Result<Vec<u8>, BodyError> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame? {
            Frame::Data(bytes) => collected.extend_from_slice(&bytes),
            Frame::File(_) => panic!("a file came out of a connection"),
            Frame::Trailers(trailers) => {
                for (name, value) in trailers.iter() {
                    collected.extend_from_slice(
                        format!("[{name}={}]", String::from_utf8_lossy(value)).as_bytes(),
                    );
                }
            }
        }
    }
    Ok(collected)
}
