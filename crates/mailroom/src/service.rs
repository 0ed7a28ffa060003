//! Notifications to systemd (`sd_notify`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager.
pub struct Service {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Service {
    /// The service manager that the environment names, if any.
    pub fn of_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self::new(
            variable("NOTIFY_SOCKET").as_deref(),
            variable("WATCHDOG_USEC").as_deref(),
            variable("WATCHDOG_PID").as_deref(),
        )
    }

    fn new(socket: Option<&str>, watchdog: Option<&str>, of: Option<&str>) -> Self {
        let socket = socket.and_then(|name| {
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(name),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address.ok()?))
        });
        let is_for_us = of.is_none_or(|id| id == std::process::id().to_string());
        let micros = watchdog.and_then(|micros| micros.parse().ok());
        let watchdog = micros.filter(|&micros| micros > 0 && is_for_us && socket.is_some());
        Self {
            socket,
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    /// Sends a notification such as `READY=1`.
    pub fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.socket {
            // An error is ignored, because a service manager must not stop mail.
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }

    /// The interval of watchdog notifications: half the watchdog timeout.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told() {
        let path = std::env::temp_dir().join(format!("mailroom-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let manager = UnixDatagram::bind(&path).unwrap();
        let service = Service::new(path.to_str(), Some("3000000"), None);
        service.tell("READY=1");
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        let interval = Duration::from_millis(1_500);
        assert_eq!(service.watchdog_interval(), Some(interval));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn without_one_nothing_happens() {
        let service = Service::new(None, Some("3000000"), None);
        service.tell("READY=1");
        assert_eq!(service.watchdog_interval(), None);
        let others = Service::new(Some("@x"), Some("3000000"), Some("1"));
        assert_eq!(others.watchdog_interval(), None);
    }
}
