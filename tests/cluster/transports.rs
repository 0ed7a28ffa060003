//! The transports file of a cluster whose worker delivers through one transport, `main`.

use std::cell::RefCell;
use std::process::Command;

use super::Cluster;

/// The name of the file in the data directory.
pub const FILE: &str = "transports.toml";

/// The keys of `[transports.main]` and their values: words, numbers or lists, without quotes.
#[derive(Default)]
pub struct Transports {
    keys: RefCell<Vec<(String, String)>>,
}

impl Transports {
    /// Removes the settings that begin with `transport.` and returns them as keys, with the other settings and those
    /// that make the server read the file.
    pub fn take(settings: &[&str]) -> (Self, Vec<String>) {
        let transports = Self::default();
        let mut others = vec![
            format!("mailroom.transports_file = '{FILE}'"),
            "mailroom.transport = 'main'".to_owned(),
        ];
        for setting in settings {
            match setting.strip_prefix("transport.") {
                Some(line) => transports.put_lines(line),
                None => others.push((*setting).to_owned()),
            }
        }
        (transports, others)
    }

    /// Sets keys from lines `key = value`, replacing former values; a key that occurs twice gets both values.
    pub fn put_lines(&self, lines: &str) {
        let mut put: Vec<(&str, String)> = Vec::new();
        for line in lines.lines().filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once(" =").expect("key = value");
            let value = value.trim().trim_matches('\'').trim_matches('"');
            match put.iter_mut().find(|(known, _)| *known == key) {
                Some((_, first)) => *first = format!("{first}, {value}"),
                None => put.push((key, value.to_owned())),
            }
        }
        for (key, value) in put {
            self.put(key, &value);
        }
    }

    /// Sets a key, replacing its former value.
    pub fn put(&self, key: &str, value: &str) {
        self.remove(key);
        self.keys
            .borrow_mut()
            .push((key.to_owned(), value.to_owned()));
    }

    /// Removes a key.
    pub fn remove(&self, key: &str) {
        self.keys.borrow_mut().retain(|(known, _)| known != key);
    }

    /// Whether a key has a value.
    pub fn has(&self, key: &str) -> bool {
        self.keys.borrow().iter().any(|(known, _)| known == key)
    }

    /// The file, as TOML.
    pub fn render(&self) -> String {
        let mut file = "[transports.main]\n".to_owned();
        for (key, value) in self.keys.borrow().iter() {
            let line = match key.as_str() {
                "allowed_networks" if value.is_empty() => continue,
                "allowed_networks" => format!("{key} = {}", list(value)),
                "secret" if value.contains(", ") => format!("secrets = {}", list(value)),
                _ if value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() => {
                    format!("{key} = {value}")
                }
                _ => format!("{key} = {}", quoted(value)),
            };
            file.push_str(&line);
            file.push('\n');
        }
        file
    }

    /// Writes the file into the data directory, with the owner and the mode that the server requires.
    pub fn write(&self, cluster: &Cluster) {
        write_secret(cluster, FILE, &self.render());
    }
}

/// Writes a file into the data directory atomically, owned by the server's user, with mode 0600.
pub fn write_secret(cluster: &Cluster, name: &str, content: &str) {
    let mut shell = cluster.as_server_user(Command::new("sh"));
    let status = shell
        .current_dir(cluster.data())
        .args(["-euc", "umask 077; printf %s \"$0\" >new; mv new \"$1\""])
        .args([content, name])
        .status()
        .unwrap();
    assert!(status.success());
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn list(values: &str) -> String {
    let all: Vec<String> = values
        .split(", ")
        .filter(|value| !value.is_empty())
        .map(quoted)
        .collect();
    format!("[{}]", all.join(", "))
}
