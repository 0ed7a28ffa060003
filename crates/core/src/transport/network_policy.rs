//! The network policy: which addresses may be connected to. Pure.
//!
//! The database server may reach networks that an application must not reach through it, and a DNS answer may contain
//! any address. So every address that is not public is denied, unless the superuser has listed its network.
//!
//! Without TLS, a listed network is read by those who operate it. That is for the superuser to accept, except for
//! credentials, which outlive a mail: they stay on this machine. What leaves for public networks always has TLS.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::invalid::Invalid;
use super::resolver::literal;

/// Networks that may be connected to although they are not public.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedNetworks(Vec<(IpAddr, u8)>);

impl AllowedNetworks {
    /// Parses a list such as `127.0.0.0/8, ::1`.
    ///
    /// # Errors
    /// The element that is not a network.
    pub fn parse(list: &str) -> Result<Self, String> {
        list.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| parse_network(part).ok_or_else(|| part.to_owned()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The networks of both lists.
    fn join(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether the address is in one of the networks.
    fn contain(&self, address: IpAddr) -> bool {
        self.0
            .iter()
            .any(|&(network, length)| is_within(address, network, length))
    }

    /// Checks whether an address may be connected to, by a connection that exposes this.
    ///
    /// # Errors
    /// Why it may not.
    pub fn judge(&self, address: IpAddr, exposed: Exposed) -> Result<(), Denial> {
        match exposed {
            Exposed::Mail if !is_private(address) => return Err(Denial::MailInClear(address)),
            Exposed::Credentials if !unwrap_mapped(address).is_loopback() => {
                return Err(Denial::CredentialsInClear(address));
            }
            _ => {}
        }
        let real = unwrap_nat64(unwrap_mapped(address));
        if self.contain(real) || is_public(real) {
            Ok(())
        } else {
            Err(Denial::NotPublic(address))
        }
    }

    /// Checks a host of the transports file that is an address, before it is connected to. That it is not listed shows when
    /// it is connected to.
    ///
    /// # Errors
    /// The key that exposes mail or credentials.
    pub fn judge_setting(
        &self,
        host: &str,
        exposed: Exposed,
        whose: Server,
    ) -> Result<(), Invalid> {
        let Some(address) = literal(host) else {
            return Ok(());
        };
        let denied = self.judge(address, exposed).err();
        denied.map_or(Ok(()), |denial| denial.in_setting(whose))
    }

    /// Those of the addresses of a host that may be connected to. They are what is to be connected to: a second resolution
    /// could return others.
    ///
    /// # Errors
    /// Why the first was denied, if all were.
    pub fn select(&self, addresses: Vec<IpAddr>, exposed: Exposed) -> Result<Permitted, Denial> {
        let mut denied = None;
        let mut permitted = addresses;
        permitted.retain(|address| match self.judge(*address, exposed) {
            Ok(()) => true,
            Err(denial) => {
                denied.get_or_insert((*address, denial));
                false
            }
        });
        match denied {
            Some((_, denial)) if permitted.is_empty() => Err(denial),
            _ => Ok(Permitted {
                addresses: permitted,
                denied: denied.map(|(address, _)| address),
            }),
        }
    }
}

/// What a connection shows to the networks that it crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposed {
    /// Nothing: it has TLS.
    Nothing,
    /// Mail: it has no TLS.
    Mail,
    /// Mail and what the transport authenticates with: it has no TLS.
    Credentials,
}

/// The server of a transport, by which a reason names the keys that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Of SMTP: `host` and `tls`.
    Relay,
    /// Of HTTP: `endpoint`.
    Endpoint,
}

/// The addresses of a host that may be connected to.
#[derive(Debug, PartialEq, Eq)]
pub struct Permitted {
    /// In the order in which they are tried.
    pub addresses: Vec<IpAddr>,
    /// The first address that was denied, if any was.
    pub denied: Option<IpAddr>,
}

/// Why an address must not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is neither public nor listed.
    NotPublic(IpAddr),
    /// It is not private, and the connection has no TLS.
    MailInClear(IpAddr),
    /// It is not loopback, and the connection has no TLS and needs credentials.
    CredentialsInClear(IpAddr),
}

impl Denial {
    /// The reason for people.
    pub fn reason(self, whose: Server) -> String {
        let (server, remedy) = match whose {
            Server::Relay => ("relay", "tls must be \"starttls\" or \"implicit\""),
            Server::Endpoint => ("endpoint", "endpoint must begin with https://"),
        };
        match self {
            Self::NotPublic(address) => {
                format!("address {address} of the {server} is not public; see allowed_networks")
            }
            Self::MailInClear(address) => format!(
                "address {address} of the {server} is not private, so mail is sent to it by TLS only: {remedy}"
            ),
            Self::CredentialsInClear(address) => format!(
                "address {address} of the {server} is not loopback, so credentials are sent to it by TLS only: {remedy}"
            ),
        }
    }

    /// The same as an error in the transports file.
    fn in_setting(self, whose: Server) -> Result<(), Invalid> {
        let why = match self {
            Self::NotPublic(_) => return Ok(()),
            Self::MailInClear(_) => "mail is sent without TLS to private addresses only",
            Self::CredentialsInClear(_) => {
                "credentials are sent without TLS to loopback addresses only"
            }
        };
        Err(match whose {
            Server::Relay => Invalid::new("tls", format!("is \"none\", and {why}")),
            Server::Endpoint => Invalid::new("endpoint", format!("is an http URL, and {why}")),
        })
    }
}

impl FromIterator<Self> for AllowedNetworks {
    fn from_iter<I: IntoIterator<Item = Self>>(all: I) -> Self {
        all.into_iter().fold(Self::default(), Self::join)
    }
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => {
            let digits =
                (1..=3).contains(&length.len()) && length.bytes().all(|b| b.is_ascii_digit());
            (address, Some(length).filter(|_| digits)?.parse().ok()?)
        }
        None => (text, u8::MAX),
    };
    let address: IpAddr = address.parse().ok()?;
    let full = if address.is_ipv4() { 32 } else { 128 };
    let length = if text.contains('/') { length } else { full };
    (length <= full).then_some((address, length))
}

fn is_within(address: IpAddr, network: IpAddr, length: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32 - u32::from(length);
            a.to_bits().checked_shr(shift) == n.to_bits().checked_shr(shift)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let shift = 128 - u32::from(length);
            a.to_bits().checked_shr(shift) == n.to_bits().checked_shr(shift)
        }
        _ => false,
    }
}

/// An IPv6 address that maps an IPv4 address is treated like the IPv4 address.
fn unwrap_mapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// An IPv6 address in the well-known prefix 64:ff9b::/96 is treated like the IPv4 address to which it is translated (NAT64,
/// RFC 6052): on a host without IPv4, DNS64 gives no other address to a name that has IPv4 addresses only.
fn unwrap_nat64(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                let [.., a, b, c, d] = v6.octets();
                Ipv4Addr::new(a, b, c, d).into()
            }
            _ => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// Whether the address stays within networks that have an operator of their own. The class decides, because a list such as
/// `0.0.0.0/0` contains public addresses. An IPv6 address that embeds an IPv4 address leaves for a translator, so it is
/// none.
fn is_private(address: IpAddr) -> bool {
    match unwrap_mapped(address) {
        IpAddr::V4(v4) => !is_public_v4(v4),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Not public by the special-purpose registry of IANA (RFC 6890). The metadata services of clouds are link-local
/// (169.254.169.254), except for those of Alibaba (100.100.100.200, carrier-grade NAT) and Azure (168.63.129.16).
fn is_public_v4(address: Ipv4Addr) -> bool {
    const SPECIAL: [(Ipv4Addr, u8); 15] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(168, 63, 129, 16), 32),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        // Multicast, reserved, and broadcast.
        (Ipv4Addr::new(224, 0, 0, 0), 3),
    ];
    !SPECIAL
        .iter()
        .any(|&(network, length)| is_within(address.into(), network.into(), length))
}

/// Only 2000::/3 is allocated. Within it, addresses that embed an IPv4 address are denied (6to4, Teredo): no mail
/// provider needs them. IPv4-compatible addresses and the prefixes of NAT64 are outside.
fn is_public_v6(address: Ipv6Addr) -> bool {
    const SPECIAL: [(Ipv6Addr, u8); 5] = [
        // Teredo, benchmarking, ORCHID and similar.
        (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
        // 6to4.
        (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
        (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
        // Formerly 6bone, reserved. The metadata service of AWS, fd00:ec2::254, is outside of 2000::/3.
        (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16),
    ];
    const HANDED_OUT: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);
    is_within(address.into(), HANDED_OUT.into(), 3)
        && !SPECIAL
            .iter()
            .any(|&(network, length)| is_within(address.into(), network.into(), length))
}

#[cfg(test)]
mod tests;
