//! Limits for attempts to log in. Pure.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::log::Throttle;

/// Maximum number of attempts of an address in a minute.
const IN_A_MINUTE: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of addresses that are remembered.
const ADDRESSES: usize = 10_000;

/// The attempts of all addresses.
#[derive(Default)]
pub struct Attempts(RefCell<HashMap<IpAddr, OfAddress>>);

struct OfAddress {
    since: Instant,
    number: u32,
    lines: Throttle,
}

impl Attempts {
    /// Counts an attempt; returns after what time the next one is allowed, if this one is not.
    pub fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut all = self.0.borrow_mut();
        if all.len() >= ADDRESSES {
            all.retain(|_, one| now.saturating_duration_since(one.since) < MINUTE);
        }
        if all.len() >= ADDRESSES {
            all.clear();
        }
        let one = all.entry(network(address)).or_insert_with(|| OfAddress {
            since: now,
            number: 0,
            lines: Throttle::default(),
        });
        let age = now.saturating_duration_since(one.since);
        if age >= MINUTE {
            (one.since, one.number) = (now, 0);
        }
        one.number = one.number.saturating_add(1);
        (one.number > IN_A_MINUTE).then(|| MINUTE.saturating_sub(age))
    }

    /// Whether to write a line about a failed attempt: `None`, or the number of those that were left out before it.
    pub fn tell(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut all = self.0.borrow_mut();
        all.get_mut(&network(address))?.lines.pass(now)
    }
}

/// An address of IPv4, or the network that a site has in IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn ten_attempts_of_an_address_are_allowed_in_a_minute() {
        let attempts = Attempts::default();
        let start = Instant::now();
        let (first, other) = (address("2001:db8::1"), address("2001:db8:0:1::1"));
        for _ in 0..10 {
            assert_eq!(attempts.count(first, start), None);
        }
        let later = start + Duration::from_secs(20);
        let wait = Some(Duration::from_secs(40));
        assert_eq!(attempts.count(address("2001:db8::2"), later), wait);
        assert_eq!(attempts.count(other, later), None);
        assert_eq!(attempts.count(first, start + MINUTE), None);
    }

    #[test]
    fn one_line_a_minute_tells_of_an_address() {
        let attempts = Attempts::default();
        let (start, first) = (Instant::now(), address("192.0.2.1"));
        attempts.count(first, start);
        assert_eq!(attempts.tell(first, start), Some(0));
        assert_eq!(attempts.tell(first, start), None);
        assert_eq!(attempts.tell(first, start + MINUTE), Some(1));
    }
}
