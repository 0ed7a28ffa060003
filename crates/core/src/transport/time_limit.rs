//! How long a request may take. Pure.

use std::time::Duration;

/// For so many bytes a request has another second: large ones must get through a slow line, too.
const BYTES_A_SECOND: usize = 256 << 10;

/// The time limits of the requests of a transport.
pub(super) struct TimeLimit {
    timeout: Duration,
    pub(super) bytes_a_second: usize,
}

impl TimeLimit {
    /// `timeout`: that of the transports file.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            bytes_a_second: BYTES_A_SECOND,
        }
    }

    /// The time limit of a request with so many bytes.
    pub(super) fn of(&self, bytes: usize) -> Duration {
        let seconds = u64::try_from(bytes / self.bytes_a_second).unwrap_or(u64::MAX);
        self.timeout.saturating_add(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_request_has_more_time() {
        let limit = TimeLimit::new(Duration::from_millis(1_500));
        for (bytes, milliseconds) in [
            (0, 1_500),
            (256 << 10, 2_500),
            ((512 << 10) - 1, 2_500),
            (10 << 20, 41_500),
        ] {
            assert_eq!(limit.of(bytes).as_millis(), milliseconds, "{bytes}");
        }
    }
}
