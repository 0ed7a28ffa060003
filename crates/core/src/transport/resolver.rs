//! Looking names up without a thread: the system's resolver would start one for each look-up.
//!
//! Reads the system's own configuration and hosts file, and reads them again when a look-up failed, for they may
//! have changed since.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use hickory_resolver::TokioResolver;

/// Names and what is known about them.
#[derive(Default)]
pub struct Resolver {
    resolver: Mutex<Option<TokioResolver>>,
}

impl Resolver {
    /// The addresses of a host, which may be an address itself, in brackets if it is one of IPv6.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, Box<dyn Error + Send + Sync>> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse() {
            return Ok(vec![address]);
        }
        let resolver = self.resolver()?;
        match resolver.lookup_ip(host).await {
            Ok(found) => Ok(found.iter().collect()),
            Err(error) => {
                *self.lock() = None;
                Err(format!("looking up {host}: {error}").into())
            }
        }
    }

    fn resolver(&self) -> Result<TokioResolver, Box<dyn Error + Send + Sync>> {
        let mut kept = self.lock();
        if let Some(resolver) = &*kept {
            return Ok(resolver.clone());
        }
        let mut builder = TokioResolver::builder_tokio()?;
        // Both kinds are asked for, whichever the machine has a route for.
        builder.options_mut().ip_strategy = hickory_resolver::config::LookupIpStrategy::Ipv4AndIpv6;
        let resolver = builder.build()?;
        Ok(kept.insert(resolver).clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<TokioResolver>> {
        // What it guards is whole at any time.
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
