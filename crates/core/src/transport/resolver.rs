//! Resolves host names on the current thread; the system's resolver would start a thread for each name.
//!
//! As with the system's resolver, the hosts file comes first: a name in it has the addresses that it has there and no
//! others. Other names are looked up in DNS as `/etc/resolv.conf` says, at 127.0.0.1 if it names no server. Both files are
//! read again after a failure, because they may have changed.

use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use hickory_resolver::config::{ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};

const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What a file without a name server means.
const DEFAULT_SERVER: &[u8] = b"\nnameserver 127.0.0.1\n";
/// How long the addresses of one family wait for those of the other (RFC 8305, "Resolution Delay"): some networks drop the
/// queries for one of them.
const GRACE: Duration = Duration::from_millis(50);

type BoxError = Box<dyn Error + Send + Sync>;

/// A resolver.
#[derive(Default)]
pub struct Resolver {
    system: Mutex<Option<Arc<System>>>,
}

impl Resolver {
    /// The addresses of a host, those of IPv4 first. The host may be an address itself, an IPv6 address in brackets.
    ///
    /// # Errors
    /// Why there is no address.
    pub async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, BoxError> {
        if let Some(address) = literal(host) {
            return Ok(vec![address]);
        }
        let system = self.system()?;
        system.look_up(host).await.map_err(|error| {
            *self.lock() = None;
            format!("looking up {host}: {error}").into()
        })
    }

    fn system(&self) -> Result<Arc<System>, BoxError> {
        let mut kept = self.lock();
        if let Some(system) = &*kept {
            return Ok(Arc::clone(system));
        }
        let (config, options) = read(std::fs::read(RESOLV_CONF).unwrap_or_default())?;
        let hosts = Hosts::from_system().unwrap_or_default();
        let system = System::new(config, options, hosts)?;
        Ok(Arc::clone(kept.insert(Arc::new(system))))
    }

    /// One that knows the names of this hosts file.
    #[cfg(test)]
    pub(crate) fn of_hosts(file: &str) -> Self {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(file.as_bytes()).unwrap();
        let (config, options) = read(Vec::new()).unwrap();
        let system = System::new(config, options, hosts).unwrap();
        Self {
            system: Mutex::new(Some(Arc::new(system))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<System>>> {
        // The value behind the mutex is consistent even after a panic.
        self.system.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address that a host is, if it is no name. An IPv6 address may be in brackets.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok()
}

/// Reads the content of `/etc/resolv.conf`.
fn read(mut content: Vec<u8>) -> Result<(ResolverConfig, ResolverOpts), NetError> {
    parse_resolv_conf(&content).or_else(|_| {
        content.extend(DEFAULT_SERVER);
        parse_resolv_conf(&content)
    })
}

/// The system's configuration, and the answers of its name servers while they are valid.
struct System {
    hosts: Hosts,
    dns: TokioResolver,
    /// The domains in which incomplete names are looked up.
    search: Vec<Name>,
}

impl System {
    fn new(
        config: ResolverConfig,
        mut options: ResolverOpts,
        hosts: Hosts,
    ) -> Result<Self, NetError> {
        // The domain of this machine's name counts only if the file names none.
        let search = match config.search() {
            [] => config.domain().into_iter().cloned().collect(),
            search => search.to_vec(),
        };
        // The library would ask DNS for the family that a name does not have in the file.
        options.use_hosts_file = ResolveHosts::Never;
        let dns = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let dns = dns.with_options(options).build()?;
        Ok(Self { hosts, dns, search })
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, NetError> {
        // Local names follow other rules than those of domains: services of Compose and machines of Windows have underscores.
        let name = Name::from_str_relaxed(host)?;
        let kinds = [RecordType::A, RecordType::AAAA].into_iter();
        let listed: Vec<IpAddr> = kinds
            .map(|kind| Query::query(name.clone(), kind))
            .filter_map(|query| self.hosts.lookup_static_host(&query))
            .flat_map(|found| addresses(&found))
            .collect();
        if !listed.is_empty() {
            return Ok(listed);
        }
        let mut found = Ok(Vec::new());
        for name in self.names(name) {
            found = self.query(name).await;
            if found.as_ref().is_ok_and(|found| !found.is_empty()) {
                break;
            }
        }
        found
    }

    /// The complete names that this one may stand for, in the order in which they are tried. The library would search the
    /// domains for each family by itself, and might mix the addresses of two hosts.
    fn names(&self, name: Name) -> Vec<Name> {
        let mut complete = name.clone();
        complete.set_fqdn(true);
        if name.is_fqdn() {
            return vec![complete];
        }
        let has_dots = usize::from(name.num_labels()) > self.dns.options().ndots;
        let in_domains = self.search.iter();
        let mut names: Vec<Name> = in_domains
            .filter_map(|domain| name.clone().append_domain(domain).ok())
            .collect();
        let is_first = has_dots || complete.is_localhost();
        names.insert(if is_first { 0 } else { names.len() }, complete);
        names
    }

    /// The addresses of a complete name in DNS.
    async fn query(&self, name: Name) -> Result<Vec<IpAddr>, NetError> {
        let query = |kind| Box::pin(self.dns.lookup(name.clone(), kind));
        let answered = select(query(RecordType::A), query(RecordType::AAAA)).await;
        let (Either::Left((first, other)) | Either::Right((first, other))) = answered;
        let (mut found, error) = match first {
            Ok(first) => (addresses(&first), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        // There is no such name in either family; but some servers say so of the one that it does not have.
        let is_nowhere = error.as_ref().is_some_and(NetError::is_nx_domain);
        if found.is_empty() && !is_nowhere {
            return other.await.map(|found| addresses(&found));
        }
        if let Ok(Ok(second)) = tokio::time::timeout(GRACE, other).await {
            found.extend(addresses(&second));
        }
        if let Some(error) = error.filter(|_| found.is_empty()) {
            return Err(error);
        }
        found.sort_by_key(IpAddr::is_ipv6);
        Ok(found)
    }
}

fn addresses(found: &Lookup) -> Vec<IpAddr> {
    let records = found.answers().iter();
    records.filter_map(|record| record.data.ip_addr()).collect()
}

#[cfg(test)]
mod tests;
