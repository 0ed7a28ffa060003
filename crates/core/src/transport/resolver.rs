//! Resolves host names on the current thread; the system's resolver would start a thread for each name.
//!
//! It uses the system's configuration and hosts file, and reads them again after a failure, because they may have
//! changed.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use hickory_resolver::TokioResolver;

/// A resolver.
#[derive(Default)]
pub struct Resolver {
    resolver: Mutex<Option<TokioResolver>>,
}

impl Resolver {
    /// The addresses of a host. The host may be an address itself, an IPv6 address in brackets.
    ///
    /// # Errors
    /// Why there is no address.
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
        // Both A and AAAA are queried, independent of the machine's routes.
        builder.options_mut().ip_strategy = hickory_resolver::config::LookupIpStrategy::Ipv4AndIpv6;
        let resolver = builder.build()?;
        Ok(kept.insert(resolver).clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<TokioResolver>> {
        // The value behind the mutex is consistent even after a panic.
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
