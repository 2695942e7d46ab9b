//! Copying the body of a response into the object in which it is stored.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::store::ObjectFiller;
use apus_http::{Body, FileRange, Frame};
use bytes::Bytes;

/// The number of bytes of a file that are read at once.
const PIECE_BYTES: u64 = 64 * 1024;

/// Fills an object: immediately if the whole body is in memory, else in a task.
pub(super) async fn fill(mut filler: ObjectFiller, body: Body, max_size: u64) {
    match body {
        Body::Empty => {
            filler.finish();
        }
        Body::Sealed(sealed) => {
            let _ = filler.append(sealed.into_bytes()).await;
            filler.finish();
        }
        Body::Bytes(bytes) => {
            // The result of `finish` is what counts.
            let _ = filler.append(bytes).await;
            filler.finish();
        }
        body => {
            tokio::task::spawn_local(pump(filler, body, max_size));
        }
    }
}

/// Copies a body into the object, until it ends or nobody wants it.
async fn pump(mut filler: ObjectFiller, mut body: Body, max_size: u64) {
    loop {
        // The end of a body needs no room.
        if body.len() != Some(0) && filler.room().await.is_err() {
            return;
        }
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = filler.unwanted() => return,
        };
        let pumped = match frame {
            None => break,
            // Trailers are not stored.
            Some(Ok(Frame::Trailers(_))) => continue,
            Some(Ok(Frame::Data(bytes))) => append(&mut filler, bytes, max_size).await,
            Some(Ok(Frame::File(range))) => pump_file(&mut filler, range, max_size).await,
            Some(Err(error)) => Err(error.into()),
        };
        if let Err(error) = pumped {
            tracing::debug!(%error, "the response was not stored completely");
            return;
        }
    }
    filler.finish();
}

async fn append(filler: &mut ObjectFiller, bytes: Bytes, max_size: u64) -> Result<(), PumpError> {
    let filled = filler.range().start.saturating_add(bytes.len() as u64);
    if filled > max_size {
        // The length was not declared, so that the limit shows only now. Current readers still
        // get the whole body.
        filler.do_not_store();
    }
    Ok(filler.append(bytes).await?)
}

async fn pump_file(
    filler: &mut ObjectFiller,
    range: FileRange,
    max_size: u64,
) -> Result<(), PumpError> {
    let mut done = 0;
    while done < range.len {
        let len = (range.len - done).min(PIECE_BYTES);
        let (file, at) = (Arc::clone(&range.file), range.offset.saturating_add(done));
        let reading = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(len).unwrap_or_default()];
            file.read_exact_at(&mut piece, at).map(|()| piece)
        });
        append(filler, reading.await??.into(), max_size).await?;
        done += len;
    }
    Ok(())
}

/// Why a body was not copied to its end.
type PumpError = Box<dyn std::error::Error>;
