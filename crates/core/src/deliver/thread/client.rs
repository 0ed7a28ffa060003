//! How the requests of a transport are built and sent.

use std::sync::Arc;

use super::http::ProviderClient;
use super::request::{RequestFuture, RequestHandle};
use super::single;
use crate::deliver::mail::Mail;
use crate::transport::config::Method;
use crate::transport::single::Single;

/// The client of one transport.
#[derive(Clone)]
pub(super) enum TransportClient {
    Http(ProviderClient),
    Single(Arc<Single>),
}

impl TransportClient {
    /// Must be called within a tokio runtime.
    pub(super) fn new(method: Method) -> Self {
        match method {
            Method::Http { provider, options } => {
                Self::Http(ProviderClient::new(provider, *options))
            }
            Method::Single(single) => Self::Single(single),
        }
    }

    /// Builds one request with as many of these mails as possible. Returns `None` if none can be sent: its result is sent
    /// already.
    pub(super) fn prepare(
        self,
        handle: RequestHandle,
        mails: &Arc<Vec<Mail>>,
    ) -> Option<RequestFuture> {
        match self {
            Self::Http(http) => http.prepare(handle, mails),
            Self::Single(single) => single::prepare(single, handle, mails),
        }
    }
}
