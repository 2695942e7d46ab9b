//! `TlsStream` without the feature `tls`: there is no value of it.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use crate::socket::StreamSocket;

/// The stream of a connection under TLS.
pub struct TlsStream(Infallible);

impl TlsStream {
    pub(crate) fn is_http2(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub(crate) fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0 {}
    }

    pub(crate) fn has_unsent_records(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn close_notify(&mut self) {
        match self.0 {}
    }

    pub(crate) fn socket(&self) -> &StreamSocket {
        match self.0 {}
    }

    pub(crate) fn socket_mut(&mut self) -> &mut StreamSocket {
        match self.0 {}
    }
}
