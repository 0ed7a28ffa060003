//! The network policy: which addresses may be connected to. Pure.
//!
//! The database server may reach networks that an application must not reach through it, and a DNS answer may contain
//! any address. So every address that is not public is denied, unless the superuser has listed its network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

    /// Whether the address may be connected to.
    pub fn permit(&self, address: IpAddr) -> bool {
        let address = unwrap_nat64(unwrap_mapped(address));
        self.contain(address) || is_public(address)
    }

    /// Whether the address may be connected to without TLS: it is a listed loopback address.
    pub fn permit_in_clear(&self, address: IpAddr) -> bool {
        let address = unwrap_mapped(address);
        address.is_loopback() && self.contain(address)
    }

    /// Those of the addresses of a host that may be connected to, with TLS or in clear. They are what is to be connected
    /// to: a second resolution could return others.
    ///
    /// # Errors
    /// Why the first was denied, if all were.
    pub fn select(&self, addresses: Vec<IpAddr>, in_clear: bool) -> Result<Permitted, Denial> {
        let mut denied = None;
        let mut permitted = addresses;
        permitted.retain(|address| {
            let denial = if !self.permit(*address) {
                Denial::NotPublic(*address)
            } else if in_clear && !self.permit_in_clear(*address) {
                Denial::InClear
            } else {
                return true;
            };
            denied.get_or_insert((*address, denial));
            false
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
    /// It is not a listed loopback address, and the connection has no TLS.
    InClear,
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn permit(networks: &str, address: &str) -> bool {
        AllowedNetworks::parse(networks)
            .unwrap()
            .permit(address.parse().unwrap())
    }

    #[test]
    fn what_is_not_public_is_refused() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::1:8.8.8.8",
            "64:ff9b:1::1",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!permit("", address), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "193.0.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2606:4700:4700::1111",
            "2a00:1450:4001:80e::200e",
        ] {
            assert!(permit("", address), "{address}");
        }
    }

    #[test]
    fn a_listed_network_is_permitted_and_nothing_beside_it() {
        assert!(permit("127.0.0.1", "127.0.0.1"));
        assert!(!permit("127.0.0.1", "127.0.0.2"));
        assert!(permit("10.1.0.0/16, ::1", "10.1.255.255"));
        assert!(permit("10.1.0.0/16, ::1", "::1"));
        assert!(permit("10.1.0.0/16, ::1", "::ffff:10.1.2.3"));
        assert!(!permit("10.1.0.0/16, ::1", "10.2.0.1"));
        assert!(permit("0.0.0.0/0", "127.0.0.1"));
        assert!(!permit("0.0.0.0/0", "::1"));
        assert!(permit("::/0", "fe80::1"));
    }

    #[test]
    fn only_listed_loopback_may_be_spoken_to_in_clear() {
        let permit = |networks, address: &str| {
            AllowedNetworks::parse(networks)
                .unwrap()
                .permit_in_clear(address.parse().unwrap())
        };
        assert!(permit("127.0.0.0/8", "127.0.0.1"));
        assert!(permit("127.0.0.0/8", "::ffff:127.0.0.1"));
        // It leaves this machine for its translator.
        assert!(!permit("127.0.0.0/8", "64:ff9b::127.0.0.1"));
        assert!(!permit("", "127.0.0.1"));
        assert!(!permit("0.0.0.0/0", "10.0.0.1"));
        assert!(!permit("0.0.0.0/0", "8.8.8.8"));
    }

    #[test]
    fn an_address_that_was_denied_is_remembered() {
        let networks = AllowedNetworks::parse("127.0.0.1").unwrap();
        let select = |addresses: &[&str], in_clear| {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            networks.select(addresses.collect(), in_clear)
        };
        let (public, private, loopback) = ("8.8.8.8", "64:ff9b::10.0.0.1", "127.0.0.1");
        let permitted = |address: &str, denied: Option<&str>| {
            Ok(Permitted {
                addresses: vec![address.parse().unwrap()],
                denied: denied.map(|address| address.parse().unwrap()),
            })
        };
        assert_eq!(select(&[public], false), permitted(public, None));
        assert_eq!(
            select(&[private, public], false),
            permitted(public, Some(private))
        );
        assert_eq!(
            select(&[public, loopback], true),
            permitted(loopback, Some(public))
        );
        let private = Denial::NotPublic(private.parse().unwrap());
        assert_eq!(select(&["64:ff9b::10.0.0.1"], false), Err(private));
        assert_eq!(select(&[public], true), Err(Denial::InClear));
    }

    #[test]
    fn what_is_no_network_is_named() {
        for (list, part) in [
            ("127.0.0.1/33", "127.0.0.1/33"),
            ("::1/129", "::1/129"),
            ("127.0.0.0/8, localhost", "localhost"),
            ("10.0.0.0/", "10.0.0.0/"),
            ("10.0.0.0/+8", "10.0.0.0/+8"),
            ("10.0.0.0/0008", "10.0.0.0/0008"),
        ] {
            assert_eq!(AllowedNetworks::parse(list), Err(part.to_owned()));
        }
        assert_eq!(
            AllowedNetworks::parse(" , "),
            Ok(AllowedNetworks::default())
        );
    }

    proptest! {
        #[test]
        fn mapped_addresses_are_what_they_stand_for(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let networks = AllowedNetworks::default();
            let [.., high, low] = v4.to_ipv6_mapped().segments();
            let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            prop_assert_eq!(networks.permit(v4.into()), networks.permit(v4.to_ipv6_mapped().into()));
            prop_assert_eq!(networks.permit(v4.into()), networks.permit(translated.into()));
        }

        #[test]
        fn no_private_v4_slips_through(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_unspecified() || v4.is_broadcast() || v4.is_documentation();
            prop_assert!(!(special && AllowedNetworks::default().permit(v4.into())));
        }
    }
}
