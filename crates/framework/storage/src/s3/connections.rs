//! The connections of a worker to an object store.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientResponse, ConnectionReturn, Http1Client, Origin,
    OriginConnection, Protocol, ProxyHead, RequestFailure, ResponseRules, Timeouts, Tls, connect,
};
use apus_transport::coarse_now;

use crate::error::StorageError;

/// The most idle connections of a worker.
const MAX_IDLE: usize = 8;

/// How long a connection may be idle, if the store does not say.
const LONGEST_IDLE: Duration = Duration::from_secs(15);

/// Where an object store is.
pub(crate) struct StoreEndpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Tls>,
}

/// The idle connections of a worker.
#[derive(Default)]
pub(crate) struct IdleConnections(RefCell<Vec<Http1Client>>);

impl ConnectionReturn<Http1Client> for IdleConnections {
    fn return_connection(&self, connection: Http1Client) {
        let mut idle = self.0.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }
}

/// A request that got no response.
pub(crate) enum StoreSendError {
    /// The connection was used before, and the store had closed it: another one may do.
    IdleClosed,
    Failed(StorageError),
}

impl IdleConnections {
    /// Sends a request, over an idle connection if there is one.
    pub(crate) async fn send(
        self: &Rc<Self>,
        endpoint: &StoreEndpoint,
        request: ClientRequest,
    ) -> Result<ClientResponse, StoreSendError> {
        if let Some(mut connection) = self.idle() {
            connection.set_connection_return(self.clone());
            return match connection.send(request).await {
                Ok(response) => Ok(response),
                Err(_) => Err(StoreSendError::IdleClosed),
            };
        }
        let failed = |failure| StoreSendError::Failed(unreachable(&failure));
        let connection = open(endpoint, &request.template.timeouts).await;
        match connection.map_err(StoreSendError::Failed)? {
            OriginConnection::Http1(mut connection) => {
                connection.set_connection_return(self.clone());
                connection.send(request).await.map_err(failed)
            }
            other => other.send(request).await.map_err(failed),
        }
    }

    fn idle(&self) -> Option<Http1Client> {
        loop {
            let mut connection = self.0.borrow_mut().pop()?;
            let idle = coarse_now().saturating_duration_since(connection.idle_since());
            let limit = connection.idle_limit().unwrap_or(LONGEST_IDLE);
            if idle < limit.min(LONGEST_IDLE) && connection.is_usable() {
                return Some(connection);
            }
        }
    }
}

/// Connects to the first address of the store that works.
async fn open(
    endpoint: &StoreEndpoint,
    timeouts: &Timeouts,
) -> Result<OriginConnection, StorageError> {
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    let addresses = tokio::net::lookup_host((host, endpoint.port)).await;
    let addresses = addresses.map_err(|error| StorageError::Unreachable(error.into()))?;
    let mut last = StorageError::Unreachable(format!("`{host}` has no address").into());
    for address in addresses {
        let origin = Origin {
            address: Address::Ip(address),
            tls: endpoint.tls.clone(),
            protocol: Protocol::Http1,
            proxy_head: ProxyHead::None,
            responses: ResponseRules::default(),
        };
        match connect(&origin, None, timeouts).await {
            Ok(connection) => return Ok(connection),
            Err(failure) => last = unreachable(&failure),
        }
    }
    Err(last)
}

/// The failure as text: it can have a body, which stays on its thread.
fn unreachable(failure: &RequestFailure) -> StorageError {
    StorageError::Unreachable(failure.to_string().into())
}
